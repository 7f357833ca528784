"""Loopback cameras: multipart JPEG over HTTP, MPEG-TS over TCP and UDP, RTSP pushed to a listener.

Each picture is a barcode of its number. Each server can misbehave on purpose.
"""

from __future__ import annotations

import base64
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.sources.clip_factory import barcode

WIDTH, HEIGHT = 160, 120
BOUNDARY = b"frame-boundary"


def jpeg(number: int) -> bytes:
    """A barcode picture as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(barcode(number, WIDTH, HEIGHT)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def damaged_jpeg(number: int) -> bytes:
    """The header of a JPEG with noise behind it."""
    good = jpeg(number)
    noise = np.random.default_rng(number).integers(0, 256, len(good) // 2, dtype=np.uint8)
    return good[:20] + noise.tobytes()


class Camera:
    """A multipart JPEG camera.

    Args:
        fps: Pictures per second.
        close_after: The server hangs up after this many pictures of a connection.
        silent_after: It stops sending after as many, and stays connected.
        frozen_from: From this number of the camera on, all show the same.
        frozen_to: Up to this one.
        damaged: Numbers that are sent damaged.
        credentials: ``user:password`` that must come, raw.
        content_type: What it says it sends.
    """

    def __init__(
        self,
        *,
        fps: float = 50.0,
        close_after: int | None = None,
        silent_after: int | None = None,
        frozen_from: int | None = None,
        frozen_to: int = 1 << 30,
        damaged: frozenset[int] = frozenset(),
        credentials: str | None = None,
        content_type: str = f"multipart/x-mixed-replace; boundary={BOUNDARY.decode()}",
    ) -> None:
        self.fps = fps
        self.close_after, self.silent_after = close_after, silent_after
        self.frozen_from, self.frozen_to = frozen_from, frozen_to
        self.damaged, self.credentials = damaged, credentials
        self.content_type = content_type
        self.number = 0
        self.num_connections = 0
        self.seen_credentials: list[str] = []
        self.seen_paths: list[str] = []
        self.stopped = threading.Event()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Listen; after a stop on the same port again."""
        self.stopped.clear()
        camera = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                camera._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = False
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()

    def stop(self) -> None:
        """Hang up on everybody and listen no more."""
        if self._server is not None:
            self.stopped.set()
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Camera:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def address(self, credentials: str = "", path: str = "/video") -> str:
        """The address, with ``user:password@`` as it is to be written."""
        return f"http://{credentials}127.0.0.1:{self._port}{path}"

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        self.seen_paths.append(request.path)
        if not self._is_allowed(request):
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="camera"')
            request.end_headers()
            return
        self.num_connections += 1
        request.send_response(200)
        request.send_header("Content-Type", self.content_type)
        request.end_headers()
        try:
            self._send_pictures(request)
        except (BrokenPipeError, ConnectionResetError):
            return

    def _is_allowed(self, request: BaseHTTPRequestHandler) -> bool:
        if self.credentials is None:
            return True
        kind, _, encoded = request.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            self.seen_credentials.append(base64.b64decode(encoded).decode())
        return self.credentials in self.seen_credentials[-1:]

    def _send_pictures(self, request: BaseHTTPRequestHandler) -> None:
        num_sent = 0
        while not self.stopped.wait(1 / self.fps):
            if num_sent == self.close_after:
                return
            if num_sent == self.silent_after:
                self.stopped.wait()
                return
            request.wfile.write(self._part(self.number))
            self.number += 1
            num_sent += 1

    def _part(self, number: int) -> bytes:
        shown = number
        if self.frozen_from is not None and self.frozen_from <= number < self.frozen_to:
            shown = self.frozen_from
        data = damaged_jpeg(shown) if number in self.damaged else jpeg(shown)
        head = b"--%s\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n"
        return head % (BOUNDARY, len(data)) + data + b"\r\n"


@contextmanager
def tcp_server(serve: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Serve connections one after the other with ``serve``; yields the port."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def accept() -> None:
            while not stopped.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    try:
                        serve(connection, stopped)
                    except (BrokenPipeError, ConnectionResetError):
                        continue

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stopped.set()
            thread.join()


def say_nothing(connection: socket.socket, stopped: threading.Event) -> None:
    """Accept, and never answer."""
    stopped.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def send_paced(
    data: bytes, send: Callable[[bytes], object], stopped: threading.Event, seconds: float
) -> None:
    """Send a transport stream in whole packets, evenly over some time."""
    chunk = 188 * 7
    pause_s = seconds * chunk / len(data)
    for start in range(0, len(data), chunk):
        if stopped.wait(pause_s):
            return
        send(data[start : start + chunk])


def push_rtsp(port: int, num_frames: int, *, fps: int = 25, paced: bool = True) -> None:
    """Push barcode frames to a listener, which may not be there yet."""
    import av

    options = {"rtsp_transport": "tcp"}
    address = f"rtsp://127.0.0.1:{port}/live"
    for _ in range(100):
        try:
            container = av.open(address, "w", format="rtsp", options=options)
            stream = container.add_stream("libx264", rate=fps, options={"tune": "zerolatency"})
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            stream.codec_context.thread_count = 1
            container.start_encoding()
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise AssertionError("nobody listened")
    for number in range(num_frames):
        frame = av.VideoFrame.from_ndarray(barcode(number, WIDTH, HEIGHT), format="rgb24")
        frame.pts, frame.time_base = number, Fraction(1, fps)
        container.mux(stream.encode(frame))
        if paced:
            time.sleep(1 / fps)
    container.mux(stream.encode(None))
    container.close()


def playlist(folder: Path, names: list[str], *, first: int = 0, is_over: bool = False) -> None:
    """Write an HLS playlist of one-second segments."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:3", "#EXT-X-TARGETDURATION:1"]
    lines.append(f"#EXT-X-MEDIA-SEQUENCE:{first}")
    for name in names:
        lines += ["#EXTINF:1.0,", name]
    if is_over:
        lines.append("#EXT-X-ENDLIST")
    (folder / "live.m3u8").write_text("\n".join(lines) + "\n")
