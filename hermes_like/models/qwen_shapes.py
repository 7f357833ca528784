"""Shapes of the Qwen vision models for ``random:<shape>``; see ``random_shapes.py``."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)

from hermes_like.config import ModelConfig
from hermes_like.models.qwen3_vl import Qwen3VLAdapter
from hermes_like.models.qwen_vl import (
    DEFAULT_TOKENS,
    QwenVLAdapter,
    size_of,
    unit_of,
)
from hermes_like.models.text import ByteTokenizer, HashTokenizer, TextCodec

#: Beginning of a shape's name to configuration, model and adapter.
FAMILIES: dict[str, tuple[Any, Any, type[QwenVLAdapter]]] = {
    "qwen2-vl": (Qwen2VLConfig, Qwen2VLForConditionalGeneration, QwenVLAdapter),
    "qwen2.5-vl": (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, QwenVLAdapter),
    "qwen3-vl": (Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLAdapter),
    "qwen3-vl-moe": (Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration, Qwen3VLAdapter),
}
#: Special tokens of the tiny shapes; their ids follow the bytes.
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
#: A released tokenizer has one token for each digit, each special name, each word or mark.
WORDS = r"<\|\w+\|>|\d|[^\W\d]+|[^\w\s]"

_TINY_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 10,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 32768,
}
_TINY_ROPE = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
_ROPE = {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": [16, 24, 24]}
_ROPE_3 = {
    "rope_type": "default",
    "rope_theta": 5_000_000.0,
    "mrope_section": [24, 20, 20],
    "mrope_interleaved": True,
}
_TOWER_2 = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "mlp_ratio": 4, "patch_size": 14}
_TOWER_2_5 = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "patch_size": 14,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "tokens_per_second": 2,
}
_TEXT_3 = {
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "rope_parameters": _ROPE_3,
}

_SMALL_TOWER_3 = {
    "depth": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_heads": 16,
    "patch_size": 16,
    "deepstack_visual_indexes": [5, 11, 17],
}

_TEXT_72B = {
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "rope_parameters": _ROPE,
}
_TINY_TEXT_3 = {
    **_TINY_TEXT,
    "head_dim": 16,
    "rope_parameters": {**_ROPE_3, "rope_theta": 10_000.0, "mrope_section": [4, 2, 2]},
}
_TINY_TOWER_3 = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 64,
    "patch_size": 4,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
}
_TOWER_3 = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "patch_size": 16,
    "deepstack_visual_indexes": [8, 16, 24],
}

SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "qwen2-vl-tiny": {
        "text": {**_TINY_TEXT, "rope_parameters": _TINY_ROPE},
        "vision": {
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 64,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 4,
        },
    },
    "qwen2.5-vl-tiny": {
        "text": {**_TINY_TEXT, "rope_parameters": _TINY_ROPE},
        "vision": {
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": 64,
            "patch_size": 4,
            "window_size": 16,
            "fullatt_block_indexes": [1],
            "tokens_per_second": 2,
        },
    },
    "qwen3-vl-tiny": {"text": _TINY_TEXT_3, "vision": _TINY_TOWER_3},
    "qwen3-vl-moe-tiny": {
        "text": {
            **_TINY_TEXT_3,
            "moe_intermediate_size": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
        },
        "vision": _TINY_TOWER_3,
    },
    "qwen2-vl-7b": {
        "text": {
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
            "max_position_embeddings": 32768,
            "rope_parameters": _ROPE,
        },
        "vision": {**_TOWER_2, "hidden_size": 3584},
    },
    "qwen2.5-vl-3b": {
        "text": {
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "vocab_size": 151936,
            "max_position_embeddings": 128000,
            "tie_word_embeddings": True,
            "rope_parameters": _ROPE,
        },
        "vision": {**_TOWER_2_5, "out_hidden_size": 2048},
    },
    "qwen2.5-vl-7b": {
        "text": {
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
            "max_position_embeddings": 128000,
            "rope_parameters": _ROPE,
        },
        "vision": {**_TOWER_2_5, "out_hidden_size": 3584},
    },
    "qwen3-vl-2b": {
        "text": {
            **_TEXT_3,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "tie_word_embeddings": True,
        },
        "vision": {**_SMALL_TOWER_3, "out_hidden_size": 2048},
    },
    "qwen3-vl-4b": {
        "text": {
            **_TEXT_3,
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "tie_word_embeddings": True,
        },
        "vision": {**_SMALL_TOWER_3, "out_hidden_size": 2560},
    },
    "qwen3-vl-8b": {
        "text": {**_TEXT_3, "hidden_size": 4096, "intermediate_size": 12288},
        "vision": {**_TOWER_3, "out_hidden_size": 4096},
    },
    "qwen3-vl-moe-30b": {
        "text": {
            **_TEXT_3,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 48,
            "num_key_value_heads": 4,
        },
        "vision": {**_TOWER_3, "out_hidden_size": 2048},
    },
    "qwen2-vl-72b": {
        "text": {**_TEXT_72B, "max_position_embeddings": 32768},
        "vision": {**_TOWER_2, "hidden_size": 8192},
    },
    "qwen2.5-vl-72b": {
        "text": {**_TEXT_72B, "max_position_embeddings": 128000},
        "vision": {**_TOWER_2_5, "intermediate_size": 3456, "out_hidden_size": 8192},
    },
}
#: Height and width of a frame of the tiny shapes: 2 x 3 tokens.
TINY_SIZE = (16, 24)


#: Tokens of a time stamp and of the marks around a picture, by the released tokenizers.
STAMP_TOKENS = 13


def tokens_per_frame(config: ModelConfig, vision: Mapping[str, Any]) -> int:
    """Tokens of a frame, by the configuration of a tower alone.

    Args:
        config: For its budget of pixels.
        vision: ``vision_config`` of a configuration file of one of these families.

    Raises:
        KeyError: It has no ``patch_size``.
    """
    unit = vision["patch_size"] * vision.get("spatial_merge_size", 2)
    size = size_of(config, unit)
    picture = DEFAULT_TOKENS if size is None else size[0] * size[1] // unit**2
    return picture + (STAMP_TOKENS if "deepstack_visual_indexes" in vision else 0)


def family_of(shape: str) -> tuple[Any, Any, type[QwenVLAdapter]]:
    """Configuration, model and adapter of a shape."""
    return FAMILIES[shape.rpartition("-")[0]]


def build(shape: str) -> Any:
    """The library's model of a shape, with whatever weights it begins with."""
    make_config, make_model, _ = family_of(shape)
    parts = SHAPES[shape]
    text = deepcopy(parts["text"])
    is_tied = bool(text.pop("tie_word_embeddings", False))
    # Tiny: behind the special tokens of the tokenizer; else as released.
    marks = (258, 259, 260, 261) if text["vocab_size"] < 1000 else (151652, 151653, 151655, 151656)
    names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    config = make_config(
        text_config={**text, "bos_token_id": None, "eos_token_id": None},
        vision_config=parts["vision"],
        tie_word_embeddings=is_tied,
        **dict(zip(names, marks, strict=True)),
    )
    return make_model(config)


def adapter(model: Any, shape: str, config: ModelConfig) -> QwenVLAdapter:
    """The adapter of a shape's family around a model of it."""
    vocab_size: int = SHAPES[shape]["text"]["vocab_size"]
    is_tiny = vocab_size < 1000
    text: TextCodec = ByteTokenizer(SPECIAL) if is_tiny else HashTokenizer(vocab_size, WORDS)
    size = size_of(config, unit_of(model))
    return family_of(shape)[2](
        model,
        text,
        name=config.name,
        eos_ids=frozenset({vocab_size - 1}),
        size=TINY_SIZE if size is None and is_tiny else size,
    )
