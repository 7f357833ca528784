"""Segments and pictures in RAM, as bytes, under a cap.

The order of eviction is oldest first; a segment that is read moves to the end. Parts of the cap may
be reserved for what lies in RAM elsewhere (queues, staging, index vectors), and segments may be
pinned while their only copy is here. Nothing here knows of disks, threads of its own or tensors.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from hermes_like.errors import SegmentUnavailableError, TierFullError
from hermes_like.records import Tier as TierName
from hermes_like.tiers.base import (
    Keyframe,
    KeyframeRecord,
    KeyframeStore,
    Outline,
    SegmentHead,
    SegmentRecord,
    Tier,
)

R = TypeVar("R", SegmentRecord, KeyframeRecord)
A = TypeVar("A", bound=np.generic)

#: What the interpreter takes for one record beside its bytes: objects, table entries, array headers
#: (``tests/tiers/test_host.py`` compares the sum with what is really allocated).
RECORD_BYTES = 1024
#: The same for each bytes object and for the times of each frame.
BLOB_BYTES = 64
FRAME_BYTES = 72


def head_cost(head: SegmentHead) -> int:
    """Bytes of a head in RAM, objects included."""
    arrays = head.vectors.nbytes + head.token_cells.nbytes
    return RECORD_BYTES + arrays + len(head.content_key) + FRAME_BYTES * head.num_frames


def segment_cost(record: SegmentRecord) -> int:
    """Bytes that a segment takes in RAM, objects included."""
    blocks = sum(len(layer) + BLOB_BYTES for layer in record.layers)
    return head_cost(record.head) + blocks


def keyframe_cost(record: KeyframeRecord) -> int:
    """Bytes that the pictures of a segment take in RAM, objects included."""
    pictures = sum(len(image.data) + 2 * BLOB_BYTES for image in record.images)
    return head_cost(record.head) + pictures


class _RamStore(Generic[R]):
    """Records by segment id with exact accounting; the common part of segments and pictures."""

    def __init__(self, cap_bytes: int, cost: Callable[[R], int], what: str) -> None:
        self.cap_bytes, self.what = cap_bytes, what
        self.cost: Callable[[R], int] = cost
        self.lock = threading.RLock()
        self.entries: OrderedDict[int, tuple[R, int]] = OrderedDict()
        self.pinned: dict[int, int] = {}
        self.reserved_bytes = 0
        self.record_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self.record_bytes + self.reserved_bytes

    def put(self, record: R) -> None:
        segment_id, num_bytes = record.head.segment_id, self.cost(record)
        with self.lock:
            before = self.entries[segment_id][1] if segment_id in self.entries else 0
            self._refuse_over_cap(num_bytes - before, f"segment {segment_id}")
            self.drop(segment_id)
            self.entries[segment_id] = (record, num_bytes)
            self.record_bytes += num_bytes

    def get(self, segment_id: int, *, is_use: bool) -> R:
        with self.lock:
            if segment_id not in self.entries:
                raise SegmentUnavailableError(segment_id, "absent", f"no {self.what} in RAM")
            if is_use:
                self.entries.move_to_end(segment_id)
            return self.entries[segment_id][0]

    def heads(self) -> list[SegmentHead]:
        with self.lock:
            return [self.entries[segment_id][0].head for segment_id in sorted(self.entries)]

    def drop(self, segment_id: int) -> None:
        with self.lock:
            _, num_bytes = self.entries.pop(segment_id, (None, 0))
            self.pinned.pop(segment_id, None)
            self.record_bytes -= num_bytes

    def evict(self, num_bytes: int) -> list[int]:
        with self.lock:
            excess = self.used_bytes + num_bytes - self.cap_bytes
            victims: list[int] = []
            for segment_id, (_, cost) in self.entries.items():
                if excess <= 0:
                    break
                if segment_id not in self.pinned:
                    victims.append(segment_id)
                    excess -= cost
            for segment_id in victims:
                self.drop(segment_id)
            return victims

    def reserve(self, num_bytes: int) -> None:
        with self.lock:
            self._refuse_over_cap(num_bytes, "a reservation")
            self.reserved_bytes += num_bytes

    def _refuse_over_cap(self, num_bytes: int, what: str) -> None:
        if self.used_bytes + num_bytes > self.cap_bytes:
            raise TierFullError(
                f"host: {what} needs {num_bytes} bytes more; "
                f"{self.used_bytes} of {self.cap_bytes} are taken"
            )

    def check(self) -> None:
        with self.lock:
            assert self.record_bytes == sum(cost for _, cost in self.entries.values())
            assert self.reserved_bytes >= 0, "host: more released than was reserved"
            assert set(self.pinned) <= set(self.entries), "host: pins of segments that are gone"
            assert self.used_bytes <= self.cap_bytes, "host: cap passed"


class HostTier(Tier):
    """Segments in RAM.

    Blocks given as views of a larger buffer are copied, so that what is counted is what is held.

    Args:
        cap_bytes: Most bytes, objects and reservations included.
    """

    name: ClassVar[TierName] = "host"

    def __init__(self, cap_bytes: int) -> None:
        self.cap_bytes = cap_bytes
        self._store: _RamStore[SegmentRecord] = _RamStore(cap_bytes, segment_cost, "segment")

    @property
    def used_bytes(self) -> int:
        """See :class:`Tier`."""
        return self._store.used_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that :meth:`evict` cannot free: pinned segments and reservations."""
        store = self._store
        with store.lock:
            return store.reserved_bytes + sum(store.entries[i][1] for i in store.pinned)

    @property
    def num_segments(self) -> int:
        """Segments held."""
        return len(self._store.entries)

    def put(self, record: SegmentRecord, *, is_pinned: bool = False) -> None:
        """See :class:`Tier`; replaces a segment of the same id.

        Args:
            record: The segment.
            is_pinned: Keep it through :meth:`evict` until :meth:`unpin`.
        """
        with self._store.lock:
            # Asked before copying, so that not even the copy is ever over the cap.
            self._store.put(record)
            segment_id, num_bytes = record.head.segment_id, segment_cost(record)
            self._store.entries[segment_id] = (_owned(record), num_bytes)
            if is_pinned:
                self._store.pinned[segment_id] = num_bytes

    def get(self, segment_id: int) -> SegmentRecord:
        """See :class:`Tier`; the segment becomes the last one to be evicted."""
        return self._store.get(segment_id, is_use=True)

    def unpin(self, segment_id: int) -> None:
        """Let a segment be evicted again."""
        with self._store.lock:
            self._store.pinned.pop(segment_id, None)

    def reserve(self, num_bytes: int) -> None:
        """Count bytes that lie in RAM elsewhere against the cap.

        Raises:
            TierFullError: No room; see :meth:`evict`.
        """
        self._store.reserve(num_bytes)

    def release(self, num_bytes: int) -> None:
        """Give back what was reserved."""
        with self._store.lock:
            self._store.reserved_bytes -= num_bytes

    def outlines(self) -> Sequence[Outline]:
        """See :class:`Tier`."""
        return self._store.heads()

    def heads(self) -> Sequence[SegmentHead]:
        """See :class:`Tier`."""
        return self._store.heads()

    def remove(self, segment_ids: Collection[int]) -> None:
        """See :class:`Tier`; pinned segments go too."""
        for segment_id in segment_ids:
            self._store.drop(segment_id)

    def evict(self, num_bytes: int) -> Sequence[int]:
        """See :class:`Tier`; pinned segments stay."""
        return self._store.evict(num_bytes)

    def __contains__(self, segment_id: object) -> bool:
        return segment_id in self._store.entries

    def check(self) -> None:
        """See :class:`Tier`."""
        self._store.check()


