"""The state of the device as named tensors and plain values, and back: for a clean close.

Keys, values, positions and ids are kept raw, so that logits after reopening are bit-equal.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from torch import Tensor

from hermes_like.errors import StorageError
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.provenance import FrameRecord, FrameTable, Summary


def take_snapshot(memory: DeviceMemory) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return everything the device holds for a stream.

    Returns:
        Tensors by name, and values that JSON can hold.
    """
    tensors: dict[str, Tensor] = {}
    for index, slots in enumerate(memory.cache.layers):
        tensors[f"{index}.raw_keys"] = slots.raw_keys
        tensors[f"{index}.values"] = slots.values
        tensors[f"{index}.positions"] = slots.positions
        tensors[f"{index}.ids"] = slots.ids
    state = {
        "num_frames": memory.num_frames,
        "num_compactions": memory.num_compactions,
        "first_short_frame": memory.first_short_frame,
        "scheme": memory.scheme.state(),
        "num_summaries": memory.compactor.num_summaries,
        "summaries": [
            {str(key): asdict(summary) for key, summary in layer.items()}
            for layer in memory.compactor.summaries
        ],
        "frames": [
            [frame, record.pts_s, _text(record.wall_time), record.segment_id, record.end_s]
            for frame, record in memory.frames.items()
        ],
    }
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return contiguous, state


def restore_snapshot(
    memory: DeviceMemory, tensors: dict[str, Tensor], state: dict[str, Any]
) -> None:
    """Put a snapshot back into a memory that has seen nothing yet.

    Raises:
        StorageError: The snapshot does not fit the memory's shapes.
        BudgetError: It holds more slots than ``device_tokens``.
    """
    device = memory.adapter.dims.device
    for index, slots in enumerate(memory.cache.layers):
        raw, values = (
            tensors[f"{index}.{name}"].to(slots.device) for name in ("raw_keys", "values")
        )
        positions, ids = (tensors[f"{index}.{name}"].to(device) for name in ("positions", "ids"))
        if raw.shape[1] != memory.adapter.dims.num_kv_heads or raw.dtype != slots.raw_keys.dtype:
            raise StorageError(
                f"snapshot, layer {index}: expected {memory.adapter.dims.num_kv_heads} KV heads of "
                f"{slots.raw_keys.dtype}, got {raw.shape[1]} of {raw.dtype}"
            )
        slots.rewrite(raw, values, positions, ids, memory.cache.rotary)
    memory.cache.note_peak()
    memory.num_frames = state["num_frames"]
    memory.num_compactions = state["num_compactions"]
    memory.first_short_frame = state["first_short_frame"]
    memory.scheme.restore(state["scheme"])
    memory.compactor.num_summaries = state["num_summaries"]
    memory.compactor.summaries = [
        {int(key): Summary(**summary) for key, summary in layer.items()}
        for layer in state["summaries"]
    ]
    memory.frames = FrameTable()
    for frame, pts_s, wall, segment_id, end_s in state["frames"]:
        wall_time = None if wall is None else datetime.fromisoformat(wall)
        memory.frames.put(frame, FrameRecord(pts_s, wall_time, segment_id, end_s))


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
