"""A released LLaVA-OneVision checkpoint, from a local folder or from the hub."""

from __future__ import annotations

from hermes_like.config import ModelConfig
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.models.loading import load_pretrained
from hermes_like.models.text import HubTokenizer


def load(config: ModelConfig) -> LlavaOnevisionAdapter:
    """Load ``config.name``; see :func:`hermes_like.models.load_model`."""
    model, tokenizer = load_pretrained(config.name, config)
    text = HubTokenizer(tokenizer)
    ends = {tokenizer.eos_token_id, *text.encode("<|im_end|>")[:1]}
    generation = getattr(model, "generation_config", None)
    declared = getattr(generation, "eos_token_id", None)
    ends.update(declared if isinstance(declared, list) else [declared])
    return LlavaOnevisionAdapter(
        model, text, name=config.name, eos_ids=frozenset(int(i) for i in ends if i is not None)
    )
