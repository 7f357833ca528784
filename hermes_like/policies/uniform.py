"""A uniform random sample of the whole past: the baseline that attention must beat."""

from __future__ import annotations

import torch
from torch import Tensor

from hermes_like.policies.base import LayerView, RetentionPolicy

_MIX_1, _MIX_2, _MASK = 0x45D9F3B, 0x119DE1F3, (1 << 32) - 1


class UniformPolicy(RetentionPolicy):
    """Gives every token a random priority that never changes.

    Keeping the highest priorities compaction after compaction is reservoir sampling: at any moment
    each token of the past has had the same chance to be resident, at random places in each frame.
    All layers keep the same tokens.
    """

    def score(self, view: LayerView) -> Tensor:
        """A hash of frame, cell and seed, in [0, 1)."""
        x = (
            view.frames * 0x9E3779B1 + view.cells * 0x85EBCA6B + self.config.seed * 0xC2B2AE35
        ) & _MASK
        for factor in (_MIX_1, _MIX_2):
            x = ((x ^ (x >> 16)) * factor) & _MASK
        x = x ^ (x >> 16)
        return (x.to(torch.float64) / float(1 << 32)).to(torch.float32)
