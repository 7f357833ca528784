"""Kinds of rotary positions: the same numbers as the library's own forward, or a refusal."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
import torch

from hermes_like.config import ModelConfig
from hermes_like.errors import ModelError
from hermes_like.models import load_model
from hermes_like.models.random_shapes import load
from tests.memory.streams import append, ask_logits, images, memory

FAMILIES = ("llava-onevision-tiny", "qwen3-vl-tiny", "qwen3-vl-moe-tiny", "internvl-tiny")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONG = {
    "rope_type": "longrope",
    "factor": 2.0,
    "long_factor": [2.0] * 8,
    "short_factor": [1.0] * 8,
    "original_max_position_embeddings": 64,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}


def with_rope(shape: str, rope: dict[str, Any]) -> Any:
    """A tiny model of a family with other rotary positions, the same weights as without."""
    adapter = load(ModelConfig(name=f"random:{shape}", device="cpu"), seed=1)
    model = copy.deepcopy(adapter._model)
    text = model.config.text_config
    text.rope_parameters = {**text.rope_parameters, **rope}
    rotary = model.model.language_model.rotary_emb
    model.model.language_model.rotary_emb = type(rotary)(config=text)
    size = {"size": adapter.size} if hasattr(adapter, "size") else {}
    return type(adapter)(model, adapter._text, name="x", eos_ids=adapter.eos_ids, **size)


def at_once(adapter, embeds: torch.Tensor, positions: torch.Tensor, text: list[int]):
    """Logits of the library's forward, with its own attention, at our positions."""
    model = copy.deepcopy(adapter._model)
    model.set_attn_implementation("sdpa")
    prefix = adapter.embed_text(adapter.prefix_ids())
    hidden = adapter.dims.hidden_size
    tail = [adapter.video_end(), adapter.embed_text(text)]
    everything = torch.cat([prefix, embeds[:, :hidden], *tail])
    if positions.dim() == 1:
        where = torch.arange(everything.shape[0])[None]
    else:
        own = torch.arange(sum(map(len, tail))) + int(positions.max()) + 1
        where = torch.cat([positions, own.expand(3, -1)], 1)[:, None]
    with torch.inference_mode():
        out = model.model.language_model(
            inputs_embeds=everything[None], position_ids=where, use_cache=False
        )
        return model.lm_head(out.last_hidden_state[0, -1]).float()


@pytest.mark.parametrize("rope", [YARN, DYNAMIC], ids=["yarn", "dynamic"])
@pytest.mark.parametrize("shape", FAMILIES)
def test_a_stream_equals_one_forward_of_the_library(shape: str, rope) -> None:
    """Frames in pieces behind each other; keys stored as they are before they are turned."""
    adapter = with_rope(shape, rope)
    if adapter.dims.feature_levels > 1:  # the language model alone takes no features of levels
        adapter.dims = dataclasses.replace(adapter.dims, feature_levels=1)
        adapter._features = _first_level(adapter)
    scaling = adapter._decoder.rotary_emb.attention_scaling
    assert (scaling != 1.0) == (rope is YARN)
    target = memory(adapter, "full", resident=None)
    embeds = append(target, images(5), 2)
    got = ask_logits(target, [5, 6, 7])
    want = at_once(adapter, embeds, target.cache.layers[0].positions, [5, 6, 7])
    torch.testing.assert_close(got, want, atol=3e-5, rtol=0)
    _, key = adapter.raw_query_key(0, embeds)
    stored = target.cache.layers[0].raw_keys[0, :, len(adapter.prefix_ids()) :]
    torch.testing.assert_close(key, stored, atol=1e-5, rtol=0)
    target.check()


def _first_level(adapter) -> Any:
    """Features of pictures without those of middle tower layers."""
    made = adapter._features

    def first(cut, grid):
        return made(cut, grid)[..., : adapter.dims.hidden_size]

    return first


def test_yarn_changes_the_answer() -> None:
    """The test above would say nothing if these positions were those of before."""
    logits = []
    for rope in ({}, YARN):
        adapter = with_rope("internvl-tiny", rope)
        target = memory(adapter, "full", resident=None)
        append(target, images(5))
        logits.append(ask_logits(target, [5, 6, 7]))
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


@pytest.mark.parametrize(
    ("rope", "reason"),
    [
        (LONG, "of type 'longrope' change their frequencies"),
        ({"partial_rotary_factor": 0.5}, "turn whole heads, got a part of 0.5"),
    ],
)
def test_positions_that_move_are_refused(tmp_path, rope, reason) -> None:
    """By every family, and by a folder before its weights are read."""
    for shape in FAMILIES:
        adapter = load(ModelConfig(name=f"random:{shape}", device="cpu"))
        text = adapter._model.config.text_config
        text.rope_parameters = {**text.rope_parameters, **rope}
        with pytest.raises(ModelError, match=reason):
            type(adapter)(adapter._model, adapter._text, name="x", eos_ids=frozenset())
    adapter = load(ModelConfig(name="random:qwen2.5-vl-tiny", device="cpu"))
    content = adapter._model.config.to_dict()
    content["text_config"]["rope_parameters"].update(rope)
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match=reason):
        load_model(str(tmp_path))


@pytest.mark.parametrize("shape", FAMILIES)
def test_windows_are_refused_by_every_family(shape: str) -> None:
    adapter = load(ModelConfig(name=f"random:{shape}", device="cpu"))
    text = adapter._model.config.text_config
    text.layer_types = ["full_attention"] * 9 + ["sliding_attention"]
    with pytest.raises(ModelError, match="sliding_attention layers, which do not keep"):
        type(adapter)(adapter._model, adapter._text, name="x", eos_ids=frozenset())
