"""From a name to weights: devices, number types, folders and the hub, with plain messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    LlavaOnevisionForConditionalGeneration,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)
from transformers.utils import logging as hub_logging

from hermes_like.config import ModelConfig
from hermes_like.errors import ModelError, ModelNotFoundError
from hermes_like.models.decoder import refuse_partial_layers

#: Model type, as configuration files call it, to the library's class.
SUPPORTED: dict[str, Any] = {
    "llava_onevision": LlavaOnevisionForConditionalGeneration,
    "qwen2_vl": Qwen2VLForConditionalGeneration,
    "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
    "qwen3_vl": Qwen3VLForConditionalGeneration,
}


def resolve_device(name: str) -> torch.device:
    """``auto`` becomes the accelerator that is there, else the CPU.

    Raises:
        ModelError: The named device does not exist here.
    """
    if name == "auto":
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return found if found is not None else torch.device("cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"model.device: {name!r} cannot be used here: {reason}") from error


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto`` becomes float32 on a CPU and bfloat16 elsewhere."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def load_pretrained(
    source: str, config: ModelConfig, *, default_dtype: str = "auto"
) -> tuple[Any, Any]:
    """Load a checkpoint of a known family and its tokenizer; never code that comes with it.

    Args:
        source: Local folder or hub name.
        config: Device, number type and revision.
        default_dtype: What ``auto`` means for this checkpoint.

    Returns:
        Model in evaluation mode on its device, and tokenizer.

    Raises:
        ModelNotFoundError: Nothing usable under that name.
        ModelError: A model of another family, or one whose layers do not keep every token.
    """
    device = resolve_device(config.device)
    name = config.dtype if config.dtype != "auto" else default_dtype
    dtype = resolve_dtype(name, device)
    try:
        at = {"revision": config.revision, "trust_remote_code": False}
        found = AutoConfig.from_pretrained(source, **at)
        refuse_partial_layers(found.get_text_config(), source)
        if found.model_type not in SUPPORTED:
            raise ModelError(
                f"{source}: expected a model of type {' or '.join(SUPPORTED)}, "
                f"got {found.model_type!r}"
            )
        tokenizer = AutoTokenizer.from_pretrained(source, **at)
        with _quiet():
            model = SUPPORTED[found.model_type].from_pretrained(source, dtype=dtype, **at)
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(_not_found(source, config.revision, error)) from error
    return model.to(device).eval(), tokenizer


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the library's progress bar, and put its setting back."""
    was_shown = hub_logging.is_progress_bar_enabled()
    hub_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            hub_logging.enable_progress_bar()


def _not_found(source: str, revision: str | None, error: Exception) -> str:
    where = "local folder" if Path(source).exists() else "local folders and the Hugging Face hub"
    at = f" at revision {revision!r}" if revision else ""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"no usable model {source!r}{at}: looked in {where} ({reason}); "
        "--model sprites needs no download"
    )
