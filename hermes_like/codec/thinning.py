"""Leaving near-static tokens out of a segment that is stored already.

The embeddings by which :mod:`~hermes_like.codec.static_tokens` tells what stands still are not
stored. The values of the shallowest layer stand for them: they are a linear function of a token's
own embedding, since nothing has been attended to yet, and no position is in them. (Deeper layers
say what a token has seen before it, and the keys of many models share a large bias that makes all
of them look alike.) Blocks keep their encoded bytes; only the values of that one layer are decoded,
and only to look at them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hermes_like.codec import decode_block, select_tokens
from hermes_like.codec.static_tokens import tokens_to_store
from hermes_like.tiers.base import SegmentRecord

#: The layer whose values are looked at.
LAYER = 0


def thin_record(record: SegmentRecord, threshold: float) -> SegmentRecord | None:
    """Store a token once while its place looks the same.

    Args:
        record: A segment of which every token is stored.
        threshold: A token is left out if the cosine of its values with those of the last kept token
            of its place is at least this.

    Returns:
        The same segment with fewer tokens; None where nothing stands still, or where tokens were
        left out before (what they looked like is not known any more).

    Raises:
        CodecError: A block is not whole and unaltered.
    """
    head = record.head
    if len(head.token_cells) != head.num_frames * head.tokens_per_frame:
        return None
    values = decode_block(record.layers[LAYER]).values.transpose(0, 1).flatten(1)
    looks = values.view(head.num_frames, head.tokens_per_frame, -1)
    keep = tokens_to_store(looks, threshold)[0].flatten()
    if bool(keep.all()):
        return None
    cells = np.flatnonzero(keep.numpy()).astype(np.uint32)
    return SegmentRecord(
        replace(head, token_cells=cells),
        tuple(select_tokens(layer, keep) for layer in record.layers),
    )
