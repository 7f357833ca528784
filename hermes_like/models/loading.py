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
    InternVLForConditionalGeneration,
    LlavaOnevisionForConditionalGeneration,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeForConditionalGeneration,
)
from transformers.image_processing_base import ImageProcessingMixin
from transformers.utils import logging as hub_logging
from transformers.utils.hub import resolve_revision

from hermes_like.config import ModelConfig
from hermes_like.errors import ModelError, ModelNotFoundError
from hermes_like.models.decoder import refuse_moving_rotations, refuse_partial_layers
from hermes_like.models.device_map import place

#: Model type, as configuration files call it, to the library's class.
SUPPORTED: dict[str, Any] = {
    "llava_onevision": LlavaOnevisionForConditionalGeneration,
    "qwen2_vl": Qwen2VLForConditionalGeneration,
    "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
    "qwen3_vl": Qwen3VLForConditionalGeneration,
    "qwen3_vl_moe": Qwen3VLMoeForConditionalGeneration,
    "internvl": InternVLForConditionalGeneration,
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
    """``auto`` becomes float32 on a CPU and bfloat16 elsewhere, where the device has it."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" or _no_bfloat16(device) else torch.bfloat16
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def _no_bfloat16(device: torch.device) -> bool:
    """Whether numbers of 16 bits with the range of float32 are missing, as on older Macs."""
    if device.type != "mps":
        return False
    try:
        torch.zeros(1, dtype=torch.bfloat16, device=device)
    except (TypeError, RuntimeError):
        return True
    return False


def load_pretrained(
    source: str, config: ModelConfig, *, default_dtype: str = "auto"
) -> tuple[Any, Any]:
    """Load a checkpoint of a known family and its tokenizer; never code that comes with it.

    Args:
        source: Local folder or hub name.
        config: Device, number type and revision.
        default_dtype: What ``auto`` means for this checkpoint.

    Returns:
        Model in evaluation mode on its device or devices, and tokenizer.

    Raises:
        ModelNotFoundError: Nothing usable under that name.
        ModelError: A model of another family, or one whose layers do not keep every token.
    """
    device = resolve_device(config.device)
    name = config.dtype if config.dtype != "auto" else default_dtype
    dtype = resolve_dtype(name, device)
    try:
        # Once, so that all files are of one commit though a branch may move in between.
        revision = resolve_revision(source, config.revision)
        at = {"revision": revision, "trust_remote_code": False}
        found = AutoConfig.from_pretrained(source, **at)
        refuse_partial_layers(found.get_text_config(), source)
        refuse_moving_rotations(found.get_text_config(), source)
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
    # The library leaves this field empty; the fingerprint of a memory reads it.
    model.config._commit_hash = getattr(revision, "resolved", revision)
    if config.device_map is not None:
        return place(model, config).eval(), tokenizer
    return model.to(device).eval(), tokenizer


def picture_settings(source: str, revision: str | None) -> dict[str, Any]:
    """What a checkpoint says of the pictures it takes, by name; empty: it says nothing.

    Args:
        source: Local folder or hub name.
        revision: Commit of a hub model.
    """
    try:
        found, _ = ImageProcessingMixin.get_image_processor_dict(source, revision=revision)
    except OSError:
        return {}
    return dict(found)


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
