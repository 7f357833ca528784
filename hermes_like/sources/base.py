"""The seam for pixels: a source yields frames in time order and can be closed from either side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from hermes_like.records import Frame

#: Tells from the presentation time in seconds whether a frame is worth converting to pixels.
Wanted = Callable[[float], bool]


class FrameSource(ABC):
    """An iterator of :class:`Frame` and a context manager.

    Contract, held by one test for all implementations:

    * images are ``[H, W, 3]`` uint8 RGB, upright (rotation applied), ``pts_s`` never decreases
      and starts at or after 0;
    * iteration ends by stopping; a failure raises :class:`~hermes_like.errors.SourceError` with the
      name of the source and the cause, and everything readable before it has been delivered;
    * ``close()`` may be called from another thread, any number of times, and unblocks a reader
      within one second (a live source: two); iterating a closed source stops at once;
    * frames that arrived and were not delivered are counted, never silent.
    """

    #: What the user named: a path, an address without credentials, a scenario.
    name: str
    #: Whether frames come when they come: such a source has health, reconnects, and never ends by
    #: itself because of a failure.
    is_live: bool = False

    @abstractmethod
    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames in time order. A source is read once."""

    def select(self, wanted: Wanted) -> Iterator[Frame]:
        """Yield the frames whose time is wanted.

        A reader may override this in order to leave the others unconverted; ``wanted`` is called
        exactly once per frame, in order, with ``pts_s``.
        """
        return (frame for frame in self if wanted(frame.pts_s))

    @abstractmethod
    def close(self) -> None:
        """Release everything; safe to call twice and from another thread."""

    @property
    def duration_s(self) -> float | None:
        """Length in seconds if the source declares one: a hint for progress bars, nothing more."""
        return None

    @property
    def num_dropped(self) -> int:
        """Frames that arrived and could not be delivered (damaged, or building on damaged ones)."""
        return 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Plain sentences about what could not be read (damaged packets, an early end), so far."""
        return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
