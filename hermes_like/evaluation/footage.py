"""The frames of one pass: from a file, a folder of pictures or an array, on the file's own clock.

Knows sources. Knows neither questions nor models.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError, SourceOpenError
from hermes_like.evaluation.base import Video
from hermes_like.frames import sampled
from hermes_like.records import Frame, Image
from hermes_like.sources import FrameSource, open_source
from hermes_like.sources.base import Wanted
from hermes_like.sources.owned import OwnedSource

#: Times that differ by less are the same time.
EPSILON_S = 1e-6
#: A file may end so much before the time that it declares; audio is often longer than pictures.
_EARLY_END_S = 2.0


class ArraySource(OwnedSource):
    """Pictures stored as one array, ``.npy`` of uint8 ``[frames, H, W, 3]``.

    The file is mapped and not read into memory; it is never unpickled.

    Args:
        path: The file.
        fps: Pictures per second.
        config: ``start_time`` is used here.

    Raises:
        SourceOpenError: It is no such array.
    """

    def __init__(self, path: Path, fps: float, config: SourceConfig) -> None:
        super().__init__(str(path), config)
        self._fps = fps
        try:
            self._pictures: Image = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise SourceOpenError(f"{path}: no array can be read: {error}") from error
        shape, kind = self._pictures.shape, self._pictures.dtype
        if len(shape) != 4 or shape[-1] != 3 or 0 in shape or kind != np.uint8:
            raise SourceOpenError(
                f"{path}: expected uint8 [frames, H, W, 3], got {kind} {list(shape)}"
            )

    @property
    def duration_s(self) -> float | None:
        """Length in seconds."""
        return len(self._pictures) / self._fps

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        for index in range(len(self._pictures)):
            pts_s = index / self._fps
            if wanted(pts_s):
                yield self._frame(np.array(self._pictures[index]), index, pts_s)


class Footage(FrameSource):
    """A source that notes how far it has been read: files that were cut off often end in silence.

    Args:
        source: What is read.
        end_s: Where the stream ends within it; infinity: at its end.
    """

    def __init__(self, source: FrameSource, end_s: float = math.inf) -> None:
        self.name, self._source, self._end_s = source.name, source, end_s
        self._last_s = self._gap_s = 0.0

    def problem(self) -> str | None:
        """After the last frame: what is missing at the end, or None."""
        declared_s = self._source.duration_s
        if declared_s is None:
            return None
        whole_s = min(declared_s, self._end_s)
        read_s = self._last_s + self._gap_s
        if read_s + max(_EARLY_END_S, self._gap_s) >= whole_s:
            return None
        return f"{self.name}: it can be read up to {read_s:.1f} s of {whole_s:.1f} s"

    def __iter__(self) -> Iterator[Frame]:
        return self.select(lambda pts_s: True)

    def select(self, wanted: Wanted) -> Iterator[Frame]:
        """See :meth:`FrameSource.select`."""

        def noted(pts_s: float) -> bool:
            self._last_s, self._gap_s = pts_s, pts_s - self._last_s
            return wanted(pts_s)

        return self._source.select(noted)

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    @property
    def duration_s(self) -> float | None:
        """Of the source."""
        return self._source.duration_s

    @property
    def num_dropped(self) -> int:
        """Of the source."""
        return self._source.num_dropped

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of the source."""
        return self._source.warnings


@contextmanager
def footage(video: Video, start_s: float, config: SourceConfig) -> Iterator[Iterator[Frame]]:
    """Open a video and yield its sampled frames from ``start_s`` to its end.

    Args:
        video: With a path.
        start_s: Frames before it are not yielded; times are not shifted.
        config: Sampling, reader and the rest.

    Raises:
        SourceError: The video cannot be opened; while it is read: it cannot be decoded any further,
            or ends before the time that it declares.
    """
    end_s = math.inf if video.end_s is None else video.end_s
    with (
        _opened(video, config) as opened,
        Footage(opened, end_s) as source,
        sampled(source, config) as feed,
    ):
        yield _between(feed, start_s, end_s, source)


def _opened(video: Video, config: SourceConfig) -> FrameSource:
    assert video.path is not None, "the caller has looked"
    if video.path.suffix.lower() == ".npy":
        return ArraySource(video.path, video.fps or 1.0, config)
    if video.path.is_dir() and video.fps is not None:
        # A folder has no clock: the source spaces its pictures by the rate that it is told.
        config = config.model_copy(update={"sample_fps": video.fps})
    return open_source(video.path, config)


def _between(
    frames: Iterator[Frame], start_s: float, end_s: float, source: Footage
) -> Iterator[Frame]:
    for frame in frames:
        if frame.pts_s > end_s + EPSILON_S:
            return
        if frame.pts_s >= start_s - EPSILON_S:
            yield frame
    if (problem := source.problem()) is not None:
        raise SourceError(problem)
