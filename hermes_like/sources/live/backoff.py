"""How long to wait before the next attempt: doubling, bounded, and never in step with others."""

from __future__ import annotations

import random

#: Pauses are shortened by up to this share, so that cameras behind one switch do not come at once.
JITTER = 0.5

_MOST_DOUBLINGS = 32


class BackOff:
    """Pauses between attempts.

    Args:
        first_s: Longest first pause, in seconds.
        most_s: Longest pause at all.
        seed: Seed of the jitter; None: from the system.
    """

    def __init__(self, first_s: float, most_s: float, seed: int | None = None) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._random = random.Random(seed)
        self._num_failures = 0

    def reset(self) -> None:
        """An attempt was successful."""
        self._num_failures = 0

    def next_s(self) -> float:
        """Return the pause after one more failure, in seconds."""
        full_s = min(self._first_s * 2.0**self._num_failures, self._most_s)
        self._num_failures = min(self._num_failures + 1, _MOST_DOUBLINGS)
        return full_s * (1.0 - JITTER * self._random.random())
