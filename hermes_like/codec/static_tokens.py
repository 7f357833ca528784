"""Which vision tokens are worth storing: one is left out while its place looks as it did.

A place is compared with what was last *stored* of it, not with the frame before: in a slow drift
every step is small, and only the sum of them says that something has changed. The module knows no
codec and no keys: what a place looks like is the embedding of its vision token.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def tokens_to_store(
    embeds: Tensor, threshold: float, last_stored: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Choose the tokens of a segment that say something new.

    Args:
        embeds: ``[frames, tokens_per_frame, hidden]`` vision tokens of consecutive frames.
        threshold: A token is left out if its cosine with the last stored token of its place is at
            least this, or if the two are equal.
        last_stored: ``[tokens_per_frame, hidden]``, what was last stored of each place before the
            segment: the second result of the call before, or the last frame of the segment before.
            None: the segment stands alone, and its first frame is stored whole.

    Returns:
        bool ``[frames, tokens_per_frame]``, true where a token is to be stored, and
        ``[tokens_per_frame, hidden]``, what was last stored of each place at the end.

    Raises:
        ValueError: The shapes do not fit, or there is neither a frame nor ``last_stored``.
    """
    if embeds.dim() != 3 or (last_stored is None and not embeds.shape[0]):
        raise ValueError(
            "embeds: expected [frames, tokens_per_frame, hidden] with a frame or last_stored, "
            f"got {list(embeds.shape)}"
        )
    if last_stored is not None and last_stored.shape != embeds.shape[1:]:
        raise ValueError(
            f"last_stored: expected {list(embeds.shape[1:])}, got {list(last_stored.shape)}"
        )
    is_stored = torch.ones(embeds.shape[:2], dtype=torch.bool, device=embeds.device)
    directions = functional.normalize(embeds.float(), dim=-1)
    if last_stored is None:
        seen, seen_direction, start = embeds[0], directions[0], 1
    else:
        seen, start = last_stored, 0
        seen_direction = functional.normalize(last_stored.float(), dim=-1)
    for frame in range(start, embeds.shape[0]):
        cosine = (directions[frame] * seen_direction).sum(dim=-1)
        # Not "cosine < threshold": a NaN says nothing of likeness, so its token is stored. Rounding
        # puts the cosine of equal tokens on either side of 1.
        is_new = ~((cosine >= threshold) | (embeds[frame] == seen).all(dim=-1))
        is_stored[frame] = is_new
        seen = torch.where(is_new[:, None], embeds[frame], seen)
        seen_direction = torch.where(is_new[:, None], directions[frame], seen_direction)
    return is_stored, seen
