"""Positions on three rotary axes: clips of frames with one base position each, between text.

A *clip* is what the model takes for one video: the frames of a segment, or one frame alone. Inside
a clip time advances and the picture stays in its place; the next clip begins one behind the largest
position of the last one, on all axes. Moving a clip moves all its tokens by one number on all axes.
The module knows ids and offsets; which scheme wants what is in ``positions.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hermes_like.models.base import FrameLayout


class Clips:
    """The arithmetic of clips.

    Args:
        layout: Places of the tokens in a frame.
        clip_frames: Frames of a whole clip, where frames form clips.
        limit: Positions that an arrangement may take.
    """

    def __init__(self, layout: FrameLayout, clip_frames: int, limit: int) -> None:
        self._layout, self._limit = layout, limit
        self.frames = clip_frames if layout.is_clip else 1
        self._per_frame = int(layout.offsets.shape[1])

    def offsets(self, ids: Tensor) -> Tensor:
        """Offsets of tokens from the base of their clip, int64 ``[3, n]``; text has none."""
        is_video = ids >= 0
        cells = torch.where(is_video, ids % self._per_frame, 0)
        result = self._layout.offsets.to(ids.device)[:, cells] * is_video
        result[0] += self._layout.step * (ids // self._per_frame % self.frames) * is_video
        return result

    def alone(self, ids: Tensor) -> Tensor:
        """Offsets of frames that form one clip of their own, however many, int64 ``[3, n]``."""
        frames = ids // self._per_frame
        result = self._layout.offsets.to(ids.device)[:, ids % self._per_frame]
        result[0] += self._layout.step * (frames - frames[0])
        return result

    def of(self, ids: Tensor) -> Tensor:
        """Clip of each token; -1 for text."""
        return torch.where(ids >= 0, ids // (self._per_frame * self.frames), -1)

    def follow(
        self, positions: Sequence[Tensor], ids: Sequence[Tensor], new: Tensor, start: int
    ) -> Tensor:
        """Positions of the next frames, the same in all layers, int64 ``[3, n]``.

        Args:
            positions: Per layer ``[3, slots]`` of what is there.
            ids: Per layer ``[slots]`` provenance of it.
            new: ``[n]`` provenance of the new tokens, all of consecutive frames.
            start: Where a new clip begins.
        """
        clips = self.of(new)
        base = self._open_base(positions, ids, int(clips[0]), start)
        begun = clips - clips[0]
        return base + begun * self._layout.span(self.frames) + self.offsets(new)

    def _open_base(
        self, positions: Sequence[Tensor], ids: Sequence[Tensor], clip: int, start: int
    ) -> int:
        """Base of a clip that some layer still has a token of, else ``start``."""
        for where, of in zip(positions, ids, strict=True):
            held = (self.of(of) == clip).nonzero()
            if held.shape[0]:
                last = int(held[-1])
                return int(where[0, last] - self.offsets(of[last : last + 1])[0, 0])
        return start

    def arrange(self, ids: Sequence[Tensor], *, is_fork: bool = False) -> list[Tensor]:
        """Positions without gaps, aligned at the right, int64 ``[3, slots]`` per layer.

        A clip takes its whole span even where a layer has lost some of it, so that a clip lies at
        the same distance from what comes later in all layers that have the same later clips. The
        newest clip, which may be open, takes what its frames take and ends alike in all layers.
        More clips than fit under the limit overlap evenly, in their order.

        Args:
            ids: Per layer ``[slots]`` provenance, in slot order.
            is_fork: No frame will follow, so the time of a clip begins with the first frame that
                any layer has of it: a frame alone has the same positions whichever it was.
        """
        known, first, last = self._known(ids)
        newest = int(known[-1]) if known.shape[0] else -1
        lost = first if is_fork else torch.zeros_like(first)
        newest_span = self._layout.span(int(last[-1] - lost[-1]) + 1) if newest >= 0 else 0
        units = [self._units(layer) for layer in ids]
        span = self._span(units, newest, newest_span)
        begins, ends = [], []
        for clips, is_first in units:
            sizes = torch.where(clips < 0, 1, torch.where(clips == newest, newest_span, span))
            sizes = sizes[is_first]
            begins.append((torch.cumsum(sizes, 0) - sizes)[torch.cumsum(is_first, 0) - 1])
            has_newest = newest < 0 or bool((clips == newest).any())
            ends.append(int(sizes.sum()) + (0 if has_newest else newest_span))
        result = []
        for begin, end, layer, (clips, _) in zip(begins, ends, ids, units, strict=True):
            offsets = self.offsets(layer)
            if known.shape[0]:
                place = torch.searchsorted(known, clips.clamp(min=0)).clamp(max=len(known) - 1)
                offsets[0] -= self._layout.step * lost[place] * (clips >= 0)
            result.append(begin + (max(ends) - end) + offsets)
        return result

    def _known(self, ids: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Clips in any layer, ascending, with their first and last known frame in the clip."""
        video = torch.cat([layer[layer >= 0] for layer in ids])
        known, place = torch.unique(self.of(video), return_inverse=True)
        frames = video // self._per_frame % self.frames
        ends = [
            frames.new_zeros(known.shape[0]).scatter_reduce(
                0, place, frames, how, include_self=False
            )
            for how in ("amin", "amax")
        ]
        return known, ends[0], ends[1]

    def _units(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Clip of each slot, and whether a new unit begins there: a word of text, or a clip."""
        clips = self.of(ids)
        is_first = torch.ones_like(clips, dtype=torch.bool)
        is_first[1:] = (clips[1:] < 0) | (clips[1:] != clips[:-1])
        return clips, is_first

    def _span(self, units: Sequence[tuple[Tensor, Tensor]], newest: int, newest_span: int) -> int:
        """Positions of each clip but the newest: its span, or what the limit leaves for each."""
        span = self._layout.span(self.frames)
        for clips, is_first in units:
            of_units = clips[is_first]
            count = int(((of_units >= 0) & (of_units != newest)).sum())
            room = self._limit - newest_span - int((of_units < 0).sum())
            if count * span > room:
                span = max(1, room // count)
        return span


def ranked(positions: Tensor, ids: Tensor, num_prefix: int) -> Tensor:
    """The released code's re-indexing on three axes, int64 ``[3, slots]``.

    Each axis by itself: the prefix stays, every other position becomes its rank among the distinct
    ones. A summary at the end is new; it gets one behind the largest, on all axes.

    Args:
        positions: ``[3, slots]`` before.
        ids: ``[slots]`` provenance.
        num_prefix: Slots of the prefix.
    """
    has_new = bool(ids.shape[0] > num_prefix and ids[-1] < 0)
    end = positions.shape[1] - has_new
    video = positions[:, num_prefix:end]
    ranks = [torch.unique(axis, return_inverse=True)[1] for axis in video]
    result = positions.clone()
    result[:, num_prefix:end] = torch.stack(ranks) + num_prefix
    if has_new:
        result[:, end:] = int(result[:, num_prefix:end].max()) + 1
    return result
