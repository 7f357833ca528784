"""The small seam below a live source: one connection, its pictures, and how it is ended.

A connection is made once and lives until it fails, ends or is closed; whether there is another
after it is not its business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hermes_like.records import Image


@dataclass(frozen=True, slots=True)
class Arrival:
    """A picture that has come, still unconverted.

    Attributes:
        media_s: Its time on the clock of the sender, in seconds from anywhere; None: it has none.
        to_image: Gives ``[H, W, 3]`` uint8 RGB, or None where the picture cannot be converted. To
            be called before the next arrival is asked for, at most once.
        age_s: How long ago it was taken, in seconds, where the connection knows.
    """

    media_s: float | None
    to_image: Callable[[], Image | None]
    age_s: float = 0.0


class Connection(ABC):
    """One connection to a live source.

    Contract: constructing is quick and touches nothing. ``arrivals`` runs in one thread, opens,
    yields, releases everything when it ends or is closed as a generator, raises
    :class:`~hermes_like.errors.SourceError` when it cannot connect in time, when the connection
    breaks, and when nothing comes for too long; it returns when the other side ends. ``close`` may
    come from any thread at any moment, also before ``arrivals``, which then ends within a second.

    Attributes:
        num_damaged: Pictures lost or held back because of damage, so far.
        num_decode_errors: Packets that could not be decoded, so far.
    """

    num_damaged: int = 0
    num_decode_errors: int = 0

    @abstractmethod
    def arrivals(self) -> Iterator[Arrival]:
        """Open, and yield what comes."""

    @abstractmethod
    def close(self) -> None:
        """End ``arrivals``, whatever it waits for."""


#: Makes the next connection.
Connect = Callable[[], Connection]
