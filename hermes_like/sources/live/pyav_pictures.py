"""Pictures out of a network stream or a file with PyAV, still unconverted, as they come.

Calls into FFmpeg block and cannot be interrupted, so for a network stream this runs in a process
that can be ended. Waits for a key frame after joining and after damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import av
from av.container import Flags
from av.error import FFmpegError
from av.video.reformatter import VideoReformatter

from hermes_like.errors import SourceError
from hermes_like.records import Image
from hermes_like.sources.key_frame_gate import KeyFrameGate
from hermes_like.sources.live.connection import Arrival
from hermes_like.sources.live.pictures import Counts
from hermes_like.sources.pyav_open import start_s, video_streams
from hermes_like.sources.trusted import guarded_packets, trusted_pictures
from hermes_like.sources.upright import upright

#: Formats without a clock: FFmpeg makes up evenly spaced times.
TIMELESS = frozenset({"mpjpeg", "mjpeg", "h264", "hevc", "m4v", "image2pipe", "jpeg_pipe"})


def read_stream(
    request: Mapping[str, Any], counts: Counts, is_alive: Callable[[], None]
) -> Iterator[Arrival]:
    """Open what ``request`` names and yield its pictures until it ends.

    Args:
        request: ``url``, ``name`` (for messages), ``options`` (of FFmpeg, by name).
        counts: Counts damage.
        is_alive: Called once when the stream is open and then with each packet.

    Raises:
        SourceError: It cannot be opened or broke off; the message holds the name, not the URL.
    """
    with open_stream(request) as container:
        # Waiting for times that can be computed later would hold back the newest packets.
        container.flags &= ~Flags.gen_pts.value
        yield from _Pictures(request["name"], container, counts, is_alive)


def open_stream(request: Mapping[str, Any]) -> Any:
    """Open what ``request`` names, see :func:`read_stream`; a PyAV container.

    Raises:
        SourceError: It cannot be opened.
    """
    try:
        return av.open(request["url"], options=request.get("options", {}))
    except (FFmpegError, ValueError) as error:
        raise SourceError(f"{request['name']}: {_words(error)}") from None


def last_time_s(request: Mapping[str, Any]) -> float:
    """Time of the last picture of a file, in seconds from its first; nothing is decoded.

    Raises:
        SourceError: It cannot be opened.
    """
    with open_stream(request) as container:
        stream = video_streams(request["name"], container)[0]
        last = 0
        try:
            for packet in container.demux(stream):
                last = max(last, packet.pts or 0)
        except FFmpegError:
            pass  # what can be read is read, and what cannot is counted then
        return max(float(last * stream.time_base) - start_s(stream), 0.0)


class _Pictures:
    """The pictures of an open container."""

    def __init__(
        self, name: str, container: Any, counts: Counts, is_alive: Callable[[], None]
    ) -> None:
        self._name, self._container, self._counts = name, container, counts
        self._is_alive = is_alive
        self._stream = video_streams(name, container)[0]
        self._start_s = start_s(self._stream)
        self._has_clock = not TIMELESS & set(container.format.name.split(","))
        self._gate = KeyFrameGate()
        self._reformatter = VideoReformatter()
        self._display_matrix: bytes | None = None
        is_alive()

    def __iter__(self) -> Iterator[Arrival]:
        is_first = True
        context = self._stream.codec_context
        for picture in trusted_pictures(context, self._packets(), self._gate):
            if is_first:  # of the first only: asking makes a picture a reference cycle
                matrix = picture.side_data.get("DISPLAYMATRIX")
                self._display_matrix = None if matrix is None else bytes(matrix)
                is_first = False
            self._count()
            yield Arrival(self._media_s(picture), partial(self._to_image, picture))
        self._count()

    def _packets(self) -> Iterator[Any]:
        try:
            yield from guarded_packets(self._container, self._stream, self._gate, self._is_alive)
        except OSError as error:
            raise SourceError(f"{self._name}: {_words(error)}") from None

    def _count(self) -> None:
        self._counts.num_damaged = self._gate.num_dropped
        self._counts.num_decode_errors = self._gate.num_damaged

    def _media_s(self, picture: Any) -> float | None:
        if picture.pts is None or not self._has_clock:
            return None
        return float(picture.pts * (picture.time_base or self._stream.time_base)) - self._start_s

    def _to_image(self, picture: Any) -> Image | None:
        try:
            rgb = self._reformatter.reformat(picture, format="rgb24", threads=1)
            return upright(cast(Image, rgb.to_ndarray()), self._display_matrix)
        except (FFmpegError, ValueError):
            return None


def _words(error: Exception) -> str:
    """The cause alone: the text of an FFmpeg error repeats the address with its password."""
    if isinstance(error, FFmpegError):
        return (error.strerror or type(error).__name__).lower()
    return "not an address that FFmpeg understands"
