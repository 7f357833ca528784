"""Who uses the model next, where one model serves questions and many streams.

A turn is one piece of work that cannot be broken off: a batch of pictures, a prefill, one token of
an answer. Knows no model and no stream.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum


class Urgency(IntEnum):
    """What goes first; within one urgency, whoever came first."""

    FIRST_TEXT = 0
    USUAL = 1


class Turns:
    """Gives the turn to one thread after the other.

    Somebody waits for the first text of an answer: that goes before everything. Frames and later
    tokens take turns as they come. Nobody starves: a waiter older than the patience counts as
    urgent.

    Args:
        patience_s: Seconds after which a usual waiter becomes urgent.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._changed = threading.Condition()
        self._waiting: dict[int, tuple[Urgency, float]] = {}
        self._owner: int | None = None
        self._next_number = 0

    @contextmanager
    def take(self, urgency: Urgency = Urgency.USUAL) -> Iterator[None]:
        """Hold the turn for the length of a ``with`` block; not to be nested."""
        self._acquire(urgency)
        try:
            yield
        finally:
            self._release()

    def give_way(self) -> None:
        """Let the others have a turn in the middle of one's own, if anybody waits."""
        with self._changed:
            if not self._waiting:
                return
        self._release()
        self._acquire(Urgency.USUAL)

    @property
    def num_waiting(self) -> int:
        """Threads that wait for their turn."""
        with self._changed:
            return len(self._waiting)

    def _acquire(self, urgency: Urgency) -> None:
        with self._changed:
            number = self._next_number
            self._next_number += 1
            self._waiting[number] = (urgency, time.monotonic())
            try:
                self._changed.wait_for(lambda: self._owner is None and self._first() == number)
                self._owner = threading.get_ident()
            finally:
                del self._waiting[number]

    def _release(self) -> None:
        with self._changed:
            if self._owner == threading.get_ident():
                self._owner = None
                self._changed.notify_all()

    def _first(self) -> int:
        now_s = time.monotonic()

        def order(number: int) -> tuple[int, int]:
            urgency, since_s = self._waiting[number]
            is_urgent = urgency is Urgency.FIRST_TEXT or now_s - since_s > self.patience_s
            return (0 if is_urgent else 1, number)

        return min(self._waiting, key=order)
