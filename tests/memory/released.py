"""The recorded run of the authors' released code, and our memory set up to repeat it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)

from hermes_like.config import MemoryConfig
from hermes_like.memory.budget import Budget
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.policies import POLICIES
from hermes_like.presets import load_config

DATA = Path(__file__).parent.parent / "data" / "hermes_released"
META = json.loads((DATA / "meta.json").read_text())
RELEASED_POLICY = load_config("hermes_released", env={}).policy


class RecordedAdapter(LlavaOnevisionAdapter):
    """The golden decoder; prompts are the recorded token ids."""

    guidance_prompts = ("local", "global")
    guidance_separator = "separator"

    def encode_text(self, text: str) -> list[int]:
        separator = (
            set(META["ids"]["mixed"]) - set(META["ids"]["local"]) - set(META["ids"]["global"])
        )
        return sorted(separator) if text == "separator" else list(META["ids"][text])

    def prefix_ids(self) -> list[int]:
        return list(META["ids"]["prompt"])


def adapter() -> RecordedAdapter:
    """Our adapter around the recorded decoder weights."""
    c = META["text_config"]
    text = Qwen2Config(
        vocab_size=c["vocab_size"],
        hidden_size=c["hidden_size"],
        intermediate_size=c["intermediate_size"],
        num_hidden_layers=c["num_hidden_layers"],
        num_attention_heads=c["num_attention_heads"],
        num_key_value_heads=c["num_key_value_heads"],
        max_position_embeddings=c["max_position_embeddings"],
        rms_norm_eps=c["rms_norm_eps"],
        rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"]},
    )
    vision = SiglipVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        image_size=16, patch_size=8, vision_use_head=False,
    )  # fmt: skip
    model = LlavaOnevisionForConditionalGeneration(
        LlavaOnevisionConfig(text_config=text, vision_config=vision, tie_word_embeddings=False)
    ).eval()
    weights = load_file(DATA / "decoder.safetensors")
    head = weights.pop("lm_head.weight")
    model.model.language_model.load_state_dict(
        {name.removeprefix("model."): w for name, w in weights.items()}
    )
    model.lm_head.load_state_dict({"weight": head})
    result = RecordedAdapter(model, None, name="released", eos_ids=frozenset())  # type: ignore[arg-type]
    per_frame = META["hermes"]["tokens_per_frame"]
    result.dims = dataclasses.replace(result.dims, grid=(1, per_frame))
    return result


def memory(mode: str) -> DeviceMemory:
    """A memory with the recorded budget; ``mode`` is lazy or eager."""
    config = MemoryConfig(
        protected_frames=0, positions="released", reindex=mode, reindex_margin=1024
    )
    prefix = META["hermes"]["prefix_length"]
    budget = Budget(160, prefix, META["hermes"]["budget_video_tokens"])
    return DeviceMemory(adapter(), POLICIES.get("hermes")(RELEASED_POLICY), config, budget)


def inputs() -> dict[str, torch.Tensor]:
    """Recorded inputs."""
    return load_file(DATA / "inputs.safetensors")


def recorded(mode: str) -> dict[str, torch.Tensor]:
    """Recorded values of a run."""
    return load_file(DATA / f"{mode}.safetensors")
