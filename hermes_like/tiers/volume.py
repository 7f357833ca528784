"""One append-only file of records. Knows offsets and the operating system, not what records say.

A volume is preallocated, so that a full disk shows before data is written, and trimmed to what was
used when it is sealed. A volume whose fsync failed is never written again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hermes_like.tiers import failpoints, layout
from hermes_like.tiers.layout import BLOCK_BYTES, Buffer, LayoutError, RecordHeader

#: Ends the name of a file that is being made; such files are removed at open.
UNFINISHED = ".new"
#: What a file system may add to the blocks of a volume for its extents.
EXTENT_BYTES = 16 * 2**10
_STEMS = {layout.KV: "kv", layout.KEYFRAMES: "keyframes"}
_KINDS = {stem: kind for kind, stem in _STEMS.items()}
_IOV = 512
_ZEROS = bytes(2**20)
_PUNCH_HOLE_KEEP_SIZE = 3


class Volume:
    """One file; see the module.

    Attributes:
        number: Running number of the store.
        kind: ``layout.KV`` or ``layout.KEYFRAMES``.
        header_bytes: Where the first record begins.
        end: Where the next record goes.
        limit: Where the file must end; equals ``end`` while nothing is preallocated.
        capacity: Where it may end once it is preallocated again.
        is_failed: Whether a write or an fsync failed; then nothing is written any more.
        unsynced_bytes: Appended since the last fsync.
    """

    def __init__(self, path: Path, number: int, kind: int, header_bytes: int, end: int) -> None:
        self.path, self.number, self.kind = path, number, kind
        self.header_bytes, self.end, self.limit = header_bytes, end, end
        self.capacity = 0
        self.is_failed = False
        self.unsynced_bytes = 0
        self._fd: int | None = None

    @staticmethod
    def path_of(folder: Path, kind: int, number: int) -> Path:
        """Where a volume lies."""
        return folder / f"{_STEMS[kind]}-{number:08d}.vol"

    @staticmethod
    def find(folder: Path) -> list[tuple[int, int, Path]]:
        """Number, kind and path of all volumes in a folder, by number."""
        found = []
        for path in folder.glob("*.vol"):
            stem, _, number = path.stem.partition("-")
            if stem in _KINDS and number.isdigit():
                found.append((int(number), _KINDS[stem], path))
        return sorted(found)

    @classmethod
    def create(cls, folder: Path, header: layout.VolumeHeader, limit: int) -> Volume:
        """Make an empty volume, preallocated to ``limit`` bytes. Raises ``OSError``."""
        path = cls.path_of(folder, header.kind, header.number)
        unfinished = path.with_name(path.name + UNFINISHED)
        failpoints.hit("volume.before_create")
        fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, limit)
            write_all(fd, [layout.pack_volume(header)], 0)
            failpoints.hit("volume.before_rename")
            os.rename(unfinished, path)
        except OSError:
            os.close(fd)
            unfinished.unlink(missing_ok=True)
            raise
        volume = cls(path, header.number, header.kind, header.header_bytes, header.header_bytes)
        volume.limit = volume.capacity = limit
        volume._fd, volume.unsynced_bytes = fd, header.header_bytes
        failpoints.hit("volume.after_create")
        return volume

    def preallocate(self) -> None:
        """Make a trimmed volume writable up to its capacity. Raises ``OSError``."""
        fd = self._writable()
        try:
            os.posix_fallocate(fd, 0, self.capacity)
        except OSError:
            os.ftruncate(fd, self.end)
            raise
        self.limit = self.capacity

    def append(self, buffers: Sequence[Buffer], num_bytes: int) -> int:
        """Write one record at the end, padded with zeros to ``num_bytes``.

        Returns:
            Its offset. The record counts once :meth:`commit` was called; what failed before is
            written over by the next one.
        """
        fd = self._writable()
        failpoints.hit("record.before_data")
        size = sum(len(buffer) for buffer in buffers)
        if failpoints.is_due("record.torn_data"):
            torn = b"".join(buffers)[: size // 2]
            write_all(fd, [torn], self.end)
        failpoints.hit("record.torn_data")
        write_all(fd, [*buffers, bytes(num_bytes - size)], self.end)
        self.unsynced_bytes += num_bytes
        return self.end

    def commit(self, num_bytes: int) -> None:
        """Let the record just written count."""
        self.end += num_bytes

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill a buffer in one sequential read.

        Raises:
            OSError: The medium failed.
            LayoutError: The file ends before.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            done = 0
            while done < len(target):
                count = os.preadv(fd, [target[done:]], offset + done)
                if count == 0:
                    raise LayoutError(f"{self.path.name}: cut short at {offset + done}")
                done += count
        finally:
            os.close(fd)

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Like :meth:`read_into`, into new bytes."""
        data = bytearray(num_bytes)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def blank(self, offset: int, num_bytes: int, sequence: int) -> None:
        """Overwrite a record with zeros behind a header that only tells the length."""
        fd = self._writable()
        header = layout.tombstone(num_bytes, sequence).ljust(BLOCK_BYTES, b"\0")
        write_all(fd, [header], offset)
        done = BLOCK_BYTES
        while done < num_bytes:
            size = min(len(_ZEROS), num_bytes - done)
            write_all(fd, [_ZEROS[:size]], offset + done)
            done += size

    def give_back(self, stretches: Sequence[tuple[int, int]]) -> None:
        """Bring zeros to the medium, and then give their blocks back where that can be done.

        Args:
            stretches: Offset and length of records that were blanked.
        """
        fd = self._writable()
        os.fdatasync(fd)
        for offset, num_bytes in stretches:
            if num_bytes > BLOCK_BYTES:
                punch_hole(fd, offset + BLOCK_BYTES, num_bytes - BLOCK_BYTES)

    def begin_sync(self) -> tuple[int, int] | None:
        """A descriptor of its own and the bytes an fsync would cover; None if there are none.

        For an fsync that others need not wait for; the caller closes the descriptor.
        """
        if self._fd is None or not self.unsynced_bytes or self.is_failed:
            return None
        return os.dup(self._fd), self.unsynced_bytes

    def sync(self) -> None:
        """Force what was written to the medium. Raises ``OSError``; then the volume is failed."""
        ticket = self.begin_sync()
        if ticket is None:
            return
        fd, size = ticket
        try:
            failpoints.hit("sync.before_fsync")
            os.fdatasync(fd)
        except OSError:
            self.is_failed = True
            raise
        finally:
            os.close(fd)
        self.unsynced_bytes -= size

    def trim(self) -> None:
        """Give back what was preallocated and not used, or was torn."""
        os.ftruncate(self._writable(), self.end)
        self.limit = self.end

    def release(self) -> None:
        """Close the file descriptor. Safe to call twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def unlink(self) -> None:
        """Remove the file; readers that have it open finish undisturbed."""
        self.release()
        self.path.unlink(missing_ok=True)

    def _writable(self) -> int:
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._fd

    def scan(self, start: int) -> list[tuple[int, int, RecordHeader | None]]:
        """Walk over headers from an offset; damage is skipped to the next header that is whole.

        Returns:
            Offset, length and header; None as header for a stretch without one that is followed by
            a record. What comes behind the last record is not told.
        """
        found: list[tuple[int, int, RecordHeader | None]] = []
        with self.path.open("rb", buffering=0) as file:
            fd = file.fileno()
            size = os.fstat(fd).st_size
            offset = gap = start
            while offset + BLOCK_BYTES <= size:
                header = _header_at(fd, offset, size)
                if header is None:
                    following = self._next_magic(offset + BLOCK_BYTES, size)
                    if following is None:
                        break
                    offset = following
                    continue
                if gap < offset:
                    found.append((gap, offset - gap, None))
                found.append((offset, header.record_bytes, header))
                offset = gap = offset + header.record_bytes
        return found

    def header_at(self, offset: int) -> RecordHeader | None:
        """The record header at an offset, if there is a whole one."""
        try:
            with self.path.open("rb", buffering=0) as file:
                return _header_at(file.fileno(), offset, os.fstat(file.fileno()).st_size)
        except OSError:
            return None

    def _next_magic(self, offset: int, size: int) -> int | None:
        """The next block from ``offset`` that begins like a record."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while offset < size:
                offset = max(offset, _next_data(fd, offset, size) // BLOCK_BYTES * BLOCK_BYTES)
                chunk = os.pread(fd, min(2**20, size - offset), offset) if offset < size else b""
                for at in range(0, len(chunk), BLOCK_BYTES):
                    if chunk.startswith(layout.RECORD_MAGIC, at):
                        return offset + at
                offset += max(len(chunk), BLOCK_BYTES)
        except OSError:  # an unreadable stretch hides what follows; the caller counts it as lost
            return None
        finally:
            os.close(fd)
        return None


def _header_at(fd: int, offset: int, size: int) -> RecordHeader | None:
    """The record header at an offset, if there is a whole one whose record fits the file."""
    try:
        data = os.pread(fd, BLOCK_BYTES, offset)
        length = layout.header_length(data) if len(data) == BLOCK_BYTES else 0
        if BLOCK_BYTES < length <= min(layout.MAX_HEADER_BYTES, size - offset):
            data = os.pread(fd, length, offset)
        header = layout.unpack_record(data)
    except (LayoutError, OSError):
        return None
    return header if offset + header.record_bytes <= size else None


def write_all(fd: int, buffers: Sequence[Buffer], offset: int) -> None:
    """Write buffers one after the other at an offset, however the system cuts the calls."""
    views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    while views:
        count = os.pwritev(fd, views[:_IOV], offset)
        if count == 0:
            raise OSError(errno.EIO, "nothing was written")
        offset += count
        while views and count >= len(views[0]):
            count -= len(views.pop(0))
        if count:
            views[0] = views[0][count:]


def punch_hole(fd: int, offset: int, num_bytes: int) -> None:
    """Give blocks back to the file system where it can; they read as zeros."""
    if sys.platform != "linux":
        return
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    call(fd, _PUNCH_HOLE_KEEP_SIZE, offset, num_bytes)  # a refusal only means that blocks stay


def sync_folder(folder: Path) -> None:
    """Force names in a folder to the medium."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _next_data(fd: int, offset: int, size: int) -> int:
    """Where the next bytes are that were written; the size where there are none."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset
