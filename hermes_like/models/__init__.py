"""Base-model adapters. ``load_model(name)`` is the way in."""

from __future__ import annotations

from hermes_like.config import ModelConfig
from hermes_like.models.base import ModelAdapter, ModelDims

__all__ = ["ModelAdapter", "ModelDims", "load_model"]


def load_model(config: ModelConfig | str = "sprites") -> ModelAdapter:
    """Load a base model once; any number of sessions may share it.

    Args:
        config: A model configuration, or just a name: ``sprites`` and ``easyvqa`` (bundled),
            ``random:<shape>`` (true shape, random weights), a local folder, or a Hugging Face name.

    Raises:
        ModelNotFoundError: Nothing was found under the name; one line says where it was looked for.
        ModelError: What was found cannot be used.
    """
    if isinstance(config, str):
        config = ModelConfig(name=config)
    adapter = _load(config)
    if config.attention != "sdpa":
        adapter.use_attention(config.attention)
    return adapter


def _load(config: ModelConfig) -> ModelAdapter:
    if config.name == "sprites":
        from hermes_like.models import sprites

        return sprites.load(config)
    if config.name == "easyvqa":
        from hermes_like.models import easyvqa

        return easyvqa.load(config)
    if config.name.startswith("random:"):
        from hermes_like.models import random_shapes

        return random_shapes.load(config)
    from hermes_like.models import checkpoint

    return checkpoint.load(config)
