"""Long-term memory on disk: opening a folder, the two tiers in it, and their common care.

Durability: what a put has returned survives the end of the process at every level, because the
kernel holds it. Against a power cut, ``strict`` loses nothing, ``interval`` at most the seconds
between two syncs, ``none`` what the kernel had not written.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hermes_like.config import StoreConfig
from hermes_like.errors import (
    ConfigError,
    MemoryLockedError,
    SegmentUnavailableError,
    StorageError,
)
from hermes_like.tiers import layout
from hermes_like.tiers.base import (
    Keyframe,
    KeyframeRecord,
    KeyframeStore,
    SegmentHead,
    SegmentRecord,
    Tier,
)
from hermes_like.tiers.blobs import Blobs
from hermes_like.tiers.cipher import NO_KEY, Cipher
from hermes_like.tiers.fingerprint import Fingerprint
from hermes_like.tiers.ledger import Ledger, allocated, io_error
from hermes_like.tiers.log import Log
from hermes_like.tiers.misses import Misses
from hermes_like.tiers.recovery import ASIDE, Recovery
from hermes_like.tiers.shared import Shared, State
from hermes_like.tiers.volume import UNFINISHED, Volume

#: Smallest cap with which the manifest, the ballast and a few volumes find room.
MIN_DISK_BYTES = 4 * 2**20
MAX_VOLUME_BYTES = 256 * 2**20
#: Unsynced bytes after which ``interval`` does not wait any longer.
SYNC_BYTES = 64 * 2**20
LOCK = "lock"

#: Version N to what turns a folder of version N into one of N + 1, in place and crash-safe.
MIGRATIONS: dict[int, Callable[[Path], None]] = {}


def migrate(folder: Path, version: int) -> None:
    """Bring a folder of an older format version to this one.

    Raises:
        StorageError: The version is newer, or there is no way from it.
    """
    while version != layout.FORMAT_VERSION:
        if version > layout.FORMAT_VERSION:
            raise StorageError(
                f"{folder}: written in format version {version}; this version reads up to "
                f"{layout.FORMAT_VERSION}: use a newer hermes-like"
            )
        if version not in MIGRATIONS:
            raise StorageError(f"{folder}: no migration from format version {version}")
        MIGRATIONS[version](folder)
        version += 1


@dataclass(frozen=True, slots=True)
class Report:
    """Result of reading everything.

    Attributes:
        num_segments: Segments that are whole.
        num_keyframes: Segments whose pictures are whole.
        num_bytes: Bytes read.
        damaged: What was found damaged now, as text.
    """

    num_segments: int
    num_keyframes: int
    num_bytes: int
    damaged: tuple[str, ...]


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

    def get(self, segment_id: int) -> SegmentRecord:
        """Read and verify a segment; the blocks are copies of their own. See :meth:`Tier.get`."""
        head, parts = self._log.read(segment_id)
        return SegmentRecord(head, tuple(data for _, data in parts))

    def heads(self) -> Sequence[SegmentHead]:
        """Heads of the stored segments, by segment id."""
        return _heads(self._shared, self._log)

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
        _flush(self._shared, [self._log])

    def close(self) -> None:
        """Close the whole folder, pictures included."""
        self._close_store()

    def check(self) -> None:
        """Prove the accounting."""
        _check(self._shared)


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

    def heads(self) -> Sequence[SegmentHead]:
        """Heads of the segments with pictures, by segment id."""
        return _heads(self._shared, self._log)

    def remove(self, segment_ids: Collection[int]) -> None:
        """Overwrite pictures and heads in place; see :meth:`DiskTier.remove`."""
        self._log.erase(segment_ids)

    def evict(self, num_bytes: int) -> Sequence[int]:
        """Unlink the oldest volumes with pictures until ``num_bytes`` more fit."""
        return self._log.evict(num_bytes)

    def __contains__(self, segment_id: object) -> bool:
        return segment_id in self._log.entries


class DiskStore:
    """An open memory folder. Made by :func:`open_disk`.

    Attributes:
        segments: The tier with keys and values.
        keyframes: The pictures.
        notes: Differences between then and now that do no harm, as sentences.
    """

    def __init__(self, shared: Shared, logs: tuple[Log, Log], lock_fd: int) -> None:
        self._shared, self._logs, self._lock_fd = shared, logs, lock_fd
        self.segments = DiskTier(shared, logs[0], self.close)
        self.keyframes = DiskKeyframes(shared, logs[1])
        self.notes: tuple[str, ...] = ()
        self._blobs = Blobs(shared)
        self._wake = threading.Event()
        self._syncer: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._shared.folder

    @property
    def used_bytes(self) -> int:
        """Bytes claimed by everything in the folder."""
        return self._shared.ledger.used_bytes

    @property
    def state(self) -> State:
        """``full`` after a put without room, ``failed`` after an error, else ``ok``."""
        return self._shared.state

    @property
    def misses(self) -> Misses:
        """What could not be served, by reason, and what was lost."""
        return self._shared.misses

    @property
    def num_io_errors(self) -> int:
        """Errors of the medium so far."""
        return self._shared.num_io_errors

    @property
    def staging_bytes(self) -> int:
        """RAM that is kept for reading."""
        return self._shared.arena.num_bytes

    def put_blob(self, name: str, data: layout.Buffer) -> None:
        """Store a small named file, whole or not at all. Raises like :meth:`Blobs.put`."""
        self._blobs.put(name, data)

    def get_blob(self, name: str) -> bytes | None:
        """Contents of a named file, verified; None where there is none."""
        return self._blobs.get(name)

    def remove_blob(self, name: str) -> None:
        """Erase a named file if it is there."""
        self._blobs.remove(name)

    def blob_names(self) -> list[str]:
        """Names of the stored files."""
        return self._blobs.names()

    def make_room(self, num_bytes: int) -> list[int]:
        """Evict the oldest segments until a named file of so many bytes fits; returns their ids."""
        shared, log = self._shared, self._logs[0]
        gone: list[int] = []
        with shared.lock:
            shared.require_open(for_writing=True)
            bound = Blobs.bound(num_bytes)
            while log.volumes and shared.ledger.refusal(bound) is not None:
                gone += log.drop_volume(next(iter(log.volumes.values())))
        return gone

    def flush(self) -> None:
        """Bring everything that was put to the medium, and the manifest up to date."""
        _flush(self._shared, self._logs)

    def verify(self) -> Report:
        """Read every record; what is damaged is counted and not served any more."""
        found: list[str] = []
        counts, num_bytes = [0, 0], 0
        for index, log in enumerate(self._logs):
            for segment_id in sorted(log.entries):
                entry = log.entries.get(segment_id)
                try:
                    log.read(segment_id)
                except SegmentUnavailableError as error:
                    if error.reason != "absent":
                        found.append(f"{log.content}: {error}")
                else:
                    counts[index] += 1
                    num_bytes += 0 if entry is None else entry.row.num_bytes
        return Report(counts[0], counts[1], num_bytes, tuple(found))

    def rebuild(self) -> int:
        """Write the manifest anew from the volumes; returns the number of records in it."""
        with self._shared.lock:
            self._shared.require_open(for_writing=True)
            return self._shared.rebuild_manifest()

    def check(self) -> None:
        """Prove the accounting; for tests. Raises ``AssertionError``."""
        _check(self._shared)

    def close(self) -> None:
        """Flush, trim, close and unlock. Safe to call twice."""
        shared = self._shared
        if shared.is_closed:
            return
        self._wake.set()
        if self._syncer is not None:
            self._syncer.join()
        with shared.lock:
            try:
                if not shared.is_read_only:
                    for log in self._logs:
                        log.close()
                    shared.manifest.close()
            finally:
                shared.is_closed = True
                os.close(self._lock_fd)

    def __enter__(self) -> DiskStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin syncing at intervals, if that is asked for."""
        shared = self._shared
        if shared.config.durability == "interval" and not shared.is_read_only:
            self._syncer = threading.Thread(target=self._sync_loop, name="disk-sync", daemon=True)
            self._syncer.start()

    def _sync_loop(self) -> None:
        while not self._wake.wait(self._shared.config.sync_interval_s):
            self._sync_once()

    def _sync_once(self) -> None:
        """Sync every volume without holding up readers and writers."""
        shared = self._shared
        with shared.lock:
            tickets = [
                (volume, ticket)
                for log in self._logs
                for volume in log.volumes.values()
                if (ticket := volume.begin_sync()) is not None
            ]
        for volume, (fd, size) in tickets:
            try:
                os.fdatasync(fd)
            except OSError as error:
                with shared.lock:
                    volume.is_failed = True
                    shared.note_error(StorageError(f"{volume.path.name}: fsync failed: {error}"))
            else:
                with shared.lock:
                    volume.unsynced_bytes -= min(size, volume.unsynced_bytes)
            finally:
                os.close(fd)


