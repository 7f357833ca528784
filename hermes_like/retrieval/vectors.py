"""Vectors by which frames are found: mean un-rotated keys of a few chosen heads.

A frame has one vector per head, or several where groups of its tokens are kept apart. The module
knows keys and provenance, not questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hermes_like.memory import provenance
from hermes_like.memory.cache import HierarchicalCache, LayerSlots
from hermes_like.memory.hierarchy import KVBlock
from hermes_like.models.base import ModelDims
from hermes_like.retrieval.base import FloatArray, ResidentFrames

#: ``(layer, KV head)`` pairs.
Heads = Sequence[tuple[int, int]]


def usable_heads(heads: Heads, dims: ModelDims) -> tuple[tuple[int, int], ...]:
    """Retrieval heads that a model has; a preset made for another model names others."""
    return tuple(
        (layer, head)
        for layer, head in heads
        if layer < dims.num_layers and head < dims.num_kv_heads
    )


def segment_vectors(
    blocks: Sequence[KVBlock],
    heads: Heads,
    *,
    num_frames: int,
    tokens_per_frame: int,
    groups: int = 1,
) -> FloatArray:
    """Vectors of a closed segment, for :class:`~hermes_like.tiers.base.SegmentHead`.

    Args:
        blocks: One per decoder layer; tokens of consecutive frames, some of which may be missing.
        heads: Retrieval heads.
        num_frames: Frames of the segment.
        tokens_per_frame: Vision tokens of a whole frame.
        groups: Vectors per frame; tokens are split evenly, in row-major order.

    Returns:
        float32 ``[num_frames * groups, heads, head_dim]``, frame-major.

    Raises:
        ValueError: A group of a frame has no token, or the groups do not divide the frame.
    """
    _check_groups(groups, tokens_per_frame)
    if not heads:
        return np.zeros((num_frames * groups, 0, 0), np.float32)
    parts = []
    for layer, head in heads:
        block = blocks[layer]
        first = int(block.ids.min()) // tokens_per_frame if block.ids.shape[0] else 0
        rows = _rows(block.ids - first * tokens_per_frame, tokens_per_frame, groups)
        parts.append(_means(block.raw_keys[head], rows, num_frames * groups))
    return _numpy(torch.stack(parts, dim=1))


def resident_frames(
    cache: HierarchicalCache, heads: Heads, *, tokens_per_frame: int, groups: int = 1
) -> ResidentFrames:
    """Frames of which every token is in every layer, with their vectors.

    Args:
        cache: The stream's cache or a fork of it.
        heads: Retrieval heads.
        tokens_per_frame: Vision tokens of a whole frame.
        groups: Vectors per frame, as in :func:`segment_vectors`.
    """
    _check_groups(groups, tokens_per_frame)
    whole = _whole_frames(cache, tokens_per_frame)
    if not heads or not whole.shape[0]:
        none = ResidentFrames.none(len(heads), cache.dims.head_dim)
        return ResidentFrames(whole.cpu().numpy(), none.vectors)
    parts = []
    for layer, head in heads:
        slots: LayerSlots = cache.layers[layer]
        place = torch.searchsorted(whole, provenance.frames_of(slots.ids, tokens_per_frame))
        place = place.clamp(max=whole.shape[0] - 1)
        chosen = whole[place] == provenance.frames_of(slots.ids, tokens_per_frame)
        cells = provenance.cells_of(slots.ids[chosen], tokens_per_frame)
        rows = _rows(place[chosen] * tokens_per_frame + cells, tokens_per_frame, groups)
        keys = slots.raw_keys[0, head, chosen.to(slots.device)]
        parts.append(_means(keys, rows, int(whole.shape[0]) * groups))
    return ResidentFrames(whole.cpu().numpy(), _numpy(torch.stack(parts, dim=1)))


def _whole_frames(cache: HierarchicalCache, tokens_per_frame: int) -> Tensor:
    """Frames that are whole in all layers, int64, ascending."""
    whole: Tensor | None = None
    for slots in cache.layers:
        frames = provenance.frames_of(slots.ids, tokens_per_frame)
        found, counts = torch.unique(frames[frames >= 0], return_counts=True)
        found = found[counts == tokens_per_frame]
        whole = found if whole is None else whole[torch.isin(whole, found)]
    return torch.zeros(0, dtype=torch.int64) if whole is None else whole


def _rows(tokens: Tensor, tokens_per_frame: int, groups: int) -> Tensor:
    """Row of each token, given as ``frame * tokens_per_frame + cell``."""
    frames, cells = tokens // tokens_per_frame, tokens % tokens_per_frame
    return frames * groups + cells * groups // tokens_per_frame


def _means(keys: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Mean of ``[tokens, head_dim]`` keys by row, float32 ``[num_rows, head_dim]``."""
    counts = torch.bincount(rows, minlength=num_rows)
    if counts.shape[0] != num_rows or not bool((counts > 0).all()):
        raise ValueError(
            f"expected tokens for {num_rows} vectors, "
            f"got some for {int((counts > 0).sum())} of {int(counts.shape[0])}"
        )
    # Heads of layers on other devices: their vectors are put beside each other where the ids are.
    sums = torch.zeros(num_rows, keys.shape[1], dtype=torch.float32, device=rows.device)
    return sums.index_add_(0, rows, keys.to(rows.device, torch.float32)) / counts[:, None]


def _numpy(vectors: Tensor) -> FloatArray:
    result: FloatArray = vectors.detach().cpu().numpy()
    return result


def _check_groups(groups: int, tokens_per_frame: int) -> None:
    if not 1 <= groups <= tokens_per_frame:
        raise ValueError(
            f"vectors per frame: expected 1 to {tokens_per_frame} (tokens of a frame), got {groups}"
        )
