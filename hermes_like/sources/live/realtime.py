"""A file played at the speed of life, for trying out what was made for cameras."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError
from hermes_like.sources.clock import StreamClock
from hermes_like.sources.diagnose import check_file
from hermes_like.sources.live.clock import Clock
from hermes_like.sources.live.connection import Arrival, Connection
from hermes_like.sources.live.pictures import Counts
from hermes_like.sources.live.source import LiveSource

_LOOPS = ("?loop", "?loop=1")


class RealtimeConnection(Connection):
    """Pictures of a file, each when it is due.

    Args:
        path: The file.
        is_looped: Whether it begins again at its end.
        clock: Tells when a picture is due.
    """

    def __init__(self, path: Path, is_looped: bool, clock: Clock) -> None:
        self._path, self._is_looped, self._clock = path, is_looped, clock
        self._closed = threading.Event()
        self._counts = Counts()

    def arrivals(self) -> Iterator[Arrival]:
        """Play the file."""
        start_s = self._clock.monotonic()
        begin_s = 0.0
        while not self._closed.is_set():
            times = StreamClock(None)
            for arrival in self._pictures():
                media_s = begin_s + times.tell(arrival.media_s)
                wait_s = start_s + media_s - self._clock.monotonic()
                if self._closed.is_set() or (wait_s > 0 and self._clock.wait(self._closed, wait_s)):
                    return
                yield Arrival(media_s, arrival.to_image)
            if times.last_s is None:
                raise SourceError(f"{self._path}: not one picture could be decoded")
            if not self._is_looped:
                return
            begin_s += times.last_s + times.frame_s

    def close(self) -> None:
        """End the wait for the next picture."""
        self._closed.set()

    def _pictures(self) -> Iterator[Arrival]:
        from hermes_like.sources.live.pyav_pictures import read_stream

        request = {"url": f"file:{self._path}", "name": str(self._path)}
        before = self.num_damaged, self.num_decode_errors
        for arrival in read_stream(request, self._counts, lambda: None):
            self.num_damaged = before[0] + self._counts.num_damaged
            self.num_decode_errors = before[1] + self._counts.num_decode_errors
            yield arrival


def open_realtime(reference: str, config: SourceConfig, clock: Clock | None = None) -> LiveSource:
    """Open ``realtime:clip.mp4``, with ``?loop`` at the end for ever.

    Raises:
        SourceOpenError: There is no such file.
    """
    text = reference.partition(":")[2]
    loop = next((ending for ending in _LOOPS if text.endswith(ending)), "")
    path = Path(text.removesuffix(loop))
    check_file(path)
    own_clock = clock or Clock()
    return LiveSource(
        reference,
        config,
        connect=lambda: RealtimeConnection(path, bool(loop), own_clock),
        clock=own_clock,
        is_lasting=False,
    )
