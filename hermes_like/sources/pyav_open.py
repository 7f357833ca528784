"""Opening a file with PyAV: which stream is read, when it starts, how long it says it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
from av.error import FFmpegError

from hermes_like.sources.diagnose import (
    check_file,
    describe_missing_video,
    open_error,
    why_unreadable,
)

_MAX_THREADS = 4


def open_container(path: Path) -> Any:
    """Open a file.

    Raises:
        SourceOpenError: Names the file and the cause.
    """
    check_file(path)
    try:
        return av.open(f"file:{path}")
    except (FFmpegError, ValueError) as error:
        cause = why_unreadable(path)
        detail = getattr(error, "strerror", None) or str(error)
        raise open_error(path, f"{cause} ({detail})") from error


def video_streams(path: Path | str, container: Any) -> list[Any]:
    """The video streams, the one to read first; cover pictures of sound files are none.

    Raises:
        SourceOpenError: There is no video, or no decoder for it.
    """
    cover = av.stream.Disposition.attached_pic
    streams = [stream for stream in container.streams.video if not stream.disposition & cover]
    if not streams:
        raise open_error(path, describe_missing_video(container))
    best = container.streams.best("video")
    streams.sort(key=lambda stream: stream is not best and stream != best)
    if streams[0].codec_context is None:
        raise open_error(path, "there is no decoder for its video codec")
    # Frame threads would report damage late, or not at all.
    streams[0].thread_type = "SLICE"
    streams[0].codec_context.thread_count = _MAX_THREADS
    return streams


def start_s(stream: Any) -> float:
    """Time of the first packet of a stream, in seconds: 600 in a file cut out of a longer one."""
    return float(stream.start_time * stream.time_base) if stream.start_time else 0.0


def duration_s(container: Any, stream: Any) -> float | None:
    """Length in seconds, if anything is declared. A hint: many files lie."""
    if stream.duration:
        return float(stream.duration) * float(stream.time_base)
    if not container.duration or container.duration < 0:
        return None
    length_s = float(container.duration) / 1e6
    # Matroska declares the time at which it ends.
    return length_s - start_s(stream) if "matroska" in container.format.name else length_s


def declares_length(container: Any, stream: Any) -> bool:
    """Whether the declared length speaks about this stream and comes from an index."""
    if any(name in container.format.name for name in ("mov", "avi")):
        return bool(stream.duration)
    return "matroska" in container.format.name and len(container.streams) == 1


def codec_words(stream: Any) -> str:
    """Codec, pixel format and size, for messages."""
    context = stream.codec_context
    return f"{context.name}, {context.pix_fmt or '?'}, {context.width}x{context.height}"
