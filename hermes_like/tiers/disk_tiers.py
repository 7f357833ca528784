"""The two seams of long-term memory, over the logs of one folder on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hermes_like.errors import StorageError
from hermes_like.tiers import layout
from hermes_like.tiers.base import (
    Keyframe,
    KeyframeRecord,
    KeyframeStore,
    Outline,
    SegmentHead,
    SegmentRecord,
    Tier,
)
from hermes_like.tiers.log import ENTRY_BYTES, Log
from hermes_like.tiers.shared import Shared


class DiskTier(Tier):
    """Segments on disk. Everything in the folder counts as used by it, except the pictures."""

    name = "disk"

    def __init__(self, shared: Shared, log: Log, close_store: Callable[[], None]) -> None:
        self._shared, self._log, self._close_store = shared, log, close_store
        self.cap_bytes = shared.ledger.cap_of(is_keyframes=False)

    @property
    def used_bytes(self) -> int:
        """Bytes claimed by all but pictures: preallocated volumes, manifest, ballast, blobs."""
        return self._shared.ledger.used_bytes - self._shared.ledger.keyframe_bytes

    def put(self, record: SegmentRecord) -> None:
        """Append a segment; see :meth:`Tier.put`."""
        parts = [(layout.LAYER, i, layer) for i, layer in enumerate(record.layers)]
        self._log.append(record.head, parts)

    def rewrite(self, record: SegmentRecord) -> None:
        """Append a smaller form of a segment, then erase the one before; see :meth:`Tier.rewrite`.

        What is old stays together: such segments have volumes of their own.
        """
        parts = [(layout.LAYER, i, layer) for i, layer in enumerate(record.layers)]
        self._log.append(record.head, parts, is_rewritten=True)

    def get(self, segment_id: int) -> SegmentRecord:
        """Read and verify a segment; the blocks are copies of their own. See :meth:`Tier.get`."""
        head, parts = self._log.read(segment_id)
        return SegmentRecord(head, tuple(data for _, data in parts))

    @property
    def table_bytes(self) -> int:
        """See :attr:`Tier.table_bytes`."""
        return _table_bytes(self._log)

    def outlines(self) -> Sequence[Outline]:
        """See :meth:`Tier.outlines`."""
        return _outlines(self._log)

    def heads(self) -> Sequence[SegmentHead]:
        """Heads of the stored segments; see :meth:`Tier.heads`."""
        return self._log.heads()

    def remove(self, segment_ids: Collection[int]) -> None:
        """Overwrite segments in place; see :meth:`Tier.remove`.

        Zeros are written over records and vectors and reach the medium, then the blocks are given
        back. On file systems that copy on write (Btrfs, ZFS) and on flash, older copies may stay
        below the file system; encryption is the remedy there.
        """
        self._log.erase(segment_ids)

    def evict(self, num_bytes: int) -> Sequence[int]:
        """Unlink the oldest volumes; see :meth:`Tier.evict`."""
        return self._log.evict(num_bytes)

    def __contains__(self, segment_id: object) -> bool:
        return segment_id in self._log.entries

    def flush(self) -> None:
        """Bring everything that was put to the medium."""
        flush(self._shared, [self._log])

    def close(self) -> None:
        """Close the whole folder, pictures included."""
        self._close_store()

    def check(self) -> None:
        """Prove the accounting."""
        check(self._shared)


class DiskKeyframes(KeyframeStore):
    """Pictures of segments on disk, in volumes of their own under a cap of their own."""

    def __init__(self, shared: Shared, log: Log) -> None:
        self._shared, self._log = shared, log
        self.cap_bytes = shared.ledger.keyframe_cap_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes claimed by volumes with pictures."""
        return self._shared.ledger.keyframe_bytes

    def put(self, record: KeyframeRecord) -> None:
        """Append the pictures of a segment; see :meth:`Tier.put`."""
        parts = [(layout.IMAGE, image.frame, image.data) for image in record.images]
        self._log.append(record.head, parts)

    def get(self, segment_id: int) -> KeyframeRecord:
        """Read and verify the pictures of a segment; see :meth:`Tier.get`."""
        head, parts = self._log.read(segment_id)
        return KeyframeRecord(head, tuple(Keyframe(frame, data) for frame, data in parts))

    @property
    def table_bytes(self) -> int:
        """See :attr:`Tier.table_bytes`."""
        return _table_bytes(self._log)

    def outlines(self) -> Sequence[Outline]:
        """See :meth:`Tier.outlines`."""
        return _outlines(self._log)

    def heads(self) -> Sequence[SegmentHead]:
        """Heads of the segments with pictures; see :meth:`Tier.heads`."""
        return self._log.heads()

    def remove(self, segment_ids: Collection[int]) -> None:
        """Overwrite pictures and heads in place; see :meth:`DiskTier.remove`."""
        self._log.erase(segment_ids)

    def evict(self, num_bytes: int) -> Sequence[int]:
        """Unlink the oldest volumes with pictures until ``num_bytes`` more fit."""
        return self._log.evict(num_bytes)

    def __contains__(self, segment_id: object) -> bool:
        return segment_id in self._log.entries


def _outlines(log: Log) -> list[Outline]:
    entries = log.entries.copy()  # in one step: the lock may be held while the disk works
    return [entries[segment_id] for segment_id in sorted(entries)]


def _table_bytes(log: Log) -> int:
    """What is served, and what lies in a volume and is served no more."""
    return ENTRY_BYTES * (len(log.entries) + len(log.stale))


def flush(shared: Shared, logs: Sequence[Log]) -> None:
    """Sync volumes and bring the manifest up to date."""
    with shared.lock:
        shared.require_open(for_writing=False)
        if shared.is_read_only:
            return
        try:
            for log in logs:
                log.shelf.sync()
            shared.manifest.flush(is_checkpoint=True)
        except StorageError as error:
            shared.note_error(error)
            raise


def check(shared: Shared) -> None:
    """Hold the account against the file system and the caps."""
    with shared.lock:
        ledger, measured = shared.ledger, shared.ledger.measure()
        used, pictures = ledger.used_bytes, ledger.keyframe_bytes
    assert measured <= used, f"disk: {measured} bytes of blocks, {used} in the account"
    assert used <= ledger.cap_bytes, f"disk: cap passed, {used} of {ledger.cap_bytes}"
    assert pictures <= ledger.keyframe_cap_bytes, f"disk: cap of pictures passed, {pictures}"
