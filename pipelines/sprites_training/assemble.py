"""Puts a trained tower and a trained decoder together as a stock checkpoint."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration, Qwen2Config

from hermes_like.sprites.tokenizer import (
    BOS_ID,
    EOS_ID,
    IMAGE_ID,
    PAD_ID,
    VIDEO_ID,
    save_tokenizer,
)
from pipelines.sprites_training.checkpoint import load_state
from pipelines.sprites_training.network import Decoder, decoder_config
from pipelines.sprites_training.vision import vision_config

MAX_BYTES = 12_000_000
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)


def whole_config(text_config: Qwen2Config | None = None) -> LlavaOnevisionConfig:
    """Return the configuration of the whole model.

    Args:
        text_config: Of another decoder; None: the sprites model's.
    """
    return LlavaOnevisionConfig(
        vision_config=vision_config(),
        text_config=text_config or decoder_config(),
        image_token_index=IMAGE_ID,
        video_token_index=VIDEO_ID,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        tie_word_embeddings=False,
    )


def decoder_weights(checkpoint: Path, *, averaged: bool = True) -> dict[str, Tensor]:
    """Return the decoder's parameters under the stock names.

    Args:
        checkpoint: File written by the decoder's training.
        averaged: Whether to take the running mean of the weights instead of the last ones.
    """
    state = load_state(checkpoint)
    source: dict[str, Tensor] = state["ema" if averaged else "decoder"]
    weights = {"model.image_newline": source["newline"]}
    for name, value in source.items():
        if name.startswith("lm.model."):
            weights[f"model.language_model.{name.removeprefix('lm.model.')}"] = value
        elif name.startswith("lm.lm_head."):
            weights[name.removeprefix("lm.")] = value
    return weights


def load_stock_decoder(decoder: Decoder, folder: Path) -> None:
    """Give a decoder the parameters of a stock checkpoint; its side heads stay as they are.

    Args:
        decoder: Changed in place.
        folder: As :func:`assemble` writes it.
    """
    state = LlavaOnevisionForConditionalGeneration.from_pretrained(folder).state_dict()
    prefix = "model.language_model."
    weights = {
        f"lm.model.{name.removeprefix(prefix)}": value
        for name, value in state.items()
        if name.startswith(prefix)
    }
    weights["lm.lm_head.weight"] = state["lm_head.weight"]
    weights["newline"] = state["model.image_newline"]
    missing, unexpected = decoder.load_state_dict(weights, strict=False)
    if unexpected or any(not name.startswith("side.") for name in missing):
        raise ValueError(f"parameters do not fit: missing {missing}, unexpected {unexpected}")


def whole_model(
    tower: Path, checkpoint: Path, text_config: Qwen2Config | None = None
) -> LlavaOnevisionForConditionalGeneration:
    """Return the stock model with the trained weights.

    Args:
        tower: Weights of the vision half, ``tower.safetensors``.
        checkpoint: Checkpoint of the decoder.
        text_config: See :func:`whole_config`.
    """
    model = LlavaOnevisionForConditionalGeneration(whole_config(text_config))
    weights = {**load_file(tower), **decoder_weights(checkpoint)}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if missing or unexpected:
        raise ValueError(f"parameters do not fit: missing {missing}, unexpected {unexpected}")
    generation = model.generation_config
    generation.bos_token_id, generation.eos_token_id = BOS_ID, EOS_ID
    generation.pad_token_id = PAD_ID
    return model.eval()


def assemble(
    tower: Path,
    checkpoint: Path,
    folder: Path,
    *,
    text_config: Qwen2Config | None = None,
    write_tokenizer: Callable[[Path], None] = save_tokenizer,
    dtype: torch.dtype = torch.float32,
) -> int:
    """Write the whole model into a folder, file by file, each replaced in one step.

    Args:
        tower: Weights of the vision half, ``tower.safetensors``.
        checkpoint: Checkpoint of the decoder.
        folder: Made if it is not there.
        text_config: See :func:`whole_config`.
        write_tokenizer: Writes the tokenizer's files into a folder.
        dtype: Number type of the stored weights.

    Returns:
        Size of the weights in bytes.

    Raises:
        ValueError: If the weights are larger than a package should carry.
    """
    model = whole_model(tower, checkpoint, text_config).to(dtype)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        partial = Path(name)
        model.save_pretrained(partial)
        write_tokenizer(partial)
        size_bytes = (partial / "model.safetensors").stat().st_size
        if size_bytes > MAX_BYTES:
            raise ValueError(f"weights take {size_bytes} bytes, at most {MAX_BYTES} are allowed")
        for file in FILES:
            (partial / file).chmod(0o644)
            shutil.move(partial / file, folder / file)
    return size_bytes
