"""Frames on their way to the model: sampled by time, near-duplicates left out, read ahead.

Sampling goes by presentation times, never by frame numbers, and a frame is never repeated to fill
a gap. This module knows no decoder.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import numpy as np

from hermes_like.config import SourceConfig
from hermes_like.records import Frame, Image
from hermes_like.sources.base import FrameSource
from hermes_like.sources.read_ahead import ReadAhead
from hermes_like.veil import Veil

logger = logging.getLogger(__name__)

#: A frame this little before its due time counts as on time: containers round times to 1 ms.
TOLERANCE_S = 0.001

#: Pictures are compared on a grid of at most about this many points per side.
_COMPARE_SIDE = 256

_JOIN_S = 0.4


class TimeSampler:
    """Picks the first frame at or after each due time ``k / sample_fps``.

    Args:
        sample_fps: Frames per second of stream time; None wants every frame.
        joins: Whether the first frame may come at any time, and nothing was missed before it.

    Attributes:
        num_seen: Frames asked about.
        num_wanted: Frames picked.
        num_missing: Due times that had no frame of their own.
    """

    def __init__(self, sample_fps: float | None, joins: bool = False) -> None:
        self.sample_fps = sample_fps
        self.joins = joins
        self.num_seen = 0
        self.num_wanted = 0
        self.num_missing = 0
        self._next_due = 0

    def wants(self, pts_s: float) -> bool:
        """Whether the frame at this time is picked; call once per frame, in order."""
        self.num_seen += 1
        if self.sample_fps is not None:
            tolerance = min(TOLERANCE_S * self.sample_fps, 0.1)
            latest_due = math.floor(pts_s * self.sample_fps + tolerance)
            if latest_due < self._next_due:
                return False
            if not (self.joins and self.num_wanted == 0):
                self.num_missing += latest_due - self._next_due
            self._next_due = latest_due + 1
        self.num_wanted += 1
        return True


class DuplicateFilter:
    """Tells frames that nearly equal the last one that was let through.

    Args:
        threshold: Mean absolute difference in grey levels (0 to 255) up to which frames are equal.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.num_skipped = 0
        self._last: np.ndarray | None = None

    def is_duplicate(self, image: Image) -> bool:
        """Compare ``image``, ``[H, W, 3]`` uint8, with the last one that was not a duplicate."""
        step = -(-max(image.shape[:2]) // _COMPARE_SIDE)
        sample = image[::step, ::step].astype(np.int16)
        last = self._last
        if last is not None and last.shape == sample.shape:
            difference = float(np.abs(sample - last).mean())
            if difference <= self.threshold:
                self.num_skipped += 1
                return True
        self._last = sample
        return False


class FrameFeed:
    """The frames of a source that the model shall see; an iterator and a context manager.

    Closing the feed closes the source. A failure of the source is raised to the consumer after the
    frames before it; a consumer that leaves the ``with`` block stops the reader within a second.
    A live source has a thread and a hand-off of its own, and nothing is read ahead of that.

    Args:
        source: An open source that has not been iterated.
        config: Sampling rate, duplicate skipping, bound of the queue.
    """

    def __init__(self, source: FrameSource, config: SourceConfig | None = None) -> None:
        config = config or SourceConfig()
        self.source = source
        self._sampler = TimeSampler(config.sample_fps, joins=source.is_live)
        self._duplicates = DuplicateFilter(config.duplicate_threshold)
        frames = _selected(
            source,
            Veil(config.masks, config.zones),
            self._sampler,
            self._duplicates if config.skip_duplicates else None,
        )
        self._frames = frames
        self._reading = threading.Lock()
        self._ahead: ReadAhead[Frame] | None = None
        if not source.is_live:
            name = f"frames of {source.name}"
            self._ahead = ReadAhead(frames, config.read_ahead_frames, name)

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        if self._ahead is not None:
            return next(self._ahead)
        with self._reading:
            return next(self._frames)

    def close(self) -> None:
        """Stop reading and close the source; safe to call twice and from another thread."""
        if self._ahead is None:
            self.source.close()
            return
        self._ahead.stop()
        self.source.close()
        if not self._ahead.join(_JOIN_S):
            logger.warning("%s: the reader did not stop yet; a native call hangs", self.source.name)

    @property
    def num_read(self) -> int:
        """Frames that came out of the source before sampling."""
        return self._sampler.num_seen

    @property
    def num_skipped_duplicates(self) -> int:
        """Sampled frames left out because they nearly equal the one before."""
        return self._duplicates.num_skipped

    @property
    def num_dropped(self) -> int:
        """Frames lost: damaged ones of the source, and those read ahead that nobody took."""
        num_left = 0 if self._ahead is None else self._ahead.num_left
        return self.source.num_dropped + num_left

    @property
    def warnings(self) -> tuple[str, ...]:
        """Plain sentences of the source, and what the sampling could not give."""
        sampler = self._sampler
        if not sampler.num_missing:
            return self.source.warnings
        num_due = sampler.num_missing + sampler.num_wanted
        return (
            *self.source.warnings,
            f"{self.source.name}: {sampler.num_missing} of {num_due} sampling times had no frame "
            "of their own; frames are never repeated",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def sampled(source: FrameSource, config: SourceConfig | None = None) -> FrameFeed:
    """Return the sampled frames of a source; see :class:`FrameFeed`."""
    return FrameFeed(source, config)


def _selected(
    source: FrameSource, veil: Veil, sampler: TimeSampler, duplicates: DuplicateFilter | None
) -> Iterator[Frame]:
    """The frames to deliver; runs in the owner thread, or the consumer's if the source is live."""
    for frame in source.select(sampler.wants):
        # Before duplicates are told: what is hidden may not decide what is seen.
        seen = veil.apply(frame)
        if duplicates is None or not duplicates.is_duplicate(seen.image):
            yield seen
