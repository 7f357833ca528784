"""A key that is moved a thousand times is as good as one that is moved once."""

from __future__ import annotations

import dataclasses

import torch

from hermes_like.memory.cache import LayerSlots
from hermes_like.memory.rotation import rotate

MOVES = 1000
#: One cast to bfloat16 of numbers up to about 4.
CAST_ERROR = 0.02


def test_a_thousand_moves_cost_one_cast(tiny) -> None:
    dims = dataclasses.replace(tiny.dims, dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    raw = torch.randn(1, 2, 24, dims.head_dim, generator=generator).to(torch.bfloat16)
    slots = LayerSlots(dims, 64)
    slots.rewrite(raw, raw, torch.arange(24), torch.arange(24), tiny.rotary)
    chained = slots.keys.clone()
    for _ in range(MOVES):
        new = torch.randint(0, 4000, (24,), generator=generator)
        chained = _turn_by_difference(chained, slots.positions, new, tiny.rotary)
        slots.rewrite(
            slots.raw_keys.clone(), slots.values.clone(), new, slots.ids.clone(), tiny.rotary
        )
    exact = rotate(raw.float(), tiny.rotary(slots.positions))
    error = (slots.keys.float() - exact).abs().max()
    assert error < CAST_ERROR
    # The twin that turns the stored key by the angle difference each time must fail the same bar.
    assert (chained.float() - exact).abs().max() > 10 * CAST_ERROR


def _turn_by_difference(keys, old, new, rotary):
    """What the released code does: rotate what is stored, in its own number type."""
    return rotate(keys, rotary(new - old))
