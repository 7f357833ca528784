"""One test that every model adapter passes."""

from __future__ import annotations

import pytest
import torch

from hermes_like.config import MemoryConfig, ModelConfig, PolicyConfig
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.models import ModelAdapter, load_model
from hermes_like.policies import POLICIES
from hermes_like.tiers.fingerprint import Fingerprint
from tests.memory.streams import append, ask_logits, images

NAMES = (
    "sprites",
    "random:llava-onevision-tiny",
    "random:qwen2-vl-tiny",
    "random:qwen2.5-vl-tiny",
    "random:qwen3-vl-tiny",
    "random:qwen3-vl-moe-tiny",
    "random:internvl-tiny",
)


@pytest.fixture(scope="module", params=NAMES)
def adapter(request) -> ModelAdapter:
    return load_model(ModelConfig(name=request.param, device="cpu"))


def full(adapter: ModelAdapter) -> DeviceMemory:
    policy = POLICIES.get("full")(PolicyConfig(name="full"))
    return DeviceMemory(adapter, policy, MemoryConfig())


def test_dims_are_true(adapter) -> None:
    dims = adapter.dims
    tokens = adapter.embed_frames(images(2))
    assert tokens.shape == (2, dims.tokens_per_frame, dims.frame_channels)
    assert adapter.embed_text([1, 2]).shape == (2, dims.hidden_size)
    assert adapter.embed_frames([]).shape == (0, dims.tokens_per_frame, dims.frame_channels)
    assert tokens.dtype == dims.dtype
    memory = full(adapter)
    append(memory, images(2))
    logits = ask_logits(memory, [1, 2, 3])
    assert logits.shape == (dims.vocab_size,)
    assert logits.dtype == torch.float32
    assert len(memory.cache.layers) == dims.num_layers
    for slots in memory.cache.layers:
        length = len(adapter.prefix_ids()) + 2 * dims.tokens_per_frame
        assert slots.raw_keys.shape == (1, dims.num_kv_heads, length, dims.head_dim)


def test_frames_do_not_see_each_other(adapter) -> None:
    pictures = images(3)
    alone = torch.cat([adapter.embed_frames([picture]) for picture in pictures])
    torch.testing.assert_close(adapter.embed_frames(pictures), alone, atol=1e-5, rtol=0)


def test_chunked_prefill_equals_one_shot(adapter) -> None:
    logits = []
    for chunk in (1, 3, 6):
        memory = full(adapter)
        append(memory, images(6), chunk)
        logits.append(ask_logits(memory, [5, 6, 7]))
    torch.testing.assert_close(logits[1], logits[0], atol=2e-5, rtol=0)
    torch.testing.assert_close(logits[2], logits[0], atol=2e-5, rtol=0)


def test_cached_text_equals_text_at_once(adapter) -> None:
    memory = full(adapter)
    append(memory, images(2))
    at_once = ask_logits(memory, [5, 6, 7, 8])
    with memory.cache.fork() as cache:
        for index, token in enumerate([None, 5, 6, 7, 8]):
            embeds = adapter.video_end() if token is None else adapter.embed_text([token])
            if embeds.shape[0]:
                ids = torch.tensor([-1000 - index])
                logits = memory.extend(cache, embeds, ids, logits=True)
    torch.testing.assert_close(logits, at_once, atol=2e-5, rtol=0)


def test_raw_keys_are_what_layer_zero_stores(adapter) -> None:
    memory = full(adapter)
    embeds = append(memory, images(2))
    query, key = adapter.raw_query_key(0, embeds)
    dims = adapter.dims
    assert query.shape == (dims.num_heads, embeds.shape[0], dims.head_dim)
    stored = memory.cache.layers[0].raw_keys[0, :, len(adapter.prefix_ids()) :]
    torch.testing.assert_close(key, stored, atol=1e-5, rtol=0)


def test_rotary_is_a_rotation(adapter) -> None:
    """Position 0 turns nothing; cosine and sine are not scaled."""
    cos, sin = adapter.rotary(torch.tensor([0, 7, 20_000]))
    assert torch.equal(cos[0], torch.ones_like(cos[0]))
    assert torch.equal(sin[0], torch.zeros_like(sin[0]))
    torch.testing.assert_close(cos**2 + sin**2, torch.ones_like(cos))


def test_text_lies_alike_on_all_axes(adapter) -> None:
    positions = torch.tensor([3, 40, 500])
    one = adapter.rotary(positions)
    many = adapter.rotary(positions.expand(adapter.dims.position_axes, -1))
    assert (adapter.frame_layout is None) == (adapter.dims.position_axes == 1)
    if adapter.frame_layout is not None:
        assert all(map(torch.equal, one, many))
        shape = (adapter.dims.position_axes, adapter.dims.tokens_per_frame)
        assert adapter.frame_layout.offsets.shape == shape
        assert int(adapter.frame_layout.offsets.min()) == 0


def test_identity_is_complete_and_stable(adapter) -> None:
    """Plain values, the same for the same weights, and all of them known to the fingerprint."""
    values = adapter.identity()
    assert values == load_model(ModelConfig(name=adapter.name, device="cpu")).identity()
    assert Fingerprint.of(**values).hard["weights_digest"] == values["weights_digest"]


def test_text_round_trip(adapter) -> None:
    text = "what is visible now ?"
    assert adapter.decode_text(adapter.encode_text(text)) == text
    question = adapter.question_ids(text, is_first=True)
    assert len(question) > len(adapter.encode_text(text)), "expected a template around it"
    assert adapter.eos_ids
