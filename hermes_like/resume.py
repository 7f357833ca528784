"""A session's state as bytes, and a memory brought back from bytes and stored segments.

After a clean close the device state returns bit for bit. After a crash it is rebuilt from the last
checkpoint and the records written since.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from hermes_like.config import HermesConfig
from hermes_like.errors import CodecError, SegmentUnavailableError, StorageError
from hermes_like.long_term import LongTermMemory, frame_record
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.snapshot import restore_snapshot, take_snapshot
from hermes_like.records import Frame, Image

logger = logging.getLogger(__name__)

STATE_VERSION = 1
_HEADER = "__state__"


@dataclass(slots=True)
class SessionState:
    """What a session knows beside its memories.

    Attributes:
        name: Name of the stream.
        settings: Configuration of device memory and policy; another one cannot take over the state.
        num_frames: Frames observed.
        num_segments: Segments closed.
        first_s: Stream time of the first frame.
        last_s: Stream time of the newest frame.
        wall_at_zero: Time on the clock of stream second 0, ISO 8601.
        content_key: Hash chain of the frames, as hexadecimal digits.
        erased: Stretches that were erased, as ``(start_s, end_s)``.
        config: The whole configuration, as plain values by section; for whoever opens the folder.
        blind: Stretches in which nothing could be seen, as ``(start_s, end_s, reason)``.
    """

    name: str
    settings: dict[str, Any]
    num_frames: int = 0
    num_segments: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    wall_at_zero: str | None = None
    content_key: str = ""
    erased: list[tuple[float, float]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    blind: list[tuple[float, float, str]] = field(default_factory=list)


def device_settings(config: HermesConfig) -> dict[str, Any]:
    """What a device state depends on: the memory and the policy, as plain values."""
    values: dict[str, Any] = json.loads(
        json.dumps({"memory": config.memory.model_dump(), "policy": config.policy.model_dump()})
    )
    return values


def to_bytes(
    state: SessionState, memory: DeviceMemory, pending: list[Frame], images: dict[int, Image]
) -> bytes:
    """Return session and device state as a safetensors file.

    Args:
        state: Of the session.
        memory: On the device.
        pending: Frames that were taken in and not prefilled yet.
        images: Pictures of the open segment that will be kept, by offset.
    """
    tensors, device = take_snapshot(memory)
    # Copies: a picture may be pending and kept, and safetensors refuses what shares memory.
    for index, frame in enumerate(pending):
        tensors[f"pending.{index}"] = torch.from_numpy(frame.image.copy())
    for offset, image in images.items():
        tensors[f"image.{offset}"] = torch.from_numpy(image.copy())
    header = {
        "version": STATE_VERSION,
        "session": asdict(state),
        "device": device,
        "pending": [
            [f.index, f.pts_s, None if f.wall_time is None else f.wall_time.isoformat()]
            for f in pending
        ],
    }
    tensors[_HEADER] = torch.frombuffer(bytearray(json.dumps(header).encode()), dtype=torch.uint8)
    return save(tensors)


@dataclass(slots=True, eq=False)
class Restored:
    """A read state, not yet put anywhere.

    Attributes:
        session: State of the session.
        device: Values of the device state.
        tensors: Tensors of the device state.
        pending: Frames that wait for prefill.
        images: Pictures of the open segment, by offset.
    """

    session: SessionState
    device: dict[str, Any]
    tensors: dict[str, Tensor]
    pending: list[Frame]
    images: dict[int, Image]


def from_bytes(data: bytes) -> Restored:
    """Read what :func:`to_bytes` wrote.

    Raises:
        StorageError: It is something else, or of a later version.
    """
    try:
        tensors = load(data)
        header = json.loads(bytes(tensors.pop(_HEADER).numpy().tobytes()))
    except (ValueError, KeyError, RuntimeError) as error:
        raise StorageError(f"device snapshot: {error}") from error
    if header["version"] > STATE_VERSION:
        raise StorageError(
            f"device snapshot: written by a later release (version {header['version']}, "
            f"this one reads up to {STATE_VERSION})"
        )
    pending = [
        Frame(
            tensors.pop(f"pending.{index}").numpy(),
            number,
            pts_s,
            None if wall is None else datetime.fromisoformat(wall),
        )
        for index, (number, pts_s, wall) in enumerate(header["pending"])
    ]
    names = [name for name in tensors if name.startswith("image.")]
    images = {int(name.removeprefix("image.")): tensors.pop(name).numpy() for name in names}
    session = SessionState(**header["session"])
    session.erased = [(start, end) for start, end in session.erased]
    session.blind = [(start, end, reason) for start, end, reason in session.blind]
    return Restored(session, header["device"], tensors, pending, images)


def restore_device(memory: DeviceMemory, restored: Restored) -> None:
    """Put the device state back.

    Raises:
        StorageError: It does not fit the memory.
        BudgetError: It holds more slots than ``device_tokens``.
    """
    restore_snapshot(memory, restored.tensors, restored.device)


def replay(memory: DeviceMemory, long_term: LongTermMemory, most_segments: int) -> int:
    """Bring the device up to the newest stored segment.

    Args:
        memory: With everything up to some frame.
        long_term: Holds later segments.
        most_segments: Only this many of the newest are replayed; older ones are left out.

    Returns:
        Segments replayed. One that cannot be read, or was stored without some of its tokens, is
        left out: it stays retrievable, the device starts again behind it.
    """
    later = long_term.timeline.behind(memory.num_frames)
    if len(later) > most_segments:
        memory.skip_to(later[-most_segments].first_frame)
        later = later[-most_segments:]
    replayed = 0
    for segment in later:
        try:
            replayed += _replay_segment(memory, long_term, segment.segment_id)
        except (SegmentUnavailableError, CodecError) as error:
            logger.warning("resume: segment %d left out: %s", segment.segment_id, error)
        memory.skip_to(segment.end_frame)
        memory.compact()
    return replayed


def _replay_segment(memory: DeviceMemory, long_term: LongTermMemory, segment_id: int) -> bool:
    head, layers = long_term.read_segment(segment_id)
    if head.first_frame > memory.num_frames:
        memory.skip_to(head.first_frame)
    known = memory.num_frames - head.first_frame
    frames = range(memory.num_frames, head.first_frame + head.num_frames)
    first = known * memory.tokens_per_frame
    if len(head.token_cells) < head.num_frames * memory.tokens_per_frame:
        return False
    blocks = [(layer.raw_keys[:, first:], layer.values[:, first:]) for layer in layers]
    memory.append_stored(blocks, [frame_record(head, frame, long_term.zone) for frame in frames])
    return True
