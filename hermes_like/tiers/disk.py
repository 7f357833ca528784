"""Long-term memory on disk: opening a folder, the two tiers in it, and their common care.

Durability: what a put has returned survives the end of the process at every level, because the
kernel holds it. Against a power cut, ``strict`` loses nothing, ``interval`` at most the seconds
between two syncs, ``none`` what the kernel had not written.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hermes_like.config import StoreConfig
from hermes_like.errors import (
    ConfigError,
    SegmentUnavailableError,
    StorageError,
)
from hermes_like.tiers import layout
from hermes_like.tiers.admission import LOCK, MIGRATIONS, inspect, lock_folder, migrate
from hermes_like.tiers.blobs import Blobs
from hermes_like.tiers.cipher import Cipher
from hermes_like.tiers.disk_tiers import DiskKeyframes, DiskTier, check, flush
from hermes_like.tiers.fingerprint import Fingerprint
from hermes_like.tiers.ledger import Ledger, allocated, io_error
from hermes_like.tiers.log import Log
from hermes_like.tiers.misses import Misses
from hermes_like.tiers.recovery import ASIDE, Recovery
from hermes_like.tiers.shared import Shared, State
from hermes_like.tiers.volume import UNFINISHED

__all__ = [
    "LOCK",
    "MIGRATIONS",
    "MIN_DISK_BYTES",
    "DiskKeyframes",
    "DiskStore",
    "DiskTier",
    "Report",
    "keyframe_cap",
    "migrate",
    "open_disk",
    "volume_bytes",
]

#: Smallest cap with which the manifest, the ballast and a few volumes find room.
MIN_DISK_BYTES = 4 * 2**20
MAX_VOLUME_BYTES = 256 * 2**20
#: Unsynced bytes after which ``interval`` does not wait any longer.
SYNC_BYTES = 64 * 2**20


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
        """Evict the oldest segments until a named file of so many bytes fits under the cap.

        A disk that others have filled is another matter: nothing of ours goes for that.

        Returns:
            Ids of the segments that went.
        """
        shared, log = self._shared, self._logs[0]
        gone: list[int] = []
        with shared.lock:
            shared.require_open(for_writing=True)
            bound = Blobs.bound(num_bytes)
            while log.volumes and not shared.ledger.fits(bound):
                gone += log.drop_volume(log.oldest_volume())
        return gone

    def flush(self) -> None:
        """Bring everything that was put to the medium, and the manifest up to date."""
        flush(self._shared, self._logs)

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
                    num_bytes += 0 if entry is None else entry.num_bytes
        return Report(counts[0], counts[1], num_bytes, tuple(found))

    def rebuild(self) -> int:
        """Write the manifest anew from the volumes; returns the number of records in it."""
        with self._shared.lock:
            self._shared.require_open(for_writing=True)
            return self._shared.rebuild_manifest()

    def check(self) -> None:
        """Prove the accounting; for tests. Raises ``AssertionError``."""
        check(self._shared)

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
                        log.shelf.close()
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
    lock_fd = lock_folder(folder, is_read_only=read_only)
    try:
        notes, volumes = inspect(folder, fingerprint, cipher)
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
                    log.shelf.settle(volume)
        store = DiskStore(shared, logs, lock_fd)
        shared.logs = logs
        _bring_in_order(shared, logs)
        store.notes = tuple(notes)
        store.start()
    except OSError as error:
        os.close(lock_fd)
        raise io_error(error, str(folder)) from error
    except BaseException:
        os.close(lock_fd)
        raise
    return store


def _bring_in_order(shared: Shared, logs: tuple[Log, Log]) -> None:
    """Account what is there and load it; lets go of the files again where that fails."""
    ledger = shared.ledger
    try:
        if not shared.is_read_only:
            _remove_leftovers(shared.folder)
        Blobs(shared).settle()
        ledger.settle("manifest", sum(allocated(path) for path in shared.manifest.files()))
        Recovery(shared, logs).run()
        if not shared.is_read_only:
            shared.ensure_ballast()
    except BaseException:
        shared.is_closed = True
        shared.manifest.disconnect()
        for log in logs:
            for volume in log.volumes.values():
                volume.release()
        raise


def keyframe_cap(config: StoreConfig) -> int:
    """Bytes set aside for pictures: as configured, but at most half of the disk cap."""
    if config.keyframes_per_segment == 0:
        return 0
    return min(config.keyframe_bytes, config.disk_bytes // 2)


def volume_bytes(cap_bytes: int) -> int:
    """Size of a volume: a sixteenth of the cap of its side, at most 256 MiB, whole blocks."""
    blocks = min(MAX_VOLUME_BYTES, cap_bytes // 16) // layout.BLOCK_BYTES
    return max(blocks, 8) * layout.BLOCK_BYTES


def _remove_leftovers(folder: Path) -> None:
    """Remove what a crash left half made."""
    for path in [*folder.glob("*" + UNFINISHED), folder / ASIDE]:
        path.unlink(missing_ok=True)
