"""Background reads: a few threads that fetch segments, one read per segment at a time.

Knows neither tiers nor caps; what is done with a segment that has arrived is the caller's affair.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

from hermes_like.errors import SessionStateError
from hermes_like.tiers.base import SegmentRecord

#: Reads one segment; the second argument says, under the lock, whether it is still wanted.
Fetch = Callable[[int, Callable[[], bool]], SegmentRecord]


class Reads:
    """Reads under way, by segment id. The threads start with the first read.

    Args:
        fetch: Called in a thread of the pool, without the lock.
        lock: Guards the table; the caller holds it where a method says so.
        num_threads: Most reads at a time; more wait in line.
    """

    def __init__(self, fetch: Fetch, lock: threading.Condition, num_threads: int = 2) -> None:
        self._fetch, self._lock, self._num_threads = fetch, lock, num_threads
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._tickets = itertools.count()
        self._under_way: dict[int, tuple[int, Future[SegmentRecord]]] = {}

    def __contains__(self, segment_id: int) -> bool:
        return segment_id in self._under_way

    def __len__(self) -> int:
        return len(self._under_way)

    def start(self, segment_id: int) -> Future[SegmentRecord]:
        """Begin a read, or join the one that is under way. The caller holds the lock.

        Raises:
            SessionStateError: Closed.
        """
        if self._is_closed:
            raise SessionStateError("the tiers are closed")
        if segment_id in self._under_way:
            return self._under_way[segment_id][1]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads, "hermes-like-reader")
        ticket = next(self._tickets)
        future = self._pool.submit(self._run, segment_id, ticket)
        self._under_way[segment_id] = ticket, future
        return future

    def forget(self, segment_ids: Collection[int]) -> None:
        """What arrives of these is not wanted any more. The caller holds the lock."""
        for segment_id in segment_ids:
            _, future = self._under_way.pop(segment_id, (0, None))
            if future is not None:
                future.cancel()

    def close(self) -> None:
        """Drop reads that have not begun and wait for the others. Safe to call twice."""
        with self._lock:
            self._is_closed = True
            self.forget(list(self._under_way))
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, segment_id: int, ticket: int) -> SegmentRecord:
        def is_wanted() -> bool:
            return self._under_way.get(segment_id, (None, None))[0] == ticket

        try:
            return self._fetch(segment_id, is_wanted)
        finally:
            with self._lock:
                if is_wanted():
                    del self._under_way[segment_id]
