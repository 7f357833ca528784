"""The seam for retention: a policy says how much each cached token matters, and nothing else.

Smoothing across layers, selecting under the budget, gathering and re-indexing are shared code in
``memory/``; a policy steers them through the declarative :class:`SelectionSpec`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from hermes_like.config import PolicyConfig
from hermes_like.records import Band

SummaryKind = Literal["none", "appended", "weighted"]
AttentionKind = Literal["none", "true", "embedding"]
QuotaOrder = Literal["score", "even"]
Guidance = Literal["local", "global", "mixed"]


@dataclass(frozen=True, slots=True, eq=False)
class LayerView:
    """What a policy may know of the video tokens of one decoder layer, oldest first.

    Attributes:
        layer_index: Decoder layer, from 0.
        num_layers: Decoder layers of the model.
        band: Depth of the layer.
        band_progress: 0 at the first layer of the band, rising towards 1, never reaching it.
        frames: ``[tokens]`` int64 running number of the frame a token belongs to; -1 for a summary.
        cells: ``[tokens]`` int64 place inside the frame, row-major; -1 for a summary.
        mass: ``[tokens]`` float32 attention mass of the guidance prompt, None unless asked for.
    """

    layer_index: int
    num_layers: int
    band: Band
    band_progress: float
    frames: Tensor
    cells: Tensor
    mass: Tensor | None

    @property
    def num_tokens(self) -> int:
        """Video tokens in the layer, summaries included."""
        return int(self.frames.shape[0])


@dataclass(frozen=True, slots=True)
class SelectionSpec:
    """How scores become a kept set. Order of claims: protected, sinks, quota, then score.

    Attributes:
        unlimited: Keep everything; no budget applies.
        whole_frames: A frame is kept with all its tokens or not at all.
        sink_frames: First frames of the stream that always stay.
        frame_quota: Best tokens of every frame that go before all others.
        quota_order: Which frames keep their quota when not all can: those with the best scores,
            or a random sample of the past that is the same in all layers.
        summary: What stands for evicted tokens: nothing; one token per compaction at the end of
            the layer (released HERMES); one count-weighted token before the oldest kept one.
        summary_bands: Bands that have summaries.
        trigger_includes_prefix: Compaction runs when prefix and video together exceed the budget
            of video tokens (released HERMES) and not only when the video does.
    """

    unlimited: bool = False
    whole_frames: bool = False
    sink_frames: int = 0
    frame_quota: int = 0
    quota_order: QuotaOrder = "score"
    summary: SummaryKind = "none"
    summary_bands: tuple[Band, ...] = ("deep",)
    trigger_includes_prefix: bool = False


@dataclass(frozen=True, slots=True)
class SmoothingSpec:
    """Blending of scores from the deepest layer up (HERMES, eq. 5 and 7).

    Attributes:
        weights: Share of the deeper layer's score, by band of the layer that is updated.
        recursive: Blend with the already smoothed score of the deeper layer.
        alignment: Pair tokens of two layers by provenance, or by index in the cache.
    """

    weights: dict[Band, float]
    recursive: bool = True
    alignment: Literal["identity", "index"] = "identity"


class RetentionPolicy(ABC):
    """Importance of cached video tokens.

    Contract, held by one test for all implementations: ``score`` returns finite float32
    ``[tokens]``, higher means keep; it is deterministic, leaves its input untouched, never selects
    and never sees the budget. Zero tokens give zero scores.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config

    @property
    def selection(self) -> SelectionSpec:
        """How the kept set is chosen."""
        return SelectionSpec()

    @property
    def smoothing(self) -> SmoothingSpec | None:
        """How scores are blended across layers; None: not at all."""
        return None

    @property
    def attention(self) -> AttentionKind:
        """Whether ``LayerView.mass`` is needed, and how it is measured."""
        return "none"

    @property
    def joint_guidance(self) -> bool:
        """One guidance pass for all bands instead of one per prompt."""
        return True

    @abstractmethod
    def score(self, view: LayerView) -> Tensor:
        """Return ``[tokens]`` float32 importance of the layer's video tokens, higher means keep."""
