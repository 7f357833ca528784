"""Several short streams side by side in one pass: same prefix, same question, different frames.

None sees another. What the decoder does per token runs once over all of them, and attention runs
once over a batch; a pass over a dozen rows costs little more than one. It knows neither questions
nor where the tokens come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.merge import ReturnedTokens
from hermes_like.memory.positions import PositionScheme
from hermes_like.memory.rotation import moved, rotate


def row_positions(
    cache: HierarchicalCache,
    row: Sequence[ReturnedTokens],
    scheme: PositionScheme,
    num_prefix: int,
) -> Tensor:
    """Positions of prefix and tokens of a row, ``[slots]`` or ``[3, slots]``, as if it were alone.

    With three rotary axes they depend on the place of a frame in its clip.
    """
    ids = torch.cat([cache.layers[0].ids[:num_prefix], row[0].ids])
    return scheme.arrange_fork([ids])[0]


class RowsCache(HierarchicalCache):
    """A cache for one pass over rows alike: prefix and tokens of each, then new tokens.

    The new tokens of a pass are those of the first row, then those of the second, and so on.
    They are forgotten afterwards.

    Args:
        cache: Whose prefix all rows share; read, not changed.
        rows: Tokens of each row, one per decoder layer; those of :func:`row_positions` must be the
            same for all rows.
        scheme: Gives the positions; only its rule is used.
        num_prefix: Slots of the prefix in every layer.

    Raises:
        ValueError: The rows differ in length.
    """

    def __init__(
        self,
        cache: HierarchicalCache,
        rows: Sequence[Sequence[ReturnedTokens]],
        scheme: PositionScheme,
        num_prefix: int,
    ) -> None:
        super().__init__(cache.dims, cache.rotary, None)
        counts = {int(tokens.ids.shape[0]) for row in rows for tokens in row}
        if len(counts) != 1:
            raise ValueError(f"rows: expected equally many tokens in each, got {sorted(counts)}")
        self.num_rows, self.row_slots = len(rows), num_prefix + counts.pop()
        positions = row_positions(cache, rows[0], scheme, num_prefix)
        rotation = cache.rotary(positions)
        self._row_keys: list[Tensor] = []
        self._row_values: list[Tensor] = []
        for layer, slots in enumerate(cache.layers):
            prefix = slots.raw_keys[0, :, :num_prefix], slots.values[0, :, :num_prefix]
            raw = [torch.cat([prefix[0], row[layer].raw_keys], dim=1) for row in rows]
            values = [torch.cat([prefix[1], row[layer].values], dim=1) for row in rows]
            self._row_keys.append(rotate(torch.stack(raw), moved(rotation, slots.device)))
            self._row_values.append(torch.stack(values))
        self.next_position = int(positions.max()) + 1

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, ``[rows, kv_heads, slots + new, head_dim]``.

        Args:
            key_states: ``[1, kv_heads, rows * new, head_dim]`` un-rotated.
            value_states: ``[1, kv_heads, rows * new, head_dim]``.
            layer_idx: Decoder layer.
        """
        if self.current_step is None:
            raise RuntimeError("RowsCache.update: expected an open step, got none")
        keys = rotate(self._by_row(key_states), self.current_step.rotations[layer_idx])
        values = self._by_row(value_states)
        return (
            torch.cat([self._row_keys[layer_idx], keys], dim=2),
            torch.cat([self._row_values[layer_idx], values], dim=2),
        )

    def _by_row(self, states: Tensor) -> Tensor:
        heads, _, channels = states[0].shape
        return states[0].reshape(heads, self.num_rows, -1, channels).transpose(0, 1)
