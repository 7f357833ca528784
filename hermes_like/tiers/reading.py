"""Reading from RAM and disk: promotion, deadlines, prefetch, and misses that are counted.

What is on its way from the disk counts against the cap of the host.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from typing import NoReturn

from hermes_like.errors import SegmentUnavailableError
from hermes_like.records import Tier as TierName
from hermes_like.tiers.base import SegmentRecord, Tier
from hermes_like.tiers.catalog import Catalog
from hermes_like.tiers.chain_stats import Tally
from hermes_like.tiers.host import HostTier, segment_cost
from hermes_like.tiers.prefetch import Reads

logger = logging.getLogger(__name__)


class SegmentReader:
    """Serves segments of one chain.

    Args:
        host: Segments in RAM.
        disk: Segments on disk.
        keeps_in_host: Whether what was read stays in RAM.
        catalog: Says where a segment is.
        tally: Hits and misses.
        lock: Guards all of these but the disk.
        num_readers: Reads from the disk at a time.
        staging_bytes: Asked for RAM that the disk keeps for reading; None: none.

    Attributes:
        reads: Reads under way.
        largest_bytes: Most that a segment has taken in RAM so far; what a read is expected to take.
    """

    def __init__(
        self,
        host: HostTier,
        disk: Tier | None,
        keeps_in_host: bool,
        catalog: Catalog,
        tally: Tally,
        lock: threading.Condition,
        num_readers: int,
        staging_bytes: Callable[[], int] | None,
    ) -> None:
        self._host, self._disk, self._keeps_in_host = host, disk, keeps_in_host
        self._catalog, self._tally, self._lock = catalog, tally, lock
        self._asked_staging, self._staging_bytes = staging_bytes, 0
        self.reads = Reads(self._fetch, lock, num_readers)
        self.largest_bytes = 0

    def get(self, segment_id: int, deadline_s: float | None) -> tuple[SegmentRecord, TierName]:
        """See :meth:`TierChain.get`; called without the lock."""
        with self._lock:
            where = self._catalog.where(segment_id)
            if where == "host":
                self._tally.hits["host"] += 1
                return self._host.get(segment_id), "host"
            if where != "disk":
                self._miss(SegmentUnavailableError(segment_id, "absent"))
            future = self.reads.start(segment_id)
        try:
            record = future.result(deadline_s)
        except TimeoutError:
            self._miss(SegmentUnavailableError(segment_id, "deadline", f"{deadline_s} s are over"))
        except CancelledError:
            self._miss(SegmentUnavailableError(segment_id, "erased"))
        except SegmentUnavailableError as error:
            self._miss(error)
        except Exception as error:  # whatever a tier does, the answer goes on without the segment
            logger.warning("segment %d: not read", segment_id, exc_info=error)
            self._miss(SegmentUnavailableError(segment_id, "io_error", str(error)))
        with self._lock:
            self._tally.hits["disk"] += 1
        return record, "disk"

    def prefetch(self, segment_ids: Iterable[int]) -> int:
        """See :meth:`TierChain.prefetch`; the caller holds the lock."""
        begun = 0
        room = (self._host.cap_bytes - self._host.held_bytes) // 2
        for segment_id in segment_ids if self._keeps_in_host else ():
            if segment_id in self.reads or self._catalog.where(segment_id) != "disk":
                continue
            room -= self.largest_bytes
            if room < 0:
                break
            self.reads.start(segment_id)
            begun += 1
        return begun

    def _fetch(self, segment_id: int, is_wanted: Callable[[], bool]) -> SegmentRecord:
        """Read from the disk and promote, in a reader's thread."""
        assert self._disk is not None
        with self._lock:
            has_room = self._catalog.make_room(self.largest_bytes)
            expected = self.largest_bytes if has_room else 0
            self._host.reserve(expected)
        try:
            record = self._disk.get(segment_id)
        except SegmentUnavailableError:
            self._note_missing(segment_id)
            raise
        finally:
            with self._lock:
                self._host.release(expected)
                self._count_staging()
                self._lock.notify_all()
            self._catalog.tell()
        with self._lock:
            if not is_wanted():
                raise SegmentUnavailableError(segment_id, "erased")
            record = self._promote(record)
        self._catalog.tell()
        return record

    def _promote(self, record: SegmentRecord) -> SegmentRecord:
        """Put a segment into RAM if there is room; returns the one to hand out."""
        num_bytes = segment_cost(record)
        self.largest_bytes = max(self.largest_bytes, num_bytes)
        if not self._keeps_in_host or not self._catalog.make_room(num_bytes):
            return record
        self._host.put(record)
        self._catalog.add(record.head)
        return self._host.get(record.head.segment_id)

    def _count_staging(self) -> None:
        if self._asked_staging is None:
            return
        more = self._asked_staging() - self._staging_bytes
        if more <= 0 or self._catalog.make_room(more):
            self._host.reserve(more)
            self._staging_bytes += more

    def _note_missing(self, segment_id: int) -> None:
        """The disk could not give a segment; it may have dropped it for good."""
        is_there = self._disk is not None and segment_id in self._disk
        with self._lock:
            if not is_there:
                self._catalog.left_disk([segment_id])

    def _miss(self, error: SegmentUnavailableError) -> NoReturn:
        with self._lock:
            self._tally.misses[error.reason] += 1
        raise error
