"""The index of all records in SQLite. A cache of record headers: it may be deleted at any time.

One row per stretch of a volume, so that the rows of a volume tile it: a missing row shows. A row
carries the head as stored (sealed, if there is a key) and a checksum over everything. Heads lie in
tables of their own, one per kind: written in order, overwritten with zeros of the same length, and
deleted from the front, they are moved about by SQLite as little as can be, which leaves no copies.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from hermes_like.errors import StorageError, TierFullError
from hermes_like.tiers import failpoints
from hermes_like.tiers.layout import FORMAT_VERSION
from hermes_like.tiers.ledger import Ledger, allocated
from hermes_like.tiers.rows import (
    DAMAGED,
    ERASED,
    LIVE,
    SCHEMA,
    UNKNOWN,
    ManifestDamaged,
    Row,
    batches,
    delete_rows,
    delete_volume,
    insert_rows,
    intent_digest,
    read_rows,
    unknown_row,
)

__all__ = [
    "DAMAGED",
    "ERASED",
    "LIVE",
    "NAME",
    "UNKNOWN",
    "Manifest",
    "ManifestDamaged",
    "Row",
    "unknown_row",
]

NAME = "manifest.sqlite"
#: Rows that are kept back and written together.
BATCH_ROWS = 16
#: Most rows kept back where there is no room for them.
MOST_PENDING_ROWS = 1024
_SLACK_BYTES = 96 * 2**10
#: What SQLite and Python's module for it raise; damaged names and messages fail to decode.
_ERRORS = (sqlite3.Error, UnicodeDecodeError)


class Manifest:
    """Open manifest of one folder. Calls must not overlap.

    Args:
        folder: The memory folder.
        ledger: Where growth is claimed.
        make_room: Called when the disk is full; gives space back if it can and says whether.
        is_durable: Whether anything is forced to the medium.
    """

    def __init__(
        self, folder: Path, ledger: Ledger, make_room: Callable[[], bool], *, is_durable: bool
    ) -> None:
        self._is_durable = is_durable
        self.path, self._ledger, self._make_room = folder / NAME, ledger, make_room
        self._wal = self.path.with_name(NAME + "-wal")
        self._wal_limit = min(max(ledger.cap_bytes // 64, 2**16), 2**20)
        self._quantum = min(max(ledger.cap_bytes // 256, 2**14), 2**18)
        self._pending: list[Row] = []
        self._largest_row = 0
        self._connection: sqlite3.Connection | None = None
        self._db_bytes = self._wal_bytes = 0

    def open(self) -> list[Row]:
        """Open or create the file; returns all rows.

        Raises:
            ManifestDamaged: It exists and cannot be trusted.
            TierFullError: No room for it.
        """
        self.measure()
        entry = self._ledger.entry("manifest")
        wanted = min(self._bound(0), entry + self._ledger.room_bytes)
        self._ledger.claim("manifest", max(wanted, self.least_bytes), needs_free_space=False)
        is_new = not self.path.exists()
        try:
            self.path.touch(0o600)
            self._connection = self._connect()
            if is_new:
                self._run(self._create)
            return self._load()
        except _ERRORS as error:
            self.disconnect()
            if _code(error) == sqlite3.SQLITE_FULL:
                raise TierFullError(f"{NAME}: {error}") from error
            if _can_wait(error):
                raise StorageError(f"{NAME}: {error}") from error
            raise ManifestDamaged(str(error)) from error
        except ManifestDamaged:
            self.disconnect()
            raise

    @staticmethod
    def peek(folder: Path) -> list[Row]:
        """Rows as of the last checkpoint, without writing anything; for read-only use.

        Raises:
            ManifestDamaged: The file is missing or cannot be trusted.
        """
        path = (folder / NAME).absolute()
        try:
            connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        except _ERRORS as error:
            raise ManifestDamaged(str(error)) from error
        try:
            return read_rows(connection)
        except _ERRORS as error:
            raise ManifestDamaged(str(error)) from error
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=5.0
        )
        try:
            for pragma in (
                "locking_mode=EXCLUSIVE",  # no shared-memory file
                "journal_mode=WAL",
                f"synchronous={'NORMAL' if self._is_durable else 'OFF'}",
                "secure_delete=ON",
                "temp_store=MEMORY",
                "wal_autocheckpoint=0",
                "cache_size=-2048",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except _ERRORS:
            connection.close()
            raise
        return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")

    def _load(self) -> list[Row]:
        connection = self._open_connection()
        rows = read_rows(connection)
        self._largest_row = max((len(row.head) for row in rows), default=0)
        self.measure()
        return rows

    @property
    def least_bytes(self) -> int:
        """What must be claimed to open the file; enough for reading, erasing and evicting."""
        return self._db_bytes + 2 * self._wal_bytes + _SLACK_BYTES

    def add(self, row: Row) -> None:
        """Index a record; rows are written in batches, and a crash before only means a scan."""
        self._pending.append(row)
        self._largest_row = max(self._largest_row, len(row.head))
        if len(self._pending) >= BATCH_ROWS:
            self.flush()

    def growth(self, head_bytes: int) -> int:
        """Bytes that must be claimed before one more row can be written for certain."""
        payload = sum(len(row.head) + 256 for row in self._pending) + head_bytes + 256
        return max(0, self._bound(payload, head_bytes) - self._ledger.entry("manifest"))

    def reserve(self, head_bytes: int) -> None:
        """Claim what one more row may take, before its record is written.

        Raises:
            TierFullError: No room.
        """
        self.require_room()
        growth = self.growth(head_bytes)
        if growth:
            bound = self._ledger.entry("manifest") + growth
            self._ledger.claim("manifest", bound, needs_free_space=False)

    def require_room(self) -> None:
        """Raise :class:`TierFullError` if too many rows wait to be written."""
        if len(self._pending) > MOST_PENDING_ROWS:
            raise TierFullError(f"{NAME}: {len(self._pending)} rows cannot be written")

    def flush(self, *, is_checkpoint: bool = False) -> None:
        """Write what is pending.

        Where there is no room, rows stay pending: the records themselves are safe without them.

        Raises:
            StorageError: The file is damaged.
        """
        rows = list(self._pending)
        try:
            if rows:
                self._claim(sum(len(row.head) + 256 for row in rows))
                self._run(lambda c: insert_rows(c, rows))
                del self._pending[: len(rows)]
            self._checkpoint(is_forced=is_checkpoint)
        except (*_ERRORS, OSError, TierFullError) as error:
            if not _can_wait(error):
                raise StorageError(f"{NAME}: {error}") from error

    def replace(self, rows: Iterable[Row]) -> None:
        """Write rows over those with the same sequence, pending ones included.

        Raises:
            StorageError: The medium failed.
        """
        values = list(rows)
        # What waits may not be written later over what is known now: the record may be erased.
        sequences = {row.sequence for row in values}
        self._pending = [row for row in self._pending if row.sequence not in sequences]
        self._write(lambda c: insert_rows(c, values))

    def put_all(self, rows: Collection[Row]) -> None:
        """Insert many rows, a small batch at a time, so that little need be claimed in advance."""
        for batch in batches(rows, self._quantum):
            self._claim(sum(len(row.head) + 256 for row in batch))
            self.replace(batch)

    def forget_volume(self, number: int, rows: Sequence[Row] = ()) -> None:
        """Delete the rows of a volume, and those pending.

        Args:
            number: Of the volume.
            rows: Those it has, so that they can go a bounded number at a time.
        """
        self._pending = [row for row in self._pending if row.volume != number]
        count = max(1, self._wal_limit // (2 * self._largest_row + 256))
        for first in range(0, len(rows), count):
            self.remove([row.sequence for row in rows[first : first + count]])
        self._write(lambda c: delete_volume(c, number))

    def remove(self, sequences: Sequence[int]) -> None:
        """Delete rows. Raises :class:`StorageError`."""
        if sequences:
            self._write(lambda c: delete_rows(c, sequences))

    def intend_erasure(self, kind: int, segment_ids: Collection[int]) -> None:
        """Note what is about to be erased, so that a crash in between can be made good."""
        values = [(kind, i, intent_digest(kind, i)) for i in segment_ids]
        self._write(lambda c: c.executemany("INSERT OR IGNORE INTO erasing VALUES (?,?,?)", values))

    def erasures(self) -> list[tuple[int, int]]:
        """Kind and segment of erasures that were begun; altered rows do not count."""
        found = self._open_connection().execute("SELECT kind, segment, digest FROM erasing")
        return [(kind, i) for kind, i, digest in found if digest == intent_digest(kind, i)]

    def finish_erasure(self, kind: int, segment_ids: Collection[int]) -> None:
        """Cross off erasures, after everything of them has left the file."""
        self._write(lambda c: None, is_checkpoint=True)
        values = [(kind, segment_id) for segment_id in segment_ids]
        statement = "DELETE FROM erasing WHERE kind=? AND segment=?"
        self._write(lambda c: c.executemany(statement, values))

    def contains_bytes(self, needles: Iterable[bytes]) -> bool:
        """Whether any of the byte strings can be found in the files."""
        haystacks = [path.read_bytes() for path in (self.path, self._wal) if path.exists()]
        return any(needle in hay for needle in needles if needle for hay in haystacks)

    def close(self) -> None:
        """Write what is pending and close. Safe to call twice."""
        if self._connection is None:
            return
        try:
            self.flush(is_checkpoint=True)
        finally:
            self.disconnect()
            self.measure()
            self._ledger.settle("manifest", self._db_bytes + self._wal_bytes)

    def discard(self, *, keeps_claim: bool = False) -> None:
        """Close and remove the files; what was pending is in the volumes."""
        self._pending.clear()
        self.disconnect()
        for path in self.files():
            path.unlink(missing_ok=True)
        if not keeps_claim:
            self._ledger.drop("manifest")

    def files(self) -> list[Path]:
        """Every file SQLite may make."""
        return [self.path.with_name(NAME + end) for end in ("", "-wal", "-shm", "-journal")]

    def _write(
        self, work: Callable[[sqlite3.Connection], object], *, is_checkpoint: bool = False
    ) -> None:
        try:
            try:
                self._run(work)
                self._checkpoint(is_forced=is_checkpoint)
            except (*_ERRORS, OSError) as error:
                if not _can_wait(error) or not self._make_room():
                    raise
                self._run(work)
                self._checkpoint(is_forced=is_checkpoint)
        except (*_ERRORS, OSError) as error:
            raise StorageError(f"{NAME}: {error}") from error

    def _run(self, work: Callable[[sqlite3.Connection], object]) -> None:
        connection = self._open_connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            work(connection)
            failpoints.hit("manifest.before_commit")
            connection.execute("COMMIT")
        except (*_ERRORS, OSError):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self.measure()

    def _checkpoint(self, *, is_forced: bool) -> None:
        if self._wal_bytes > (0 if is_forced else self._wal_limit):
            failpoints.hit("manifest.before_checkpoint")
            self._open_connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self.measure()
            self._ledger.settle("manifest", min(self._bound(0), self._ledger.entry("manifest")))

    def measure(self) -> None:
        """Look how large the files are; before they are opened, too."""
        self._db_bytes, self._wal_bytes = allocated(self.path), allocated(self._wal)

    def _bound(self, payload_bytes: int, row_bytes: int = 0) -> int:
        """Most bytes the files can take once so much was written and brought into the database."""
        slack = max(_SLACK_BYTES, 4 * self._largest_row, 4 * row_bytes)
        total = self._db_bytes + 2 * (self._wal_bytes + 2 * payload_bytes + slack)
        return -(-total // self._quantum) * self._quantum

    def _claim(self, payload_bytes: int) -> None:
        bound = self._bound(payload_bytes)
        if bound > self._ledger.entry("manifest"):
            # Its growth is small; below the floor of free space, erasing must still be possible.
            self._ledger.claim("manifest", bound, needs_free_space=False)

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StorageError(f"{self.path}: closed")
        return self._connection

    def disconnect(self) -> None:
        """Close the file as it is; what is pending stays so. Safe to call twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _can_wait(error: Exception) -> bool:
    """Whether an error comes from the medium or from a cap, and not from damage."""
    is_ours = isinstance(error, OSError | TierFullError)
    return is_ours or _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _code(error: Exception) -> int:
    """Primary result code of an error of SQLite; 0 of others."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
