"""Shapes of the InternVL models for ``random:<shape>``; see ``random_shapes.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import (
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLVisionConfig,
    Qwen2Config,
    Qwen3Config,
)

from hermes_like.config import ModelConfig
from hermes_like.models.internvl import InternVLAdapter
from hermes_like.models.text import ByteTokenizer, HashTokenizer, TextCodec

#: Special tokens of the tiny shape; their ids follow the bytes.
SPECIAL = ("<|im_start|>", "<|im_end|>", "<img>", "</img>")
#: As a released tokenizer splits: digits, special names, words, marks, and what stands before
#: a special name.
WORDS = r"</?img>|<\|\w+\|>|\n| (?=<img>)|\d|[^\W\d]+|[^\w\s]"
#: Tokens of the words around a picture, by the released tokenizers.
FRAME_TEXT_TOKENS = 6

_TOWER = {
    "model_type": "internvl_vision",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "attention_bias": True,
}
_QWEN2 = {"vocab_size": 151674, "max_position_embeddings": 32768}

SHAPES: dict[str, dict[str, dict[str, Any]]] = {
    "internvl-tiny": {
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
            "model_type": "internvl_vision",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
        },
    },
    "internvl3-1b": {
        "text": {
            **_QWEN2,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
        },
        "vision": _TOWER,
    },
    "internvl3-2b": {
        "text": {
            **_QWEN2,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
        },
        "vision": _TOWER,
    },
    "internvl3-8b": {
        "text": {
            **_QWEN2,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
        },
        "vision": _TOWER,
    },
    "internvl3.5-8b": {
        "text": {
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
        "vision": _TOWER,
    },
}


def tokens_per_frame(vision: Mapping[str, Any]) -> int:
    """Tokens of a frame, by the configuration of a tower alone.

    Args:
        vision: ``vision_config`` of a configuration file of this family.

    Raises:
        KeyError: It has no ``image_size`` or ``patch_size``.
    """
    sizes = (vision["image_size"], vision["patch_size"])
    size, patch = (int(s[0] if isinstance(s, list | tuple) else s) for s in sizes)
    side = size // patch // 2
    return side * side + FRAME_TEXT_TOKENS


def build(shape: str) -> Any:
    """The library's model of a shape, with whatever weights it begins with."""
    parts = SHAPES[shape]
    rope = {"rope_type": "default", "rope_theta": 1_000_000.0}
    make_text = Qwen3Config if "head_dim" in parts["text"] else Qwen2Config
    tower = {name: value for name, value in parts["vision"].items() if name != "model_type"}
    config = InternVLConfig(
        text_config=make_text(**parts["text"], rope_parameters=rope),
        vision_config=InternVLVisionConfig(**tower),
        image_token_id=parts["text"]["vocab_size"] - 2,
        tie_word_embeddings=False,
    )
    return InternVLForConditionalGeneration(config)


def adapter(model: Any, shape: str, config: ModelConfig) -> InternVLAdapter:
    """The adapter around a model of a shape."""
    vocab_size: int = SHAPES[shape]["text"]["vocab_size"]
    is_tiny = vocab_size < 1000
    text: TextCodec = ByteTokenizer(SPECIAL) if is_tiny else HashTokenizer(vocab_size, WORDS)
    return InternVLAdapter(model, text, name=config.name, eos_ids=frozenset({vocab_size - 1}))
