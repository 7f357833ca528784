"""What all our sources share: one owner of the native handles, wall times, warnings.

Two threads in one decoder end the process without an exception, so every step of a reader runs
under one lock, and whoever closes a source only sets a flag unless nobody is inside. This module
knows no decoder.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Generator, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from hermes_like.errors import SessionStateError
from hermes_like.records import Frame, Image
from hermes_like.sources.base import FrameSource, Wanted

if TYPE_CHECKING:
    from hermes_like.config import SourceConfig

#: How long ``close`` waits for a native call that is still running in another thread.
CLOSE_WAIT_S = 0.4


def every_frame(pts_s: float) -> bool:
    """The selection that wants everything."""
    return True


class OwnedSource(FrameSource):
    """A source whose handles are touched by one thread at a time.

    An implementation opens in its constructor (so that errors come early), yields from
    :meth:`_read` and lets go in :meth:`_release`.

    Args:
        name: What the user named.
        config: ``start_time`` gives every frame its wall time.
    """

    def __init__(self, name: str, config: SourceConfig) -> None:
        self.name = name
        self.config = config
        self._num_dropped = 0
        self._warnings: list[str] = []
        self._native = threading.Lock()
        self._closed = threading.Event()
        self._claim = threading.Lock()

    @abstractmethod
    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        """Yield the wanted frames; runs under the lock, one step at a time."""

    def _release(self) -> None:
        """Let go of native handles; called under the lock, maybe more than once."""

    def __iter__(self) -> Iterator[Frame]:
        return self.select(every_frame)

    def select(self, wanted: Wanted) -> Iterator[Frame]:
        """Yield the frames whose time is wanted; see :meth:`FrameSource.select`.

        Raises:
            SessionStateError: The source was iterated before.
        """
        if not self._claim.acquire(blocking=False):
            raise SessionStateError(f"{self.name}: a source is read once; open it again")
        return self._steps(self._read(wanted))

    def _steps(self, frames: Generator[Frame, None, None]) -> Iterator[Frame]:
        while True:
            with self._native:
                frame = self._step(frames)
            if frame is None:
                return
            yield frame

    def _step(self, frames: Generator[Frame, None, None]) -> Frame | None:
        """Advance the reader once; None, and handles released, at the end or if closed."""
        frame = None
        try:
            if not self._closed.is_set():
                frame = next(frames, None)
            if self._closed.is_set():
                frame = None
        finally:
            if frame is None:
                frames.close()
                self._closed.set()
                self._release()
        return frame

    def close(self) -> None:
        """Stop the reader and release its handles, at the latest when its native call returns."""
        self._closed.set()
        if self._native.acquire(timeout=CLOSE_WAIT_S):
            try:
                self._release()
            finally:
                self._native.release()

    @property
    def num_dropped(self) -> int:
        """Frames that arrived and could not be delivered."""
        return self._num_dropped

    @property
    def warnings(self) -> tuple[str, ...]:
        """Plain sentences about what could not be read, so far."""
        return tuple(self._warnings)

    def warn(self, sentence: str) -> None:
        self._warnings.append(f"{self.name}: {sentence}")

    def _frame(self, image: Image, index: int, pts_s: float) -> Frame:
        """Put a frame together. ``image``: ``[H, W, 3]`` uint8 RGB."""
        start = self.config.start_time
        wall_time = None if start is None else start + timedelta(seconds=pts_s)
        return Frame(image=image, index=index, pts_s=pts_s, wall_time=wall_time)
