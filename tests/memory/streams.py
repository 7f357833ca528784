"""Short synthetic streams and memories for tests of the memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hermes_like.config import MemoryConfig, PolicyConfig
from hermes_like.memory.budget import Budget
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.provenance import FrameRecord
from hermes_like.models.base import ModelAdapter
from hermes_like.policies import POLICIES
from hermes_like.records import Image


def images(count: int, seed: int = 0) -> list[Image]:
    """Random pictures, different from each other."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (40, 56, 3), dtype=np.uint8) for _ in range(count)]


def memory(
    adapter: ModelAdapter,
    policy: str = "hermes",
    *,
    resident: int | None = 40,
    config: MemoryConfig | None = None,
    **switches: object,
) -> DeviceMemory:
    """A memory with an explicit resident budget; None: unlimited."""
    prefix = len(adapter.prefix_ids())
    cap = None if resident is None else resident + prefix + 400
    budget = Budget(cap, prefix, resident)
    chosen = POLICIES.get(policy)(PolicyConfig(name=policy, **switches))
    return DeviceMemory(adapter, chosen, config or MemoryConfig(protected_frames=0), budget)


def append(target: DeviceMemory, pictures: list[Image], chunk: int = 1) -> Tensor:
    """Prefill pictures, ``chunk`` frames per pass; returns embeddings ``[tokens, channels]``."""
    tokens = target.adapter.embed_frames(pictures)
    start_s = float(target.num_frames)
    for start in range(0, len(pictures), chunk):
        part = tokens[start : start + chunk]
        first = target.num_frames
        records = [FrameRecord(float(first + i), None, first // 4) for i in range(part.shape[0])]
        target.append_frames(part, records)
    times_s = [start_s + i for i in range(len(pictures))]
    return target.adapter.stamp(tokens, times_s).flatten(0, 1)


def ask_logits(target: DeviceMemory, ids: list[int]) -> Tensor:
    """Logits behind the memory and some text, without remembering the text."""
    with target.cache.fork() as cache:
        embeds = torch.cat([target.adapter.video_end(), target.adapter.embed_text(ids)])
        provenance = -1 - cache.layers[0].length - torch.arange(embeds.shape[0])
        return target.extend(cache, embeds, provenance, logits=True)
