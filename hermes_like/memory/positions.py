"""Which rotary position each slot has, and when kept tokens get new ones.

A scheme answers three questions: where do new tokens of each layer start, does a compaction
re-index, and which dense positions it then gives. It never touches a key; ``LayerSlots.rewrite``
rotates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from hermes_like.config import MemoryConfig


class PositionScheme(ABC):
    """Positions of slots; one object per cache."""

    def __init__(self, config: MemoryConfig, max_positions: int) -> None:
        self.eager = config.reindex == "eager"
        self.limit = max_positions - config.reindex_margin

    @abstractmethod
    def starts(self, positions: Sequence[Tensor]) -> list[int]:
        """First position of new tokens, per layer, given the positions of the occupied slots."""

    def advance(self, end: int) -> None:  # noqa: B027  (most schemes have no counter)
        """Tokens of the stream itself (not of a question) now reach up to ``end``, exclusive."""

    def reindex_due(self, positions: Sequence[Tensor]) -> bool:
        """Whether a compaction re-indexes, judged by the positions before it: always when eager,
        past the model's limit less the margin when lazy."""
        return self.eager or max(int(p.max()) for p in positions) > self.limit

    @abstractmethod
    def dense(self, lengths: Sequence[int], device: torch.device) -> list[Tensor]:
        """New positions of the slots, per layer, in slot order."""

    def state(self) -> dict[str, int]:
        """Counters, for a snapshot."""
        return {}

    def restore(self, state: dict[str, int]) -> None:  # noqa: B027  (most schemes have none)
        """Take counters from a snapshot."""

    def merged(self, lengths: Sequence[int], device: torch.device) -> list[Tensor]:
        """Positions of a fork into which older tokens were merged; no counter moves.

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
        last = max((int(p.max()) for p in positions if p.shape[0]), default=-1)
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

    def __init__(self, config: MemoryConfig, max_positions: int) -> None:
        super().__init__(config, max_positions)
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


class Released(PositionScheme):
    """The released HERMES code: every layer counts for itself, from its last retained token."""

    def starts(self, positions: Sequence[Tensor]) -> list[int]:
        """Behind the largest position of each layer."""
        return [int(p.max()) + 1 if p.shape[0] else 0 for p in positions]

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
        kept: Positions of the kept slots of the layer, prefix included.
        is_appended: The summary comes last; else it sits between prefix and video.
        num_prefix: Slots of the prefix.
    """
    if is_appended or kept.shape[0] == num_prefix:
        return int(kept.max()) + 1
    return max(int(kept[num_prefix]) - 1, 0)
