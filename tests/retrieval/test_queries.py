"""Queries and vectors of the real model: against its own attention, and without a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hermes_like.config import HermesConfig
from hermes_like.memory.attention import AttentionProbe
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import KVBlock
from hermes_like.models import ModelAdapter, load_model
from hermes_like.presets import load_config
from hermes_like.retrieval.queries import question_queries
from hermes_like.retrieval.vectors import resident_frames, segment_vectors
from hermes_like.session import Segment, StreamSession
from hermes_like.sprites.source import SpritesSource
from hermes_like.sprites.stories import draw_story

HEADS = ((0, 1), (4, 0), (7, 1))
QUESTION = "which number did the red star carry ?"
PER_FRAME = 4
NUM_FRAMES = 64


@pytest.fixture(scope="module")
def model() -> ModelAdapter:
    return load_model("sprites")


@pytest.fixture(scope="module")
def watched(model: ModelAdapter) -> Iterator[tuple[StreamSession, list[Segment]]]:
    """A session that has compacted several times, and its closed segments."""
    segments: list[Segment] = []
    config: HermesConfig = load_config("sprites", {"memory.prefill_frames": "4"}, {})
    story = draw_story(np.random.default_rng(4), NUM_FRAMES, min_event_frames=2)
    with StreamSession(model, config, on_segment=segments.append) as session:
        with SpritesSource(story, seed=4) as source:
            for frame in source:
                session.observe(frame)
        assert session.memory.num_compactions > 1
        yield session, segments


def test_queries_give_the_attention_of_the_model(
    model: ModelAdapter, watched: tuple[StreamSession, list[Segment]]
) -> None:
    """Rotated queries and keys give the model's own attention, so these are its queries."""
    memory = watched[0].memory
    prompt = model.question_ids(QUESTION, is_first=True)
    queries = question_queries(memory, memory.cache, prompt, HEADS)
    assert queries.dtype == np.float32
    assert queries.shape == (len(prompt), len(HEADS), model.dims.head_dim)
    layer, head = 0, 1
    groups = model.dims.num_heads // model.dims.num_kv_heads
    embeds = torch.cat([model.video_end(), model.embed_text(prompt)])
    raw, _ = model.raw_query_key(layer, embeds)
    wanted = raw[head * groups : (head + 1) * groups, -len(prompt) :].sum(0)
    assert queries[:, HEADS.index((layer, head))] == pytest.approx(wanted.numpy(), abs=1e-4)


def test_summed_queries_give_the_summed_scores_of_the_group(
    model: ModelAdapter, watched: tuple[StreamSession, list[Segment]]
) -> None:
    memory = watched[0].memory
    prompt = model.question_ids(QUESTION, is_first=True)
    seen: dict[int, torch.Tensor] = {}

    class Recorder(AttentionProbe):
        def __init__(self) -> None:
            super().__init__(heads={})

        def add_raw(self, layer_index: int, query: torch.Tensor) -> None:
            seen[layer_index] = query[0]

    embeds = torch.cat([model.video_end(), model.embed_text(prompt)])
    with memory.cache.fork() as twin:
        ids = -1 - twin.layers[0].length - torch.arange(embeds.shape[0])
        memory.extend(twin, embeds, ids, probe=Recorder())
    assert sorted(seen) == list(range(model.dims.num_layers))
    queries = question_queries(memory, memory.cache, prompt, HEADS)
    for number, (layer, head) in enumerate(HEADS):
        keys = memory.cache.layers[layer].raw_keys[0]
        groups = model.dims.num_heads // model.dims.num_kv_heads
        repeated = keys.repeat_interleave(groups, dim=0)
        each = seen[layer][:, -len(prompt) :] @ repeated.transpose(1, 2)
        wanted = each[head * groups : (head + 1) * groups].sum(0)
        found = torch.from_numpy(queries[:, number]) @ keys[head].T
        assert torch.allclose(found, wanted, atol=1e-3)


