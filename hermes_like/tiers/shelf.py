"""The volumes of one kind: which of them grows, how a new one is made, and what each may take.

Knows files, caps and their account. What lies in a volume is the log's affair.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from hermes_like.errors import StorageError, TierFullError
from hermes_like.tiers import failpoints, layout
from hermes_like.tiers.ledger import allocated, io_error
from hermes_like.tiers.shared import Shared
from hermes_like.tiers.volume import EXTENT_BYTES, Volume, sync_folder


class Shelf:
    """Volumes of one kind in a folder. The lock of the folder is held by the caller.

    Args:
        shared: State of the folder.
        kind: ``layout.KV`` or ``layout.KEYFRAMES``.
        volume_bytes: Size of a full volume.

    Attributes:
        volumes: Number to volume, ascending.
        volume_bytes: Size of a full volume.
        header_bytes: What the header of a volume takes of it.
        rewritten: Number of the volume that grows with segments stored again; None: there is none.
        most_bytes: The largest record that fits.
    """

    def __init__(self, shared: Shared, kind: int, volume_bytes: int) -> None:
        self.shared, self.kind, self.volume_bytes = shared, kind, volume_bytes
        self.volumes: dict[int, Volume] = {}
        self.rewritten: int | None = None
        self.header_bytes = layout.volume_header_bytes(shared.fingerprint.to_json().encode())
        self.most_bytes = volume_bytes - self.header_bytes

    @property
    def is_keyframes(self) -> bool:
        """Whether the volumes count against the cap of pictures."""
        return self.kind == layout.KEYFRAMES

    @property
    def active(self) -> Volume | None:
        """The volume that grows with new segments."""
        last = next((v for v in reversed(self.volumes.values()) if v is not self._rewriting), None)
        return None if last is None or last.is_failed else last

    @property
    def _rewriting(self) -> Volume | None:
        """The volume that grows with segments that are stored again."""
        return None if self.rewritten is None else self.volumes.get(self.rewritten)

    def is_growing(self, volume: Volume) -> bool:
        """Whether records are still appended to a volume."""
        return volume is self.active or volume is self._rewriting

    # -- room ------------------------------------------------------------------------------------

    def volume_for(self, num_bytes: int, *, is_rewritten: bool) -> Volume:
        """A volume with room for a record, made if need be.

        Args:
            num_bytes: Of the record.
            is_rewritten: Whether it is an older segment that is stored again.

        Raises:
            TierFullError: A cap, the floor of free space or the medium leaves no room.
        """
        if num_bytes > self.most_bytes:
            raise TierFullError(
                f"a record of {num_bytes} bytes does not fit a volume of {self.volume_bytes}; "
                f"raise store.{'keyframe_bytes' if self.is_keyframes else 'disk_bytes'}"
            )
        volume = self._rewriting if is_rewritten else self.active
        if volume is None or volume.is_failed or volume.end + num_bytes > volume.capacity:
            fresh = self._new_volume(volume, num_bytes)
            if is_rewritten:
                self.rewritten = fresh.number
            return fresh
        if volume.end + num_bytes > volume.limit:
            self._grow(volume)
        return volume

    def growth_for(self, num_bytes: int) -> int:
        """Bytes that must be claimed before a record can be appended; 0 where none."""
        volume = self.active
        if volume is None or volume.end + num_bytes > volume.capacity:
            return self._new_volume_bytes(num_bytes) + EXTENT_BYTES
        if volume.end + num_bytes <= volume.limit:
            return 0
        claimed = self.shared.ledger.entry(volume.path.name)
        return max(0, volume.capacity + EXTENT_BYTES - claimed)

    def _grow(self, volume: Volume) -> None:
        name, ledger = volume.path.name, self.shared.ledger
        before = ledger.entry(name)
        ledger.claim(name, volume.capacity + EXTENT_BYTES, is_keyframes=self.is_keyframes)
        try:
            volume.preallocate()
        except OSError as error:
            ledger.settle(name, before, is_keyframes=self.is_keyframes)
            raise io_error(error, name) from error

    def _new_volume_bytes(self, num_bytes: int) -> int:
        """Size of the next volume, which must hold a record; pictures fill their cap to the brim.

        What is refused for pictures then really is at their cap, so that nobody evicts keys and
        values for them.
        """
        if not self.is_keyframes:
            return self.volume_bytes
        ledger = self.shared.ledger
        left = ledger.cap_of(is_keyframes=True) - ledger.keyframe_bytes - EXTENT_BYTES
        size = min(self.volume_bytes, left // layout.BLOCK_BYTES * layout.BLOCK_BYTES)
        return size if size >= num_bytes + self.header_bytes else self.volume_bytes

    def _new_volume(self, full: Volume | None, num_bytes: int) -> Volume:
        shared, number = self.shared, self.shared.next_volume
        size = self._new_volume_bytes(num_bytes)
        name = Volume.path_of(shared.folder, self.kind, number).name
        ledger = shared.ledger
        ledger.claim(name, size + EXTENT_BYTES, is_keyframes=self.is_keyframes)
        try:
            volume = Volume.create(shared.folder, self._header(number), size)
            if shared.is_durable:
                sync_folder(shared.folder)
        except OSError as error:
            Volume.path_of(shared.folder, self.kind, number).unlink(missing_ok=True)
            ledger.drop(name)
            raise io_error(error, name) from error
        shared.next_volume = number + 1
        self.volumes[number] = volume
        if full is not None and not full.is_failed:
            self.seal(full)
        shared.ensure_ballast()
        return volume

    def _header(self, number: int) -> layout.VolumeHeader:
        shared, check = self.shared, bytes(16)
        if shared.cipher is not None:
            check = shared.cipher.check_value(struct.pack("<Q", number) + shared.digest)
        return layout.VolumeHeader(
            self.kind, number, self.header_bytes, shared.digest, shared.key_id,
            check, shared.fingerprint.to_json().encode(),
        )  # fmt: skip

    # -- no more room ----------------------------------------------------------------------------

    def seal(self, volume: Volume) -> None:
        """Bring a full volume to the medium and give back its unused end."""
        failpoints.hit("volume.before_seal")
        self._end(volume, self._sync_and_trim)
        failpoints.hit("volume.after_seal")

    def abandon(self, volume: Volume) -> None:
        """Never write to a volume again; what it holds is still served, after verification."""
        volume.is_failed = True
        self._end(volume, Volume.trim)

    def _sync_and_trim(self, volume: Volume) -> None:
        if self.shared.is_durable:
            volume.sync()
        volume.trim()

    def _end(self, volume: Volume, work: Callable[[Volume], None]) -> None:
        try:
            work(volume)
        except OSError as error:
            volume.is_failed = True
            self.shared.note_error(io_error(error, volume.path.name))
        volume.release()
        self.settle(volume)

    def settle(self, volume: Volume) -> None:
        """Account a volume by its allocated blocks, or by its bound while it may grow."""
        size = allocated(volume.path)
        if volume.limit > volume.end:
            size = max(size, volume.limit + EXTENT_BYTES)
        self.shared.ledger.settle(volume.path.name, size, is_keyframes=self.is_keyframes)

    def unlink(self, volume: Volume) -> None:
        """Remove a volume's file and give back what it took. Raises :class:`StorageError`."""
        try:
            volume.unlink()
        except OSError as error:
            raise io_error(error, volume.path.name) from error
        failpoints.hit("evict.after_unlink")
        self.shared.ledger.drop(volume.path.name)
        del self.volumes[volume.number]

    def wipe(self, volume: Volume, stretches: list[tuple[int, int, int]]) -> None:
        """Overwrite stretches of a volume in place and give their blocks back; one sync.

        Args:
            volume: One of these.
            stretches: Offset, length and sequence number of each.

        Raises:
            StorageError: The medium failed.
        """
        try:
            for offset, num_bytes, sequence in stretches:
                volume.blank(offset, num_bytes, sequence)
            volume.give_back([(offset, num_bytes) for offset, num_bytes, _ in stretches])
        except OSError as error:
            failure = StorageError(f"{volume.path.name}: erasing failed: {error}")
            self.shared.note_error(failure)
            raise failure from error
        if not self.is_growing(volume):
            volume.release()
        self.settle(volume)

    def sync(self) -> None:
        """Force all volumes to the medium. Raises :class:`StorageError`."""
        for volume in list(self.volumes.values()):
            try:
                volume.sync()
            except OSError as error:
                raise io_error(error, volume.path.name) from error

    def close(self) -> None:
        """Trim and close all volumes."""
        for volume in self.volumes.values():
            if volume.limit > volume.end:
                self.seal(volume)
            volume.release()
