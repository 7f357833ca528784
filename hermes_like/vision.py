"""Vision tokens of frames, put together for prefill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes_like.memory.provenance import FrameRecord
from hermes_like.records import Frame


@dataclass(frozen=True, slots=True, eq=False)
class VisionTokens:
    """Vision tokens of consecutive frames.

    Attributes:
        tokens: ``[frames, tokens_per_frame, hidden]``.
        records: One per frame.
    """

    tokens: Tensor
    records: tuple[FrameRecord, ...]


def tokens_of(tokens: Sequence[Tensor], frames: Sequence[Frame], segment_id: int) -> VisionTokens:
    """Put together what was encoded before.

    Args:
        tokens: ``[tokens_per_frame, hidden]`` each, one per frame.
        frames: Consecutive frames of one segment.
        segment_id: The segment.
    """
    records = tuple(FrameRecord(f.pts_s, f.wall_time, segment_id) for f in frames)
    return VisionTokens(torch.stack(list(tokens)), records)
