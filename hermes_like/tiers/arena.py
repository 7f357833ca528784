"""Buffers that records are read into, reused so that a read costs no page faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Most bytes kept between reads; a larger record gets a buffer that is freed after it.
KEPT_BYTES = 64 * 2**20
#: Most reads at the same time; others wait.
READERS = 4


class Arena:
    """A bounded pool. Borrowed memory goes back after use: copy out what must outlive it."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._free: list[bytearray] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(READERS)

    @property
    def num_bytes(self) -> int:
        """Bytes kept now."""
        return sum(len(buffer) for buffer in list(self._free))

    @contextmanager
    def borrow(self, num_bytes: int) -> Iterator[memoryview]:
        """A writable buffer of exactly so many bytes; its contents are arbitrary."""
        with self._slots:
            buffer = self._take(num_bytes)
            view = memoryview(buffer)[:num_bytes]
            try:
                yield view
            finally:
                view.release()
                self._give(buffer)

    def _take(self, num_bytes: int) -> bytearray:
        with self._lock:
            fitting = [buffer for buffer in self._free if len(buffer) >= num_bytes]
            if fitting:
                best = min(fitting, key=len)
                self._free = [buffer for buffer in self._free if buffer is not best]
                return best
        return bytearray(num_bytes)

    def _give(self, buffer: bytearray) -> None:
        """Keep a buffer; smaller ones make way, so that the pool grows to the usual record."""
        with self._lock:
            if len(buffer) > self._kept_bytes:
                return
            self._free.append(buffer)
            self._free.sort(key=len)
            while len(self._free) > READERS or self._total() > self._kept_bytes:
                self._free.pop(0)

    def _total(self) -> int:
        return sum(len(buffer) for buffer in self._free)
