"""Random life of a memory under every policy and position scheme; ``check()`` after every step."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random

import pytest
import torch

from hermes_like.config import MemoryConfig
from hermes_like.errors import BudgetError
from hermes_like.policies import POLICIES
from hermes_like.presets import load_config
from tests.memory.streams import append, ask_logits, images, memory


def switches(preset: str) -> dict[str, object]:
    """Policy fields of a preset."""
    return load_config(preset, env={}).policy.model_dump(exclude={"name"})


VARIANTS: dict[str, dict[str, object]] = {
    **{name: {} for name in POLICIES.names()},
    **{name: switches(name) for name in ("hermes_paper", "hermes_released")},
}


@pytest.mark.parametrize("positions", ["right_aligned", "global", "released"])
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_random_steps_keep_all_invariants(tiny, variant: str, positions: str) -> None:
    rng = random.Random(f"{variant} {positions}")
    name = variant.split("_")[0] if variant.startswith("hermes") else variant
    config = MemoryConfig(positions=positions, protected_frames=rng.choice([0, 1, 2]))
    limit = None if name == "full" else 60
    mine = memory(tiny, name, resident=limit, config=config, **VARIANTS[variant])
    for step in range(30):
        action = rng.choice(["frames", "frames", "compact", "ask"])
        if action == "frames":
            append(mine, images(rng.randint(1, 4), seed=step), chunk=rng.choice([1, 4]))
        elif action == "compact":
            mine.compact()
            if limit is not None:
                assert max(mine.cache.lengths) <= limit + len(tiny.prefix_ids())
        else:
            ask_logits(mine, [40 + step])
        mine.check()
    assert mine.cache.num_bytes == mine.expected_bytes()
    assert len(mine.frames) == len(mine.resident_frames())


def test_check_notices_a_chained_rotation(tiny) -> None:
    """The invariant is not empty: a key turned in place is found."""
    mine = memory(tiny, "window")
    append(mine, images(8))
    mine.cache.layers[3].keys.mul_(1.001)
    with pytest.raises(AssertionError, match="layer 3: rotated key"):
        mine.check()


def test_check_notices_a_lost_summary(tiny) -> None:
    mine = memory(tiny, "hermes")
    append(mine, images(12))
    mine.compact()
    mine.check()
    mine.compactor.summaries[9].clear()
    with pytest.raises(AssertionError, match="layer 9: unknown summary"):
        mine.check()


def test_weighted_summary_counts_everything_that_went(tiny) -> None:
    mine = memory(tiny, "hermes", resident=30)
    for segment in range(4):
        append(mine, images(4, seed=segment))
        mine.compact()
    seen = mine.num_frames * tiny.dims.tokens_per_frame
    for stats, known in zip(mine.layer_stats(), mine.compactor.summaries, strict=True):
        if stats.band == "deep":
            (summary,) = known.values()
            assert summary.count == seen - stats.short - stats.mid
        else:
            assert not known


@pytest.mark.parametrize("positions", ["global", "released"])
def test_lazy_positions_are_made_dense_near_the_limit(tiny, positions: str) -> None:
    """A23: the counter is ours, stays below the limit, and the keys follow it exactly."""
    margin = tiny.dims.max_positions - 400
    config = MemoryConfig(protected_frames=0, positions=positions, reindex_margin=margin)
    mine = memory(tiny, "window", resident=60, config=config)
    highest = []
    for segment in range(16):
        append(mine, images(4, seed=segment))
        highest.append(max(int(s.positions.max()) for s in mine.cache.layers))
        mine.compact()
        mine.check()
    drops = [b < a for a, b in itertools.pairwise(highest)]
    assert any(drops), "expected at least one re-indexing"
    assert max(highest) <= 400 + 2 * 4 * tiny.dims.tokens_per_frame


def test_the_models_last_position_is_a_limit(tiny) -> None:
    """The library runs past it without complaint; we refuse and say what to change."""
    mine = memory(tiny, "full", resident=None)
    append(mine, images(1))
    mine.adapter = copy.copy(tiny)
    mine.adapter.dims = dataclasses.replace(tiny.dims, max_positions=mine.cache.lengths[0] + 4)
    before = [s.keys.clone() for s in mine.cache.layers]
    with pytest.raises(BudgetError, match="reindex_margin, or a policy that evicts"):
        append(mine, images(1))
    assert all(map(torch.equal, before, [s.keys for s in mine.cache.layers]))