def open_disk(
    folder: Path,
    *,
    fingerprint: Fingerprint,
    config: StoreConfig,
    key: bytes | None = None,
    read_only: bool = False,
) -> DiskStore:
    """Open or create a memory folder and bring it in order after a crash.

    Args:
        folder: Where it lies; created with mode 0700.
        fingerprint: Of the model, the codec and the source.
        config: Caps and durability.
        key: 32 bytes; then contents are encrypted. See :func:`~hermes_like.tiers.cipher.load_key`.
        read_only: Whether to leave the folder as it is; several processes may read.

    Raises:
        ConfigError: ``disk_bytes`` is below ``MIN_DISK_BYTES``.
        MemoryLockedError: Another process has the folder open.
        FingerprintError: It was written by another model; the message names the fields.
        StorageError: Another key or format version, or the medium failed.
    """
    if config.disk_bytes < MIN_DISK_BYTES:
        raise ConfigError(
            f"store.disk_bytes: expected at least {MIN_DISK_BYTES}, got {config.disk_bytes}"
        )
    cipher = None if key is None else Cipher(key)
    folder = Path(folder)
    lock_fd = _lock(folder, is_read_only=read_only)
    try:
        notes, volumes = _inspect(folder, fingerprint, cipher)
        ledger = Ledger(
            folder,
            cap_bytes=config.disk_bytes,
            keyframe_cap_bytes=keyframe_cap(config),
            min_free_bytes=config.min_free_bytes,
        )
        shared = Shared(folder, fingerprint, config, cipher, ledger, is_read_only=read_only)
        logs = (
            Log(shared, layout.KV, volume_bytes(ledger.cap_of(is_keyframes=False))),
            Log(shared, layout.KEYFRAMES, volume_bytes(ledger.cap_of(is_keyframes=True))),
        )
        for log in logs:
            for volume in volumes:
                if volume.kind == log.kind:
                    log.volumes[volume.number] = volume
                    log.settle(volume)
        store = DiskStore(shared, logs, lock_fd)
        shared.logs = logs
        if not read_only:
            _remove_leftovers(folder)
        Blobs(shared).settle()
        ledger.settle("manifest", sum(allocated(path) for path in shared.manifest.files()))
        Recovery(shared, logs).run()
        if not read_only:
            shared.ensure_ballast()
        store.notes = tuple(notes)
        store.start()
    except OSError as error:
        os.close(lock_fd)
        raise io_error(error, str(folder)) from error
    except BaseException:
        os.close(lock_fd)
        raise
    return store


