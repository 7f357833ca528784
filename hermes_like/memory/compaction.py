"""One compaction: score, smooth, select, write summaries, gather, re-index.

It runs at fixed frame counts, whether or not anyone asked. A layer is rewritten from its
un-rotated keys, so that however often a token is moved, its key is rotated once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hermes_like.memory import provenance
from hermes_like.memory.bands import band_of, band_progress
from hermes_like.memory.cache import HierarchicalCache, LayerSlots
from hermes_like.memory.positions import PositionScheme, summary_position
from hermes_like.memory.provenance import Summary
from hermes_like.memory.selection import select
from hermes_like.memory.smoothing import smooth
from hermes_like.policies.base import LayerView, RetentionPolicy


class Compactor:
    """Carries out compactions of one cache and remembers what its summaries stand for.

    Args:
        cache: The stream's cache.
        policy: Gives scores and the selection spec.
        scheme: Gives positions.
        num_prefix: Slots of the prefix in every layer.
        tokens_per_frame: Vision tokens of a frame.
        budget_tokens: Video tokens that may stay per layer.
        protected_frames: Newest frames that stay whole.
    """

    def __init__(
        self,
        cache: HierarchicalCache,
        policy: RetentionPolicy,
        scheme: PositionScheme,
        *,
        num_prefix: int,
        tokens_per_frame: int,
        budget_tokens: int,
        protected_frames: int = 0,
    ) -> None:
        self.cache, self.policy, self.scheme = cache, policy, scheme
        self.num_prefix, self.tokens_per_frame = num_prefix, tokens_per_frame
        self.budget_tokens, self.protected_frames = budget_tokens, protected_frames
        num_layers = cache.dims.num_layers
        self.bands = [band_of(layer, num_layers) for layer in range(num_layers)]
        self.summaries: list[dict[int, Summary]] = [{} for _ in range(num_layers)]
        self.num_summaries = 0

    @property
    def is_due(self) -> bool:
        """Whether any layer holds more than the budget."""
        counted = 0 if self.policy.selection.trigger_includes_prefix else self.num_prefix
        return max(self.cache.lengths) - counted > self.budget_tokens

    def views(self, masses: Sequence[Tensor] | None = None) -> list[LayerView]:
        """The video tokens of every layer, as policies see them."""
        num_layers = self.cache.dims.num_layers
        result = []
        for layer, slots in enumerate(self.cache.layers):
            ids = slots.ids[self.num_prefix :]
            result.append(
                LayerView(
                    layer_index=layer,
                    num_layers=num_layers,
                    band=self.bands[layer],
                    band_progress=band_progress(layer, num_layers),
                    frames=provenance.frames_of(ids, self.tokens_per_frame),
                    cells=provenance.cells_of(ids, self.tokens_per_frame),
                    mass=None if masses is None else masses[layer],
                )
            )
        return result

    def scores(self, views: Sequence[LayerView]) -> list[Tensor]:
        """Scores of the policy, smoothed across layers if it says so."""
        scores = [self.policy.score(view) for view in views]
        spec = self.policy.smoothing
        if spec is None:
            return scores
        ids = [slots.ids[self.num_prefix :] for slots in self.cache.layers]
        return smooth(scores, ids, self.bands, spec)

    def select(self, views: Sequence[LayerView], scores: Sequence[Tensor]) -> list[Tensor]:
        """Kept video tokens per layer, ascending indices behind the prefix."""
        spec = self.policy.selection
        return [
            select(score, view, spec, self.budget_tokens, self.protected_frames)
            for view, score in zip(views, scores, strict=True)
        ]

    def run(self, masses: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Compact all layers.

        Args:
            masses: Per layer attention mass of the video tokens, if the policy wants it.

        Returns:
            The kept indices per layer, as :meth:`select` gives them.
        """
        views = self.views(masses)
        kept = self.select(views, self.scores(views))
        is_reindexed = self.scheme.reindex_due([slots.positions for slots in self.cache.layers])
        parts = [self._gather(layer, index) for layer, index in enumerate(kept)]
        if is_reindexed:
            positions = self.scheme.arrange([part[3] for part in parts], [p[2] for p in parts])
        else:
            positions = [part[2] for part in parts]
        for slots, part, new in zip(self.cache.layers, parts, positions, strict=True):
            raw, values, _, ids = part
            slots.rewrite(raw, values, new, ids, self.cache.rotary)
        return kept

    def _gather(self, layer: int, kept: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Raw keys, values, positions and ids of what stays, with a new summary in its place."""
        slots: LayerSlots = self.cache.layers[layer]
        prefix = torch.arange(self.num_prefix, device=kept.device)
        index = torch.cat([prefix, kept + self.num_prefix])
        raw, values = slots.take(index)
        positions, ids = slots.positions[..., index], slots.ids[index]
        spec = self.policy.selection
        if spec.summary == "none" or self.bands[layer] not in spec.summary_bands:
            return raw, values, positions, ids
        is_evicted = torch.ones(slots.length, dtype=torch.bool, device=kept.device)
        is_evicted[index] = False
        if not bool(is_evicted.any()):
            return raw, values, positions, ids
        is_appended = spec.summary == "appended"
        new_id, weights = self._new_summary(
            layer, slots.ids[is_evicted], is_weighted=not is_appended
        )
        gone_raw, gone_values = slots.take(is_evicted)
        summary_raw = _weighted_mean(gone_raw, weights)
        summary_values = _weighted_mean(gone_values, weights)
        place = summary_position(positions, is_appended=is_appended, num_prefix=self.num_prefix)
        at = index.shape[0] if is_appended else self.num_prefix
        new_position = positions.new_full((*positions.shape[:-1], 1), place)
        new_ids = ids.new_tensor([new_id])
        return (
            torch.cat([raw[:, :, :at], summary_raw, raw[:, :, at:]], dim=2),
            torch.cat([values[:, :, :at], summary_values, values[:, :, at:]], dim=2),
            torch.cat([positions[..., :at], new_position, positions[..., at:]], dim=-1),
            torch.cat([ids[:at], new_ids, ids[at:]]),
        )

    def _new_summary(self, layer: int, evicted: Tensor, *, is_weighted: bool) -> tuple[int, Tensor]:
        """Register a summary of evicted tokens; returns its id and the weight of each token."""
        known = self.summaries[layer]
        merged = [known.pop(i) for i in evicted[evicted < 0].tolist()]
        frames = provenance.frames_of(evicted[evicted >= 0], self.tokens_per_frame)
        weights = torch.ones(evicted.shape[0], dtype=torch.float32, device=evicted.device)
        if is_weighted and merged:
            weights[evicted < 0] = weights.new_tensor([float(m.count) for m in merged])
        spans = [(m.first_frame, m.last_frame) for m in merged]
        if frames.shape[0]:
            spans.append((int(frames.min()), int(frames.max())))
        count = int(frames.shape[0]) + sum(m.count for m in merged)
        self.num_summaries += 1
        new_id = provenance.SUMMARY_TOP - self.num_summaries
        known[new_id] = Summary(count, min(s for s, _ in spans), max(e for _, e in spans))
        return new_id, weights


def _weighted_mean(tensor: Tensor, weights: Tensor) -> Tensor:
    """Mean over slots of ``[1, heads, n, channels]`` in float32, one slot.

    The mean of un-rotated keys is HERMES's phase-aligned mean: aligning phases to a position
    undoes each token's own rotation.
    """
    share = (weights / weights.sum())[None, None, :, None].to(tensor.device)
    return (tensor.float() * share).sum(dim=2, keepdim=True).to(tensor.dtype)
