"""Why a file will not play, and how long it is, from its first bytes and boxes: no decoder.

Finds what breaks most runs: nothing in the file, another kind of file under the name, a copy that
was cut off. A file that passes may still fail; opening it is the sources' part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hermes_like.evaluation.listing import ARRAY_SUFFIXES

#: First bytes of containers, by what follows an offset.
_MAGIC: tuple[tuple[int, bytes], ...] = (
    (4, b"ftyp"),
    (4, b"moov"),
    (4, b"mdat"),
    (4, b"free"),
    (4, b"wide"),
    (4, b"skip"),
    (0, b"\x1a\x45\xdf\xa3"),
    (0, b"RIFF"),
    (0, b"FLV"),
    (0, b"\x00\x00\x01\xba"),
    (0, b"\x00\x00\x01\xb3"),
    (0, b"\x30\x26\xb2\x75"),
    (0, b"\x47"),
)


@dataclass(frozen=True, slots=True)
class Probe:
    """What can be told of a video file.

    Attributes:
        problem: Why it will not play; None: nothing was found.
        duration_s: Length by its header; None: not told there.
    """

    problem: str | None = None
    duration_s: float | None = None


def probe(path: Path) -> Probe:
    """Look at a video file or a folder of pictures."""
    if path.is_dir():
        return Probe()
    try:
        size = path.stat().st_size
        if not size:
            return Probe("the file is empty (0 bytes)")
        if path.suffix.lower() in ARRAY_SUFFIXES:
            return Probe("an array of frames: make a video or a folder of pictures of it")
        with path.open("rb") as file:
            head = file.read(16)
            if not any(head[at : at + len(magic)] == magic for at, magic in _MAGIC):
                return Probe("not a video file by its first bytes")
            is_iso = head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip")
            return _probe_boxes(file, size) if is_iso else Probe()
    except OSError as error:
        return Probe((error.strerror or str(error)).lower())


def _probe_boxes(file: BinaryIO, size: int) -> Probe:
    """An ISO file: its index must be there, and no box may reach beyond the end."""
    duration_s, has_index = None, False
    for kind, begin, end in _boxes(file, 0, size):
        if kind == b"moov":
            has_index = True
            duration_s = _duration_s(file, begin, min(end, size))
        if end > size:
            missing = end - size
            return Probe(f"cut off: {missing} bytes are missing at the end", duration_s)
    if not has_index:
        return Probe("the index (moov) is missing: the recording or the copy was cut off")
    return Probe(None, duration_s)


def _boxes(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Kind, begin of content and end of every box; the last one may reach beyond ``end``."""
    while begin + 8 <= end:
        file.seek(begin, os.SEEK_SET)
        header = file.read(16)
        length, start = int.from_bytes(header[:4], "big"), begin + 8
        if length == 1:
            length, start = int.from_bytes(header[8:16], "big"), begin + 16
        elif length == 0:
            length = end - begin
        if length < 8:
            return
        yield header[4:8], start, begin + length
        begin += length


def _duration_s(file: BinaryIO, begin: int, end: int) -> float | None:
    for kind, start, _ in _boxes(file, begin, end):
        if kind != b"mvhd":
            continue
        file.seek(start)
        content = file.read(32)
        wide = content[:1] == b"\x01"
        at, length = (20, 8) if wide else (12, 4)
        scale = int.from_bytes(content[at : at + 4], "big")
        units = int.from_bytes(content[at + 4 : at + 4 + length], "big")
        is_known = scale and units and units != (1 << 8 * length) - 1
        return units / scale if is_known else None
    return None
