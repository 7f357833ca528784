"""Bounded read-ahead: one thread owns a reader, a failure on either side reaches the other.

This module knows nothing of frames.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class _Shared(Generic[T]):
    """What the two threads share; the owner thread holds nothing else of a :class:`ReadAhead`."""

    def __init__(self, max_items: int) -> None:
        self.max_items = max_items
        self.items: deque[T] = deque()
        self.changed = threading.Condition()
        self.is_stopped = False
        self.is_done = False
        self.error: BaseException | None = None

    def stop(self) -> None:
        with self.changed:
            self.is_stopped = True
            self.changed.notify_all()

    def put(self, item: T) -> bool:
        """Wait for room and add; False if the other side has stopped."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_stopped or len(self.items) < self.max_items)
            self.items.append(item)
            self.changed.notify_all()
            return not self.is_stopped

    def finish(self, error: BaseException | None) -> None:
        with self.changed:
            self.is_done = True
            self.error = error
            self.changed.notify_all()

    def get(self) -> T:
        with self.changed:
            self.changed.wait_for(lambda: self.is_stopped or self.is_done or bool(self.items))
            if self.is_stopped:
                raise StopIteration
            if self.items:
                item = self.items.popleft()
                self.changed.notify_all()
                return item
            error, self.error = self.error, None
        if error is not None:
            raise error
        raise StopIteration


def _run(shared: _Shared[T], items: Iterator[T]) -> None:
    try:
        for item in items:
            if not shared.put(item):
                break
    except BaseException as error:  # handed to the consumer, whatever it is
        shared.finish(error)
    else:
        shared.finish(None)


class ReadAhead(Generic[T]):
    """Iterate ``items`` in an owner thread, at most ``max_items`` ahead of the consumer.

    The error that ends ``items`` is raised to the consumer after the items before it. The thread
    starts with the first item asked for and is a daemon.

    Args:
        items: Iterated by the owner thread only.
        max_items: Bound of the queue.
        name: Name of the thread.
    """

    def __init__(self, items: Iterator[T], max_items: int, name: str) -> None:
        self._shared: _Shared[T] = _Shared(max_items)
        self._thread = threading.Thread(
            target=_run, args=(self._shared, items), name=name, daemon=True
        )
        self._starting = threading.Lock()
        weakref.finalize(self, self._shared.stop)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._starting:
            if self._thread.ident is None and not self._shared.is_stopped:
                self._thread.start()
        return self._shared.get()

    def stop(self) -> None:
        """Let neither side wait any longer; the reader may still be inside its current item."""
        self._shared.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for the owner thread; whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def num_left(self) -> int:
        """Items read that nobody will take any more, because the consumer stopped."""
        return len(self._shared.items) if self._shared.is_stopped else 0
