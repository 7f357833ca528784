"""Tokens that come back for a question: merged by time with what is resident, in a fork.

Retrieved tokens go between the older and the newer ones, never behind the present: a model reads
what comes last as now. Every key of the merged cache is rotated once, from its un-rotated form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes_like.memory.cache import HierarchicalCache, LayerSlots
from hermes_like.memory.positions import PositionScheme


@dataclass(frozen=True, slots=True, eq=False)
class ReturnedTokens:
    """Tokens of one decoder layer that come back from a tier.

    Attributes:
        raw_keys: ``[kv_heads, tokens, head_dim]`` un-rotated keys, on the layer's device.
        values: ``[kv_heads, tokens, head_dim]``, there too.
        ids: int64 ``[tokens]`` provenance, all of them vision tokens, on the device of all ids.
    """

    raw_keys: Tensor
    values: Tensor
    ids: Tensor


def merge(
    cache: HierarchicalCache, returned: Sequence[ReturnedTokens], scheme: PositionScheme
) -> int:
    """Put returned tokens where they belong in time, in every layer of a fork.

    A token that a layer still holds is not taken twice. Prefix and summaries keep their places
    before all video tokens older than them. Positions become dense, aligned at the right.

    Args:
        cache: A fork; it gets buffers of its own, the stream's cache does not change.
        returned: One per decoder layer.
        scheme: Gives the new positions; only its rule is used, its counters do not move.

    Returns:
        The most tokens that were added to any layer.

    Raises:
        BudgetError: A layer would hold more than ``device_tokens`` slots.
    """
    parts = [_merged(slots, tokens) for slots, tokens in zip(cache.layers, returned, strict=True)]
    lengths = [int(ids.shape[0]) for _, _, ids in parts]
    held: list[int] = cache.lengths
    added = max(length - before for length, before in zip(lengths, held, strict=True))
    if not added:
        return 0
    positions = scheme.arrange_fork([ids for _, _, ids in parts])
    for slots, part, new in zip(cache.layers, parts, positions, strict=True):
        raw, values, ids = part
        slots.detach()
        slots.rewrite(raw, values, new, ids, cache.rotary)
    cache.note_peak()
    return added


def _merged(slots: LayerSlots, tokens: ReturnedTokens) -> tuple[Tensor, Tensor, Tensor]:
    """Raw keys, values and ids of one layer with the new tokens in their places."""
    is_new = ~torch.isin(tokens.ids, slots.ids)
    ids = torch.cat([slots.ids, tokens.ids[is_new]])
    places = torch.cat([_places(slots.ids), tokens.ids[is_new]])
    order = torch.argsort(places, stable=True)
    new, place = is_new.to(slots.device), order.to(slots.device)
    raw = torch.cat([slots.raw_keys, tokens.raw_keys[None][:, :, new]], dim=2)
    values = torch.cat([slots.values, tokens.values[None][:, :, new]], dim=2)
    return raw[:, :, place], values[:, :, place], ids[order]


def _places(ids: Tensor) -> Tensor:
    """What to sort slots by: vision tokens by id, others with the vision token behind them.

    The ids of prefix and summaries say nothing about time. Those before all vision tokens stay
    before whatever comes back; those behind all of them stay last.
    """
    is_video = ids >= 0
    last = torch.iinfo(torch.int64).max
    places = torch.where(is_video, ids, torch.full_like(ids, last))
    places = torch.flip(torch.cummin(torch.flip(places, (0,)), dim=0).values, (0,))
    is_leading = torch.cumsum(is_video, dim=0) == 0
    return torch.where(is_leading, -torch.ones_like(ids), places)


def isolate(
    cache: HierarchicalCache,
    returned: Sequence[ReturnedTokens],
    scheme: PositionScheme,
    num_prefix: int,
) -> None:
    """Make a fork hold the prefix and the returned tokens, and nothing else.

    For questions about one stretch of time: what the stream shows now must not answer them.

    Args:
        cache: A fork; it gets buffers of its own.
        returned: One per decoder layer, ids ascending.
        scheme: Gives the new positions.
        num_prefix: Slots of the prefix in every layer.

    Raises:
        BudgetError: A layer would hold more than ``device_tokens`` slots.
    """
    everything = [
        torch.cat([slots.ids[:num_prefix], tokens.ids])
        for slots, tokens in zip(cache.layers, returned, strict=True)
    ]
    positions = scheme.arrange_fork(everything)
    for slots, tokens, ids, new in zip(cache.layers, returned, everything, positions, strict=True):
        raw = torch.cat([slots.raw_keys[:, :, :num_prefix], tokens.raw_keys[None]], dim=2)
        values = torch.cat([slots.values[:, :, :num_prefix], tokens.values[None]], dim=2)
        slots.detach()
        slots.rewrite(raw, values, new, ids, cache.rotary)
    cache.note_peak()
