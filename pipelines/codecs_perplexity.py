"""Perplexity of a language model whose past went through a codec.

A text is read chunk by chunk. Within a chunk, keys and values are the model's own; those of all
earlier chunks have been encoded and decoded, keys before rotation, as long-term memory does it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache

from hermes_like.codec import KeyValues, KVCodec, decode_block
from hermes_like.memory.rotation import rotate


class _Projections:
    """Keys before rotation and values of one chunk, as the layers make them."""

    def __init__(self, model: Any) -> None:
        self._head_dim = model.config.head_dim
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self._handles = []
        for index, layer in enumerate(model.model.layers):
            for linear, store in (
                (layer.self_attn.k_proj, self.keys),
                (layer.self_attn.v_proj, self.values),
            ):
                self._handles.append(linear.register_forward_hook(self._keep(index, store)))

    def _keep(self, index: int, store: dict[int, Tensor]) -> Any:
        def hook(_: Any, __: Any, made: Tensor) -> None:
            store[index] = made[0].unflatten(-1, (-1, self._head_dim)).transpose(0, 1)

        return hook

    def block(self, index: int) -> KeyValues:
        """Of one layer, ``[kv_heads, tokens, head_dim]``."""
        return KeyValues(self.keys[index], self.values[index])

    def remove(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()


@torch.inference_mode()
def perplexity(model: Any, ids: Tensor, codec: KVCodec, chunk_tokens: int = 128) -> float:
    """Perplexity of a text.

    Args:
        model: A Llama of transformers.
        ids: int64 ``[tokens]``.
        codec: What the past goes through.
        chunk_tokens: Tokens of a chunk, each a block of its own.
    """
    cache, projections = DynamicCache(), _Projections(model)
    surprise, before = 0.0, None
    try:
        for start in range(0, len(ids), chunk_tokens):
            chunk = ids[start : start + chunk_tokens]
            positions = torch.arange(start, start + len(chunk))
            logits = model(chunk[None], cache=cache, position_ids=positions[None]).logits
            known = logits[0] if before is None else torch.cat((before, logits[0]))
            targets = chunk[1:] if before is None else chunk
            surprise += float(functional.cross_entropy(known[:-1], targets, reduction="sum"))
            before = logits[0, -1:]
            cos, sin = model.model.rotary_emb(logits, positions[None])
            for index, layer in enumerate(cache.layers):
                past = decode_block(codec.encode(projections.block(index)))
                layer.keys[0, :, start:] = rotate(past.raw_keys, (cos[0], sin[0]))
                layer.values[0, :, start:] = past.values
    finally:
        projections.remove()
    return math.exp(surprise / (len(ids) - 1))
