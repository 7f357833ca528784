"""HERMES (arXiv 2601.14724): recency in shallow layers, attention in deep ones, a blend between."""

from __future__ import annotations

import torch
from torch import Tensor

from hermes_like.policies.base import (
    AttentionKind,
    LayerView,
    RetentionPolicy,
    SelectionSpec,
    SmoothingSpec,
)

_EPSILON = 1e-6


class HermesPolicy(RetentionPolicy):
    """Scores of HERMES, equations 1 to 4, with its constants as configuration.

    Three presets use it: ``hermes_paper`` (the paper's constants and summary), ``hermes_released``
    (bit-compatible with the authors' LLaVA-OneVision code: embedding-level attention, index
    alignment, its own constants) and ``hermes`` (ours: true attention mass, smoothing by token
    identity, a quota per frame, one count-weighted summary).
    """

    @property
    def selection(self) -> SelectionSpec:
        """Quota and summary as configured."""
        return SelectionSpec(
            frame_quota=self.config.frame_quota,
            quota_order=self.config.quota_order,
            summary=self.config.summary,
            trigger_includes_prefix=self.config.trigger_includes_prefix,
        )

    @property
    def smoothing(self) -> SmoothingSpec:
        """Deep to shallow."""
        shallow, middle, deep = self.config.smoothing
        return SmoothingSpec(
            weights={"shallow": shallow, "middle": middle, "deep": deep},
            recursive=self.config.smoothing_recursive,
            alignment=self.config.smoothing_alignment,
        )

    @property
    def attention(self) -> AttentionKind:
        """True attention mass, or the released code's embedding-level shortcut."""
        return self.config.attention

    @property
    def joint_guidance(self) -> bool:
        """The paper and the release make a pass per prompt."""
        return self.config.guidance == "joint"

    def recency(self, view: LayerView) -> tuple[float, float]:
        """Weight and decay rate of recency in a layer (eq. 2 to 4)."""
        if view.band == "deep":
            return 0.0, 0.0
        if view.band == "shallow":
            return 1.0, self.config.recency_rate
        u = view.band_progress
        weight = self.config.recency_weight - self.config.recency_weight_drop * u
        return weight, self.config.recency_rate - self.config.recency_rate_drop * u

    def score(self, view: LayerView) -> Tensor:
        """``(1 - w) * norm(mass) + w * norm(exp(-k * age))``, age in [0, 1]."""
        if view.num_tokens == 0:
            return torch.zeros(0, dtype=torch.float32, device=view.frames.device)
        weight, rate = self.recency(view)
        steps = torch.arange(view.num_tokens - 1, -1, -1, device=view.frames.device)
        age = steps.to(torch.float32) / max(view.num_tokens - 1, 1)
        recency = _normalise(torch.exp(-rate * age))
        if view.mass is None:
            raise ValueError("hermes: expected attention mass in the view, got None")
        return (1.0 - weight) * _normalise(view.mass.to(torch.float32)) + weight * recency


def _normalise(values: Tensor) -> Tensor:
    low = values.min()
    return (values - low) / (values.max() - low + _EPSILON)
