"""Blending scores of neighbouring layers, from the deepest up (HERMES eq. 5 and 7)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hermes_like.policies.base import SmoothingSpec
from hermes_like.records import Band


def smooth(
    scores: Sequence[Tensor], ids: Sequence[Tensor], bands: Sequence[Band], spec: SmoothingSpec
) -> list[Tensor]:
    """Blend each layer's scores with those of the next deeper layer.

    Args:
        scores: Per layer float32 ``[tokens]``.
        ids: Per layer int64 ``[tokens]`` provenance of the same tokens.
        bands: Band of each layer; decides the weight.
        spec: Weights, recursion and alignment.

    Returns:
        New tensors, same shapes. A token that the deeper layer does not hold keeps its own score.
    """
    result = list(scores)
    for layer in range(len(scores) - 2, -1, -1):
        weight = spec.weights[bands[layer]]
        deeper = result[layer + 1] if spec.recursive else scores[layer + 1]
        other = _aligned(deeper, ids[layer + 1], scores[layer], ids[layer], spec)
        result[layer] = (1.0 - weight) * scores[layer] + weight * other
    return result


def _aligned(
    deeper: Tensor, deeper_ids: Tensor, own: Tensor, own_ids: Tensor, spec: SmoothingSpec
) -> Tensor:
    if spec.alignment == "index":
        if deeper.shape[0] == own.shape[0]:
            return deeper
        return torch.nn.functional.interpolate(
            deeper[None, None], size=own.shape[0], mode="linear", align_corners=False
        )[0, 0]
    if deeper.shape[0] == 0:
        return own
    order = torch.argsort(deeper_ids)
    place = torch.searchsorted(deeper_ids[order], own_ids).clamp(max=deeper_ids.shape[0] - 1)
    match = order[place]
    return torch.where(deeper_ids[match] == own_ids, deeper[match], own)
