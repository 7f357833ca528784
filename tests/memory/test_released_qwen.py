"""The ``released`` scheme repeats the authors' Qwen2.5-VL code, its faults included.

Expected values were recorded once from the released implementation (arXiv 2601.14724, MIT licence)
on a tiny random model, see ``tests/data/qwen_released/README.md``. The faults repeated here: layers
record positions of their own but are all rotated by the first layer's, attention is scored from raw
embeddings with a softmax in half precision, and re-indexing ranks each axis by itself. Nothing but
the settings of this test leads there. The first (chunk, layer) that deviates fails.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from hermes_like.config import MemoryConfig, PolicyConfig
from hermes_like.memory.budget import Budget
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.provenance import FrameRecord
from hermes_like.models.base import FrameLayout
from hermes_like.models.qwen_vl import QwenVLAdapter
from hermes_like.policies import POLICIES
from hermes_like.presets import load_config
from tests.memory.released_question import check_question

DATA = Path(__file__).parent.parent / "data" / "qwen_released"
META = json.loads((DATA / "meta.json").read_text())
HERMES = META["hermes"]
PREFIX = HERMES["prefix_length"]
PER_FRAME = HERMES["rows"] * HERMES["columns"]


class RecordedAdapter(QwenVLAdapter):
    """The golden decoder; prompts are the recorded token ids, a frame is a recorded pair."""

    guidance_prompts = ("local", "global")
    guidance_separator = "separator"

    def encode_text(self, text: str) -> list[int]:
        ids = META["ids"]
        middle = sorted(set(ids["mixed"]) - set(ids["local"]) - set(ids["global"]))
        return middle if text == "separator" else list(ids[text])

    def prefix_ids(self) -> list[int]:
        return list(META["ids"]["prompt"])


def adapter() -> RecordedAdapter:
    """Our adapter around the recorded decoder weights."""
    c = META["text_config"]
    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "rms_norm_eps",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
    )  # fmt: skip
    text = {name: c[name] for name in names}
    text["rope_parameters"] = {
        "rope_type": "default", "rope_theta": c["rope_theta"], "mrope_section": c["mrope_section"],
    }  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 1,
        "out_hidden_size": c["hidden_size"], "patch_size": 4,
    }  # fmt: skip
    marks = {"bos_token_id": None, "eos_token_id": None}
    config = Qwen2_5_VLConfig(text_config={**text, **marks}, vision_config=vision)
    model = Qwen2_5_VLForConditionalGeneration(config).eval()
    weights = load_file(DATA / "decoder.safetensors")
    head = weights.pop("lm_head.weight")
    model.model.language_model.load_state_dict(
        {name.removeprefix("model."): w for name, w in weights.items()}
    )
    model.lm_head.load_state_dict({"weight": head})
    size = (HERMES["rows"] * 8, HERMES["columns"] * 8)
    made = RecordedAdapter(model, None, name="released", eos_ids=frozenset(), size=size)  # type: ignore[arg-type]
    offsets = made.frame_layout.offsets
    made.frame_layout = FrameLayout(offsets, step=int(HERMES["temporal_step"]), is_clip=True)
    return made


def released_memory(mode: str) -> DeviceMemory:
    """A memory with the recorded budget; ``mode`` is lazy or eager."""
    config = MemoryConfig(
        protected_frames=0, positions="released", reindex=mode, reindex_margin=1024
    )
    values = load_config("hermes_released", env={}).policy.model_dump()
    constants = {"recency_weight": 0.75, "recency_weight_drop": 0.6, "recency_rate_drop": 12.0}
    policy = PolicyConfig(**{**values, **constants})
    budget = Budget(160, PREFIX, HERMES["budget_video_tokens"])
    return DeviceMemory(adapter(), POLICIES.get("hermes")(policy), config, budget)


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_every_chunk_is_repeated(mode: str) -> None:
    memory = released_memory(mode)
    want, given = load_file(DATA / f"{mode}.safetensors"), load_file(DATA / "inputs.safetensors")
    drifted = 0.0
    for chunk in range(10):
        name = f"chunk{chunk:02d}"
        embeds = given[f"{name}.embeds"]
        frames = embeds.shape[0] // PER_FRAME
        records = [FrameRecord(float(memory.num_frames + i), None, chunk) for i in range(frames)]
        memory.append_frames(embeds.view(frames, PER_FRAME, -1), records)
        slots = memory.cache.layers
        before = torch.stack([s.positions for s in slots]).float()
        assert torch.equal(before, want[f"{name}.pos_before"]), name
        rotated_by = want[f"{name}.pos_rotary"]
        assert torch.equal(before[0, :, -embeds.shape[0] :], rotated_by), name
        drifted = max(drifted, float((before[:, :, -embeds.shape[0] :] - rotated_by).abs().max()))
        masses = memory.masses()
        assert masses is not None
        views = memory.compactor.views(masses)
        scores = memory.compactor.scores(views)
        torch.testing.assert_close(torch.stack(masses), want[f"{name}.attn"], atol=2e-5, rtol=0)
        torch.testing.assert_close(torch.stack(scores), want[f"{name}.score"], atol=2e-3, rtol=0)
        kept = memory.compactor.select(views, scores)
        for layer, indices in enumerate(kept):
            row = want[f"{name}.keep"][layer]
            row = row[row >= PREFIX] - PREFIX
            assert torch.equal(indices.int(), row), f"first deviation: {name}, layer {layer}"
        assert memory.compact() == META["runs"][mode]["chunks"][chunk]["compressed"], name
        memory.check()
        after = torch.stack([s.positions for s in slots]).float()
        assert torch.equal(after, want[f"{name}.pos_after"]), name
        _check_summaries(memory, want, name)
        if f"{name}.k_after" in want:
            _check_cache(memory, want[f"{name}.k_after"], want[f"{name}.v_after"])
    assert drifted > 0, "expected layers whose records differ from what they were rotated by"
    assert torch.equal(after, want["final.pos"])
    _check_cache(memory, want["final.k"], want["final.v"])
    check_question(memory, want, given["question_ids"].tolist())


def _check_summaries(memory, want, name: str) -> None:
    if f"{name}.summary_k" not in want:
        return
    for row, layer in enumerate(range(HERMES["deep_layers"][0], 10)):
        slots = memory.cache.layers[layer]
        for got, kind in ((slots.keys, "k"), (slots.values, "v")):
            expected = want[f"{name}.summary_{kind}"][row]
            torch.testing.assert_close(got[0, :, -1], expected, atol=1e-5, rtol=0)


def _check_cache(memory, keys: torch.Tensor, values: torch.Tensor) -> None:
    for layer, slots in enumerate(memory.cache.layers):
        torch.testing.assert_close(slots.keys[0], keys[layer], atol=5e-5, rtol=0)
        torch.testing.assert_close(slots.values[0], values[layer], atol=5e-5, rtol=0)