class HostKeyframes(KeyframeStore):
    """Pictures in RAM, for sessions without a folder.

    Args:
        cap_bytes: Most bytes, objects included.
    """

    def __init__(self, cap_bytes: int) -> None:
        self.cap_bytes = cap_bytes
        self._store: _RamStore[KeyframeRecord] = _RamStore(cap_bytes, keyframe_cost, "pictures")

    @property
    def used_bytes(self) -> int:
        """See :class:`KeyframeStore`."""
        return self._store.used_bytes

    def put(self, record: KeyframeRecord) -> None:
        """See :class:`KeyframeStore`; replaces the pictures of the same segment."""
        with self._store.lock:
            self._store.put(record)
            images = tuple(Keyframe(image.frame, bytes(image.data)) for image in record.images)
            owned = KeyframeRecord(_owned_head(record.head), images)
            self._store.entries[record.head.segment_id] = (owned, keyframe_cost(record))

    def get(self, segment_id: int) -> KeyframeRecord:
        """See :class:`KeyframeStore`; the order of eviction stays as it is."""
        return self._store.get(segment_id, is_use=False)

    def outlines(self) -> Sequence[Outline]:
        """See :class:`KeyframeStore`."""
        return self._store.heads()

    def heads(self) -> Sequence[SegmentHead]:
        """See :class:`KeyframeStore`."""
        return self._store.heads()

    def remove(self, segment_ids: Collection[int]) -> None:
        """See :class:`KeyframeStore`."""
        for segment_id in segment_ids:
            self._store.drop(segment_id)

    def evict(self, num_bytes: int) -> Sequence[int]:
        """See :class:`KeyframeStore`."""
        return self._store.evict(num_bytes)

    def __contains__(self, segment_id: object) -> bool:
        return segment_id in self._store.entries

    def check(self) -> None:
        """Prove the accounting; for tests."""
        self._store.check()


def _owned(record: SegmentRecord) -> SegmentRecord:
    """The record without references into buffers of others; ``bytes`` are taken as they are."""
    return SegmentRecord(_owned_head(record.head), tuple(bytes(layer) for layer in record.layers))


def _owned_head(head: SegmentHead) -> SegmentHead:
    return replace(
        head, vectors=_owned_array(head.vectors), token_cells=_owned_array(head.token_cells)
    )


def _owned_array(array: npt.NDArray[A]) -> npt.NDArray[A]:
    if array.base is None and not array.flags.writeable:
        return array
    own = array.copy()
    own.flags.writeable = False
    return own
