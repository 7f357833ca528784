"""The records of one kind: what lies where in a row of volumes, and what is done with it.

Data goes first and the index after it, so that a crash loses the record being written and no other.
What is read is verified against the record itself, never against the index alone.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from xxhash import xxh3_64_intdigest as checksum

from hermes_like.errors import SegmentUnavailableError, StorageError, TierFullError
from hermes_like.tiers import failpoints, layout
from hermes_like.tiers.base import SegmentHead
from hermes_like.tiers.layout import Buffer, LayoutError, RecordHeader
from hermes_like.tiers.ledger import io_error
from hermes_like.tiers.manifest import DAMAGED, ERASED, LIVE, Row
from hermes_like.tiers.misses import Content, Loss
from hermes_like.tiers.shared import Shared
from hermes_like.tiers.shelf import Shelf
from hermes_like.tiers.volume import Volume

Part = tuple[int, int, Buffer]
_PLACE = struct.Struct("<HQIQ")


#: What one entry takes in RAM, its numbers and its place in the table included
#: (``tests/tiers/test_tables.py`` compares it with what is really allocated).
ENTRY_BYTES = 384


@dataclass(slots=True, eq=False)
class Entry:
    """A record that is served; an :class:`~hermes_like.tiers.base.Outline` of its segment.

    A day has tens of thousands, so it is small: the head of the segment stays on the medium.

    Attributes:
        sequence: Of the record.
        kind: Of the volume.
        volume: Number of the volume.
        offset: Where it begins, in bytes.
        num_bytes: Its length.
        segment_id: Which segment.
        start_s: Stream time of its first frame.
        end_s: Stream time of its end.
        is_whole: Whether every token of it is stored.
    """

    sequence: int
    kind: int
    volume: int
    offset: int
    num_bytes: int
    segment_id: int
    start_s: float
    end_s: float
    is_whole: bool

    @classmethod
    def of(cls, row: Row, head: SegmentHead) -> Entry:
        """The record of a row."""
        return cls(
            row.sequence, row.kind, row.volume, row.offset, row.num_bytes,
            row.segment_id, row.start_s, row.end_s, head.is_whole,
        )  # fmt: skip

    @property
    def row(self) -> Row:
        """Its row, without the head as stored."""
        return Row(
            self.sequence, self.kind, self.volume, self.offset, self.num_bytes, LIVE,
            self.segment_id, self.start_s, self.end_s, b"",
        )  # fmt: skip


class Log:
    """All records of one kind in a folder.

    Args:
        shared: State of the folder.
        kind: ``layout.KV`` or ``layout.KEYFRAMES``.
        volume_bytes: Size of a full volume.

    Attributes:
        shelf: The volumes, and which of them grows.
        volumes: The same by number, ascending.
        entries: Segment to record.
        stale: Rows that are in a volume and not served: damaged, erased, unknown.
    """

    def __init__(self, shared: Shared, kind: int, volume_bytes: int) -> None:
        self.shared, self.kind = shared, kind
        self.content: Content = "kv" if kind == layout.KV else "keyframes"
        self.shelf = Shelf(shared, kind, volume_bytes)
        self.volumes = self.shelf.volumes
        self.entries: dict[int, Entry] = {}
        self.stale: dict[int, Row] = {}
        self._from_opening: dict[int, SegmentHead] = {}  # by sequence: heads that opening has read
        self._refused = (0, 0)  # bytes of the record that was refused last, and of its head

    @property
    def is_keyframes(self) -> bool:
        """Whether the records count against the cap of pictures."""
        return self.shelf.is_keyframes

    # Writing.

    def append(
        self, head: SegmentHead, parts: Sequence[Part], *, is_rewritten: bool = False
    ) -> None:
        """Store a record; an older one of the same segment is erased.

        Args:
            head: Of the segment.
            parts: Its sections.
            is_rewritten: An older segment is stored again. Such records have volumes of their own,
                so that what is old stays together and can be evicted first.

        Raises:
            TierFullError: A cap, the floor of free space or the medium leaves no room.
            StorageError: The medium failed. Either way nothing stored before has changed.
        """
        sections = self._sealed(head.segment_id, [(layout.HEAD, 0, layout.pack_head(head)), *parts])
        table, num_bytes = layout.table(sections)
        shared = self.shared
        with shared.lock:
            shared.require_open(for_writing=True)
            try:
                row = self._write(head, sections, table, num_bytes, is_rewritten=is_rewritten)
            except StorageError as error:
                self._refused = num_bytes, len(sections[0][2])
                shared.note_error(error)
                raise
            replaced = self._rows_of({head.segment_id})
            self._serve(row, head)
            shared.misses.recovered(self.content, head.segment_id)
            shared.state = "ok"
            try:
                shared.manifest.add(row)
            except StorageError as error:  # the record is safe; the next open indexes it
                shared.note_error(error)
            failpoints.hit("record.after_index")
            self.bury(replaced)

    def _write(
        self,
        head: SegmentHead,
        sections: Sequence[Part],
        table: tuple[layout.Section, ...],
        num_bytes: int,
        *,
        is_rewritten: bool,
    ) -> Row:
        shared, sealed_head = self.shared, bytes(sections[0][2])
        volume = self.shelf.volume_for(num_bytes, is_rewritten=is_rewritten)
        if self.is_keyframes:  # their eviction cannot make room in the manifest, which can wait
            shared.manifest.require_room()
        else:
            shared.manifest.reserve(len(sealed_head))
        sequence = shared.next_sequence
        header = RecordHeader(
            self.kind, num_bytes, sequence, head.segment_id, head.start_s, head.end_s,
            shared.digest, shared.key_id, table,
        )  # fmt: skip
        buffers = [layout.pack_record(header), *(data for _, _, data in sections)]
        try:
            offset = volume.append(buffers, num_bytes)
            failpoints.hit("record.before_sync")
            if shared.config.durability == "strict":
                volume.sync()
            failpoints.hit("record.before_index")
        except OSError as error:
            failure = io_error(error, volume.path.name)
            if not isinstance(failure, TierFullError):
                self.shelf.abandon(volume)
            raise failure from error
        volume.commit(num_bytes)
        shared.next_sequence = sequence + 1
        return Row(
            sequence, self.kind, volume.number, offset, num_bytes, LIVE, head.segment_id,
            head.start_s, head.end_s, sealed_head,
        )  # fmt: skip

    def _sealed(self, segment_id: int, parts: Sequence[Part]) -> list[Part]:
        cipher = self.shared.cipher
        if cipher is None:
            return list(parts)
        return [
            (kind, label, cipher.seal(data, self._place(segment_id, kind, label)))
            for kind, label, data in parts
        ]

    def _place(self, segment_id: int, kind: int, label: int) -> bytes:
        """What a sealed section is bound to."""
        return _PLACE.pack(self.kind, segment_id, kind, label) + self.shared.digest

    # Reading.

    def read(self, segment_id: int) -> tuple[SegmentHead, list[tuple[int, bytes]]]:
        """The head, and label and bytes of every other section, verified.

        Raises:
            SegmentUnavailableError: Absent, damaged, of another fingerprint, or unreadable.
        """
        shared = self.shared
        with shared.lock:
            shared.require_open(for_writing=False)
            entry = self.entries.get(segment_id)
            volume = None if entry is None else self.volumes[entry.volume]
            if entry is None or volume is None:
                shared.misses.counts["absent"] += 1
                raise SegmentUnavailableError(segment_id, "absent")
        try:
            with shared.arena.borrow(entry.num_bytes) as view:
                volume.read_into(entry.offset, view)
                header = self._verified_header(view, entry.row)
                parts = self._sections(view, header)
            head = layout.unpack_head(parts[0][2])
            if head.segment_id != segment_id:
                raise LayoutError(f"head of segment {head.segment_id}")
            return head, [(label, data) for _, label, data in parts[1:]]
        except (LayoutError, ValueError) as error:
            if self._is_replaced(entry):
                return self.read(segment_id)
            raise self._distrust(entry, "checksum", str(error)) from error
        except _ForeignError as error:
            raise self._distrust(entry, "fingerprint", str(error)) from error
        except FileNotFoundError as error:
            raise self._distrust(entry, "checksum", "volume is missing") from error
        except OSError as error:
            with shared.lock:
                if self.entries.get(segment_id) is entry:
                    shared.misses.counts["io_error"] += 1
                    shared.note_error(io_error(error, volume.path.name))
            raise SegmentUnavailableError(segment_id, "io_error", str(error)) from error

    def _is_replaced(self, entry: Entry) -> bool:
        """Whether another thread has stored the segment anew while it was being read."""
        return self.entries.get(entry.segment_id, entry) is not entry

    def _verified_header(self, view: memoryview, row: Row) -> RecordHeader:
        """The header of a record just read, which must be the one that was asked for."""
        header = layout.unpack_record(view)
        if header.digest != self.shared.digest and header.kind != layout.TOMBSTONE:
            raise _ForeignError(f"fingerprint {header.digest.hex()[:16]}")
        found = (header.kind, header.segment_id, header.sequence, header.record_bytes)
        if found != (self.kind, row.segment_id, row.sequence, row.num_bytes):
            raise LayoutError(f"another record lies there: segment {header.segment_id}")
        return header

    def _sections(self, view: memoryview, header: RecordHeader) -> list[tuple[int, int, bytes]]:
        """Kind, label and bytes of all sections; copied, because the buffer is used again."""
        if not header.sections or header.sections[0].kind != layout.HEAD:
            raise LayoutError("record without a head")
        parts = []
        for section in header.sections:
            data = bytes(view[section.offset : section.offset + section.length])
            if checksum(data) != section.digest:
                raise LayoutError(f"checksum of section {section.kind}:{section.label}")
            parts.append(
                (section.kind, section.label, self._opened(header.segment_id, section, data))
            )
        return parts

    def _opened(self, segment_id: int, section: layout.Section, data: bytes) -> bytes:
        cipher = self.shared.cipher
        if cipher is None:
            return data
        return cipher.open(data, self._place(segment_id, section.kind, section.label))

    def open_head(self, segment_id: int, data: bytes) -> SegmentHead:
        """A head from its stored bytes. Raises ``ValueError`` or :class:`LayoutError`."""
        cipher = self.shared.cipher
        if cipher is not None:
            data = cipher.open(data, self._place(segment_id, layout.HEAD, 0))
        head = layout.unpack_head(data)
        if head.segment_id != segment_id:
            raise LayoutError(f"head of segment {head.segment_id}, expected {segment_id}")
        return head

    def read_row(self, volume: Volume, row: Row) -> list[tuple[int, int, bytes]]:
        """All sections of a record by its row. Raises like the checks of :meth:`read`."""
        with self.shared.arena.borrow(row.num_bytes) as view:
            volume.read_into(row.offset, view)
            return self._sections(view, self._verified_header(view, row))

    def _distrust(self, entry: Entry, reason: str, detail: str) -> SegmentUnavailableError:
        """Stop serving a record, unless it was erased or evicted while it was being read."""
        row, shared = entry.row, self.shared
        with shared.lock:
            if self.entries.get(row.segment_id) is not entry:
                shared.misses.counts["absent"] += 1
                return SegmentUnavailableError(row.segment_id, "absent")
            self._drop(row.segment_id)
            self.lose(row, reason)
            if not shared.is_read_only:
                try:
                    shared.manifest.flush()
                    shared.manifest.replace([self.stale[row.sequence]])
                except StorageError as error:  # it is found damaged again next time
                    shared.note_error(error)
        return SegmentUnavailableError(
            row.segment_id, reason, f"{row.start_s:g} to {row.end_s:g} s; {detail}"
        )

    def lose(self, row: Row, reason: str) -> None:
        """Count a record as lost and keep its place in mind."""
        self.stale[row.sequence] = row.without_head(DAMAGED)
        self.shared.misses.lose(Loss(self.content, row.segment_id, reason, row.start_s, row.end_s))

    # What is there.

    def serve(self, row: Row, head: SegmentHead) -> None:
        """Let a record that was found while opening be the one of its segment."""
        self._serve(row, head)
        self._from_opening[row.sequence] = head

    def _serve(self, row: Row, head: SegmentHead) -> None:
        """Let a record be the one of its segment; nothing is kept of the one before."""
        before = self.entries.get(row.segment_id)
        self.entries[row.segment_id] = Entry.of(row, head)
        if before is not None:
            self._from_opening.pop(before.sequence, None)

    def clear(self) -> None:
        """Forget everything that was found."""
        self.entries.clear()
        self.stale.clear()
        self._from_opening.clear()

    def heads(self) -> list[SegmentHead]:
        """Heads of all segments, by id; those that cannot be read are left out.

        What opening has read is handed over the first time and not kept; afterwards every head is
        read from its volume.
        """
        with self.shared.lock:
            at_hand, self._from_opening = self._from_opening, {}
            segment_ids = sorted(self.entries)
        found = [self._head_of(segment_id, at_hand) for segment_id in segment_ids]
        return [head for head in found if head is not None]

    def _head_of(self, segment_id: int, at_hand: dict[int, SegmentHead]) -> SegmentHead | None:
        """One head; the lock is held for no longer, so that others can write in between."""
        with self.shared.lock:
            entry = self.entries.get(segment_id)
            if entry is None:  # it went in the meantime
                return None
            if entry.sequence in at_hand:
                return at_hand[entry.sequence]
            try:
                return self.open_head(segment_id, self.stored_head(entry.row))
            except (LayoutError, ValueError):
                return None

    # Erasing.

    def erase(self, segment_ids: Collection[int]) -> None:
        """Overwrite records, and everything in damaged stretches nobody knows.

        Raises:
            StorageError: The medium failed; the segments are not served, and the erasure is
                finished when the folder is opened again.
        """
        shared, ids = self.shared, set(segment_ids)
        with shared.lock:
            shared.require_open(for_writing=True)
            rows = self._rows_of(ids)
            if not any(row.segment_id in ids for row in rows):
                return
            rows += self.unknown_rows()
            needles = [needle for row in rows for needle in self._needles(row)]
            shared.manifest.flush()
            shared.manifest.intend_erasure(self.kind, ids)
            failpoints.hit("erase.after_intent")
            for segment_id in ids:
                self._drop(segment_id)
                shared.misses.recovered(self.content, segment_id)
            self._wipe(rows)
            failpoints.hit("erase.after_wipe")
            self._note_erased(rows)
            shared.manifest.finish_erasure(self.kind, ids)
            failpoints.hit("erase.after_rows")
            self._drop_empty(self.volumes)
            if shared.manifest.contains_bytes(needles):
                failpoints.hit("erase.before_rebuild")
                shared.rebuild_manifest()

    def _drop(self, segment_id: int) -> None:
        """Stop serving a segment, and keep nothing of it."""
        entry = self.entries.pop(segment_id, None)
        if entry is not None:
            self._from_opening.pop(entry.sequence, None)

    def _rows_of(self, segment_ids: Collection[int]) -> list[Row]:
        """Rows of segments, served or not, and of stretches that nobody knows."""
        rows = [entry.row for i in segment_ids if (entry := self.entries.get(i)) is not None]
        for row in self.stale.values():
            if row.state == DAMAGED and row.segment_id in segment_ids:
                rows.append(row)
        return rows

    def stored_head(self, row: Row, header: RecordHeader | None = None) -> bytes:
        """The head section of a record as stored; empty where it cannot be read.

        Args:
            row: Where the record lies.
            header: Its header, if it was read before.
        """
        volume = self.volumes[row.volume]
        header = header or volume.header_at(row.offset)
        if header is None or header.sequence != row.sequence or not header.sections:
            return b""
        head = header.sections[0]
        try:
            data = volume.read(row.offset + head.offset, head.length)
        except (LayoutError, OSError):
            return b""
        return data if checksum(data) == head.digest else b""

    def full_rows(self) -> list[Row]:
        """All rows with their heads, read from the volumes."""
        rows = list(self.stale.values())
        for entry in self.entries.values():
            head = self.stored_head(entry.row)
            if head:  # otherwise its volume is scanned at the next open, which counts the loss
                rows.append(replace(entry.row, head=head))
        return rows

    def _needles(self, row: Row) -> list[bytes]:
        """Pieces of a stored head, to prove that none is left in the manifest."""
        data = self.stored_head(row)
        return [data[at : at + 64] for at in range(0, len(data), 1024) if len(data) - at >= 64]

    def unknown_rows(self) -> list[Row]:
        """Damaged stretches without an owner."""
        return [row for row in self.stale.values() if row.state not in (DAMAGED, ERASED)]

    def _wipe(self, rows: Sequence[Row]) -> None:
        """Overwrite records in place; one sync per volume."""
        by_volume: dict[int, list[Row]] = {}
        for row in rows:
            by_volume.setdefault(row.volume, []).append(row)
        for number, wiped in by_volume.items():
            stretches = [(row.offset, row.num_bytes, max(row.sequence, 0)) for row in wiped]
            self.shelf.wipe(self.volumes[number], stretches)

    def bury(self, rows: Sequence[Row]) -> None:
        """Overwrite records that newer ones have replaced."""
        if rows:
            self._wipe(rows)
            self._note_erased(rows)
            self._drop_empty({row.volume for row in rows})

    def _note_erased(self, rows: Sequence[Row]) -> None:
        buried = [row.without_head(ERASED) for row in rows]
        self.shared.manifest.flush()
        self.shared.manifest.replace(buried)
        for row in buried:
            self.stale[row.sequence] = row

    def _drop_empty(self, numbers: Collection[int]) -> None:
        """Remove those of some volumes that hold nothing any more, except the ones that grow."""
        held = {entry.volume for entry in self.entries.values()}
        held |= {row.volume for row in self.stale.values() if row.state != ERASED}
        for number in set(numbers) - held:
            if not self.shelf.is_growing(self.volumes[number]):
                self.drop_volume(self.volumes[number])

    # Evicting.

    def tell_apart(self) -> None:
        """Find out, after opening, whether the last volume grew with segments stored again."""
        last = next(reversed(self.volumes), None)
        newest = self.entries[max(self.entries)].volume if self.entries else last
        self.shelf.rewritten = None if newest == last else last

    def refusal(self, num_bytes: int, head_bytes: int) -> str | None:
        """Why a record of so many bytes cannot be appended now; None where it can."""
        ledger, growth = self.shared.ledger, self.shelf.growth_for(num_bytes)
        if self.is_keyframes:
            return ledger.refusal(growth, is_keyframes=True) if growth else None
        needs_free_space = growth > 0
        growth += self.shared.manifest.growth(head_bytes)
        return ledger.refusal(growth, needs_free_space=needs_free_space) if growth else None

    def evict(self, num_bytes: int) -> list[int]:
        """Unlink the volumes of the oldest segments until so many bytes and a record of them fit.

        The record that was refused last fits then, too. Nothing is dropped for more than the cap
        allows.

        Returns:
            Ids of the segments that are gone.
        """
        shared, gone = self.shared, list[int]()
        if num_bytes > shared.ledger.cap_of(is_keyframes=self.is_keyframes):
            return gone
        refused_bytes, head_bytes = self._refused
        record_bytes = layout.aligned(max(num_bytes + num_bytes // 8 + 16384, refused_bytes))
        record_bytes = min(record_bytes, self.shelf.most_bytes)
        with shared.lock:
            shared.require_open(for_writing=True)
            while self.volumes and (
                shared.ledger.refusal(num_bytes, is_keyframes=self.is_keyframes) is not None
                or self.refusal(record_bytes, head_bytes) is not None
            ):
                gone += self.drop_volume(self.oldest_volume())
        return gone

    def oldest_volume(self) -> Volume:
        """The volume whose oldest segment is the oldest of all; one without any comes first."""
        oldest = dict.fromkeys(self.volumes, -1)
        for segment_id, entry in self.entries.items():
            before = oldest[entry.volume]
            oldest[entry.volume] = segment_id if before < 0 else min(before, segment_id)
        return self.volumes[min(oldest, key=lambda number: (oldest[number], number))]

    def drop_volume(self, volume: Volume) -> list[int]:
        """Unlink a volume, then forget its rows; returns the segments that were in it."""
        shared, number = self.shared, volume.number
        self.shelf.unlink(volume)
        rows = [entry.row for entry in self.entries.values() if entry.volume == number]
        stale = [row for row in self.stale.values() if row.volume == number]
        for row in rows:
            self._drop(row.segment_id)
        for row in stale:
            del self.stale[row.sequence]
            shared.misses.recovered(self.content, row.segment_id)
        try:
            shared.manifest.forget_volume(number, [*rows, *stale])
        except StorageError as error:  # rows without a volume are dropped at the next open
            shared.note_error(error)
        failpoints.hit("evict.after_rows")
        return sorted(row.segment_id for row in rows)


class _ForeignError(Exception):
    """A whole record with another fingerprint."""
