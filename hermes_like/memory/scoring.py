"""Attention mass of guidance prompts on the cached video tokens, before anybody has asked.

Two ways: the true attention of the model, read by a probe while the prompt passes through a fork;
and the shortcut of the released HERMES code, where every layer's queries are made of the raw
embeddings, see each other without a causal mask, and no hidden state advances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes_like.memory.attention import AttentionProbe
from hermes_like.memory.cache import HierarchicalCache, LayerSlots
from hermes_like.memory.rotation import moved, rotate
from hermes_like.models.base import ModelAdapter
from hermes_like.policies.base import Guidance
from hermes_like.records import Band

#: Which prompt scores which band (HERMES appendix B).
GUIDANCE_OF_BAND: dict[Band, Guidance] = {"shallow": "local", "middle": "mixed", "deep": "global"}


@dataclass(frozen=True, slots=True)
class GuidancePass:
    """One prompt to run, and which of its rows count for which band.

    Attributes:
        ids: Token ids of the prompt.
        rows: Band to the half-open range of rows that score it.
    """

    ids: tuple[int, ...]
    rows: dict[Band, tuple[int, int]]


def guidance_passes(prompts: dict[Guidance, list[int]], *, is_joint: bool) -> list[GuidancePass]:
    """Plan the passes.

    Joint: the mixed prompt once; its local rows score shallow, its global rows deep, all rows
    middle layers. Separate: each prompt once, as the paper describes.
    """
    local, everything = prompts["local"], prompts["mixed"]
    if is_joint:
        num_global = len(prompts["global"])
        end = len(everything)
        rows: dict[Band, tuple[int, int]] = {
            "shallow": (0, len(local)),
            "middle": (0, end),
            "deep": (end - num_global, end),
        }
        return [GuidancePass(tuple(everything), rows)]
    return [
        GuidancePass(tuple(prompts[guidance]), {band: (0, len(prompts[guidance]))})
        for band, guidance in GUIDANCE_OF_BAND.items()
    ]


def true_mass(
    cache: HierarchicalCache,
    adapter: ModelAdapter,
    passes: Sequence[GuidancePass],
    bands: Sequence[Band],
    starts: Sequence[int],
    num_prefix: int,
) -> list[Tensor]:
    """Attention of the model itself, per layer float32 ``[video tokens]``.

    The mean over prompt rows and heads of the softmax over prefix, video and prompt.
    """
    result: list[Tensor] = [torch.empty(0)] * len(bands)
    lengths = cache.lengths
    for guidance in passes:
        wanted = {layer: guidance.rows[b] for layer, b in enumerate(bands) if b in guidance.rows}
        if not wanted:
            continue
        num_rows = len(guidance.ids)
        probe = AttentionProbe(rows=torch.arange(num_rows, device=adapter.dims.device))
        run_in_fork(cache, adapter, guidance.ids, starts, probe)
        for layer, (first, last) in wanted.items():
            mass = probe.mass[layer][first:last].mean(0)
            result[layer] = mass[num_prefix : lengths[layer]]
    return result


def run_in_fork(
    cache: HierarchicalCache,
    adapter: ModelAdapter,
    ids: Sequence[int],
    starts: Sequence[int],
    probe: AttentionProbe,
) -> None:
    """Pass a prompt behind the cache, read its attention, forget it."""
    embeds = adapter.embed_text(ids)
    offsets = torch.arange(len(ids), device=embeds.device)
    shared = {start: offsets + start for start in set(starts)}
    positions = [shared[start] for start in starts]
    with cache.fork() as twin, twin.step(positions, -1 - offsets, probe):
        adapter.forward(embeds, twin)


def embedding_mass(
    cache: HierarchicalCache,
    adapter: ModelAdapter,
    passes: Sequence[GuidancePass],
    bands: Sequence[Band],
    starts: Sequence[int],
    num_prefix: int,
) -> list[Tensor]:
    """The released code's shortcut, per layer float32 ``[video tokens]``."""
    result: list[Tensor] = [torch.empty(0)] * len(bands)
    for guidance in passes:
        embeds = adapter.embed_text(guidance.ids)
        for layer, band in enumerate(bands):
            if band in guidance.rows:
                slots: LayerSlots = cache.layers[layer]
                first, last = guidance.rows[band]
                mass = _embedding_attention(slots, adapter, layer, embeds, starts[layer])
                result[layer] = mass[first:last].mean(0)[num_prefix : slots.length]
    return result


def _embedding_attention(
    slots: LayerSlots, adapter: ModelAdapter, layer: int, embeds: Tensor, start: int
) -> Tensor:
    """``[rows, keys]`` attention of un-advanced queries, averaged over heads, no causal mask."""
    query, key = adapter.raw_query_key(layer, embeds)
    positions = torch.arange(start, start + embeds.shape[0], device=embeds.device)
    rotation = moved(adapter.rotary(positions), slots.device)
    query, key = rotate(query, rotation), rotate(key, rotation)
    keys = torch.cat([slots.keys[0], key], dim=1).repeat_interleave(
        query.shape[0] // key.shape[0], dim=0
    )
    logits = query.float() @ keys.float().transpose(1, 2) * adapter.dims.head_dim**-0.5
    # The released code rounds the logits first where it takes its softmax in half precision.
    mass: Tensor = logits.to(adapter.released_softmax).softmax(-1).float().mean(0)
    return mass.to(embeds.device)
