"""Bytes of volumes, records and heads. Pure functions of bytes: no files, no keys, no policy.

Everything is little-endian. Headers of every version begin with the same 24 bytes (magic, version,
length, checksum over the rest), so that a newer version can be told from damage.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest as checksum

from hermes_like.errors import StorageError
from hermes_like.tiers.base import SegmentHead

FORMAT_VERSION = 1
BLOCK_BYTES = 4096
RECORD_MAGIC = b"HLrecord"
VOLUME_MAGIC = b"HLvolume"
#: Longest header that is believed; a record has one table row per layer or picture.
MAX_HEADER_BYTES = 2**20

Buffer = bytes | bytearray | memoryview

# What a record or a volume holds.
KV, KEYFRAMES, TOMBSTONE = 1, 2, 3
# What a section holds.
HEAD, LAYER, IMAGE = 1, 2, 3

_PRELUDE = struct.Struct("<8sHHIQ")
_RECORD = struct.Struct("<HHIQQQdd32s16s")
_SECTION = struct.Struct("<IIQQQQ")
_VOLUME = struct.Struct("<HHIQQ32s16s16s")
_HEAD = struct.Struct("<QQdIIIIIII")
_IS_APPROXIMATE, _HAS_ALL_CELLS, _HAS_WALLS = 1, 2, 4


class LayoutError(StorageError):
    """Bytes that are no header of ours, or were altered."""


@dataclass(frozen=True, slots=True)
class Section:
    """One row of a record's table.

    Attributes:
        kind: ``HEAD``, ``LAYER`` or ``IMAGE``.
        label: Layer index, or frame number of a picture.
        offset: Where it begins, from the start of the record, in bytes.
        length: Its bytes as stored.
        digest: xxh3-64 of the bytes as stored.
    """

    kind: int
    label: int
    offset: int
    length: int
    digest: int


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """What a record says of itself.

    Attributes:
        kind: ``KV``, ``KEYFRAMES`` or ``TOMBSTONE``.
        record_bytes: Its length with header and padding; a multiple of 4 KiB.
        sequence: Running number of the store; the highest one of a segment counts.
        segment_id: Which segment; 0 in a tombstone.
        start_s: Stream time of the first frame.
        end_s: Stream time of the end.
        digest: Fingerprint digest, 32 bytes.
        key_id: 16 bytes; zeros where nothing is encrypted.
        sections: Table of contents.
    """

    kind: int
    record_bytes: int
    sequence: int
    segment_id: int
    start_s: float
    end_s: float
    digest: bytes
    key_id: bytes
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeHeader:
    """What a volume says of itself.

    Attributes:
        kind: ``KV`` or ``KEYFRAMES``.
        number: Running number of the store, over both kinds.
        header_bytes: Where the first record begins.
        digest: Fingerprint digest.
        key_id: Key of its sections; zeros where nothing is encrypted.
        key_check: What only that key gives.
        fingerprint: The full fingerprint, JSON.
    """

    kind: int
    number: int
    header_bytes: int
    digest: bytes
    key_id: bytes
    key_check: bytes
    fingerprint: bytes


def aligned(num_bytes: int) -> int:
    """The next multiple of 4 KiB."""
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


def _sealed(magic: bytes, body: bytes, padded_bytes: int | None = None) -> bytes:
    """A header: prelude with checksum, body, zeros up to the given length."""
    total = _PRELUDE.size + len(body) if padded_bytes is None else padded_bytes
    body = body.ljust(total - _PRELUDE.size, b"\0")
    front = struct.pack("<8sHHI", magic, FORMAT_VERSION, 0, total)
    return front + struct.pack("<Q", checksum(front + body)) + body


def _opened(data: Buffer, magic: bytes) -> memoryview:
    """The body of a header, after its checksum was verified."""
    view = memoryview(data)
    if len(view) < _PRELUDE.size:
        raise LayoutError("header cut short")
    found, version, _, total, digest = _PRELUDE.unpack_from(view)
    if found != magic:
        raise LayoutError(f"expected the magic {magic!r}")
    if not _PRELUDE.size <= total <= min(len(view), MAX_HEADER_BYTES):
        raise LayoutError(f"header of {total} bytes does not fit into {len(view)}")
    if checksum(bytes(view[:16]) + bytes(view[_PRELUDE.size : total])) != digest:
        raise LayoutError("header checksum does not match")
    if version != FORMAT_VERSION:
        raise LayoutError(f"format version {version}, expected {FORMAT_VERSION}")
    return view[_PRELUDE.size : total]


def header_length(data: Buffer) -> int:
    """Length a header claims; 0 where there is none. Needs 24 bytes."""
    magic, _, _, total, _ = _PRELUDE.unpack_from(data)
    return int(total) if magic in (RECORD_MAGIC, VOLUME_MAGIC) else 0


def version_of(data: Buffer) -> int | None:
    """Format version of an undamaged header of any version; None where it is damaged."""
    view = memoryview(data)
    if len(view) < _PRELUDE.size:
        return None
    magic, version, _, total, digest = _PRELUDE.unpack_from(view)
    if magic not in (RECORD_MAGIC, VOLUME_MAGIC) or not _PRELUDE.size <= total <= len(view):
        return None
    found = checksum(bytes(view[:16]) + bytes(view[_PRELUDE.size : total]))
    return int(version) if found == digest else None


def pack_volume(header: VolumeHeader) -> bytes:
    """Bytes of a volume header, ``header_bytes`` long."""
    fixed = _VOLUME.pack(
        header.kind,
        0,
        len(header.fingerprint),
        header.number,
        header.header_bytes,
        header.digest,
        header.key_id,
        header.key_check,
    )
    return _sealed(VOLUME_MAGIC, fixed + header.fingerprint, header.header_bytes)


def volume_header_bytes(fingerprint: bytes) -> int:
    """Length of a volume header with this fingerprint."""
    return aligned(_PRELUDE.size + _VOLUME.size + len(fingerprint))


def unpack_volume(data: Buffer) -> VolumeHeader:
    """Read a volume header. Raises :class:`LayoutError`."""
    body = _opened(data, VOLUME_MAGIC)
    kind, _, json_bytes, number, header_bytes, digest, key_id, check = _VOLUME.unpack_from(body)
    text = bytes(body[_VOLUME.size : _VOLUME.size + json_bytes])
    return VolumeHeader(kind, number, header_bytes, digest, key_id, check, text)


def pack_record(header: RecordHeader) -> bytes:
    """Bytes of a record header, without padding."""
    fixed = _RECORD.pack(
        header.kind,
        0,
        len(header.sections),
        header.record_bytes,
        header.sequence,
        header.segment_id,
        header.start_s,
        header.end_s,
        header.digest,
        header.key_id,
    )
    rows = [
        _SECTION.pack(s.kind, 0, s.label, s.offset, s.length, s.digest) for s in header.sections
    ]
    return _sealed(RECORD_MAGIC, fixed + b"".join(rows))


def record_header_bytes(num_sections: int) -> int:
    """Length of a record header with that many sections."""
    return _PRELUDE.size + _RECORD.size + num_sections * _SECTION.size


def unpack_record(data: Buffer) -> RecordHeader:
    """Read a record header. Raises :class:`LayoutError`."""
    body = _opened(data, RECORD_MAGIC)
    if len(body) < _RECORD.size:
        raise LayoutError("record header cut short")
    kind, _, count, length, sequence, segment, start_s, end_s, digest, key = _RECORD.unpack_from(
        body
    )
    if len(body) != _RECORD.size + count * _SECTION.size or length % BLOCK_BYTES or not length:
        raise LayoutError("record header contradicts itself")
    sections = []
    for at in range(_RECORD.size, len(body), _SECTION.size):
        section_kind, _, label, offset, size, section_digest = _SECTION.unpack_from(body, at)
        if offset + size > length:
            raise LayoutError("section beyond the end of its record")
        sections.append(Section(section_kind, label, offset, size, section_digest))
    return RecordHeader(
        kind, length, sequence, segment, start_s, end_s, digest, key, tuple(sections)
    )


def tombstone(record_bytes: int, sequence: int) -> bytes:
    """Header that stands where a record was erased: keeps the length, says nothing else."""
    return pack_record(
        RecordHeader(TOMBSTONE, record_bytes, sequence, 0, 0.0, 0.0, bytes(32), bytes(16))
    )


def table(parts: Sequence[tuple[int, int, Buffer]]) -> tuple[tuple[Section, ...], int]:
    """Place sections one after the other behind the header.

    Args:
        parts: Kind, label and bytes of each section.

    Returns:
        The table, and the length of the record with its padding.
    """
    offset = record_header_bytes(len(parts))
    sections = []
    for kind, label, data in parts:
        sections.append(Section(kind, label, offset, len(data), checksum(data)))
        offset += len(data)
    return tuple(sections), aligned(offset)


def pack_head(head: SegmentHead) -> bytes:
    """Bytes of a head: fixed part, times, wall times, cells, vectors, content key."""
    cells = np.ascontiguousarray(head.token_cells, dtype="<u4")
    vectors = np.ascontiguousarray(head.vectors, dtype="<f4")
    frames = head.num_frames
    if vectors.ndim != 3 or vectors.shape[0] % frames or len(head.frame_walls_s) != frames:
        raise StorageError(
            f"segment {head.segment_id}: expected vectors [n x {frames}, heads, channels] and "
            f"{frames} wall times, got {list(vectors.shape)} and {len(head.frame_walls_s)}"
        )
    is_whole = len(cells) == frames * head.tokens_per_frame and bool(
        (cells == np.arange(len(cells), dtype=np.uint32)).all()
    )
    has_walls = any(wall is not None for wall in head.frame_walls_s)
    flags = (
        _IS_APPROXIMATE * head.is_approximate | _HAS_ALL_CELLS * is_whole | _HAS_WALLS * has_walls
    )
    parts = [
        _HEAD.pack(
            head.segment_id,
            head.first_frame,
            head.end_s,
            head.tokens_per_frame,
            frames,
            len(cells),
            vectors.shape[1],
            vectors.shape[2],
            flags,
            len(head.content_key),
        ),
        struct.pack(f"<{frames}d", *head.frame_times_s),
    ]
    if has_walls:
        walls = [float("nan") if wall is None else wall for wall in head.frame_walls_s]
        parts.append(struct.pack(f"<{frames}d", *walls))
    if not is_whole:
        parts.append(cells.tobytes())
    return b"".join([*parts, vectors.tobytes(), head.content_key])


@lru_cache(maxsize=64)
def _doubles(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}d")


@lru_cache(maxsize=64)
def _all_cells(tokens: int) -> npt.NDArray[np.uint32]:
    """Cells of a segment that was stored whole; heads share them."""
    cells = np.arange(tokens, dtype=np.uint32)
    cells.flags.writeable = False
    return cells


def unpack_head(data: Buffer) -> SegmentHead:
    """Read a head; its arrays are read-only.

    Raises:
        LayoutError: The lengths contradict each other.
    """
    data = bytes(data)
    try:
        segment, first, end_s, per_frame, frames, tokens, heads, dim, flags, key_bytes = (
            _HEAD.unpack_from(data)
        )
        at = _HEAD.size
        times = _doubles(frames).unpack_from(data, at)
        at += 8 * frames
        walls: tuple[float | None, ...] = (None,) * frames
        if flags & _HAS_WALLS:
            stored = _doubles(frames).unpack_from(data, at)
            walls = tuple(None if wall != wall else wall for wall in stored)
            at += 8 * frames
        if flags & _HAS_ALL_CELLS:
            cells = _all_cells(tokens)
        else:
            cells = np.frombuffer(data, np.uint32, tokens, at)
            at += 4 * tokens
        vector_bytes = len(data) - key_bytes - at
        # How many vectors a frame has is not written: it follows from the length.
        groups = vector_bytes // max(1, 4 * frames * heads * dim) if heads * dim else 1
        vectors = np.frombuffer(data, np.float32, frames * groups * heads * dim, at)
        at += vectors.nbytes
    except (struct.error, ValueError) as error:
        raise LayoutError(f"head: {error}") from error
    if at + key_bytes != len(data):
        raise LayoutError(f"head of {len(data)} bytes, expected {at + key_bytes}")
    return SegmentHead(
        segment, first, times, end_s, walls, per_frame, cells,
        vectors.reshape(frames * groups, heads, dim), data[at:], bool(flags & _IS_APPROXIMATE),
    )  # fmt: skip
