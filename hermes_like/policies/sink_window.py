"""First frames and newest frames: StreamingLLM (arXiv 2309.17453) and StreamingVLM style."""

from __future__ import annotations

import torch
from torch import Tensor

from hermes_like.policies.base import LayerView, RetentionPolicy, SelectionSpec


class SinkWindowPolicy(RetentionPolicy):
    """Keeps the first ``sink_frames`` frames for ever and the newest whole frames beside them."""

    @property
    def selection(self) -> SelectionSpec:
        """Whole frames, the first ones protected."""
        return SelectionSpec(whole_frames=True, sink_frames=self.config.sink_frames)

    def score(self, view: LayerView) -> Tensor:
        """Newer is better; sinks are kept by the selection."""
        return view.frames.to(torch.float32)
