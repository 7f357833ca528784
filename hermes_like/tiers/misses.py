"""What could not be served, counted by reason, with the stretches of time that were lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Content = Literal["kv", "keyframes"]


@dataclass(frozen=True, slots=True)
class Loss:
    """One segment whose bytes cannot be trusted.

    Attributes:
        content: What was lost of it.
        segment_id: Which one; None where nothing tells.
        reason: ``checksum`` or ``fingerprint``.
        start_s: Stream time of its first frame; None where nothing tells.
        end_s: Stream time of its end; None where nothing tells.
    """

    content: Content
    segment_id: int | None
    reason: str
    start_s: float | None
    end_s: float | None


class Misses:
    """Counts of failed look-ups and the segments that are lost.

    Attributes:
        counts: Reason to number of times; ``absent``, ``checksum``, ``fingerprint``, ``io_error``.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lost: dict[tuple[Content, int], Loss] = {}
        self._unknown: list[Loss] = []

    @property
    def lost(self) -> Sequence[Loss]:
        """Segments that are damaged and were not stored again, by time where it is known."""
        known = sorted(self._lost.values(), key=lambda loss: loss.start_s or 0.0)
        return [*known, *self._unknown]

    def lose(self, loss: Loss) -> None:
        """Count a loss."""
        self.counts[loss.reason] += 1
        if loss.segment_id is None:
            self._unknown.append(loss)
        else:
            self._lost[loss.content, loss.segment_id] = loss

    def recovered(self, content: Content, segment_id: int) -> None:
        """A segment was stored again, erased or evicted: it is no longer listed."""
        self._lost.pop((content, segment_id), None)
