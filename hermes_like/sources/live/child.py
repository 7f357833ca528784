"""A connection whose reader is a process of its own, which can be ended whatever it does.

Calls into FFmpeg and OpenCV may wait for ever, and take the process with them when they crash. The
process is started by name and not by forking, so scripts need no guard and threads no care.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection as Pipe
from typing import Any, cast

import numpy as np

from hermes_like.errors import SourceError, SourceStalledError
from hermes_like.records import Image
from hermes_like.sources.live.connection import Arrival, Connection
from hermes_like.sources.live.serve import NO, YES

logger = logging.getLogger(__name__)

#: Time for the process to start and import, before the limits of the connection begin.
START_S = 60.0

#: Longest time with packets and without a picture: cameras exist with a key frame every 20 s.
PICTURELESS_S = 60.0

_END_S = 1.0


class ChildConnection(Connection):
    """What a reader of pictures reads in a process of its own.

    Args:
        request: What to read, of JSON values: ``reader`` (``"module:function"``, see
            :data:`~hermes_like.sources.live.pictures.PictureReader`), ``name``, and what the reader
            wants. Credentials travel through a pipe only.
        open_s: Longest time until it is open, in seconds; None: as long as it takes (listening).
        silence_s: Longest time without a sign of life after that, in seconds.
        scrub: Takes from a message what must not be shown.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        open_s: float | None,
        silence_s: float,
        scrub: Callable[[str], str] = str,
    ) -> None:
        self._request = request
        self._name: str = request["name"]
        self._open_s, self._silence_s = open_s, silence_s
        self._scrub = scrub
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._pipe: Pipe | None = None

    def close(self) -> None:
        """End the process, which also ends a wait for it."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()

    def arrivals(self) -> Iterator[Arrival]:
        """Start the process and yield what it offers."""
        try:
            ours, theirs = multiprocessing.Pipe()
        except OSError as error:
            raise self._no_process(error) from error
        try:
            with theirs:
                is_started = self._start(theirs)
            if is_started:
                yield from self._offers(ours)
        finally:
            self.close()
            ours.close()
            self._reap()

    def _start(self, pipe: Any) -> bool:
        """Start the process, unless this was closed; whether it was started."""
        with self._lock:
            if self._is_closed:
                return False
            try:
                self._process = process = _spawn(pipe.fileno())
            except OSError as error:  # no memory or handles now; perhaps later
                raise self._no_process(error) from error
        assert process.stdin is not None
        # If it has ended already, that shows when its messages are waited for.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(dict(self._request)).encode() + b"\n")
            process.stdin.flush()
        return True

    def _no_process(self, error: OSError) -> SourceError:
        return SourceError(f"{self._name}: no process can be started: {error.strerror or error}")

    def _reap(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            logger.warning("%s: the reading process does not end; a device hangs", self._name)

    def _offers(self, pipe: Pipe) -> Iterator[Arrival]:
        self._pipe = pipe
        self._receive(START_S)
        message = self._receive(self._open_s)
        last_picture_s = time.monotonic()
        while True:
            if message["kind"] == "end":
                return
            now_s = time.monotonic()
            if message["kind"] == "alive":
                if now_s - last_picture_s > max(PICTURELESS_S, self._silence_s):
                    raise SourceStalledError(f"{self._name}: data comes, and no picture in it")
            else:
                offer = _Offer(self)
                yield Arrival(message["media_s"], offer.to_image, message["age_s"])
                last_picture_s = time.monotonic()
                offer.decline()
            message = self._receive(self._silence_s)

    def _receive(self, limit_s: float | None) -> dict[str, Any]:
        """Wait for the next message.

        Raises:
            SourceStalledError: Nothing came in time.
            SourceError: The process reported an error or died.
        """
        pipe = self._pipe
        assert pipe is not None
        try:
            if not pipe.poll(limit_s):
                raise SourceStalledError(f"{self._name}: no answer for {limit_s:g} s")
            message = cast("dict[str, Any]", json.loads(pipe.recv_bytes()))
        except (EOFError, ConnectionError) as error:
            if self._is_closed:
                return {"kind": "end"}
            self.close()
            self._reap()
            code = None if self._process is None else self._process.returncode
            raise SourceError(f"{self._name}: the reading process died ({code})") from error
        self.num_damaged, self.num_decode_errors = message["counts"]
        if message["kind"] == "error":
            raise SourceError(self._scrub(message["text"]))
        return message

    def _fetch(self) -> Image | None:
        """Ask for the pixels of the picture on offer, ``[H, W, 3]`` uint8 RGB."""
        pipe = self._pipe
        assert pipe is not None
        try:
            pipe.send_bytes(YES)
            message = self._receive(self._silence_s)
            if message["kind"] != "image":
                return None
            image = np.empty(message["shape"], dtype=np.uint8)
            pipe.recv_bytes_into(image.reshape(-1))
        except (EOFError, ConnectionError) as error:
            raise SourceError(f"{self._name}: the reading process died") from error
        return image

    def _decline(self) -> None:
        assert self._pipe is not None
        # If the process has ended, that shows when its next message is waited for.
        with contextlib.suppress(ConnectionError):
            self._pipe.send_bytes(NO)


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    """Start the process, with one end of the pipe under this descriptor."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-m", "hermes_like.sources.live.serve", str(descriptor)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        start_new_session=True,  # an interrupt at the terminal is for the parent
        env={**os.environ, "PYTHONPATH": paths},
    )


class _Offer:
    """One picture on offer; it is answered exactly once."""

    def __init__(self, connection: ChildConnection) -> None:
        self._connection = connection
        self._is_answered = False

    def to_image(self) -> Image | None:
        """Take it."""
        self._is_answered = True
        return self._connection._fetch()

    def decline(self) -> None:
        """Leave it, unless it was taken."""
        if not self._is_answered:
            self._connection._decline()
