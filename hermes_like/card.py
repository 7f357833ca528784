"""What fits on one accelerator: weights, a reserve, and caches of so many slots.

All numbers are arithmetic on shapes; the reserve for the driver, activations and pictures is an
assumption and is stated as one. GB of a card are 2^30 bytes, as cards are sold.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermes_like.config import HermesConfig
from hermes_like.memory.budget import plan_budget
from hermes_like.models.base import ModelAdapter
from hermes_like.policies import POLICIES

#: Driver, activations of a chunk, pictures: assumed, not measured.
RESERVE_GB = 2.0
GIB = 2**30
#: What is offered is a multiple of this.
STEP_TOKENS = 64
#: Larger than any budget.
_ENOUGH_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Card:
    """What ``memory.device_tokens`` may be on one accelerator.

    Attributes:
        gpu_gb: Its memory.
        weight_bytes: All weights of the model.
        reserve_bytes: Kept free for everything else.
        slot_bytes: A slot in all layers: keys twice, values once, positions and provenance.
        caches: Held at the same time: one per stream, and one more while a question that brings
            frames back is answered.
        least_tokens: Fewer slots cannot hold a segment, a question and a frame.
        position_tokens: More slots have no positions in the model.
        device_tokens: The most that fit, a multiple of 64; 0: the least do not.
        resident_tokens: Video tokens that compaction then leaves in every layer.
        resident_frames: The same as whole frames.
    """

    gpu_gb: float
    weight_bytes: int
    reserve_bytes: int
    slot_bytes: int
    caches: int
    least_tokens: int
    position_tokens: int
    device_tokens: int
    resident_tokens: int
    resident_frames: int


def fit(
    config: HermesConfig,
    model: ModelAdapter,
    weight_bytes: int,
    gpu_gb: float,
    *,
    streams: int = 1,
    reserve_gb: float = RESERVE_GB,
) -> Card:
    """Work out the largest ``memory.device_tokens`` for an accelerator.

    Args:
        config: Segments, reserves and policy.
        model: For shapes and prompts; may lie on the device ``meta``.
        weight_bytes: Of all its weights.
        gpu_gb: Memory of the accelerator.
        streams: Watched at the same time, on one model.
        reserve_gb: Kept free.
    """
    dims = model.dims
    numbers = 3 * dims.num_kv_heads * dims.head_dim * dims.dtype.itemsize
    slot_bytes = dims.num_layers * (numbers + 8 * (dims.position_axes + 1))
    reserve, caches = round(reserve_gb * GIB), streams + 1
    room = max(0, round(gpu_gb * GIB) - weight_bytes - reserve)
    overhead = _ENOUGH_TOKENS - _resident(config, model, _ENOUGH_TOKENS)
    frames = max(1, config.memory.protected_frames)
    least = overhead + frames * dims.tokens_per_frame + 1
    most = min(room // (caches * slot_bytes), dims.max_positions) // STEP_TOKENS * STEP_TOKENS
    resident = most - overhead if most >= least else 0
    return Card(
        gpu_gb=gpu_gb,
        weight_bytes=weight_bytes,
        reserve_bytes=reserve,
        slot_bytes=slot_bytes,
        caches=caches,
        least_tokens=least,
        position_tokens=dims.max_positions,
        device_tokens=most if most >= least else 0,
        resident_tokens=resident,
        resident_frames=resident // dims.tokens_per_frame,
    )


def _resident(config: HermesConfig, model: ModelAdapter, device_tokens: int) -> int:
    """Video tokens that stay in every layer under a cap."""
    policy = POLICIES.get(config.policy.name)(config.policy)
    guidance = 0
    if policy.attention != "none":
        pieces = (*model.guidance_prompts, model.guidance_separator)
        guidance = sum(len(model.encode_text(piece)) for piece in pieces)
    budget = plan_budget(
        config.memory.model_copy(update={"device_tokens": device_tokens}),
        unlimited=False,
        tokens_per_frame=model.dims.tokens_per_frame,
        prefix_tokens=len(model.prefix_ids()),
        video_end_tokens=int(model.video_end().shape[0]),
        guidance_tokens=guidance,
        retrieved_tokens=config.retrieval.retrieved_tokens if config.store.enabled else 0,
    )
    assert budget.resident_tokens is not None
    return budget.resident_tokens
