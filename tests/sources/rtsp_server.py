"""A small RTSP camera: one stream, RTP inside the RTSP connection, digest authentication.

It sends an MPEG transport stream as RTP payload type 33, which needs no codec-specific packing.
"""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading

_SDP = (
    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=yard\r\nt=0 0\r\n"
    "m=video 0 RTP/AVP 33\r\na=rtpmap:33 MP2T/90000\r\na=control:track1\r\n"
)
_NONCE = "5d41402abc4b2a76"
_CHUNK = 188 * 7


class RtspCamera:
    """Answers OPTIONS, DESCRIBE, SETUP and PLAY, then plays.

    Args:
        stream: The transport stream.
        seconds: How long playing it takes.
        credentials: ``(user, password)`` that must come as a digest; None: nobody is asked.
    """

    def __init__(
        self, stream: bytes, seconds: float, credentials: tuple[str, str] | None = None
    ) -> None:
        self.stream, self.seconds, self.credentials = stream, seconds, credentials
        self.requests: list[str] = []

    def serve(self, connection: socket.socket, stopped: threading.Event) -> None:
        """Serve one client."""
        connection.settimeout(5.0)
        while not stopped.is_set():
            request = self._receive(connection)
            if request is None:
                return
            self.requests.append(request)
            method = request.split(" ", 1)[0]
            connection.sendall(self._answer(method, request))
            if method == "PLAY" and self._is_allowed(request):
                self._play(connection, stopped)
                return

    def _receive(self, connection: socket.socket) -> str | None:
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            try:
                part = connection.recv(4096)
            except TimeoutError:
                return None
            if not part:
                return None
            data += part
        return data.decode()

    def _answer(self, method: str, request: str) -> bytes:
        number = re.search(r"CSeq: (\d+)", request)
        assert number is not None
        lines, body = [f"CSeq: {number[1]}"], ""
        status = "200 OK"
        if method == "OPTIONS":
            lines.append("Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN")
        elif not self._is_allowed(request):
            status = "401 Unauthorized"
            lines.append(f'WWW-Authenticate: Digest realm="cam", nonce="{_NONCE}"')
        elif method == "DESCRIBE":
            body = _SDP
            lines += ["Content-Type: application/sdp", f"Content-Length: {len(body)}"]
        elif method == "SETUP":
            lines += ["Session: 12345", "Transport: RTP/AVP/TCP;unicast;interleaved=0-1"]
        elif method == "PLAY":
            lines.append("Session: 12345")
        return ("\r\n".join([f"RTSP/1.0 {status}", *lines]) + "\r\n\r\n" + body).encode()

    def _is_allowed(self, request: str) -> bool:
        if self.credentials is None:
            return True
        given = dict(re.findall(r'(\w+)="([^"]*)"', request))
        user, password = self.credentials
        secret = _md5(f"{user}:cam:{password}")
        method = request.split(" ", 1)[0]
        request_hash = _md5(f"{method}:{given.get('uri', '')}")
        wanted = _md5(f"{secret}:{_NONCE}:{request_hash}")
        return given.get("username") == user and given.get("response") == wanted

    def _play(self, connection: socket.socket, stopped: threading.Event) -> None:
        pause_s = self.seconds * _CHUNK / len(self.stream)
        for number, start in enumerate(range(0, len(self.stream), _CHUNK)):
            if stopped.wait(pause_s):
                return
            ticks = int(90_000 * number * pause_s)
            head = struct.pack(">BBHII", 0x80, 33, number & 0xFFFF, ticks, 0x1234)
            packet = head + self.stream[start : start + _CHUNK]
            connection.sendall(struct.pack(">BBH", 0x24, 0, len(packet)) + packet)


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
