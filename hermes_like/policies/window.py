"""The newest whole frames: the SimpleStream baseline (arXiv 2604.02317)."""

from __future__ import annotations

import torch
from torch import Tensor

from hermes_like.policies.base import LayerView, RetentionPolicy, SelectionSpec


class WindowPolicy(RetentionPolicy):
    """Keeps as many of the newest whole frames as the budget holds."""

    @property
    def selection(self) -> SelectionSpec:
        """Whole frames only."""
        return SelectionSpec(whole_frames=True)

    def score(self, view: LayerView) -> Tensor:
        """Newer is better."""
        return view.frames.to(torch.float32)
