"""Plain words for files that cannot be read: each cause gets its own sentence."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from hermes_like.errors import SourceOpenError

_HEAD_BYTES = 4096


def open_error(path: Path | str, cause: str) -> SourceOpenError:
    """The error for a file or address that cannot be opened: its name and the cause."""
    return SourceOpenError(f"{path}: {cause}")


def check_file(path: Path) -> None:
    """Refuse what no reader can read.

    Raises:
        SourceOpenError: Missing, not a regular file, not permitted, or empty.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise open_error(path, cause.lower()) from error
    if not stat.S_ISREG(status.st_mode):
        raise open_error(path, "expected a file, got a device, pipe or socket")
    if not os.access(path, os.R_OK):
        raise open_error(path, "permission denied")
    if status.st_size == 0:
        raise open_error(path, "the file is empty (0 bytes)")


def why_unreadable(path: Path) -> str:
    """Best guess, in words, why a file is no video that a reader understands."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if _is_text(head):
        return "the file holds text, not video"
    if head[4:8] == b"ftyp" and not _has_box(path, b"moov"):
        return "the index (moov) is missing: the recording or the copy was cut off"
    return "not a video file, or damaged beyond reading"


def is_transport_stream(path: Path) -> bool:
    """Whether a file is an MPEG transport stream (sync bytes 188 apart)."""
    with path.open("rb") as file:
        head = file.read(189)
    return len(head) == 189 and head[0] == 0x47 and head[188] == 0x47


def stream_summary(path: Path) -> str:
    """Codec, pixel format and size of the first video stream, as far as PyAV can tell."""
    try:
        import av

        with av.open(f"file:{path}") as container:
            if not container.streams.video:
                return describe_missing_video(container)
            context = container.streams.video[0].codec_context
            return f"{context.name}, {context.pix_fmt or '?'}, {context.width}x{context.height}"
    except (ImportError, ValueError, OSError, RuntimeError, LookupError):
        return why_unreadable(path)


def describe_missing_video(container: Any) -> str:
    """Cause for an opened PyAV container without a video stream."""
    audio = [stream.codec_context.name for stream in container.streams.audio]
    if audio:
        return f"the file holds no video, only audio ({', '.join(audio)})"
    return "the file holds no video"


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return False
        text = head[: error.start].decode("utf-8")
    return all(char.isprintable() or char in "\r\n\t\f" for char in text)


def _has_box(path: Path, wanted: bytes) -> bool:
    """Whether an ISO media file has a top-level box of a kind."""
    size = path.stat().st_size
    offset = 0
    with path.open("rb") as file:
        while offset + 8 <= size:
            file.seek(offset)
            header = file.read(16)
            if header[4:8] == wanted:
                return True
            length = int.from_bytes(header[:4], "big")
            if length == 1:
                length = int.from_bytes(header[8:16], "big")
            if length < 8:
                return False
            offset += length
    return False
