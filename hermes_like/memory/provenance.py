"""Where a cached token came from, as one integer per token and one record per frame.

``id >= 0`` is a vision token: ``frame * tokens_per_frame + cell``. Ids ``-1, -2, ...`` are the
prefix. Ids at or below ``SUMMARY_TOP`` are summaries. Ids are what smoothing, de-duplication,
evidence and erasing go by; positions are a separate matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

import torch
from torch import Tensor

SUMMARY_TOP = -(1 << 40)
#: Multipliers of a 32-bit integer hash.
_MIX, _MASK = (0x45D9F3B, 0x119DE1F3), (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """When a frame was, and in which segment.

    Attributes:
        pts_s: Stream time in seconds.
        wall_time: Time on the clock, if known.
        segment_id: Running number of the segment.
        end_s: Stream time of the next frame; None while there is none.
    """

    pts_s: float
    wall_time: datetime | None
    segment_id: int
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What a summary token stands for: how many tokens, and the span of frames."""

    count: int
    first_frame: int
    last_frame: int


def is_prefix(ids: Tensor) -> Tensor:
    """Mask of prefix tokens."""
    return (ids < 0) & (ids > SUMMARY_TOP)


def is_summary(ids: Tensor) -> Tensor:
    """Mask of summary tokens."""
    return ids <= SUMMARY_TOP


def frames_of(ids: Tensor, tokens_per_frame: int) -> Tensor:
    """Frame of each token; -1 where it is no vision token."""
    return torch.where(ids >= 0, ids // tokens_per_frame, -torch.ones_like(ids))


def cells_of(ids: Tensor, tokens_per_frame: int) -> Tensor:
    """Place inside the frame, row-major; -1 where it is no vision token."""
    return torch.where(ids >= 0, ids % tokens_per_frame, -torch.ones_like(ids))


def prefix_ids(num_tokens: int, device: torch.device) -> Tensor:
    """Ids of a prefix, ``[num_tokens]``."""
    return -1 - torch.arange(num_tokens, device=device)


def frame_ids(
    first_frame: int, num_frames: int, tokens_per_frame: int, device: torch.device
) -> Tensor:
    """Ids of the vision tokens of consecutive frames, ``[num_frames * tokens_per_frame]``."""
    start = first_frame * tokens_per_frame
    return torch.arange(start, start + num_frames * tokens_per_frame, device=device)


def random_priority(frames: Tensor, cells: Tensor, seed: int = 0) -> Tensor:
    """A number in [0, 1) per token that looks random and never changes, float32 ``[tokens]``.

    Args:
        frames: int64 ``[tokens]``.
        cells: int64 ``[tokens]``; zeros give all tokens of a frame the same number.
        seed: Another seed, other numbers.
    """
    x = (frames * 0x9E3779B1 + cells * 0x85EBCA6B + seed * 0xC2B2AE35) & _MASK
    for factor in _MIX:
        x = ((x ^ (x >> 16)) * factor) & _MASK
    x = x ^ (x >> 16)
    # Rounded once; through float64, which not every device has, it would be the same number.
    return x.to(torch.float32) / float(1 << 32)


class FrameTable:
    """Records of the frames that still have a token somewhere; bounded by pruning."""

    def __init__(self) -> None:
        self._records: dict[int, FrameRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, frame: int) -> FrameRecord:
        return self._records[frame]

    def __contains__(self, frame: object) -> bool:
        return frame in self._records

    def add(self, frame: int, record: FrameRecord) -> None:
        """Remember a new frame; the frame before it now has an end."""
        self._records[frame] = record
        before = self._records.get(frame - 1)
        if before is not None:
            self._records[frame - 1] = replace(before, end_s=record.pts_s)

    def put(self, frame: int, record: FrameRecord) -> None:
        """Take in the complete record of a frame, new or old."""
        self._records[frame] = record

    def frames(self) -> list[int]:
        """Frames in the table, ascending."""
        return sorted(self._records)

    def items(self) -> Iterable[tuple[int, FrameRecord]]:
        """Frames and their records, ascending."""
        return sorted(self._records.items())

    def end_of(self, frame: int) -> float:
        """Stream time at which a frame gives way to the next, in seconds.

        The newest frame has no next one yet: it is taken to last as long as the one before it.
        """
        record = self._records[frame]
        if record.end_s is not None:
            return record.end_s
        before = self._records.get(frame - 1)
        return record.pts_s + (record.pts_s - before.pts_s if before is not None else 0.0)

    def prune(self, resident: Iterable[int]) -> None:
        """Forget all frames that are not resident."""
        self._records = {
            frame: self._records[frame] for frame in resident if frame in self._records
        }

    def copy(self) -> FrameTable:
        """An independent table with the same records."""
        other = FrameTable()
        other._records = dict(self._records)
        return other
