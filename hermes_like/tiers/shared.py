"""What the two series of records and the small files of one folder have in common."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_like.config import StoreConfig
from hermes_like.errors import StorageError, TierFullError
from hermes_like.tiers.arena import Arena
from hermes_like.tiers.cipher import NO_KEY, Cipher
from hermes_like.tiers.fingerprint import Fingerprint
from hermes_like.tiers.ledger import Ledger, allocated
from hermes_like.tiers.manifest import Manifest
from hermes_like.tiers.misses import Misses

if TYPE_CHECKING:
    from hermes_like.tiers.log import Log

State = Literal["ok", "full", "failed"]
BALLAST = "ballast"
logger = logging.getLogger(__name__)


class Shared:
    """State of one open folder.

    Args:
        folder: The memory folder.
        fingerprint: What its contents must depend on.
        config: Caps and durability.
        cipher: Seals sections; None: nothing is encrypted.
        ledger: Accounts of the folder.
        is_read_only: Whether nothing may be written.

    Attributes:
        lock: Held for everything but reading and checking bytes.
        state: ``full`` after a put without room, ``failed`` after an error of the medium, until a
            put succeeds.
        num_io_errors: Errors of the medium so far.
        misses: What could not be served.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: Fingerprint,
        config: StoreConfig,
        cipher: Cipher | None,
        ledger: Ledger,
        *,
        is_read_only: bool,
    ) -> None:
        self.folder, self.fingerprint, self.config = folder, fingerprint, config
        self.cipher, self.ledger, self.is_read_only = cipher, ledger, is_read_only
        self.digest = fingerprint.digest
        self.key_id = NO_KEY if cipher is None else cipher.key_id
        self.manifest = Manifest(folder, ledger, self.release_ballast, is_durable=self.is_durable)
        self.misses = Misses()
        self.arena = Arena()
        self.lock = threading.RLock()
        self.state: State = "ok"
        self.num_io_errors = 0
        self.is_closed = False
        self.next_sequence = 1
        self.next_volume = 1
        self.logs: Sequence[Log] = ()

    @property
    def is_durable(self) -> bool:
        """Whether data is ever forced to the medium."""
        return self.config.durability != "none"

    @property
    def ballast_bytes(self) -> int:
        """Size of the file that is given up when the disk is full, so that rows can be deleted."""
        return min(16 * 2**20, self.ledger.cap_bytes // 64)

    def rebuild_manifest(self) -> int:
        """Write the manifest anew from the records that are known; returns their number.

        What was in the file before is gone with it: nothing of an erased head can be left over.
        Where the cap leaves no room, the rest is left to the next open, which reads the volumes.
        """
        self.manifest.discard(keeps_claim=True)
        self.manifest.open()
        rows = [row for log in self.logs for row in log.full_rows()]
        try:
            self.manifest.put_all(sorted(rows, key=lambda row: row.sequence))
        except TierFullError as error:
            self.note_error(error)
        self.manifest.flush(is_checkpoint=True)
        return len(rows)

    def require_open(self, *, for_writing: bool) -> None:
        """Raise :class:`StorageError` if the store is closed, or read-only and to be written."""
        if self.is_closed:
            raise StorageError(f"{self.folder}: the memory is closed")
        if for_writing and self.is_read_only:
            raise StorageError(f"{self.folder}: opened for reading only")

    def note_error(self, error: Exception) -> None:
        """Let the state tell of a failure."""
        if isinstance(error, TierFullError):
            self.state = "full"
        else:
            self.state = "failed"
            self.num_io_errors += 1
            logger.warning("memory folder %s: %s", self.folder, error)

    def ensure_ballast(self) -> None:
        """Make the ballast file if it is missing and there is room."""
        path, size = self.folder / BALLAST, self.ballast_bytes
        if allocated(path) >= size:
            self.ledger.settle(BALLAST, allocated(path))
            return
        try:
            self.ledger.claim(BALLAST, size + 4096)
        except TierFullError:
            return
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, size)
            finally:
                os.close(fd)
            self.ledger.settle(BALLAST, allocated(path))
        except OSError:
            self.release_ballast()

    def release_ballast(self) -> bool:
        """Give the ballast up; returns whether there was one."""
        path = self.folder / BALLAST
        had_one = path.exists()
        path.unlink(missing_ok=True)
        self.ledger.drop(BALLAST)
        return had_one
