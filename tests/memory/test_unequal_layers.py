"""Layers that hold different tokens, against a decoder written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hermes_like.config import MemoryConfig
from tests.memory.streams import append, images, memory

TEXT = [81, 117, 101, 115, 116]


def rotated(x: Tensor, positions: Tensor, inverse_frequencies: Tensor) -> Tensor:
    """Textbook rotary embedding as multiplication of complex numbers, ``[heads, n, head_dim]``."""
    half = x.shape[-1] // 2
    angles = positions.double()[:, None] * inverse_frequencies.double()
    turned = torch.complex(x[..., :half].double(), x[..., half:].double()) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.cat([turned.real, turned.imag], -1).float()


class Reference:
    """A Qwen2 decoder that keeps every token of every layer and masks what a layer may see."""

    def __init__(self, adapter) -> None:
        self.decoder, self.head = adapter._decoder, adapter._model.lm_head
        self.dims = adapter.dims
        layers = self.dims.num_layers
        self.raw: list[Tensor] = [torch.empty(2, 0, self.dims.head_dim) for _ in range(layers)]
        self.values: list[Tensor] = [torch.empty(2, 0, self.dims.head_dim) for _ in range(layers)]

    def run(
        self, embeds: Tensor, own: Tensor, positions: list[Tensor], visible: list[Tensor]
    ) -> Tensor:
        """New tokens at ``own`` positions; old ones at per-layer positions, seen where visible."""
        x = embeds
        new = embeds.shape[0]
        for index, layer in enumerate(self.decoder.layers):
            normed = layer.input_layernorm(x)
            q, k, v = (
                proj(normed).unflatten(-1, (-1, self.dims.head_dim)).transpose(0, 1)
                for proj in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
            )
            self.raw[index] = torch.cat([self.raw[index], k], 1)
            self.values[index] = torch.cat([self.values[index], v], 1)
            where = torch.cat([positions[index], own])
            keys = rotated(self.raw[index], where, self.decoder.rotary_emb.inv_freq)
            queries = rotated(q, own, self.decoder.rotary_emb.inv_freq)
            groups = q.shape[0] // keys.shape[0]
            logits = queries @ keys.repeat_interleave(groups, 0).mT / math.sqrt(self.dims.head_dim)
            allowed = torch.ones(new, where.shape[0], dtype=torch.bool).tril(where.shape[0] - new)
            allowed[:, :-new] &= visible[index]
            weights = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
            out = weights @ self.values[index].repeat_interleave(groups, 0)
            x = x + layer.self_attn.o_proj(out.transpose(0, 1).flatten(1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.head(self.decoder.norm(x)[-1])


@pytest.mark.parametrize("positions", ["right_aligned", "global", "released"])
def test_unequal_layers_equal_a_masked_reference(tiny, positions: str) -> None:
    """After every compaction each layer holds other tokens; new frames and text still agree."""
    config = MemoryConfig(
        positions=positions, reindex="eager" if positions == "released" else "lazy"
    )
    mine = memory(
        tiny, "hermes", resident=45, config=config, summary="none", smoothing=(0.1, 0.3, 0.4)
    )
    reference = Reference(tiny)
    prefix = tiny.embed_text(tiny.prefix_ids())
    layers = range(tiny.dims.num_layers)
    num_prefix = prefix.shape[0]
    own_ids = torch.arange(num_prefix)
    where = [own_ids.clone() for _ in layers]
    visible = [torch.ones(num_prefix, dtype=torch.bool) for _ in layers]
    with torch.inference_mode():
        reference.run(prefix, own_ids, [w[:0] for w in where], [v[:0] for v in visible])
        for segment in range(5):
            for picture in images(4, seed=segment):
                starts = mine.scheme.starts([s.positions for s in mine.cache.layers])
                if len(set(starts)) > 1:
                    pytest.skip("layers count apart; the reference has one query position")
                embeds = append(mine, [picture])
                own = torch.arange(embeds.shape[0]) + starts[0]
                reference.run(embeds, own, where, visible)
                where = [torch.cat([w, own]) for w in where]
                visible = [torch.cat([v, torch.ones(len(own), dtype=torch.bool)]) for v in visible]
            mine.compact()
            mine.check()
            for layer in layers:
                slots = mine.cache.layers[layer]
                held = torch.cat([torch.arange(num_prefix), slots.ids[num_prefix:] + num_prefix])
                visible[layer] = torch.zeros_like(visible[layer])
                visible[layer][held] = True
                where[layer][held] = slots.positions
        kept = {tuple(v.nonzero().flatten().tolist()) for v in visible}
        assert len(kept) > 3, "expected layers that hold different tokens"
        starts = mine.scheme.starts([s.positions for s in mine.cache.layers])
        text = tiny.embed_text(TEXT)
        want = reference.run(text, torch.arange(len(TEXT)) + starts[0], where, visible)
        with mine.cache.fork() as cache:
            got = mine.extend(cache, text, -50 - torch.arange(len(TEXT)), logits=True)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=0)


def test_lengths_may_differ(tiny) -> None:
    """A cache whose layers have different numbers of slots answers like the masked reference."""
    mine = memory(tiny, "full", resident=None)
    embeds = append(mine, images(6))
    num_prefix = len(tiny.prefix_ids())
    total = num_prefix + embeds.shape[0]
    reference = Reference(tiny)
    generator = torch.Generator().manual_seed(4)
    layers = range(tiny.dims.num_layers)
    with torch.inference_mode():
        everything = torch.cat([tiny.embed_text(tiny.prefix_ids()), embeds])
        empty = [torch.empty(0, dtype=torch.int64)] * len(layers)
        reference.run(everything, torch.arange(total), empty, [e.bool() for e in empty])
        kept = []
        for layer in layers:
            size = num_prefix + 5 + 3 * layer
            extra = torch.randperm(embeds.shape[0], generator=generator)[: size - num_prefix]
            kept.append(torch.cat([torch.arange(num_prefix), extra.sort().values + num_prefix]))
        dense = mine.scheme.dense([len(k) for k in kept], torch.device("cpu"))
        where, visible = [], []
        for slots, index, new in zip(mine.cache.layers, kept, dense, strict=True):
            slots.rewrite(
                slots.raw_keys[:, :, index], slots.values[:, :, index], new, slots.ids[index],
                mine.cache.rotary,
            )  # fmt: skip
            where.append(torch.zeros(total, dtype=torch.int64).index_copy(0, index, new))
            visible.append(torch.zeros(total, dtype=torch.bool).index_fill(0, index, True))
        assert len(set(mine.cache.lengths)) == len(layers)
        start = mine.scheme.starts([s.positions for s in mine.cache.layers])[0]
        text = tiny.embed_text(TEXT)
        want = reference.run(text, torch.arange(len(TEXT)) + start, where, visible)
        with mine.cache.fork() as cache:
            got = mine.extend(cache, text, -50 - torch.arange(len(TEXT)), logits=True)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=0)
