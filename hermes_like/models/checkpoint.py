"""A released checkpoint of a known family, from a local folder or from the hub."""

from __future__ import annotations

from hermes_like.config import ModelConfig
from hermes_like.models.base import ModelAdapter
from hermes_like.models.internvl import STATISTICS, InternVLAdapter
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.models.loading import load_pretrained, picture_settings
from hermes_like.models.qwen3_vl import Qwen3VLAdapter
from hermes_like.models.qwen_vl import QwenVLAdapter, size_of, unit_of
from hermes_like.models.text import HubTokenizer

#: Model type to adapter, for families whose frames have a pixel budget.
SIZED: dict[str, type[QwenVLAdapter]] = {
    "qwen2_vl": QwenVLAdapter,
    "qwen2_5_vl": QwenVLAdapter,
    "qwen3_vl": Qwen3VLAdapter,
    "qwen3_vl_moe": Qwen3VLAdapter,
}
_STATISTICS = ("image_mean", "image_std")


def load(config: ModelConfig) -> ModelAdapter:
    """Load ``config.name``; see :func:`hermes_like.models.load_model`."""
    model, tokenizer = load_pretrained(config.name, config)
    text = HubTokenizer(tokenizer)
    ends = {tokenizer.eos_token_id, *text.encode("<|im_end|>")[:1]}
    generation = getattr(model, "generation_config", None)
    declared = getattr(generation, "eos_token_id", None)
    ends.update(declared if isinstance(declared, list) else [declared])
    eos_ids = frozenset(int(i) for i in ends if i is not None)
    if model.config.model_type == "internvl":
        told = picture_settings(config.name, model.config._commit_hash)
        mean, deviation = (told.get(k) or s for k, s in zip(_STATISTICS, STATISTICS, strict=True))
        statistics = (tuple(mean), tuple(deviation))
        return InternVLAdapter(
            model, text, name=config.name, eos_ids=eos_ids, statistics=statistics
        )
    sized = SIZED.get(model.config.model_type)
    if sized is None:
        return LlavaOnevisionAdapter(model, text, name=config.name, eos_ids=eos_ids)
    size = size_of(config, unit_of(model))
    return sized(model, text, name=config.name, eos_ids=eos_ids, size=size)
