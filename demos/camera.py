"""A camera to try things with: scripted sprites as multipart JPEG over HTTP, on this machine only.

    python -m demos.camera                     http://127.0.0.1:8094/video
    python -m demos.camera --port 8095 --seed 2

The same film runs in a circle for everybody who connects.
"""

from __future__ import annotations

import argparse
import io
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image

from hermes_like.sprites.source import picture_of
from hermes_like.sprites.stories import draw_story
from hermes_like.sprites.world import Story

PORT = 8094
BOUNDARY = "hermes-like-frame"


class CameraServer(ThreadingHTTPServer):
    """Serves a film to any number of viewers at ``/video``.

    Args:
        port: 0: a free one.
        story: What is shown, one frame per second.
        seed: Of the pictures.
        fps: Pictures sent per second; each shows the frame of its time.
    """

    daemon_threads = True

    def __init__(self, port: int, story: Story, seed: int = 0, fps: float = 4.0) -> None:
        self.story, self.seed, self.fps = story, seed, fps
        self.stopped = threading.Event()
        self._started_s = time.monotonic()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def address(self) -> str:
        """Where it is watched."""
        return f"http://127.0.0.1:{self.server_address[1]}/video"

    def picture(self) -> bytes:
        """The picture of this moment as JPEG."""
        index = int(time.monotonic() - self._started_s) % self.story.num_frames
        buffer = io.BytesIO()
        # A seed of its own for every picture: real cameras show noise, and no two frames are equal.
        moment = self.seed + int((time.monotonic() - self._started_s) * self.fps)
        Image.fromarray(picture_of(self.story, index, moment)).save(buffer, "JPEG", quality=92)
        return buffer.getvalue()

    def shutdown(self) -> None:
        """Hang up on everybody."""
        self.stopped.set()
        super().shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A viewer that leaves is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: CameraServer

    def do_GET(self) -> None:
        if self.path != "/video":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={BOUNDARY}")
        self.end_headers()
        while not self.server.stopped.wait(1 / self.server.fps):
            data = self.server.picture()
            head = (
                f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
            )
            self.wfile.write(head.encode() + data + b"\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing about requests."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--frames", type=int, default=600, help="length of the film in seconds")
    options = parser.parse_args(arguments)
    story = draw_story(np.random.default_rng(options.seed), options.frames, min_event_frames=4)
    with CameraServer(options.port, story, options.seed) as server:
        print(f"a camera at {server.address}, Ctrl-C ends it", flush=True)
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            server.stopped.set()
    return 0


if __name__ == "__main__":
    sys.exit(main())
