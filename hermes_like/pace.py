"""How long the parts of an answer take here, told from those that came before.

A question with a deadline asks it how many frames there is time for. Costs rise at once and fall
slowly: a deadline is missed by the slow cases, not by the mean. The module knows seconds and
tiers; it knows neither questions nor how frames are read.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

from hermes_like.records import Tier

#: Everything is taken to last this much longer than it did.
MARGIN = 1.25
#: Share of the way that a cost falls towards a lower one.
FALL = 0.25


class Pace:
    """Running costs of the questions of one session. Calls may come from several threads.

    Until something was measured, a question costs what its search would if that ran it through all
    layers, and a frame costs as much as a question.

    Args:
        search_share: Share of the decoder's layers through which a search runs the question.
    """

    def __init__(self, search_share: float = 1.0) -> None:
        self._search_share = search_share
        self._lock = threading.Lock()
        self._search_s = 0.0
        self._prefill_s = 0.0
        self._frame_s: dict[Tier, float] = {}

    @property
    def search_s(self) -> float:
        """Seconds of looking for frames; 0: never measured."""
        return self._search_s

    @property
    def prefill_s(self) -> float:
        """Seconds of the question's own pass behind all that was brought back."""
        return self._prefill_s or self._search_s / self._search_share

    def frame_s(self, tier: Tier) -> float:
        """Seconds of bringing one frame back: reading, decoding, merging."""
        if tier in self._frame_s:
            return self._frame_s[tier]
        return max([self.prefill_s, *self._frame_s.values()])

    def note_search(self, seconds: float) -> None:
        """A search took so long."""
        with self._lock:
            self._search_s = _moved(self._search_s, seconds)

    def note_prefill(self, seconds: float) -> None:
        """A question's own pass took so long."""
        with self._lock:
            self._prefill_s = _moved(self._prefill_s, seconds)

    def note_frames(self, tiers: Iterable[Tier], seconds: float) -> None:
        """Bringing frames back took so long.

        Args:
            tiers: Where each of them came from; of several tiers, each bears the share that it was
                expected to take.
            seconds: All together.
        """
        counts = Counter(tiers)
        if not counts:
            return
        with self._lock:
            known = {tier: self._frame_s.get(tier) for tier in counts}
            guess = {tier: cost if cost else 1.0 for tier, cost in known.items()}
            if len(counts) > 1 and not all(known.values()):
                guess = dict.fromkeys(counts, 1.0)
            expected_s = sum(guess[tier] * count for tier, count in counts.items())
            for tier, cost in guess.items():
                before_s = self._frame_s.get(tier, 0.0)
                self._frame_s[tier] = _moved(before_s, cost * seconds / expected_s)

    def ease(self) -> None:
        """Nothing could be measured because everything seemed too slow: believe it a little less.

        Else one slow moment would keep questions in a hurry from the past for ever.
        """
        with self._lock:
            self._search_s *= 1 - FALL
            self._frame_s = {tier: cost * (1 - FALL) for tier, cost in self._frame_s.items()}

    def has_time_to_search(self, left_s: float) -> bool:
        """Whether a search and the question itself still fit."""
        return left_s > MARGIN * (self.search_s + self.prefill_s)

    def count_fitting(self, tiers: Sequence[Tier], left_s: float) -> int:
        """How many of some frames fit, the question itself included.

        Args:
            tiers: Where the frames lie, the most wanted first.
            left_s: Seconds until the first text should come.
        """
        used_s = self.prefill_s
        for count, tier in enumerate(tiers):
            used_s += self.frame_s(tier)
            if MARGIN * used_s > left_s:
                return count
        return len(tiers)


def _moved(before_s: float, now_s: float) -> float:
    return now_s if now_s >= before_s else before_s + FALL * (now_s - before_s)
