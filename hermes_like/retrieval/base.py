"""The seam for finding the past again: a question, an index and constraints in, frames out.

A retriever knows neither models nor tiers: it compares vectors. What is to be done with its hits
(fetch, merge, answer) is decided by others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hermes_like.config import RetrievalConfig

if TYPE_CHECKING:
    from hermes_like.index import SegmentIndex

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hit:
    """One frame of the past.

    Attributes:
        segment_id: Segment that holds it.
        frame: Running number of the frame in the stream.
        score: How well it fits, higher is better; comparable within one question and one head.
    """

    segment_id: int
    frame: int
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class ResidentFrames:
    """Frames that the device holds whole: never brought back, and what a hit has to beat.

    Attributes:
        frames: int64 ``[frames]`` running numbers.
        vectors: float32 ``[frames * rows per frame, heads, head_dim]``, frame-major, made like
            those of a segment.
    """

    frames: IntArray
    vectors: FloatArray

    @classmethod
    def none(cls, num_heads: int, head_dim: int) -> ResidentFrames:
        """No frames at all."""
        return cls(np.zeros(0, np.int64), np.zeros((0, num_heads, head_dim), np.float32))


@dataclass(frozen=True, slots=True)
class Constraints:
    """What may be found.

    Attributes:
        max_frames: Most hits, neighbours included.
        start_s: Stream time before which nothing is looked at; None: no bound.
        end_s: Stream time from which on nothing is looked at; None: no bound.
        exclude: Frames that are not wanted, besides the resident ones.
        neighbour_frames: Frames on each side of a hit that come with it, if they are in range.
        gap_frames: Two hits are further apart than this: an event of a few frames is hit once.
    """

    max_frames: int
    start_s: float | None = None
    end_s: float | None = None
    exclude: frozenset[int] = frozenset()
    neighbour_frames: int = 0
    gap_frames: int = 0

    def __post_init__(self) -> None:
        for name in ("max_frames", "neighbour_frames", "gap_frames"):
            value = getattr(self, name)
            if value < 0:
                raise ValueError(f"{name}: expected 0 or more, got {value}")


@dataclass(frozen=True, slots=True)
class Found:
    """What a retriever has found.

    Attributes:
        hits: In the order in which they should be fetched; the neighbours of a hit follow it.
        best_resident: Score of the resident frame that fits best; None: nothing is resident.
        best_past: Score of the frame of the past that fits best, on the same scale; None: that of
            the first hit.
    """

    hits: tuple[Hit, ...] = ()
    best_resident: float | None = None
    best_past: float | None = None

    @property
    def margin(self) -> float:
        """How far the best hit beats what is resident; infinite where one of them is missing."""
        if not self.hits:
            return -math.inf
        if self.best_resident is None:
            return math.inf
        best = self.hits[0].score if self.best_past is None else self.best_past
        return best - self.best_resident

    def beats(self, margin: float) -> bool:
        """Whether the best hit is worth fetching at a calibrated margin."""
        return bool(self.hits) and self.margin >= margin


class Retriever(ABC):
    """Chooses frames of the past for a question.

    Contract, held by one test for all implementations: hits are different frames of the index
    within the constraints, none of them excluded or resident, at most ``max_frames``, the same for
    the same input; ``best_resident`` does not depend on what is excluded or in range.
    """

    def __init__(self, config: RetrievalConfig) -> None:
        self.config = config

    @abstractmethod
    def find(
        self,
        queries: FloatArray,
        index: SegmentIndex,
        constraints: Constraints,
        resident: ResidentFrames,
    ) -> Found:
        """Find frames.

        Args:
            queries: float32 ``[question tokens, heads, head_dim]``, un-rotated, for the heads of
                the index in its order.
            index: Vectors of the past.
            constraints: What may be found.
            resident: What the device holds.
        """
