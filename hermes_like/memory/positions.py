"""Which rotary position each slot has, and when kept tokens get new ones.

A scheme answers three questions: where do new tokens of each layer start, does a compaction
re-index, and which dense positions it then gives. It never touches a key; ``LayerSlots.rewrite``
rotates. With three rotary axes the arithmetic is that of ``clips.py``; text has the same position
on all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from hermes_like.config import MemoryConfig
from hermes_like.memory import provenance
from hermes_like.memory.clips import Clips, ranked
from hermes_like.models.base import FrameLayout


class PositionScheme(ABC):
    """Positions of slots; one object per cache.

    Args:
        config: When positions are made dense.
        max_positions: The model's last position, plus 1.
        layout: Places of the tokens in a frame; None: one rotary axis.
    """

    def __init__(
        self, config: MemoryConfig, max_positions: int, layout: FrameLayout | None = None
    ) -> None:
        self.eager = config.reindex == "eager"
        self.limit = max_positions - config.reindex_margin
        self.clips = None
        if layout is not None:
            self.clips = Clips(layout, config.segment_frames, max(self.limit, 1))

    @abstractmethod
    def starts(self, positions: Sequence[Tensor]) -> list[int]:
        """First position of new text, per layer: one behind the largest of the occupied slots.

        Args:
            positions: Per layer ``[slots]`` or ``[3, slots]``.
        """

    def follow(
        self, positions: Sequence[Tensor], ids: Sequence[Tensor], new: Tensor
    ) -> list[Tensor]:
        """Positions of new tokens per layer, ``[n]``, or ``[3, n]`` for frames on three axes.

        Args:
            positions: Per layer ``[slots]`` or ``[3, slots]`` of what is there.
            ids: Per layer ``[slots]`` provenance of it.
            new: ``[n]`` provenance of the new tokens: text, or whole consecutive frames.
        """
        starts = self.starts(positions)
        if self.clips is not None and new.shape[0] and bool(new[0] >= 0):
            return self._follow_frames(self.clips, positions, ids, new, starts)
        offsets = torch.arange(new.shape[0], device=new.device)
        shared = {start: offsets + start for start in set(starts)}
        return [shared[start] for start in starts]

    def _follow_frames(
        self,
        clips: Clips,
        positions: Sequence[Tensor],
        ids: Sequence[Tensor],
        new: Tensor,
        starts: Sequence[int],
    ) -> list[Tensor]:
        return [clips.follow(positions, ids, new, starts[0])] * len(positions)

    def actual(self, positions: Sequence[Tensor]) -> Tensor | None:
        """By what new tokens are really rotated, where that is not what is recorded; else None."""
        return None

    def advance(self, end: int) -> None:  # noqa: B027  (most schemes have no counter)
        """Tokens of the stream itself (not of a question) now reach up to ``end``, exclusive."""

    def reindex_due(self, positions: Sequence[Tensor]) -> bool:
        """Whether a compaction re-indexes, judged by the positions before it: always when eager,
        past the model's limit less the margin when lazy."""
        return self.eager or max(int(p.max()) for p in positions) > self.limit

    @abstractmethod
    def dense(self, lengths: Sequence[int], device: torch.device) -> list[Tensor]:
        """New positions of the slots on one axis, per layer, in slot order."""

    def arrange(self, ids: Sequence[Tensor], positions: Sequence[Tensor]) -> list[Tensor]:
        """New positions of the slots after a compaction, per layer, in slot order.

        Args:
            ids: Per layer ``[slots]`` provenance.
            positions: Per layer, what they had.
        """
        if self.clips is None:
            return self.dense([int(i.shape[0]) for i in ids], ids[0].device)
        return self.clips.arrange(ids)

    def state(self) -> dict[str, int]:
        """Counters, for a snapshot."""
        return {}

    def restore(self, state: dict[str, int]) -> None:  # noqa: B027  (most schemes have none)
        """Take counters from a snapshot."""

    def arrange_fork(self, ids: Sequence[Tensor]) -> list[Tensor]:
        """Positions of a fork into which older tokens were merged; no counter moves.

        Args:
            ids: Per layer ``[slots]`` provenance, in slot order.
        """
        if self.clips is None:
            return self.merged([int(i.shape[0]) for i in ids], ids[0].device)
        return self.clips.arrange(ids, is_fork=True)

    def merged(self, lengths: Sequence[int], device: torch.device) -> list[Tensor]:
        """The same on one axis, for layers of these lengths.

        Aligned at the right, so that one question position serves all layers.
        """
        end = max(lengths)
        return [torch.arange(end - n, end, device=device) for n in lengths]


