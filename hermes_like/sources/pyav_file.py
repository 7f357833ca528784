"""Video files through PyAV (FFmpeg), the default reader.

Packets are decoded one by one, in order, on demand: nothing decodes ahead and nothing seeks, so
memory is flat and no frame comes back under another's time. Damaged packets are counted, and after
one the pictures that may build on it are left out up to the next key frame.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

from av.error import FFmpegError
from av.video.reformatter import VideoReformatter

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError, SourceOpenError
from hermes_like.records import Frame, Image
from hermes_like.sources.base import Wanted
from hermes_like.sources.clock import StreamClock
from hermes_like.sources.diagnose import open_error
from hermes_like.sources.key_frame_gate import KeyFrameGate
from hermes_like.sources.owned import OwnedSource
from hermes_like.sources.pyav_open import (
    codec_words,
    declares_length,
    duration_s,
    open_container,
    start_s,
    video_streams,
)
from hermes_like.sources.trusted import guarded_packets, trusted_pictures
from hermes_like.sources.upright import upright

_EARLY_END_S = 0.5


class PyAVSource(OwnedSource):
    """Frames of a video file.

    Args:
        path: The file.
        config: ``start_time`` is used here; sampling is not a reader's business.

    Raises:
        SourceOpenError: The file cannot be opened or not one picture can be decoded.
    """

    def __init__(self, path: Path, config: SourceConfig) -> None:
        super().__init__(str(path), config)
        self._container = open_container(path)
        try:
            self._stream, *others = video_streams(path, self._container)
            if others:
                index = self._stream.index
                self.warn(f"{1 + len(others)} video streams; only stream {index} is read")
            self._start_s = start_s(self._stream)
            self._duration_s = duration_s(self._container, self._stream)
            self._is_length_declared = declares_length(self._container, self._stream)
            self._clock = StreamClock(float(self._stream.guessed_rate or 0))
            self._reformatter = VideoReformatter()
            self._gate = KeyFrameGate()
            self._last_duration_s = 0.0
            context = self._stream.codec_context
            self._pictures = trusted_pictures(context, self._packets(), self._gate)
            self._first = next(self._pictures, None)
            if self._first is None:
                raise open_error(
                    path, f"not one picture could be decoded ({codec_words(self._stream)})"
                )
            # Asked of one picture only: asking makes a picture a reference cycle, and memory grows.
            matrix = self._first.side_data.get("DISPLAYMATRIX")
            self._display_matrix = None if matrix is None else bytes(matrix)
            self._probe(self._first)
            self._warn_about_alpha(self._first)
        except BaseException:
            self._container.close()
            raise

    @property
    def duration_s(self) -> float | None:
        """Declared length in seconds."""
        return self._duration_s

    @property
    def num_dropped(self) -> int:
        """Frames left out because they build on damaged or missing ones."""
        return self._gate.num_dropped

    def _release(self) -> None:
        self._container.close()

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        index = 0
        picture = self._first
        self._first = None
        while picture is not None:
            pts_s = self._clock.tell(self._seconds(picture, picture.pts, self._start_s))
            self._last_duration_s = self._seconds(picture, picture.duration or None) or 0.0
            if wanted(pts_s):
                yield self._frame(self._to_image(picture), index, pts_s)
            index += 1
            picture = next(self._pictures, None)
        self._report()

    def _packets(self) -> Iterator[Any]:
        try:
            yield from guarded_packets(self._container, self._stream, self._gate)
        except OSError as error:
            raise SourceError(f"{self.name}: {error.strerror or error}") from error

    def _seconds(self, picture: Any, ticks: int | None, start_s: float = 0.0) -> float | None:
        if ticks is None:
            return None
        return float(ticks * (picture.time_base or self._stream.time_base)) - start_s

    def _to_image(self, picture: Any) -> Image:
        try:
            rgb = self._reformatter.reformat(picture, format="rgb24", threads=1)
            image = cast(Image, rgb.to_ndarray())
        except (FFmpegError, ValueError) as error:
            words = codec_words(self._stream)
            raise SourceError(f"{self.name}: cannot convert to RGB ({words}): {error}") from error
        return upright(image, self._display_matrix)

    def _probe(self, picture: Any) -> None:
        try:
            self._to_image(picture)
        except SourceError as error:
            raise SourceOpenError(str(error)) from error

    def _warn_about_alpha(self, picture: Any) -> None:
        has_alpha = any(component.is_alpha for component in picture.format.components)
        if has_alpha or self._stream.metadata.get("alpha_mode") == "1":
            self.warn("transparency (alpha) is ignored; colours nobody saw may show")

    def _report(self) -> None:
        """Say at the end what was repaired, left out or missing."""
        for note in self._clock.notes():
            self.warn(note)
        if self._gate.num_damaged or self._gate.num_dropped:
            self.warn(
                f"{self._gate.num_damaged} damaged packets; {self._gate.num_dropped} frames that "
                "build on damaged or missing ones were left out"
            )
        end_s = (self._clock.last_s or 0.0) + max(self._last_duration_s, self._clock.frame_s)
        declared_s = self._duration_s if self._is_length_declared else None
        if declared_s is not None and end_s < declared_s - _EARLY_END_S:
            self.warn(f"readable up to {end_s:.2f} s of the {declared_s:.2f} s it declares")
