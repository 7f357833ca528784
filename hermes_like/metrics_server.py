"""``/metrics`` over HTTP from a thread of its own: loopback, or a token; nothing left when closed.

Knows what to send only as a function of the ``Accept`` header.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from types import TracebackType
from typing import Any, Self

from hermes_like.errors import ConfigError

logger = logging.getLogger(__name__)

#: Requests served at a time, seconds a client may be silent, and seconds a request may take.
MAX_CONNECTIONS, SILENCE_S, REQUEST_S = 8, 5.0, 15.0


class MetricsServer:
    """``/metrics`` over HTTP; made by :meth:`hermes_like.metrics.Metrics.serve`.

    Attributes:
        host: The address it listens on.
        port: The port it listens on.
    """

    def __init__(
        self, render: Callable[[str], tuple[bytes, str]], host: str, port: int, token: str | None
    ) -> None:
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise ConfigError(
                f"metrics: expected a token of printable ASCII without spaces, "
                f"got one of {len(token)} characters"
            )
        if not 0 <= port <= 65535:
            raise ConfigError(f"metrics: expected a port of 0 to 65535, got {port}")
        try:
            found = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = found[0]
        except OSError as error:
            raise ConfigError(f"metrics: cannot listen on {host} port {port}: {error}") from error
        number = ipaddress.ip_address(str(address[0]).partition("%")[0])
        if token is None and not number.is_loopback:
            raise ConfigError(
                f"metrics: expected a token, since {host or 'any address'} can be reached from "
                "other machines, got none; or listen on 127.0.0.1"
            )
        try:
            self._http = _HttpServer(family, address, render, token)
        except OSError as error:
            raise ConfigError(f"metrics: cannot listen on {host} port {port}: {error}") from error
        self.host, self.port = str(address[0]), int(self._http.server_address[1])
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.1,), name="hermes-like-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening, end open connections and all threads. Safe to call twice.

        Not while holding a lock that the readings take: a request may be under way.
        """
        if self._thread.is_alive():
            self._http.shutdown()
            self._http.end_connections()
            self._http.server_close()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _HttpServer(ThreadingMixIn, TCPServer):
    """A thread per request, a bounded number of them, all joined when it is closed."""

    allow_reuse_address = True

    def __init__(
        self,
        family: int,
        address: Any,
        render: Callable[[str], tuple[bytes, str]],
        token: str | None,
    ) -> None:
        self.address_family = family
        self.render, self.token = render, token
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            is_full = len(self._open) >= MAX_CONNECTIONS
            if not is_full:
                self._open[request] = time.monotonic()
        if is_full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self.end_connections(REQUEST_S)

    def end_connections(self, older_than_s: float = 0.0) -> None:
        """Wake the threads that wait for a client."""
        until = time.monotonic() - older_than_s
        with self._lock:
            for connection, since in self._open.items():
                if since <= until:
                    with suppress(OSError):  # the client was quicker
                        connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("metrics: a request was cut short", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer
    server_version, sys_version = "hermes-like", ""
    timeout = SILENCE_S

    def do_GET(self) -> None:
        if not self._is_allowed():
            self._send(401, b"expected a bearer token\n", {"WWW-Authenticate": "Bearer"})
        elif self.path.partition("?")[0] != "/metrics":
            self._send(404, b"expected /metrics\n")
        else:
            body, content_type = self.server.render(self.headers.get("Accept", ""))
            self._send(200, body, {"Content-Type": content_type})

    def _is_allowed(self) -> bool:
        if self.server.token is None:
            return True
        scheme, _, given = self.headers.get("Authorization", "").strip().partition(" ")
        is_same = hmac.compare_digest(given.strip().encode(), self.server.token.encode())
        return is_same and scheme.lower() == "bearer"

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        fields = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**fields, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not logged: a scraper comes every few seconds, and requests may hold secrets."""