class RightAligned(PositionScheme):
    """Layer l's n_l tokens take P - n_l .. P - 1; new tokens start at P in every layer.

    Rotary positions are relative, so one shared query position serves layers of different length.
    """

    def starts(self, positions: Sequence[Tensor]) -> list[int]:
        """One position behind the last slot, the same in all layers."""
        last = max((int(p.max()) for p in positions if p.numel()), default=-1)
        return [last + 1] * len(positions)

    def reindex_due(self, positions: Sequence[Tensor]) -> bool:
        """Every compaction re-aligns."""
        return True

    def dense(self, lengths: Sequence[int], device: torch.device) -> list[Tensor]:
        """Aligned to the longest layer."""
        end = max(lengths)
        return [torch.arange(end - n, end, device=device) for n in lengths]


class Global(RightAligned):
    """Original positions with gaps, from one counter; dense again near the model's limit."""

    def __init__(
        self, config: MemoryConfig, max_positions: int, layout: FrameLayout | None = None
    ) -> None:
        super().__init__(config, max_positions, layout)
        self._next = 0

    def starts(self, positions: Sequence[Tensor]) -> list[int]:
        """The counter, which does not fall back when the newest tokens are evicted."""
        return [max(self._next, super().starts(positions)[0])] * len(positions)

    def advance(self, end: int) -> None:
        """Move the counter."""
        self._next = end

    def state(self) -> dict[str, int]:
        """The counter."""
        return {"next": self._next}

    def restore(self, state: dict[str, int]) -> None:
        """Set the counter."""
        self._next = state["next"]

    def reindex_due(self, positions: Sequence[Tensor]) -> bool:
        """Lazy or eager."""
        return PositionScheme.reindex_due(self, positions)

    def dense(self, lengths: Sequence[int], device: torch.device) -> list[Tensor]:
        """Right-aligned; the counter starts again behind them."""
        self._next = max(lengths)
        return super().dense(lengths, device)

    def arrange(self, ids: Sequence[Tensor], positions: Sequence[Tensor]) -> list[Tensor]:
        """Right-aligned; the counter starts again behind them."""
        result = super().arrange(ids, positions)
        self._next = max((int(p.max()) for p in result if p.numel()), default=-1) + 1
        return result


class Released(PositionScheme):
    """The released HERMES code: every layer counts for itself, from its last retained token.

    On three axes it repeats two more of its habits, which are faults: layers record positions of
    their own and rotate by those of the first layer, and re-indexing ranks each axis by itself.
    """

    def starts(self, positions: Sequence[Tensor]) -> list[int]:
        """Behind the largest position of each layer."""
        return [int(p.max()) + 1 if p.numel() else 0 for p in positions]

    def _follow_frames(
        self,
        clips: Clips,
        positions: Sequence[Tensor],
        ids: Sequence[Tensor],
        new: Tensor,
        starts: Sequence[int],
    ) -> list[Tensor]:
        """What comes in one pass is one clip, whatever its length."""
        alone = clips.alone(new)
        return [alone + start for start in starts]

    def actual(self, positions: Sequence[Tensor]) -> Tensor | None:
        """Those of the first layer, with three axes."""
        return None if self.clips is None else positions[0]

    def arrange(self, ids: Sequence[Tensor], positions: Sequence[Tensor]) -> list[Tensor]:
        """Dense on one axis, ranks on three."""
        if self.clips is None:
            return super().arrange(ids, positions)
        prefixes = [int(provenance.is_prefix(i).sum()) for i in ids]
        return [ranked(p, i, n) for p, i, n in zip(positions, ids, prefixes, strict=True)]

    def dense(self, lengths: Sequence[int], device: torch.device) -> list[Tensor]:
        """0, 1, 2, ... in every layer."""
        return [torch.arange(n, device=device) for n in lengths]


SCHEMES: dict[str, type[PositionScheme]] = {
    "right_aligned": RightAligned,
    "global": Global,
    "released": Released,
}


def summary_position(kept: Tensor, *, is_appended: bool, num_prefix: int) -> int:
    """Position of a new summary token before any re-indexing.

    Args:
        kept: Positions of the kept slots of the layer, ``[slots]`` or ``[3, slots]``, prefix
            included.
        is_appended: The summary comes last; else it sits between prefix and video.
        num_prefix: Slots of the prefix.
    """
    if is_appended or kept.shape[-1] == num_prefix:
        return int(kept.max()) + 1
    return max(int(kept[..., num_prefix].min()) - 1, 0)
