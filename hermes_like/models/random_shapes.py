"""True shapes of released models with random weights: for memory and speed, never for answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)

from hermes_like.config import ModelConfig
from hermes_like.errors import ConfigError
from hermes_like.models import internvl_shapes, qwen_shapes
from hermes_like.models.base import ModelAdapter
from hermes_like.models.device_map import place
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.models.loading import resolve_device, resolve_dtype
from hermes_like.models.text import ByteTokenizer, HashTokenizer, TextCodec
from hermes_like.registry import unknown_name

_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 26,
    "num_attention_heads": 16,
    "image_size": 384,
    "patch_size": 14,
}
SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "llava-onevision-tiny": {
        "text": {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 10,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 320,
            "max_position_embeddings": 32768,
        },
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 48,
            "patch_size": 8,
        },
    },
    "llava-onevision-0.5b": {
        "text": {
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "vocab_size": 152000,
            "max_position_embeddings": 32768,
        },
        "vision": _VISION,
    },
    "llava-onevision-7b": {
        "text": {
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152128,
            "max_position_embeddings": 32768,
        },
        "vision": _VISION,
    },
    "llava-onevision-72b": {
        "text": {
            "hidden_size": 8192,
            "intermediate_size": 29568,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "vocab_size": 152064,
            "max_position_embeddings": 32768,
        },
        "vision": _VISION,
    },
    **qwen_shapes.SHAPES,
    **internvl_shapes.SHAPES,
}


def load(config: ModelConfig, *, seed: int = 0) -> ModelAdapter:
    """Build ``random:<shape>``.

    Args:
        config: Its name names the shape; device and number type as usual.
        seed: Of the weights.

    Raises:
        ConfigError: Unknown shape.
    """
    shape = config.name.removeprefix("random:")
    if shape not in SHAPES:
        raise ConfigError(unknown_name("random shape", shape, sorted(SHAPES)))
    device = resolve_device(config.device)
    dtype = resolve_dtype(config.dtype, device)
    make = partial(_unfilled, shape)
    if config.device_map is None:
        model = filled(make, device=device, dtype=dtype, seed=seed)
    else:
        model = spread(make, config, dtype=dtype, seed=seed)
    for family in (qwen_shapes, internvl_shapes):
        if shape in family.SHAPES:
            made: ModelAdapter = family.adapter(model, shape, config)
            return made
    vocab_size: int = SHAPES[shape]["text"]["vocab_size"]
    text: TextCodec = ByteTokenizer() if vocab_size < 1000 else HashTokenizer(vocab_size)
    return LlavaOnevisionAdapter(model, text, name=config.name, eos_ids=frozenset({vocab_size - 1}))


def build(
    shape: dict[str, dict[str, Any]], *, device: torch.device, dtype: torch.dtype, seed: int
) -> Any:
    """A LLaVA-OneVision of a shape with seeded random weights, made in place on its device."""
    return filled(partial(_llava, shape), device=device, dtype=dtype, seed=seed)


def _unfilled(shape: str) -> Any:
    """The library's model of a shape, with whatever weights it begins with."""
    for family in (qwen_shapes, internvl_shapes):
        if shape in family.SHAPES:
            return family.build(shape)
    return _llava(SHAPES[shape])


def _llava(shape: dict[str, dict[str, Any]]) -> Any:
    rope = {"rope_type": "default", "rope_theta": 1_000_000.0}
    config = LlavaOnevisionConfig(
        text_config=Qwen2Config(**shape["text"], rope_parameters=rope),
        vision_config=SiglipVisionConfig(**shape["vision"], vision_use_head=False),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=False,
        image_token_id=shape["text"]["vocab_size"] - 3,
        video_token_id=shape["text"]["vocab_size"] - 2,
    )
    return LlavaOnevisionForConditionalGeneration(config)


def filled(make: Callable[[], Any], *, device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    """What ``make`` makes, with seeded random weights, in place on its device."""
    with _default_dtype(dtype), torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(seed)
        return make().eval()


def spread(make: Callable[[], Any], config: ModelConfig, *, dtype: torch.dtype, seed: int) -> Any:
    """The same over several devices, each part in place on its own: none ever holds them all."""
    with _default_dtype(dtype), torch.random.fork_rng():
        torch.manual_seed(seed)
        with torch.device("meta"):
            model = make()
        place(model, config, is_empty=True)
        model.initialize_weights()
        model.tie_weights()
    return model.eval()


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
