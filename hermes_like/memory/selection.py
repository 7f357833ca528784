"""From scores to a kept set, under an integer budget: the same rules for every policy."""

from __future__ import annotations

import torch
from torch import Tensor

from hermes_like.memory.provenance import random_priority
from hermes_like.policies.base import LayerView, SelectionSpec


def select(
    scores: Tensor, view: LayerView, spec: SelectionSpec, budget_tokens: int, protected_frames: int
) -> Tensor:
    """Choose the video tokens of one layer that stay.

    Args:
        scores: float32 ``[tokens]``, higher means keep.
        view: The layer's video tokens, oldest first.
        spec: Order of claims.
        budget_tokens: Most tokens that may stay, a summary written in this step included.
        protected_frames: Newest frames that stay whole.

    Returns:
        int64 ``[kept]`` ascending indices into the video tokens.
    """
    writes_summary = spec.summary != "none" and view.band in spec.summary_bands
    room = budget_tokens - 1 if writes_summary else budget_tokens
    candidates = torch.arange(view.num_tokens, device=scores.device)
    if writes_summary and spec.summary == "weighted":
        candidates = candidates[view.frames >= 0]  # the old summary is merged into the new one
    if spec.unlimited or candidates.shape[0] <= room:
        return candidates
    frames, values = view.frames[candidates], scores[candidates]
    claim = _claims(frames, values, spec, protected_frames)
    if spec.quota_order == "even":
        priority = random_priority(frames, torch.zeros_like(frames))
        values = torch.where(claim == 1, priority, values)
    if spec.whole_frames:
        return candidates[_whole_frames(frames, values, claim, room)]
    order = torch.argsort(values, descending=True, stable=True)
    order = order[torch.argsort(claim[order], descending=True, stable=True)]
    return candidates[order[:room].sort().values]


def _claims(frames: Tensor, scores: Tensor, spec: SelectionSpec, protected_frames: int) -> Tensor:
    """Rank of claim per token: 3 protected, 2 sink, 1 inside its frame's quota, 0 other."""
    claim = torch.zeros_like(frames)
    if spec.frame_quota:
        claim[_rank_in_frame(frames, scores) < spec.frame_quota] = 1
        claim[frames < 0] = 0
    if spec.sink_frames:
        claim[(frames >= 0) & (frames < spec.sink_frames)] = 2
    if protected_frames:
        claim[frames > frames.max() - protected_frames] = 3
    return claim


def _rank_in_frame(frames: Tensor, scores: Tensor) -> Tensor:
    """0 for the best token of each frame, 1 for the second, ..."""
    order = torch.argsort(scores, descending=True, stable=True)
    order = order[torch.argsort(frames[order], stable=True)]
    ordered = frames[order]
    place = torch.arange(frames.shape[0], device=frames.device)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    first = torch.where(is_first, place, torch.zeros_like(place)).cummax(0).values
    rank = torch.empty_like(place)
    rank[order] = place - first
    return rank


def _whole_frames(frames: Tensor, scores: Tensor, claim: Tensor, room: int) -> Tensor:
    """Indices of the best frames that fit with all their tokens, ascending."""
    unique, inverse, counts = torch.unique(frames, return_inverse=True, return_counts=True)
    best = torch.full((unique.shape[0],), float("-inf"), device=scores.device)
    best = best.scatter_reduce(0, inverse, scores, reduce="amax")
    claims = torch.zeros_like(unique).scatter_reduce(0, inverse, claim, reduce="amax")
    order = torch.argsort(best, descending=True, stable=True)
    order = order[torch.argsort(claims[order], descending=True, stable=True)]
    fits = counts[order].cumsum(0) <= room
    chosen = torch.zeros(unique.shape[0], dtype=torch.bool, device=scores.device)
    chosen[order[fits]] = True
    return torch.nonzero(chosen[inverse]).flatten()
