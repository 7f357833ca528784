"""Writing to a disk under its cap: what goes to make room, in the declared order of steps.

Thinning is a step of its own kind. It needs room itself, since a segment is erased only when its
smaller form is there; so it begins when the cap is near, a few segments with every write.

A disk that others have filled is another matter: nothing of ours goes for that, and the write is
tried again later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes_like.config import FullAction
from hermes_like.errors import StorageError, TierFullError
from hermes_like.tiers.base import KeyframeRecord, KeyframeStore, SegmentRecord, Tier
from hermes_like.tiers.catalog import Catalog
from hermes_like.tiers.host import HostTier
from hermes_like.tiers.prefetch import Reads
from hermes_like.tiers.thinner import Thinner
from hermes_like.tiers.write_queue import WriteJob

#: What a record may take on a disk beside its bytes: header, and padding to pages.
SLACK_BYTES = 16 * 1024
#: A store that refuses while more than this part of its cap is free is not at its cap. It allocates
#: whole volumes, which are smaller, so it may be short of the cap by one and yet be full.
FREE_PART = 4
#: Segments are thinned while fewer volumes than this find room: one for what is stored again, one
#: for what is new, and what the manifest may grow by.
THIN_VOLUMES = 3


@dataclass(frozen=True, slots=True)
class DiskTraits:
    """What a chain should know of its disk tiers beside the contract.

    Attributes:
        most_segment_bytes: No larger segment can ever be stored; None: only the cap counts.
        most_pictures_bytes: The same for the pictures of a segment.
        state: Asked while writing fails; None: it is ``failed``.
        staging_bytes: Asked for RAM that the disk keeps for reading; None: none.
    """

    most_segment_bytes: int | None = None
    most_pictures_bytes: int | None = None
    state: Callable[[], str] | None = None
    staging_bytes: Callable[[], int] | None = None


class CappedWriter:
    """Puts into the disk tiers and makes room at their caps. Used by the writer's thread only.

    Args:
        disk: Segments on disk.
        keyframes: Pictures.
        traits: Of these two.
        host: Segments in RAM; what is forgotten goes from here too.
        steps: What goes at the disk cap, in this order.
        catalog: Told what has left.
        reads: Reads under way; what is forgotten may not arrive any more.
        lock: Guards the last two.
        thinner: What the step ``thin`` uses; None: that step is left out.
    """

    def __init__(
        self,
        disk: Tier | None,
        keyframes: KeyframeStore | None,
        traits: DiskTraits,
        host: HostTier,
        steps: Sequence[FullAction],
        catalog: Catalog,
        reads: Reads,
        lock: threading.Condition,
        thinner: Thinner | None = None,
    ) -> None:
        self._disk, self._keyframes, self._traits, self._host = disk, keyframes, traits, host
        self._catalog, self._reads, self._lock = catalog, reads, lock
        self._thinner = thinner if "thin" in steps else None
        actions = {"drop_kv": self._drop_kv, "forget": self._forget}
        self._steps: list[Callable[[int], None]] = [actions[n] for n in steps if n in actions]

    def put(self, job: WriteJob) -> None:
        """Store a segment or pictures, after one step after the other where there is no room.

        Raises:
            TierFullError: It can never fit, or no step made enough room.
            StorageError: The medium failed, or others have filled it.
        """
        # Steps for what can never fit would empty the tier for nothing.
        can_fit, needed = self._can_fit(job), job.num_bytes + SLACK_BYTES
        self._thin(job)
        for step in [*(self._steps_for(job) if can_fit else ()), None]:
            try:
                self._store(job)
            except TierFullError as error:
                if can_fit and not self._is_at_cap(job, needed):
                    raise StorageError(f"full, but not of ours: {error}") from error
                if step is None:
                    raise
                step(needed)
            else:
                if self._thinner is not None and isinstance(job.payload, SegmentRecord):
                    self._thinner.note(job.payload.head)
                return

    def _thin(self, job: WriteJob) -> None:
        """Thin the next segments where the cap is near."""
        disk, thinner = self._disk, self._thinner
        if disk is None or thinner is None or not isinstance(job.payload, SegmentRecord):
            return
        volume_bytes = self._traits.most_segment_bytes or disk.cap_bytes // 16
        if disk.used_bytes + job.num_bytes > disk.cap_bytes - THIN_VOLUMES * volume_bytes:
            thinner.run()

    def _store(self, job: WriteJob) -> None:
        if isinstance(job.payload, SegmentRecord):
            assert self._disk is not None
            self._disk.put(job.payload)
        else:
            assert self._keyframes is not None
            self._keyframes.put(job.payload)

    def _steps_for(self, job: WriteJob) -> list[Callable[[int], None]]:
        # Pictures have a cap of their own: keys and values that go would not help.
        return self._steps if isinstance(job.payload, SegmentRecord) else [self._drop_pictures]

    def _can_fit(self, job: WriteJob) -> bool:
        traits, is_segment = self._traits, isinstance(job.payload, SegmentRecord)
        most = traits.most_segment_bytes if is_segment else traits.most_pictures_bytes
        cap, _ = self._cap_and_used(job.payload)
        return job.payload.num_bytes <= (cap if most is None else min(most, cap))

    def _is_at_cap(self, job: WriteJob, needed: int) -> bool:
        cap, used = self._cap_and_used(job.payload)
        return used + max(needed, cap // FREE_PART) > cap

    def _cap_and_used(self, payload: SegmentRecord | KeyframeRecord) -> tuple[int, int]:
        store = self._disk if isinstance(payload, SegmentRecord) else self._keyframes
        return (0, 0) if store is None else (store.cap_bytes, store.used_bytes)

    def _drop_kv(self, num_bytes: int) -> None:
        """The oldest keys and values go; with their pictures, segments can still be found."""
        ids = [] if self._disk is None else self._disk.evict(num_bytes)
        with self._lock:
            self._catalog.left_disk(ids)

    def _drop_pictures(self, num_bytes: int) -> None:
        ids = [] if self._keyframes is None else self._keyframes.evict(num_bytes)
        with self._lock:
            self._catalog.left_pictures(ids)

    def _forget(self, num_bytes: int) -> None:
        """The oldest segments go with all that is known of them."""
        ids = [] if self._disk is None else self._disk.evict(num_bytes)
        if ids and self._keyframes is not None:
            self._keyframes.remove(ids)
        with self._lock:
            self._reads.forget(ids)
            self._host.remove(ids)
            self._catalog.left_pictures(ids)
            self._catalog.left_disk(ids)
