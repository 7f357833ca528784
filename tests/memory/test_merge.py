"""Tokens that come back: where they belong in time, and equal to never having been evicted."""

from __future__ import annotations

import pytest
import torch

from hermes_like.config import MemoryConfig
from hermes_like.errors import BudgetError
from hermes_like.memory.hierarchy import DeviceMemory, KVBlock
from hermes_like.memory.merge import ReturnedTokens, isolate, merge
from hermes_like.memory.rotation import rotate
from tests.memory.streams import append, ask_logits, images, memory
from tests.memory.test_unequal_layers import Reference

TEXT = [81, 117, 101, 115, 116]


def stored(target: DeviceMemory, first: int, count: int) -> list[KVBlock]:
    """What write-through would store of some frames, per layer."""
    return [target.block(layer, first, count) for layer in range(target.adapter.dims.num_layers)]


def returned(blocks: list[list[KVBlock]]) -> list[ReturnedTokens]:
    """Blocks of several stretches as tokens that come back, per layer."""
    return [
        ReturnedTokens(
            torch.cat([b.raw_keys for b in layer], 1),
            torch.cat([b.values for b in layer], 1),
            torch.cat([b.ids for b in layer]),
        )
        for layer in zip(*blocks, strict=True)
    ]


def logits_after(target: DeviceMemory, tokens: list[ReturnedTokens]) -> torch.Tensor:
    """Logits of a question asked after the merge; proves the invariants of the fork."""
    ids = TEXT
    with target.cache.fork() as cache:
        merge(cache, tokens, target.scheme)
        for slots in cache.layers:
            video = slots.ids[slots.ids >= 0]
            assert bool((video[1:] > video[:-1]).all()), "order of time broken, or a token twice"
            again = rotate(slots.raw_keys, target.adapter.rotary(slots.positions))
            assert torch.equal(again, slots.keys)
        embeds = torch.cat([target.adapter.video_end(), target.adapter.embed_text(ids)])
        provenance = -1 - cache.layers[0].length - torch.arange(embeds.shape[0])
        return target.extend(cache, embeds, provenance, logits=True)


@torch.inference_mode()
def test_retrieving_everything_equals_the_full_cache(tiny) -> None:
    full = memory(tiny, "full", resident=None)
    mine = memory(tiny, "hermes", resident=40, summary="none")
    pictures = images(8)
    append(full, pictures)
    append(mine, pictures)
    blocks = stored(mine, 0, 8)
    mine.compact()
    assert max(mine.cache.lengths) < max(full.cache.lengths)
    got = logits_after(mine, returned([blocks]))
    torch.testing.assert_close(got, ask_logits(full, TEXT), atol=1e-4, rtol=0)
    mine.check()


@torch.inference_mode()
@pytest.mark.parametrize("policy", ["window", "uniform", "hermes"])
def test_a_segment_slotted_back_was_never_away(tiny, policy: str) -> None:
    """Evict one middle stretch only, bring it back: the logits of never having evicted it."""
    full = memory(tiny, "full", resident=None)
    mine = memory(tiny, policy, resident=40)
    pictures = images(9, seed=3)
    append(full, pictures)
    append(mine, pictures)
    blocks = stored(mine, 2, 5)
    gone = torch.arange(27, 54)
    for layer, slots in enumerate(mine.cache.layers):
        stays = ~torch.isin(slots.ids, gone + layer % 3)
        new = mine.scheme.dense([int(stays.sum())], torch.device("cpu"))[0]
        slots.rewrite(
            slots.raw_keys[:, :, stays], slots.values[:, :, stays], new, slots.ids[stays],
            mine.cache.rotary,
        )  # fmt: skip
    got = logits_after(mine, returned([blocks]))
    torch.testing.assert_close(got, ask_logits(full, TEXT), atol=1e-4, rtol=0)


