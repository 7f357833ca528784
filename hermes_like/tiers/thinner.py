"""Storing the oldest segments again without what stands still in them, a few at a time.

Knows the order and the bookkeeping. What stands still, and how tokens are taken out of encoded
blocks, is for the function it is given to say; nothing is decoded and encoded again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hermes_like.errors import CodecError, SegmentUnavailableError, StorageError, TierFullError
from hermes_like.tiers.base import SegmentHead, SegmentRecord, Tier
from hermes_like.tiers.catalog import Catalog
from hermes_like.tiers.chain_stats import Tally

logger = logging.getLogger(__name__)

#: Segments looked at with every write. More than one, so that thinning gains on writing.
BATCH_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class Thinning:
    """How segments are thinned.

    Attributes:
        thin: Returns the smaller form of a segment, or None where nothing stands still in it.
        keep_whole: So many of the newest segments are left whole: after a crash the state of the
            device is rebuilt from them.
    """

    thin: Callable[[SegmentRecord], SegmentRecord | None]
    keep_whole: int = 16


class Thinner:
    """Goes through the segments of a tier, oldest first, each once. Used by one thread only.

    Args:
        disk: The tier.
        how: What to do with each.
        catalog: Knows what is being erased.
        tally: Where it is counted.
        lock: Guards the last two.
    """

    def __init__(
        self,
        disk: Tier,
        how: Thinning,
        catalog: Catalog,
        tally: Tally,
        lock: threading.Condition,
    ) -> None:
        self._disk, self._how = disk, how
        self._catalog, self._tally, self._lock = catalog, tally, lock
        self._waiting = deque(known.segment_id for known in disk.outlines() if known.is_whole)
        self._newest = self._waiting[-1] if self._waiting else -1
        self._current: int | None = None

    def note(self, head: SegmentHead) -> None:
        """A segment was written."""
        if head.is_whole:
            self._waiting.append(head.segment_id)
        self._newest = max(self._newest, head.segment_id)

    def run(self) -> None:
        """Thin the next few. A medium that fails or is full ends it until the next time."""
        for _ in range(BATCH_SEGMENTS):
            if not self._waiting or self._waiting[0] > self._newest - self._how.keep_whole:
                return
            segment_id = self._waiting.popleft()
            try:
                self._thin(segment_id)
            except TierFullError as error:  # the next step makes room, and this goes on
                logger.debug("segment %d: not thinned: %s", segment_id, error)
                self._waiting.appendleft(segment_id)
                return
            except (StorageError, CodecError) as error:
                logger.warning("segment %d: not thinned: %s", segment_id, error)
                return

    def wait_for(self, segment_ids: Collection[int]) -> None:
        """Wait while one of these is being stored again. The caller holds the lock."""
        self._lock.wait_for(lambda: self._current not in segment_ids)

    def _thin(self, segment_id: int) -> None:
        with self._lock:
            known = self._catalog.get(segment_id)
            if known is None or not known.is_on_disk or segment_id in self._catalog.erasing:
                return
            self._current = segment_id
        saved_bytes = 0
        try:
            saved_bytes = self._store_again(segment_id)
        except SegmentUnavailableError as error:  # counted by the tier; a question will be told
            logger.debug("segment %d: not thinned: %s", segment_id, error)
        finally:
            with self._lock:
                self._current = None
                self._tally.thinned += saved_bytes > 0
                self._tally.thinned_bytes += saved_bytes
                self._lock.notify_all()

    def _store_again(self, segment_id: int) -> int:
        """Returns the bytes saved; 0 where nothing was."""
        record = self._disk.get(segment_id)
        thinned = self._how.thin(record)
        if thinned is None or thinned.num_bytes >= record.num_bytes:
            return 0
        self._disk.rewrite(thinned)
        return record.num_bytes - thinned.num_bytes
