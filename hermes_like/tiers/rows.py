"""Rows of the manifest: what they say, their checksum, and the statements that move them."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from xxhash import xxh3_64_intdigest

from hermes_like.tiers.layout import FORMAT_VERSION

#: What a row says of its stretch.
LIVE, DAMAGED, ERASED, UNKNOWN = 0, 1, 2, 3
_ROW = struct.Struct("<qqqqqqqdd")
SCHEMA = """
CREATE TABLE records (
    sequence INTEGER PRIMARY KEY, kind INTEGER NOT NULL, volume INTEGER NOT NULL,
    start INTEGER NOT NULL, bytes INTEGER NOT NULL, state INTEGER NOT NULL,
    segment INTEGER NOT NULL, start_s REAL NOT NULL, end_s REAL NOT NULL,
    digest INTEGER NOT NULL);
CREATE TABLE heads_1 (sequence INTEGER PRIMARY KEY, head BLOB NOT NULL);
CREATE TABLE heads_2 (sequence INTEGER PRIMARY KEY, head BLOB NOT NULL);
CREATE INDEX records_of_volume ON records (volume);
CREATE TABLE erasing (
    kind INTEGER, segment INTEGER, digest INTEGER, PRIMARY KEY (kind, segment)) WITHOUT ROWID"""


class ManifestDamaged(Exception):
    """The file cannot be trusted; callers build it anew."""


@dataclass(frozen=True, slots=True)
class Row:
    """One stretch of a volume.

    Attributes:
        sequence: Of the record; negative and unique where the record is unknown.
        kind: Of the volume.
        volume: Number of the volume.
        offset: Where it begins, in bytes.
        num_bytes: Its length.
        state: ``LIVE``, ``DAMAGED``, ``ERASED`` or ``UNKNOWN``.
        segment_id: Which segment; -1 where unknown or erased.
        start_s: Stream time of its first frame; 0 where unknown.
        end_s: Stream time of its end.
        head: The head section as stored; empty unless live.
    """

    sequence: int
    kind: int
    volume: int
    offset: int
    num_bytes: int
    state: int
    segment_id: int
    start_s: float
    end_s: float
    head: bytes

    def values(self) -> tuple[object, ...]:
        """Columns, with the checksum."""
        front = (
            self.sequence,
            self.kind,
            self.volume,
            self.offset,
            self.num_bytes,
            self.state,
            self.segment_id,
            self.start_s,
            self.end_s,
        )
        return (*front, xxh3_64_intdigest(_ROW.pack(*front) + self.head) - 2**63)

    def without_head(self, state: int) -> Row:
        """The same stretch when nothing of it is served any more."""
        if state == DAMAGED:
            return replace(self, state=state, head=b"")
        return replace(self, state=state, head=b"", segment_id=-1, start_s=0.0, end_s=0.0)


def unknown_row(kind: int, volume: int, offset: int, num_bytes: int) -> Row:
    """Row of a stretch nobody knows."""
    sequence = -((volume << 30) + (offset >> 12) + 1)
    return Row(sequence, kind, volume, offset, num_bytes, UNKNOWN, -1, 0.0, 0.0, b"")


_RECORDS = """SELECT digest, sequence, kind, volume, start, bytes, state, segment, start_s, end_s
    FROM records ORDER BY sequence"""
_HEADS = "SELECT sequence, head FROM heads_{} ORDER BY sequence"


def insert_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Write rows and their heads over those with the same sequence."""
    for row in rows:
        values = row.values()
        connection.execute("INSERT OR REPLACE INTO records VALUES (?,?,?,?,?,?,?,?,?,?)", values)
        if row.head:
            connection.execute(
                f"INSERT OR REPLACE INTO heads_{row.kind} VALUES (?,?)", (row.sequence, row.head)
            )
        elif row.state != LIVE:
            connection.execute(
                f"UPDATE heads_{row.kind} SET head=zeroblob(length(head)) WHERE sequence=?",
                (row.sequence,),
            )


def delete_rows(connection: sqlite3.Connection, sequences: Iterable[int]) -> None:
    """Delete rows and their heads."""
    keys = [(sequence,) for sequence in sequences]
    for table in ("heads_1", "heads_2", "records"):
        connection.executemany(f"DELETE FROM {table} WHERE sequence=?", keys)


def delete_volume(connection: sqlite3.Connection, number: int) -> None:
    """Delete whatever is left of a volume."""
    found = connection.execute("SELECT sequence FROM records WHERE volume=?", (number,))
    delete_rows(connection, [sequence for (sequence,) in found.fetchall()])


def read_rows(connection: sqlite3.Connection) -> list[Row]:
    """All rows, verified."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != FORMAT_VERSION:
        raise ManifestDamaged(f"version {version}")
    if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise ManifestDamaged("quick_check")
    schema = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    if sorted(sql for (sql,) in schema) != sorted(part.strip() for part in SCHEMA.split(";")):
        raise ManifestDamaged("schema")
    # Three walks in step, since all tables are in the order of the sequence: quicker than a join.
    heads = {kind: connection.execute(_HEADS.format(kind)) for kind in (1, 2)}
    rows, seen = list[Row](), dict[int, bytes]()
    for digest, *columns in connection.execute(_RECORDS):
        try:
            sequence, kind, state = columns[0], columns[1], columns[5]
            head = _head_of(heads[kind], sequence) if state == LIVE else b""
            packed = _ROW.pack(*columns) + head
        except (struct.error, TypeError, KeyError) as error:
            raise ManifestDamaged(f"row: {error}") from error
        if xxh3_64_intdigest(packed) - 2**63 != digest:
            raise ManifestDamaged("row checksum")
        # A segment and its pictures have the same head: one copy of it in RAM is enough.
        same = seen.setdefault(columns[6], head)
        columns.append(same if same == head else head)
        rows.append(Row(*columns))
    return rows


def _head_of(heads: sqlite3.Cursor, sequence: int) -> bytes:
    """The head of a record; those before it belong to records that are served no more."""
    for found, head in heads:
        if found >= sequence:
            if found > sequence:
                break
            return bytes(head)
    raise ManifestDamaged(f"row {sequence} has no head")


def intent_digest(kind: int, segment_id: int) -> int:
    """Checksum of an intention, so that no altered one erases another segment."""
    return xxh3_64_intdigest(b"%d %d" % (kind, segment_id)) - 2**63


def batches(rows: Collection[Row], limit_bytes: int) -> Iterable[list[Row]]:
    """Rows in groups whose heads stay below a limit, one row at least."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        if batch and size + len(row.head) > limit_bytes // 2:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row.head) + 128
    if batch:
        yield batch