def test_asking_for_queries_leaves_no_trace(
    model: ModelAdapter, watched: tuple[StreamSession, list[Segment]]
) -> None:
    session = watched[0]
    prompt = model.question_ids(QUESTION, is_first=True)
    before = [(s.raw_keys.clone(), s.ids.clone(), s.length) for s in session.memory.cache.layers]
    first = question_queries(session.memory, session.memory.cache, prompt, HEADS)
    with session.memory.cache.fork() as fork:
        inside = question_queries(session.memory, fork, prompt, HEADS)
        assert fork.lengths == session.memory.cache.lengths
    assert np.array_equal(first, inside)
    for slots, (raw, ids, length) in zip(session.memory.cache.layers, before, strict=True):
        assert slots.length == length
        assert torch.equal(slots.raw_keys, raw)
        assert torch.equal(slots.ids, ids)
    session.memory.check()
    assert question_queries(session.memory, session.memory.cache, prompt, ()).shape[1] == 0


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_vectors_are_mean_keys(watched: tuple[StreamSession, list[Segment]], groups: int) -> None:
    segment = watched[1][5]
    vectors = segment_vectors(
        segment.blocks, HEADS, num_frames=4, tokens_per_frame=PER_FRAME, groups=groups
    )
    assert vectors.dtype == np.float32
    assert vectors.shape == (4 * groups, len(HEADS), 32)
    for number, (layer, head) in enumerate(HEADS):
        keys = segment.blocks[layer].raw_keys[head]
        wanted = keys.reshape(4 * groups, PER_FRAME // groups, 32).mean(1)
        assert vectors[:, number] == pytest.approx(wanted.numpy(), abs=1e-6)


def test_resident_frames_have_the_vectors_of_their_segments(
    watched: tuple[StreamSession, list[Segment]],
) -> None:
    """Compaction moves keys but never changes them, so the stored and the resident ones agree."""
    session, segments = watched
    for groups in (1, 2):
        held = resident_frames(
            session.memory.cache, HEADS, tokens_per_frame=PER_FRAME, groups=groups
        )
        assert held.frames.tolist() == sorted(set(held.frames.tolist()))
        protected = session.config.memory.protected_frames
        assert set(range(NUM_FRAMES - protected, NUM_FRAMES)) <= set(held.frames.tolist())
        assert held.vectors.shape == (held.frames.shape[0] * groups, len(HEADS), 32)
        for place, frame in enumerate(held.frames.tolist()):
            stored = segment_vectors(
                segments[frame // 4].blocks,
                HEADS,
                num_frames=4,
                tokens_per_frame=PER_FRAME,
                groups=groups,
            )
            inside = frame % 4 * groups
            assert held.vectors[place * groups : (place + 1) * groups] == pytest.approx(
                stored[inside : inside + groups], abs=1e-6
            )


def test_frames_that_lost_a_token_are_not_resident(
    watched: tuple[StreamSession, list[Segment]],
) -> None:
    memory = watched[0].memory
    held = set(resident_frames(memory.cache, HEADS, tokens_per_frame=PER_FRAME).frames.tolist())
    for frame in memory.resident_frames():
        counts = [int((slots.ids // PER_FRAME == frame).sum()) for slots in memory.cache.layers]
        assert (frame in held) == (set(counts) == {PER_FRAME}), (frame, counts)


def test_tokens_may_come_in_any_order_but_none_may_miss() -> None:
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(2, 8, 4, generator=generator)
    ids = torch.arange(40, 48)
    order = torch.randperm(8, generator=generator)
    plain = KVBlock(keys, keys, ids)
    mixed = KVBlock(keys[:, order], keys[:, order], ids[order])
    for groups in (1, 2, 3):
        shape = {"num_frames": 2, "tokens_per_frame": 4, "groups": groups}
        wanted = segment_vectors([plain], [(0, 1)], **shape)
        assert segment_vectors([mixed], [(0, 1)], **shape) == pytest.approx(wanted, abs=1e-6)
    assert segment_vectors([plain], [], num_frames=2, tokens_per_frame=4).shape == (2, 0, 0)
    torn = KVBlock(keys[:, :4], keys[:, :4], ids[:4])
    with pytest.raises(ValueError, match="expected tokens for 2 vectors, got some for 1 of 2"):
        segment_vectors([torn], [(0, 1)], num_frames=2, tokens_per_frame=4)
    with pytest.raises(ValueError, match="expected 1 to 4"):
        segment_vectors([plain], [(0, 1)], num_frames=2, tokens_per_frame=4, groups=5)


def test_layers_behind_the_last_retrieval_head_are_not_computed(
    model: ModelAdapter,
    watched: tuple[StreamSession, list[Segment]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = watched[0].memory
    prompt = model.question_ids(QUESTION, is_first=True)
    computed: list[int] = []
    update = HierarchicalCache.update

    def noting(self: HierarchicalCache, *args: Any, **kwargs: Any) -> Any:
        computed.append(args[2])
        return update(self, *args, **kwargs)

    monkeypatch.setattr(HierarchicalCache, "update", noting)
    early = question_queries(memory, memory.cache, prompt, HEADS[:2])
    assert computed == list(range(HEADS[1][0] + 1))
    whole = question_queries(memory, memory.cache, prompt, HEADS)
    assert np.array_equal(early, whole[:, :2])
    memory.check()
