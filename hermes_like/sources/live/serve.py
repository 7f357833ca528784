"""The process that reads: offers each picture, sends the pixels of those that are wanted.

Started by :class:`~hermes_like.sources.live.child.ChildConnection`. The request comes through
standard input, because everybody on a machine can read the arguments of a process; when standard
input ends, the parent has ended, and so does this.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from hermes_like.errors import SourceError
from hermes_like.sources.live.pictures import Counts, PictureReader

YES, NO = b"y", b"n"

#: Seconds between two signs of life.
_ALIVE_S = 0.2


class _Server:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._counts = Counts()
        self._next_alive_s = 0.0

    def serve(self, request: dict[str, Any]) -> None:
        """Read until the end, and say how it ended."""
        module_name, _, function_name = request["reader"].partition(":")
        try:
            reader: PictureReader = getattr(importlib.import_module(module_name), function_name)
            self._send("ready")
            for arrival in reader(request, self._counts, self._is_alive):
                self._send("offer", media_s=arrival.media_s, age_s=arrival.age_s)
                if self._pipe.recv_bytes() == YES:
                    self._send_image(arrival.to_image())
            self._send("end")
        except SourceError as error:
            self._send("error", text=str(error))

    def _is_alive(self) -> None:
        if time.monotonic() >= self._next_alive_s:
            self._send("alive")
            self._next_alive_s = time.monotonic() + _ALIVE_S

    def _send_image(self, image: np.ndarray | None) -> None:
        if image is None:
            self._send("unconverted")
            return
        self._send("image", shape=image.shape)
        self._pipe.send_bytes(np.ascontiguousarray(image).reshape(-1).data)

    def _send(self, kind: str, **fields: Any) -> None:
        counts = [self._counts.num_damaged, self._counts.num_decode_errors]
        self._pipe.send_bytes(json.dumps({"kind": kind, "counts": counts, **fields}).encode())


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main() -> None:
    """Serve one request; the only argument is the descriptor of the pipe."""
    pipe = Connection(int(sys.argv[1]))
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _Server(pipe).serve(request)
    except (EOFError, ConnectionError):
        pass
    finally:
        sys.stdout.flush()
        # Native threads and the one that waits for the parent would hold up a normal exit.
        os._exit(0)


if __name__ == "__main__":
    main()
