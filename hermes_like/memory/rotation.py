"""Rotary positions applied to keys and queries: once, from the un-rotated tensor, in float32.

Rotations are never chained: in bfloat16 two hundred delta rotations cost 15 % of a key, one
rotation from the un-rotated master costs the cast alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

Rotation = tuple[Tensor, Tensor]


def rotate(raw: Tensor, rotation: Rotation) -> Tensor:
    """Rotate ``[..., n, head_dim]`` by cosine and sine ``[n, head_dim]``; result in raw's dtype."""
    cos, sin = rotation
    x = raw.to(torch.float32)
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + turned * sin).to(raw.dtype)


def moved(rotation: Rotation, device: torch.device) -> Rotation:
    """The same cosine and sine on a device; nothing is copied that is there."""
    cos, sin = rotation
    return cos.to(device), sin.to(device)
