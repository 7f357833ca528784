"""The memory computes what the plain model computes, as long as nothing is evicted."""

from __future__ import annotations

import copy

import pytest
import torch

from hermes_like.config import MemoryConfig
from hermes_like.memory import provenance
from hermes_like.memory.attention import AttentionProbe
from tests.memory.streams import append, ask_logits, images, memory

QUESTION = [72, 101, 108, 108, 111, 63]


def stock(adapter, implementation: str):
    """The library's own model with the same weights and its own attention."""
    model = copy.deepcopy(adapter._model)
    model.set_attn_implementation(implementation)
    return model


@pytest.mark.parametrize("chunk", [1, 2, 5, 12])
def test_unlimited_budget_equals_plain_forward(tiny, chunk: int) -> None:
    """Frames streamed chunk by chunk, against one forward over ids and pixels of the library."""
    pictures = images(12)
    mine = memory(tiny, "full", resident=None)
    append(mine, pictures, chunk)
    model = stock(tiny, "sdpa")
    prefix, video = tiny.prefix_ids(), [model.config.video_token_id]
    per_frame = tiny.dims.tokens_per_frame
    ids = torch.tensor([prefix + video * (12 * per_frame + 1) + QUESTION])
    with torch.inference_mode():
        want = model(input_ids=ids, pixel_values_videos=tiny.pixels(pictures)[None]).logits[0, -1]
    torch.testing.assert_close(ask_logits(mine, QUESTION), want, atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", ["right_aligned", "global", "released"])
def test_chunk_size_does_not_matter(tiny, positions: str) -> None:
    """Chunked prefill equals one-shot prefill, for one token's worth of frames and for more."""
    config = MemoryConfig(positions=positions)
    answers = []
    for chunk in (1, 3, 9):
        mine = memory(tiny, "full", resident=None, config=config)
        append(mine, images(9, seed=3), chunk)
        answers.append(ask_logits(mine, QUESTION))
    torch.testing.assert_close(answers[1], answers[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(answers[2], answers[0], atol=1e-5, rtol=0)


def test_probe_mass_equals_eager_attention(tiny) -> None:
    mine = memory(tiny, "full", resident=None)
    embeds = append(mine, images(4))
    text = tiny.embed_text(QUESTION)
    model = stock(tiny, "eager")
    everything = torch.cat([tiny.embed_text(tiny.prefix_ids()), embeds, text])
    with torch.inference_mode():
        want = model.model.language_model(
            inputs_embeds=everything[None], output_attentions=True
        ).attentions
    probe = AttentionProbe(rows=torch.arange(len(QUESTION)))
    with mine.cache.fork() as cache:
        ids = -1 - cache.layers[0].length - torch.arange(len(QUESTION))
        mine.extend(cache, text, ids, probe=probe)
    for layer, weights in enumerate(want):
        expected = weights[0].mean(0)[-len(QUESTION) :]
        torch.testing.assert_close(probe.mass[layer], expected, atol=1e-6, rtol=0)


def test_probe_can_read_chosen_heads(tiny) -> None:
    mine = memory(tiny, "full", resident=None)
    embeds = append(mine, images(2))
    model = stock(tiny, "eager")
    everything = torch.cat([tiny.embed_text(tiny.prefix_ids()), embeds, tiny.embed_text([9])])
    with torch.inference_mode():
        want = model.model.language_model(
            inputs_embeds=everything[None], output_attentions=True
        ).attentions[4]
    probe = AttentionProbe(heads={4: (1, 3)})
    with mine.cache.fork() as cache:
        mine.extend(cache, tiny.embed_text([9]), torch.tensor([-999]), probe=probe)
    assert list(probe.mass) == [4]
    torch.testing.assert_close(probe.mass[4][0], want[0, [1, 3], -1].mean(0), atol=1e-6, rtol=0)


def test_frames_encoded_one_by_one_equal_a_batch(tiny) -> None:
    pictures = images(5)
    batch = tiny.embed_frames(pictures)
    single = torch.cat([tiny.embed_frames([picture]) for picture in pictures])
    torch.testing.assert_close(single, batch, atol=1e-6, rtol=0)


def test_keys_after_compaction_equal_keys_recomputed_at_their_positions(tiny) -> None:
    """Layer 0 sees embeddings alone, so its keys can be made afresh with the library's RoPE."""
    from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

    mine = memory(tiny, "uniform", resident=50)
    embeds = append(mine, images(16))
    for _ in range(3):
        mine.compact()
        embeds = torch.cat([embeds, append(mine, images(4, seed=mine.num_frames))])
    mine.compact()
    slots, layer = mine.cache.layers[0], tiny._decoder.layers[0]
    video = slots.ids[provenance.is_prefix(slots.ids).sum() :]
    source = torch.cat([tiny.embed_text(tiny.prefix_ids()), embeds[video]])
    with torch.inference_mode():
        raw = layer.self_attn.k_proj(layer.input_layernorm(source))
        raw = raw.unflatten(-1, (-1, tiny.dims.head_dim)).transpose(0, 1)[None]
        cos, sin = tiny._decoder.rotary_emb(raw, slots.positions[None])
        want = apply_rotary_pos_emb(raw, raw, cos, sin)[1]
    torch.testing.assert_close(slots.keys, want, atol=1e-5, rtol=0)