def keyframe_cap(config: StoreConfig) -> int:
    """Bytes set aside for pictures: as configured, but at most half of the disk cap."""
    if config.keyframes_per_segment == 0:
        return 0
    return min(config.keyframe_bytes, config.disk_bytes // 2)


def volume_bytes(cap_bytes: int) -> int:
    """Size of a volume: a sixteenth of the cap of its side, at most 256 MiB, whole blocks."""
    blocks = min(MAX_VOLUME_BYTES, cap_bytes // 16) // layout.BLOCK_BYTES
    return max(blocks, 8) * layout.BLOCK_BYTES


def _lock(folder: Path, *, is_read_only: bool) -> int:
    """Create the folder if need be and lock it; returns the descriptor that holds the lock."""
    try:
        if not is_read_only:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC if is_read_only else flags, 0o600)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be opened: {error.strerror}") from error
    try:
        mode = fcntl.LOCK_SH if is_read_only else fcntl.LOCK_EX
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise MemoryLockedError(f"{folder}: another process has the memory open") from error
    return fd


def _inspect(
    folder: Path, fingerprint: Fingerprint, cipher: Cipher | None
) -> tuple[list[str], list[Volume]]:
    """Check version, fingerprint and key of all volumes before anything is touched."""
    found = Volume.find(folder)
    for _, _, path in found:
        version = layout.version_of(_front(path))
        if version is not None and version != layout.FORMAT_VERSION:
            migrate(folder, version)
            break
    notes: dict[str, None] = {}
    volumes = []
    for number, kind, path in Volume.find(folder):
        try:
            header = layout.unpack_volume(_front(path))
        except layout.LayoutError as error:
            notes[f"{path.name}: {error}"] = None
            volumes.append(Volume(path, number, kind, 0, 0))
            continue
        stored = Fingerprint.from_json(header.fingerprint)
        notes.update(dict.fromkeys(fingerprint.require_equal(stored)))
        _require_key(path, header, cipher)
        volumes.append(Volume(path, number, kind, header.header_bytes, header.header_bytes))
    return list(notes), volumes


def _require_key(path: Path, header: layout.VolumeHeader, cipher: Cipher | None) -> None:
    if cipher is None:
        if header.key_id != NO_KEY:
            raise StorageError(
                f"{path}: encrypted with key {header.key_id.hex()[:8]}, and no key was given"
            )
        return
    if header.key_id == NO_KEY:
        raise StorageError(f"{path}: not encrypted, but a key was given; open it without one")
    context = struct.pack("<Q", header.number) + header.digest
    if header.key_id != cipher.key_id or header.key_check != cipher.check_value(context):
        raise StorageError(
            f"{path}: wrong key: encrypted with {header.key_id.hex()[:8]}, "
            f"given {cipher.key_id.hex()[:8]}"
        )


def _front(path: Path) -> bytes:
    """The header of a volume, as far as it can be read."""
    with path.open("rb") as file:
        data = file.read(layout.BLOCK_BYTES)
        length = layout.header_length(data) if len(data) >= 24 else 0
        if layout.BLOCK_BYTES < length <= layout.MAX_HEADER_BYTES:
            data += file.read(length - layout.BLOCK_BYTES)
    return data


def _remove_leftovers(folder: Path) -> None:
    """Remove what a crash left half made."""
    for path in [*folder.glob("*" + UNFINISHED), folder / ASIDE]:
        path.unlink(missing_ok=True)


def _heads(shared: Shared, log: Log) -> list[SegmentHead]:
    with shared.lock:
        return [log.entries[segment_id].head for segment_id in sorted(log.entries)]


def _flush(shared: Shared, logs: Sequence[Log]) -> None:
    """Sync volumes and bring the manifest up to date."""
    with shared.lock:
        shared.require_open(for_writing=False)
        if shared.is_read_only:
            return
        try:
            for log in logs:
                log.sync()
            shared.manifest.flush(is_checkpoint=True)
        except StorageError as error:
            shared.note_error(error)
            raise


def _check(shared: Shared) -> None:
    """Hold the account against the file system and the caps."""
    with shared.lock:
        ledger, measured = shared.ledger, shared.ledger.measure()
        used, pictures = ledger.used_bytes, ledger.keyframe_bytes
    assert measured <= used, f"disk: {measured} bytes of blocks, {used} in the account"
    assert used <= ledger.cap_bytes, f"disk: cap passed, {used} of {ledger.cap_bytes}"
    assert pictures <= ledger.keyframe_cap_bytes, f"disk: cap of pictures passed, {pictures}"
