"""What a question looks for: its un-rotated queries at the retrieval heads.

All query heads of a group read the same key head, so their queries are summed first: the sum gives
the same dot product as summing the scores of the group, in fewer dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch

from hermes_like.memory.attention import PassEnded, QueryProbe
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.retrieval.base import FloatArray
from hermes_like.retrieval.vectors import Heads


def search_share(heads: Heads, num_layers: int) -> float:
    """Share of the decoder's layers that :func:`question_queries` runs through."""
    return (max(layer for layer, _ in heads) + 1) / num_layers if heads else 1.0


def question_queries(
    memory: DeviceMemory, cache: HierarchicalCache, prompt: Sequence[int], heads: Heads
) -> FloatArray:
    """Run a question behind what is resident, read its queries, forget it.

    The pass ends in the last layer that has a retrieval head: what lies behind is not computed.

    Args:
        memory: The stream's memory, for its adapter and its positions.
        cache: The stream's cache or a fork of it; it is not changed.
        prompt: Token ids of the question with its template.
        heads: Retrieval heads as ``(layer, KV head)``.

    Returns:
        float32 ``[question tokens, heads, head_dim]``.

    Raises:
        BudgetError: The question does not fit behind what is resident.
    """
    adapter = memory.adapter
    if not heads or not prompt:
        return np.zeros((len(prompt), len(heads), adapter.dims.head_dim), np.float32)
    probe = QueryProbe({layer for layer, _ in heads}, ends_pass=True)
    embeds = torch.cat([adapter.video_end(), adapter.embed_text(prompt)])
    with cache.fork() as twin, suppress(PassEnded):
        ids = -1 - twin.layers[0].length - torch.arange(embeds.shape[0], device=embeds.device)
        memory.extend(twin, embeds, ids, probe=probe)
    groups = adapter.dims.num_heads // adapter.dims.num_kv_heads
    parts = [
        probe.queries[layer][head * groups : (head + 1) * groups, -len(prompt) :].float().sum(0)
        for layer, head in heads
    ]
    result: FloatArray = torch.stack(parts, dim=1).cpu().numpy()
    return result
