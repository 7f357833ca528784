"""Host, disk and pictures behind one object: write-through, promotion, caps, erasing.

A segment goes to RAM when it is put, and a writer thread brings the same bytes to the disk and its
pictures to their store. Until that is done it is pinned in RAM; that is the queue, and its bytes
count against the cap of the host. When nothing in RAM may go, a put waits a moment and is then
dropped and counted: watching never stops for storage.

One lock guards the tables; it is never held while a disk works, nor while the listener is told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence

from hermes_like.config import FullAction
from hermes_like.errors import SegmentUnavailableError, SessionStateError, StorageError
from hermes_like.records import Tier as TierName
from hermes_like.tiers.at_cap import CappedWriter, DiskTraits
from hermes_like.tiers.base import (
    KeyframeRecord,
    KeyframeStore,
    SegmentHead,
    SegmentRecord,
    Tier,
)
from hermes_like.tiers.catalog import Catalog
from hermes_like.tiers.chain_stats import ChainStats, Tally, TierStats
from hermes_like.tiers.host import HostTier, keyframe_cost, segment_cost
from hermes_like.tiers.reading import SegmentReader
from hermes_like.tiers.thinner import Thinner, Thinning
from hermes_like.tiers.write_queue import WriteJob, WriteQueue

logger = logging.getLogger(__name__)


class TierChain:
    """The tiers of one stream. Any of them may be missing.

    Args:
        host: Segments in RAM; None: a buffer of ``queue_bytes`` serves the writer alone.
        disk: Segments on disk; None: what leaves RAM is gone.
        keyframes: Pictures; None: a segment without keys and values cannot be found.
        at_disk_cap: What goes when the disk is at its cap, in this order of steps.
        on_evicted: Told the ids of segments that are nowhere any more, in the thread where it
            happened (the caller's, the writer's or a reader's) and without any lock.
        queue_bytes: Bound of the writer's buffer where there is no ``host``.
        put_wait_s: Longest wait of a put for room; none while writing fails.
        traits: What there is to know of disk and pictures beside their contracts.
        on_close: Called last by :meth:`close`, to let go of what the disk tiers share.
        first_pause_s: Before a failed write is repeated; doubles up to ``longest_pause_s``.
        longest_pause_s: Bound of the pauses.
        num_readers: Reads from the disk at a time.
        thinning: What the step ``thin`` does; None: that step is left out.
    """

    def __init__(
        self,
        host: HostTier | None,
        disk: Tier | None,
        keyframes: KeyframeStore | None,
        *,
        at_disk_cap: Sequence[FullAction] = ("drop_kv", "forget"),
        on_evicted: Callable[[Sequence[int]], None] | None = None,
        queue_bytes: int = 64 * 2**20,
        put_wait_s: float = 0.25,
        traits: DiskTraits | None = None,
        on_close: Callable[[], None] | None = None,
        first_pause_s: float = 0.1,
        longest_pause_s: float = 30.0,
        num_readers: int = 2,
        thinning: Thinning | None = None,
    ) -> None:
        self._host = HostTier(queue_bytes) if host is None else host
        self._keeps_in_host = host is not None
        self._disk, self._keyframes = disk, keyframes
        self._put_wait_s, self._on_close = put_wait_s, on_close
        self._traits = DiskTraits() if traits is None else traits
        self._changed = threading.Condition(threading.RLock())
        self._tally = Tally()
        self._catalog = Catalog(self._changed, self._host, self._tally, on_evicted)
        self._reader = SegmentReader(
            self._host,
            disk,
            self._keeps_in_host,
            self._catalog,
            self._tally,
            self._changed,
            num_readers,
            self._traits.staging_bytes,
        )
        self._catalog.learn(disk, keyframes)
        self._thinner = None
        if disk is not None and thinning is not None and "thin" in at_disk_cap:
            self._thinner = Thinner(disk, thinning, self._catalog, self._tally, self._changed)
        writer = CappedWriter(
            disk,
            keyframes,
            self._traits,
            self._host,
            at_disk_cap,
            self._catalog,
            self._reader.reads,
            self._changed,
            self._thinner,
        )
        self._queue = WriteQueue(
            writer.put,
            self._written,
            self._catalog.tell,
            self._changed,
            first_pause_s,
            longest_pause_s,
        )
        self._is_closed = False

    # -- storing ---------------------------------------------------------------------------------

    def put(self, record: SegmentRecord, pictures: KeyframeRecord | None = None) -> bool:
        """Take over a segment; it can be read at once, and is written in the background.

        Where RAM has no room for the segment, its pictures alone are kept, so that it can be found;
        where there is no room for these either, ``on_evicted`` is told.
        A segment whose keys and values are held already is left as it is; one that is being erased
        is not taken.

        Returns:
            Whether the keys and values are held; if not, the loss is in :attr:`lost`.
        """
        head = record.head
        with self._changed:
            self._refuse_when_closed()
            if head.segment_id in self._catalog.erasing:
                return False
            is_held = self._catalog.where(head.segment_id) in ("host", "disk")
            is_held = is_held or self._take_segment(record)
            if pictures is not None and self._keyframes is not None:
                self._take_pictures(pictures)
            if not is_held:
                self._tally.dropped_writes += 1
                self._tally.lose(head.start_s, head.end_s, "dropped")
                self._catalog.note_if_nowhere(head.segment_id)
        self._catalog.tell()
        return is_held

    def _take_segment(self, record: SegmentRecord) -> bool:
        if self._disk is None and not self._keeps_in_host:
            return False
        num_bytes = segment_cost(record)
        if not self._wait_for_room(num_bytes) or record.head.segment_id in self._catalog.erasing:
            return False
        self._host.put(record, is_pinned=self._disk is not None)
        self._catalog.add(record.head)
        self._reader.largest_bytes = max(self._reader.largest_bytes, num_bytes)
        if self._disk is not None:
            self._queue.add(WriteJob(self._host.get(record.head.segment_id), num_bytes))
        return True

    def _take_pictures(self, pictures: KeyframeRecord) -> None:
        known = self._catalog.get(pictures.head.segment_id)
        if known is not None and known.has_pictures:
            return
        num_bytes = keyframe_cost(pictures)
        segment_id = pictures.head.segment_id
        if not self._wait_for_room(num_bytes) or segment_id in self._catalog.erasing:
            self._tally.dropped_writes += 1
            return
        self._host.reserve(num_bytes)
        self._catalog.add(pictures.head).has_pictures = True
        self._queue.add(WriteJob(pictures, num_bytes))

    def _wait_for_room(self, num_bytes: int) -> bool:
        if num_bytes > self._host.cap_bytes:
            return False
        wait_s = 0.0 if self._queue.failures_in_a_row else self._put_wait_s
        self._changed.wait_for(
            lambda: self._is_closed or self._catalog.make_room(num_bytes), wait_s
        )
        return not self._is_closed and self._catalog.make_room(num_bytes)

    def _written(self, job: WriteJob, error: Exception | None) -> None:
        """A job has left the queue; the lock is held."""
        is_stored = error is None and not job.is_cancelled
        is_given_up = error is not None and not job.is_cancelled
        self._tally.dropped_writes += is_given_up
        head = job.payload.head
        known = self._catalog.add(head) if is_stored else self._catalog.get(head.segment_id)
        if isinstance(job.payload, KeyframeRecord):
            self._host.release(job.num_bytes)
            if known is not None:
                known.has_pictures = is_stored
        else:
            self._host.unpin(head.segment_id)
            if not self._keeps_in_host:
                self._host.remove([head.segment_id])
            if known is not None:
                known.is_on_disk = is_stored
            if is_given_up:
                self._tally.lose(head.start_s, head.end_s, "dropped")
        self._catalog.settle([head.segment_id])

    # -- reading ---------------------------------------------------------------------------------

    def get(
        self, segment_id: int, deadline_s: float | None = None
    ) -> tuple[SegmentRecord, TierName]:
        """Return a segment and the tier that served it; one from the disk is promoted to RAM.

        Args:
            segment_id: Which one.
            deadline_s: Seconds from now after which nobody waits any more; the read goes on and
                brings the segment to RAM for a later question.

        Raises:
            SegmentUnavailableError: It is nowhere, late, or cannot be trusted.
        """
        with self._changed:
            self._refuse_when_closed()
        return self._reader.get(segment_id, deadline_s)

    def prefetch(self, segment_ids: Iterable[int]) -> int:
        """Begin to bring segments from the disk to RAM, in this order; returns how many.

        At most half of what unwritten segments leave free in RAM is filled, so that one prefetch
        does not push out what it has just brought.
        """
        with self._changed:
            self._refuse_when_closed()
            return self._reader.prefetch(segment_ids)

    # -- what is where ---------------------------------------------------------------------------

    def heads(self) -> list[SegmentHead]:
        """Every segment that can be found, each once, by id; those of pictures alone included.

        The first call takes over what opening has read; later ones read from the disk.
        """
        with self._changed:
            waiting = [job.payload.head for job in self._queue.jobs()]
        found = {head.segment_id: head for head in waiting}
        for store in (self._keyframes, self._disk, self._host):
            if store is not None:
                found.update({head.segment_id: head for head in store.heads()})
        with self._changed:
            return [found[i] for i in sorted(found) if self._catalog.where(i)]

    @property
    def table_bytes(self) -> int:
        """RAM of the tables that say where every segment is, about."""
        with self._changed:
            stores = [store for store in (self._disk, self._keyframes) if store is not None]
            return self._catalog.num_bytes + sum(store.table_bytes for store in stores)

    def where(self, segment_id: int) -> TierName | None:
        """The nearest tier that has a segment; ``source``: pictures alone; None: nowhere."""
        with self._changed:
            return self._catalog.where(segment_id)

    def has_pictures(self, segment_id: int) -> bool:
        """Whether pictures of a segment are stored or about to be."""
        with self._changed:
            known = self._catalog.get(segment_id)
            return known is not None and known.has_pictures

    def pictures(self, segment_id: int) -> KeyframeRecord:
        """Pictures of a segment.

        Raises:
            SegmentUnavailableError: There are none, or they cannot be trusted.
        """
        with self._changed:
            self._refuse_when_closed()
            known = self._catalog.get(segment_id)
            is_erasing = segment_id in self._catalog.erasing
            if known is None or not known.has_pictures or is_erasing or self._keyframes is None:
                raise SegmentUnavailableError(segment_id, "absent", "no pictures")
            waiting = self._queue.pictures_of(segment_id)
        return self._keyframes.get(segment_id) if waiting is None else waiting

    @property
    def lost(self) -> list[tuple[float, float, str]]:
        """``(start_s, end_s, reason)``: see :class:`ChainStats`."""
        with self._changed:
            return list(self._tally.lost)

    @property
    def state(self) -> str:
        """``ok``, ``full``, ``failed`` or ``closed``."""
        if self._is_closed:
            return "closed"
        if not self._queue.failures_in_a_row:
            return "ok"
        state = self._traits.state() if self._traits.state is not None else "failed"
        return "failed" if state == "ok" else state

    def stats(self) -> ChainStats:
        """Bytes, segments, hits, misses and losses."""
        with self._changed:
            known, hits = list(self._catalog.values()), dict(self._tally.hits)
            counts = {
                "host": self._host.num_segments,
                "disk": sum(k.is_on_disk for k in known),
                "source": sum(k.has_pictures for k in known),
            }
            misses, lost = dict(self._tally.misses), tuple(self._tally.lost)
            thinned, thinned_bytes = self._tally.thinned, self._tally.thinned_bytes
            evicted = self._tally.evicted
            queue_bytes, queued = self._queue.num_bytes, len(self._queue)
        stores: dict[TierName, Tier | KeyframeStore | None] = {
            "host": self._host,
            "disk": self._disk,
            "source": self._keyframes,
        }
        return ChainStats(
            tiers={
                name: TierStats(store.used_bytes, store.cap_bytes, counts[name], hits.get(name, 0))
                for name, store in stores.items()
                if store is not None
            },
            misses=misses,
            queue_bytes=queue_bytes,
            queued=queued,
            reading=len(self._reader.reads),
            dropped_writes=self._tally.dropped_writes,
            failed_writes=self._queue.num_failures,
            state=self.state,
            lost=lost,
            thinned=thinned,
            thinned_bytes=thinned_bytes,
            evicted=evicted,
        )

    # -- going away ------------------------------------------------------------------------------

    def remove(self, segment_ids: Collection[int]) -> None:
        """Erase segments everywhere: RAM, queue, reads under way, disk, pictures.

        Raises:
            StorageError: A medium failed; what it holds may still be there. All others are erased.
        """
        ids = set(segment_ids)
        with self._changed:
            self._catalog.erasing |= ids
            self._reader.reads.forget(ids)
            self._queue.cancel(ids)
            if self._thinner is not None:
                self._thinner.wait_for(ids)
            self._host.remove(ids)
        error: StorageError | None = None
        for store in (self._disk, self._keyframes):
            try:
                if store is not None:
                    store.remove(ids)
            except StorageError as caught:
                error = caught
        with self._changed:
            self._catalog.erasing -= ids
            self._changed.notify_all()
            if error is None:
                self._catalog.forget(ids)
            else:
                self._catalog.look_again(ids, self._disk, self._keyframes)
        if error is not None:
            raise error

    def left_disk(self, segment_ids: Collection[int]) -> None:
        """Take note that keys and values went from the disk for something else than a segment."""
        with self._changed:
            self._catalog.left_disk(segment_ids)

    def reserve_host(self, num_bytes: int) -> bool:
        """Count bytes that lie in RAM elsewhere (an index) against the cap of the host.

        Args:
            num_bytes: More than before; negative: fewer.

        Returns:
            False, and nothing is counted, where RAM has no room.
        """
        with self._changed:
            if num_bytes > 0 and not self._catalog.make_room(num_bytes):
                return False
            self._host.reserve(num_bytes)
            self._changed.notify_all()
        self._catalog.tell()
        return True

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write everything that waits, now, and force it to the medium; whether all is written.

        Returns early when a write fails: it will be repeated later.

        Raises:
            StorageError: The medium could not be flushed.
        """
        is_written = self._queue.drain(timeout_s)
        if self._disk is not None:
            self._disk.flush()
        return is_written

    def close(self, timeout_s: float = 30.0) -> None:
        """Write what waits, within a time; end all threads; close the tiers. Safe to call twice.

        What could not be written is counted as dropped and listed in :attr:`lost`.
        """
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
        self._queue.drain(timeout_s)
        left = self._queue.close(timeout_s)
        with self._changed:
            for job in left:
                self._written(job, StorageError("the tiers were closed"))
        self._reader.reads.close()
        closings = [self._host.close, *([self._disk.close] if self._disk else [])]
        for close in [*closings, *([self._on_close] if self._on_close else [])]:
            try:
                close()
            except StorageError as error:
                logger.warning("a tier could not be closed: %s", error)

    def check(self) -> None:
        """Prove the accounting when nothing is under way; for tests.

        Raises:
            AssertionError: The message names the invariant.
        """
        with self._changed:
            self._host.check()
            waiting = {job.segment_id for job in self._queue.jobs()}
            for segment_id in set(self._catalog.ids()) - waiting:
                known = self._catalog.get(segment_id)
                assert known is not None
                for is_there, store in (
                    (known.is_on_disk, self._disk),
                    (known.has_pictures, self._keyframes),
                ):
                    is_stored = store is not None and segment_id in store
                    assert is_there == is_stored, f"segment {segment_id}: {known}"
                assert self._catalog.where(segment_id), f"segment {segment_id} is nowhere"
            unknown = [outline.segment_id for outline in self._host.outlines()]
            assert set(unknown) <= set(self._catalog.ids()), "host: unknown segments"

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise SessionStateError("the tiers are closed")
