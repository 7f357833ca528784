"""What happens when a folder is opened: rows against volumes, tails, damage, unfinished erasures.

Volumes are the truth. A row is believed where it fits the tiling of its volume; everything else is
read from the volume itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from xxhash import xxh3_64_intdigest as checksum

from hermes_like.errors import StorageError, TierFullError
from hermes_like.tiers import failpoints, layout
from hermes_like.tiers.base import SegmentHead
from hermes_like.tiers.layout import LayoutError, RecordHeader
from hermes_like.tiers.ledger import allocated, io_error
from hermes_like.tiers.log import Log
from hermes_like.tiers.manifest import (
    DAMAGED,
    ERASED,
    LIVE,
    NAME,
    UNKNOWN,
    Manifest,
    ManifestDamaged,
    Row,
    unknown_row,
)
from hermes_like.tiers.misses import Loss, Misses
from hermes_like.tiers.shared import Shared
from hermes_like.tiers.volume import Volume

#: A damaged manifest, while it is being rebuilt.
ASIDE = NAME + ".damaged"


class Recovery:
    """Fills the logs of one folder, whose volumes are listed already.

    Args:
        shared: State of the folder.
        logs: One per kind.
    """

    def __init__(self, shared: Shared, logs: Sequence[Log]) -> None:
        self.shared, self.logs = shared, logs
        self._added: list[Row] = []
        self._removed: list[int] = []
        self._seen: set[int] = set()
        self._older: list[tuple[Log, Row]] = []
        self._heads: dict[int, tuple[bytes, SegmentHead]] = {}

    def run(self) -> None:
        """Load everything; brings manifest and volumes in line unless read-only."""
        if not self.shared.is_read_only:
            self._fit_caps()
        failpoints.hit("open.before_recovery")
        try:
            self._load_and_write()
        except TierFullError:
            raise
        except StorageError as error:  # damage that only writing shows: do without the manifest
            if self.shared.is_read_only:
                raise
            self.shared.note_error(error)
            self._start_again()
            self._load_and_write()
        failpoints.hit("open.after_recovery")

    def _start_again(self) -> None:
        """Forget what the manifest told, and the manifest."""
        self.shared.manifest.discard()
        self.shared.misses = Misses()
        self._added, self._removed, self._seen, self._older = [], [], set(), []
        for log in self.logs:
            log.clear()

    def _load_and_write(self) -> None:
        rows = self._open_manifest()
        self._seen = {row.sequence for row in rows}
        by_volume: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            by_volume[row.volume].append(row)
        for log in self.logs:
            for volume in list(log.volumes.values()):
                self._load_volume(log, volume, by_volume.pop(volume.number, []))
            self._report_gone(log, [r for gone in by_volume.values() for r in gone])
        self.shared.next_sequence = max(self._seen, default=0) + 1
        numbers = [number for log in self.logs for number in log.volumes]
        self.shared.next_volume = max([0, *numbers, *by_volume]) + 1
        for log in self.logs:
            log.tell_apart()
        if not self.shared.is_read_only:
            self._bring_in_line(by_volume)

    def _fit_caps(self) -> None:
        """Unlink the oldest volumes where the caps are lower than they were."""
        ledger = self.shared.ledger
        self.shared.manifest.measure()
        for log in self.logs:
            while log.volumes and (
                ledger.is_over(is_keyframes=log.is_keyframes)
                or (not log.is_keyframes and not self._has_room_for_manifest())
            ):
                volume = log.volumes.pop(next(iter(log.volumes)))
                volume.unlink()
                ledger.drop(volume.path.name)

    def _has_room_for_manifest(self) -> bool:
        ledger, manifest = self.shared.ledger, self.shared.manifest
        return ledger.room_bytes + ledger.entry("manifest") >= manifest.least_bytes

    def _open_manifest(self) -> list[Row]:
        """Rows of the manifest; none where it is missing or damaged, which is put aside."""
        manifest = self.shared.manifest
        if self.shared.is_read_only:
            try:
                return Manifest.peek(self.shared.folder)
            except ManifestDamaged:
                return []
        try:
            return self._open_with_ballast()
        except ManifestDamaged:
            self._put_aside()
        try:
            return manifest.open()
        except ManifestDamaged as error:
            raise StorageError(f"{manifest.path}: cannot be made: {error}") from error

    def _open_with_ballast(self) -> list[Row]:
        try:
            return self.shared.manifest.open()
        except TierFullError:
            if not self.shared.release_ballast():
                raise
        return self.shared.manifest.open()

    def _put_aside(self) -> None:
        """Rename a damaged manifest; it goes once it is rebuilt, or at once if there is no room."""
        manifest, ledger = self.shared.manifest, self.shared.ledger
        aside = self.shared.folder / ASIDE
        size = allocated(manifest.path)
        is_kept = ledger.room_bytes >= 2 * size
        if is_kept and manifest.path.exists():
            manifest.path.rename(aside)
            ledger.settle(ASIDE, size)
        manifest.discard()

    def _load_volume(self, log: Log, volume: Volume, known: list[Row]) -> None:
        """Take a volume in: its rows where they tile it, then what lies behind them."""
        size = volume.path.stat().st_size
        known.sort(key=lambda row: row.offset)
        if volume.header_bytes == 0:  # its header is damaged
            volume.header_bytes = known[0].offset if known else layout.BLOCK_BYTES
        end = volume.header_bytes
        for row in known:
            if row.offset != end or row.kind != log.kind:
                self._rescan(log, volume, known)
                return
            end += row.num_bytes
        if not _speaks_of(volume, known):
            self._rescan(log, volume, known)
            return
        kept = [row for row in known if row.offset + row.num_bytes <= size]
        for row in known[len(kept) :]:  # the file was cut
            self._removed.append(row.sequence)
            self._lose(log, row)
        for row in kept:
            self._take(log, row)
        is_deep = bool(known) or volume.number == max(log.volumes)
        self._scan(log, volume, _end(volume, kept), is_deep=is_deep)

    def _rescan(self, log: Log, volume: Volume, known: Sequence[Row]) -> None:
        """Read a volume whose rows have holes from its beginning."""
        self._seen -= {row.sequence for row in known}
        self._removed += [row.sequence for row in known]
        is_newest = volume.number == max(log.volumes)
        self._scan(log, volume, volume.header_bytes, is_deep=is_newest)
        for row in known:
            if row.sequence not in self._seen:
                self._lose(log, row)
                self._seen.add(row.sequence)

    def _take(self, log: Log, row: Row) -> None:
        """Serve a row of the manifest."""
        if row.state != LIVE:
            log.stale[row.sequence] = row
            self._lose(log, row)
            return
        try:
            head = self._head_of(log, row)
        except (LayoutError, ValueError):
            log.stale[row.sequence] = row.without_head(DAMAGED)
            self._lose(log, row)
            return
        self._serve(log, row, head)

    def _head_of(self, log: Log, row: Row) -> SegmentHead:
        """The head of a row; a segment and its pictures have it twice, and it is read once."""
        if self.shared.cipher is not None:  # sealed for its own place, so never the same bytes
            return log.open_head(row.segment_id, row.head)
        stored, head = self._heads.get(row.segment_id, (b"", None))
        if head is None or stored != row.head:
            head = log.open_head(row.segment_id, row.head)
            self._heads[row.segment_id] = row.head, head
        return head

    def _scan(self, log: Log, volume: Volume, start: int, *, is_deep: bool) -> None:
        """Read headers and heads from an offset on, and everything where ``is_deep``.

        Sealed volumes were brought to the medium, so that only the newest one can be torn.
        """
        volume.end = start
        found = list(volume.scan(start))
        for index, (offset, num_bytes, header) in enumerate(found):
            is_last = index == len(found) - 1
            row, head = self._judge(
                log, volume, offset, num_bytes, header, is_deep=is_deep or is_last
            )
            if is_last and row.state == DAMAGED:  # it was being written
                self._lose(log, row)
                return
            volume.end = offset + num_bytes
            self._seen.add(row.sequence)
            self._added.append(row)
            if head is not None:
                self._serve(log, row, head)
            else:
                log.stale[row.sequence] = row
                self._lose(log, row)

    def _judge(
        self,
        log: Log,
        volume: Volume,
        offset: int,
        num_bytes: int,
        header: RecordHeader | None,
        *,
        is_deep: bool,
    ) -> tuple[Row, SegmentHead | None]:
        """The row of a stretch, and its head if it can be served."""
        nobody = unknown_row(log.kind, volume.number, offset, num_bytes)
        if header is None or header.sequence in self._seen:  # damage, or a copy of a record
            return nobody, None
        if header.kind == layout.TOMBSTONE:
            return replace(nobody, state=ERASED), None
        row = Row(
            header.sequence, log.kind, volume.number, offset, num_bytes, DAMAGED,
            header.segment_id, header.start_s, header.end_s, b"",
        )  # fmt: skip
        if header.kind != log.kind or header.digest != self.shared.digest:
            return row, None
        try:
            data = log.stored_head(row, header)
            head = log.open_head(header.segment_id, data)
            if is_deep:
                log.read_row(volume, row)
        except (StorageError, ValueError, OSError):
            return row, None
        return replace(row, state=LIVE, head=data), head

    def _serve(self, log: Log, row: Row, head: SegmentHead) -> None:
        """Let the newest record of a segment count."""
        other = log.entries.get(row.segment_id)
        if other is not None and other.sequence > row.sequence:
            self._older.append((log, row))
            return
        if other is not None:
            self._older.append((log, other.row))
        log.serve(row, head)
        self.shared.misses.recovered(log.content, row.segment_id)

    def _lose(self, log: Log, row: Row) -> None:
        """Count what cannot be served."""
        if row.state == ERASED or row.segment_id in log.entries:
            return
        if row.state == UNKNOWN:
            self.shared.misses.lose(Loss(log.content, None, "checksum", None, None))
        else:
            loss = Loss(log.content, row.segment_id, "checksum", row.start_s, row.end_s)
            self.shared.misses.lose(loss)

    def _report_gone(self, log: Log, rows: Iterable[Row]) -> None:
        """Count rows without a volume, unless it was the oldest: those are evicted."""
        oldest = min(log.volumes, default=0)
        for row in rows:
            if row.kind == log.kind and row.volume > oldest:
                self._lose(log, row)

    def _bring_in_line(self, gone: dict[int, list[Row]]) -> None:
        """Write to manifest and volumes what was found."""
        manifest, shared = self.shared.manifest, self.shared
        for number, rows in gone.items():
            manifest.forget_volume(number, rows)
        manifest.remove(self._removed)
        for log in self.logs:
            self._trim(log)
        self._insert(self._added)
        (shared.folder / ASIDE).unlink(missing_ok=True)
        shared.ledger.drop(ASIDE)
        for log, row in self._older:
            if row.volume in log.volumes:
                log.bury([row])
        for kind, segment_id in manifest.erasures():
            log = next(log for log in self.logs if log.kind == kind)
            log.erase([segment_id])
            manifest.finish_erasure(kind, [segment_id])

    def _trim(self, log: Log) -> None:
        """Cut torn and preallocated ends; remove volumes without a record."""
        for volume in list(log.volumes.values()):
            if volume.end <= volume.header_bytes:
                log.drop_volume(volume)
                continue
            try:
                if volume.path.stat().st_size != volume.end:
                    volume.trim()
            except OSError as error:
                volume.is_failed = True
                self.shared.note_error(io_error(error, volume.path.name))
            volume.limit, volume.capacity = volume.end, log.shelf.volume_bytes
            volume.release()
            log.shelf.settle(volume)

    def _insert(self, rows: Collection[Row]) -> None:
        """Index rows; where the cap leaves no room for them, the next open finds them again."""
        try:
            self.shared.manifest.put_all(rows)
        except TierFullError as error:
            self.shared.note_error(error)


def _speaks_of(volume: Volume, rows: Sequence[Row]) -> bool:
    """Whether rows that tile a volume are its own, and not those of another folder or of a time
    before: the first and the last record that should be served are looked at. What is damaged
    there proves nothing, and is found out when it is read.
    """
    live = [row for row in rows if row.state == LIVE]
    for row in (*live[:1], *live[-1:]):
        header = volume.header_at(row.offset)
        if header is None or (header.sequence == row.sequence and not header.sections):
            continue
        if header.sequence != row.sequence or header.sections[0].digest != checksum(row.head):
            return False
    return True


def _end(volume: Volume, rows: Sequence[Row]) -> int:
    """Where the last row ends."""
    return rows[-1].offset + rows[-1].num_bytes if rows else volume.header_bytes
