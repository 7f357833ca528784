"""Frames to vision tokens, through the adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from hermes_like.memory.provenance import FrameRecord
from hermes_like.models.base import ModelAdapter
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


def embed(adapter: ModelAdapter, frames: Sequence[Frame], segment_id: int) -> VisionTokens:
    """Encode consecutive frames of one segment."""
    tokens = adapter.embed_frames([frame.image for frame in frames])
    records = tuple(FrameRecord(f.pts_s, f.wall_time, segment_id) for f in frames)
    return VisionTokens(tokens, records)
