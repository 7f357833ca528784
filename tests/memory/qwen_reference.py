"""A Qwen decoder written out by hand: explicit positions on three axes, and a mask per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def axis_of_frequency(adapter) -> Tensor:
    """Which axis (0 time, 1 height, 2 width) turns each frequency, int64 ``[head_dim / 2]``."""
    rope = adapter._model.config.text_config.rope_parameters
    time, height, width = rope["mrope_section"]
    if not rope.get("mrope_interleaved"):
        return torch.tensor([0] * time + [1] * height + [2] * width)
    axes = [0] * (time + height + width)
    for i in range(height):
        axes[3 * i + 1] = 1
    for i in range(width):
        axes[3 * i + 2] = 2
    return torch.tensor(axes)


class QwenReference:
    """Keeps every token of every layer and masks what a layer may see; nothing of ours in it."""

    def __init__(self, adapter) -> None:
        self.decoder, self.head = adapter._decoder, adapter._model.lm_head
        text = adapter._model.config.text_config
        self.channels = adapter.dims.head_dim
        self.hidden = text.hidden_size
        self.axes = axis_of_frequency(adapter)
        theta = text.rope_parameters["rope_theta"]
        half = self.channels // 2
        self.frequencies = theta ** (-torch.arange(half, dtype=torch.float64) / half)
        empty = torch.empty(text.num_key_value_heads, 0, self.channels)
        self.raw: list[Tensor] = [empty] * text.num_hidden_layers
        self.values: list[Tensor] = [empty] * text.num_hidden_layers

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """``[heads, n, channels]`` by ``[3, n]``, as multiplication of complex numbers."""
        angles = positions.double()[self.axes].T * self.frequencies
        half = self.channels // 2
        turned = torch.complex(x[..., :half].double(), x[..., half:].double()) * torch.polar(
            torch.ones_like(angles), angles
        )
        return torch.cat([turned.real, turned.imag], -1).float()

    @torch.inference_mode()
    def run(
        self,
        embeds: Tensor,
        own: Tensor,
        positions: Sequence[Tensor],
        visible: Sequence[Tensor],
    ) -> Tensor:
        """New tokens at ``own [3, n]``; old ones at per-layer positions, seen where visible."""
        first, *others = embeds.split(self.hidden, -1)
        x, new = first, embeds.shape[0]
        for index, layer in enumerate(self.decoder.layers):
            normed, attention = layer.input_layernorm(x), layer.self_attn
            q, k, v = (
                projection(normed).unflatten(-1, (-1, self.channels))
                for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            if hasattr(attention, "q_norm"):
                q, k = attention.q_norm(q), attention.k_norm(k)
            q, k, v = (t.transpose(0, 1) for t in (q, k, v))
            self.raw[index] = torch.cat([self.raw[index], k], 1)
            self.values[index] = torch.cat([self.values[index], v], 1)
            keys = self.rotated(self.raw[index], torch.cat([positions[index], own], 1))
            groups = q.shape[0] // keys.shape[0]
            logits = self.rotated(q, own) @ keys.repeat_interleave(groups, 0).mT
            total = keys.shape[1]
            allowed = torch.ones(new, total, dtype=torch.bool).tril(total - new)
            allowed[:, :-new] &= visible[index]
            weights = (logits / math.sqrt(self.channels)).masked_fill(~allowed, -torch.inf)
            out = weights.softmax(-1) @ self.values[index].repeat_interleave(groups, 0)
            x = x + attention.o_proj(out.transpose(0, 1).flatten(1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            if index < len(others):
                x = x + others[index]
        return self.head(self.decoder.norm(x)[-1])
