"""Which segments are known and where each is; what is nowhere any more is forgotten and told.

RAM is asked itself; what disk and pictures hold is remembered here, so that no question about a
segment waits for a disk. The lock is the chain's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from hermes_like.records import Tier as TierName
from hermes_like.tiers.base import KeyframeStore, Outline, Tier
from hermes_like.tiers.chain_stats import Tally
from hermes_like.tiers.host import HostTier

logger = logging.getLogger(__name__)

#: What one known segment takes in RAM, its place in the table included
#: (``tests/tiers/test_tables.py`` compares it with what is really allocated).
KNOWN_BYTES = 256


@dataclass(slots=True)
class Known:
    """Where a segment is, apart from RAM.

    Attributes:
        start_s: Stream time of its first frame.
        end_s: Stream time at which it ends.
        is_on_disk: Its keys and values are on disk.
        has_pictures: Its pictures are stored, or wait to be.
    """

    start_s: float
    end_s: float
    is_on_disk: bool = False
    has_pictures: bool = False


class Catalog:
    """The table of known segments. Callers hold ``lock`` except where a method says otherwise.

    Args:
        lock: The chain's.
        host: Segments in RAM.
        tally: Where losses are noted.
        on_evicted: Told the ids of segments that are nowhere any more.
    """

    def __init__(
        self,
        lock: threading.Condition,
        host: HostTier,
        tally: Tally,
        on_evicted: Callable[[Sequence[int]], None] | None,
    ) -> None:
        self._lock, self._host, self._tally = lock, host, tally
        self._on_evicted = on_evicted
        self._known: dict[int, Known] = {}
        self._untold: list[int] = []
        #: Ids that are being erased: they may not be read, promoted or put.
        self.erasing: set[int] = set()

    def __contains__(self, segment_id: int) -> bool:
        return segment_id in self._known

    def ids(self) -> list[int]:
        """All known segments."""
        return list(self._known)

    def values(self) -> Collection[Known]:
        """What is known of all segments."""
        return self._known.values()

    def get(self, segment_id: int) -> Known | None:
        """What is known of a segment."""
        return self._known.get(segment_id)

    @property
    def num_bytes(self) -> int:
        """RAM that the table takes, about."""
        return KNOWN_BYTES * len(self._known)

    def add(self, outline: Outline) -> Known:
        """Make a segment known, if it is not."""
        return self._known.setdefault(outline.segment_id, Known(outline.start_s, outline.end_s))

    def learn(self, disk: Tier | None, keyframes: KeyframeStore | None) -> None:
        """Take over what the tiers hold already."""
        for outline in self._host.outlines():
            self.add(outline)
        for outline in disk.outlines() if disk is not None else ():
            self.add(outline).is_on_disk = True
        for outline in keyframes.outlines() if keyframes is not None else ():
            self.add(outline).has_pictures = True

    def look_again(
        self, segment_ids: Iterable[int], disk: Tier | None, keyframes: KeyframeStore | None
    ) -> None:
        """Ask the tiers for segments of which it is not sure what became."""
        for segment_id in segment_ids:
            if segment_id in self._known:
                known = self._known[segment_id]
                known.is_on_disk = disk is not None and segment_id in disk
                known.has_pictures = keyframes is not None and segment_id in keyframes
        self.settle(segment_ids)

    def where(self, segment_id: int) -> TierName | None:
        """The nearest tier that has a segment."""
        known = self._known.get(segment_id)
        if known is None or segment_id in self.erasing:
            return None
        if segment_id in self._host:
            return "host"
        if known.is_on_disk:
            return "disk"
        return "source" if known.has_pictures else None

    def left_disk(self, segment_ids: Iterable[int]) -> None:
        """The keys and values of segments are not on disk any more."""
        for segment_id in segment_ids:
            if segment_id in self._known:
                self._known[segment_id].is_on_disk = False
        self.settle(segment_ids)

    def left_pictures(self, segment_ids: Iterable[int]) -> None:
        """The pictures of segments are not stored any more."""
        for segment_id in segment_ids:
            if segment_id in self._known:
                self._known[segment_id].has_pictures = False
        self.settle(segment_ids)

    def forget(self, segment_ids: Iterable[int]) -> None:
        """Erased segments: nothing is noted and nobody is told."""
        for segment_id in segment_ids:
            self._known.pop(segment_id, None)

    def make_room(self, num_bytes: int) -> bool:
        """Evict from RAM what may go; nothing goes where that would not be enough."""
        if self._host.held_bytes + num_bytes > self._host.cap_bytes:
            return False
        self.settle(self._host.evict(num_bytes))
        return True

    def settle(self, segment_ids: Iterable[int]) -> None:
        """Forget those of these segments that are nowhere any more."""
        for segment_id in segment_ids:
            known = self._known.get(segment_id)
            if known is None or known.is_on_disk or known.has_pictures or segment_id in self._host:
                continue
            del self._known[segment_id]
            if segment_id not in self.erasing:
                self._tally.evicted += 1
                self._tally.lose(known.start_s, known.end_s, "evicted")
                self._untold.append(segment_id)

    def note_if_nowhere(self, segment_id: int) -> None:
        """A segment that was dropped before it was known anywhere is told too."""
        if segment_id not in self._known:
            self._untold.append(segment_id)

    def tell(self) -> None:
        """Tell the listener what has gone; called without the lock."""
        with self._lock:
            gone, self._untold = self._untold, []
        if not gone or self._on_evicted is None:
            return
        try:
            self._on_evicted(gone)
        except Exception as error:  # the listener's fault may not end the writer
            logger.warning("on_evicted failed for segments %s", gone, exc_info=error)
