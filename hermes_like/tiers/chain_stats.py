"""What happened in a chain of tiers: counters, and the stretches of time that were lost.

Not safe by itself: the owner holds its lock.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hermes_like.records import Tier as TierName

#: Most lost stretches kept apart; beyond it the oldest two become one.
MAX_LOST = 1024
#: How many of the last stretches a new one may continue.
NEAR = 8


@dataclass(frozen=True, slots=True)
class TierStats:
    """One tier at one moment.

    Attributes:
        used_bytes: Taken now, overhead included.
        cap_bytes: Most that may be taken.
        segments: How many it holds.
        hits: Reads that it served.
    """

    used_bytes: int
    cap_bytes: int
    segments: int
    hits: int


@dataclass(frozen=True, slots=True)
class ChainStats:
    """All tiers at one moment.

    Attributes:
        tiers: By name; ``source`` stands for the pictures.
        misses: Reads that failed, by reason.
        queue_bytes: Waiting to be written; they are part of what ``host`` has taken.
        queued: Writes that wait.
        reading: Reads under way.
        dropped_writes: Segments or pictures that were given up before they were written.
        failed_writes: Attempts that failed; most were repeated.
        state: ``ok``, ``full``, ``failed`` (writes are being repeated) or ``closed``.
        lost: Stretches of stream time as ``(start_s, end_s, reason)``: ``evicted``, the segments
            are nowhere any more; ``dropped``, their keys and values could not be written. Erased
            ones are not among them.
        thinned: Segments that were stored again without what stood still in them.
        thinned_bytes: What that saved.
        evicted: Segments that are nowhere any more because of a cap.
    """

    tiers: dict[TierName, TierStats]
    misses: dict[str, int]
    queue_bytes: int
    queued: int
    reading: int
    dropped_writes: int
    failed_writes: int
    state: str
    lost: tuple[tuple[float, float, str], ...]
    thinned: int = 0
    thinned_bytes: int = 0
    evicted: int = 0


class Tally:
    """Counters and lost stretches of one chain."""

    def __init__(self) -> None:
        self.hits: Counter[TierName] = Counter()
        self.misses: Counter[str] = Counter()
        self.dropped_writes = self.thinned = self.thinned_bytes = self.evicted = 0
        self.lost: list[tuple[float, float, str]] = []

    def lose(self, start_s: float, end_s: float, reason: str) -> None:
        """Note a lost stretch; one that continues a recent one of the same reason extends it."""
        for index in range(len(self.lost) - 1, max(-1, len(self.lost) - 1 - NEAR), -1):
            first_s, last_s, why = self.lost[index]
            if why == reason and start_s <= last_s and end_s >= first_s:
                self.lost[index] = (min(first_s, start_s), max(last_s, end_s), why)
                return
        self.lost.append((start_s, end_s, reason))
        if len(self.lost) > MAX_LOST:
            (first_s, _, why), (_, last_s, _) = self.lost[0], self.lost[1]
            self.lost[:2] = [(first_s, last_s, why)]