@torch.inference_mode()
def test_eviction_during_ingest_equals_a_masked_reference(tiny) -> None:
    """Later tokens were computed without the evicted ones; the reference saw the same contexts."""
    config = MemoryConfig(positions="right_aligned", protected_frames=0)
    mine = memory(tiny, "hermes", resident=45, config=config, summary="none")
    reference = Reference(tiny)
    layers = range(tiny.dims.num_layers)
    prefix = tiny.embed_text(tiny.prefix_ids())
    num_prefix = prefix.shape[0]
    own_ids = torch.arange(num_prefix)
    where = [own_ids.clone() for _ in layers]
    visible = [torch.ones(num_prefix, dtype=torch.bool) for _ in layers]
    reference.run(prefix, own_ids, [w[:0] for w in where], [v[:0] for v in visible])
    blocks = []
    for segment in range(4):
        for picture in images(4, seed=segment):
            start = mine.scheme.starts([s.positions for s in mine.cache.layers])[0]
            embeds = append(mine, [picture])
            own = torch.arange(embeds.shape[0]) + start
            reference.run(embeds, own, where, visible)
            where = [torch.cat([w, own]) for w in where]
            visible = [torch.cat([v, torch.ones(len(own), dtype=torch.bool)]) for v in visible]
        blocks.append(stored(mine, 4 * segment, 4))
        mine.compact()
        for layer in layers:
            slots = mine.cache.layers[layer]
            held = torch.cat([torch.arange(num_prefix), slots.ids[num_prefix:] + num_prefix])
            visible[layer] = torch.zeros_like(visible[layer])
            visible[layer][held] = True
            where[layer][held] = slots.positions
    tokens = returned([blocks[0], blocks[2]])
    with mine.cache.fork() as cache:
        merge(cache, tokens, mine.scheme)
        for layer in layers:
            slots = cache.layers[layer]
            held = torch.cat([torch.arange(num_prefix), slots.ids[num_prefix:] + num_prefix])
            visible[layer][held] = True
            where[layer][held] = slots.positions
        start = mine.scheme.starts([s.positions for s in cache.layers])[0]
    text = torch.cat([tiny.video_end(), tiny.embed_text(TEXT)])
    want = reference.run(text, torch.arange(text.shape[0]) + start, where, visible)
    got = logits_after(mine, tokens)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=0)


@torch.inference_mode()
def test_the_stream_does_not_notice(tiny) -> None:
    mine, twin = (memory(tiny, "hermes", resident=40) for _ in range(2))
    for target in (mine, twin):
        append(target, images(8))
    blocks = stored(mine, 0, 4)
    for target in (mine, twin):
        target.compact()
    before = mine.cache.num_bytes
    logits_after(mine, returned([blocks]))
    assert mine.cache.num_bytes == before
    for target in (mine, twin):
        append(target, images(2, seed=9))
        target.compact()
        target.check()
    for a, b in zip(mine.cache.layers, twin.cache.layers, strict=True):
        assert torch.equal(a.keys, b.keys)
        assert torch.equal(a.values, b.values)
        assert torch.equal(a.ids, b.ids)


@torch.inference_mode()
def test_summaries_and_prefix_stay_in_front(tiny) -> None:
    mine = memory(tiny, "hermes", resident=30, summary="weighted")
    append(mine, images(8))
    blocks = stored(mine, 0, 8)
    mine.compact()
    with mine.cache.fork() as cache:
        merge(cache, returned([blocks]), mine.scheme)
        for slots, held in zip(cache.layers, mine.cache.layers, strict=True):
            others = slots.ids[slots.ids < 0]
            assert torch.equal(others, held.ids[held.ids < 0])
            assert bool((slots.ids[: len(others)] < 0).all())


@torch.inference_mode()
def test_nothing_new_changes_nothing_and_the_cap_holds(tiny) -> None:
    full = memory(tiny, "full", resident=None)
    append(full, images(4))
    with full.cache.fork() as cache:
        assert merge(cache, returned([stored(full, 1, 2)]), full.scheme) == 0
        assert all(a._raw is b._raw for a, b in zip(cache.layers, full.cache.layers, strict=True))
    mine = memory(tiny, "hermes", resident=40)
    append(mine, images(6))
    blocks = stored(mine, 0, 6)
    mine.compact()
    mine.cache.layers[0].limit = mine.cache.layers[0].length + 10
    many = returned([blocks])
    many[0] = ReturnedTokens(many[0].raw_keys, many[0].values, many[0].ids + 1_000)
    with mine.cache.fork() as cache, pytest.raises(BudgetError, match="device_tokens"):
        merge(cache, many, mine.scheme)


@torch.inference_mode()
def test_isolated_frames_are_seen_alone(tiny) -> None:
    """Prefix and two frames: the logits of a memory that holds just those with the same keys."""
    mine = memory(tiny, "full", resident=None)
    append(mine, images(6))
    alone = memory(tiny, "full", resident=None)
    append(alone, images(6)[:2])
    with mine.cache.fork() as cache:
        isolate(cache, returned([stored(mine, 0, 2)]), mine.scheme, len(tiny.prefix_ids()))
        embeds = torch.cat([tiny.video_end(), tiny.embed_text(TEXT)])
        got = mine.extend(cache, embeds, -50 - torch.arange(embeds.shape[0]), logits=True)
    torch.testing.assert_close(got, ask_logits(alone, TEXT), atol=1e-4, rtol=0)
