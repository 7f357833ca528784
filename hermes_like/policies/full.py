"""No limit: the oracle that other policies are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from hermes_like.policies.base import LayerView, RetentionPolicy, SelectionSpec


class FullPolicy(RetentionPolicy):
    """Keeps every token. Memory grows with the stream: for short streams and as a reference."""

    @property
    def selection(self) -> SelectionSpec:
        """Nothing is ever evicted."""
        return SelectionSpec(unlimited=True)

    def score(self, view: LayerView) -> Tensor:
        """All tokens are worth the same."""
        return torch.ones_like(view.frames, dtype=torch.float32)
