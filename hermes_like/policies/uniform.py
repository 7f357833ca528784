"""A uniform random sample of the whole past: the baseline that attention must beat."""

from __future__ import annotations

from torch import Tensor

from hermes_like.memory.provenance import random_priority
from hermes_like.policies.base import LayerView, RetentionPolicy


class UniformPolicy(RetentionPolicy):
    """Gives every token a random priority that never changes.

    Keeping the highest priorities compaction after compaction is reservoir sampling: at any moment
    each token of the past has had the same chance to be resident, at random places in each frame.
    All layers keep the same tokens.
    """

    def score(self, view: LayerView) -> Tensor:
        """A hash of frame, cell and seed, in [0, 1)."""
        return random_priority(view.frames, view.cells, self.config.seed)
