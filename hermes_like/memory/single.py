"""One frame encoded by itself, from its picture: for stretches whose keys and values are gone.

The result is an approximation of what was there: later layers saw other context then.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hermes_like.memory import provenance
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.merge import ReturnedTokens


@torch.inference_mode()
def encode_alone(
    memory: DeviceMemory, vision_tokens: Tensor, frame: int, time_s: float
) -> list[ReturnedTokens]:
    """Keys and values of one frame that sees the prefix and nothing else.

    Args:
        memory: For its adapter and positions; it does not change.
        vision_tokens: ``[1, tokens_per_frame, channels]`` as the adapter gives them.
        frame: Running number of the frame, for provenance.
        time_s: Stream time of the frame, for models that read it.

    Returns:
        One per decoder layer.
    """
    adapter, device = memory.adapter, memory.adapter.dims.device
    cache = HierarchicalCache(adapter.dims, adapter.rotary, None)
    prefix = adapter.prefix_ids()
    before = provenance.prefix_ids(len(prefix), device)
    ids = provenance.frame_ids(frame, 1, memory.tokens_per_frame, device)
    positions = memory.scheme.arrange_fork([torch.cat([before, ids])])[0]
    layers = adapter.dims.num_layers
    if prefix:
        with cache.step([positions[..., : len(prefix)]] * layers, before):
            adapter.forward(adapter.embed_text(prefix), cache)
    with cache.step([positions[..., len(prefix) :]] * layers, ids):
        adapter.forward(adapter.stamp(vision_tokens, [time_s]).flatten(0, 1), cache)
    return [
        ReturnedTokens(slots.raw_keys[0, :, len(prefix) :], slots.values[0, :, len(prefix) :], ids)
        for slots in cache.layers
    ]
