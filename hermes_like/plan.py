"""Capacity arithmetic: what a stream takes in every tier, and how far back the caps reach.

Whole numbers of bytes come from shapes and layouts; ``tests/test_plan.py`` compares them with
encoded blocks and stored records. Times rest on :class:`Assumptions`, which are stated with every
result. Nothing here loads torch or a model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError
from hermes_like.registry import unknown_name
from hermes_like.tiers import layout
from hermes_like.tiers.base import SegmentHead
from hermes_like.tiers.catalog import KNOWN_BYTES
from hermes_like.tiers.host import BLOB_BYTES, head_cost
from hermes_like.tiers.log import ENTRY_BYTES
from hermes_like.timeline import FRAME_TIME_BYTES, SEGMENT_OVERHEAD_BYTES

HOUR_S, DAY_S, YEAR_S = 3600.0, 86400.0, 365.25 * 86400.0
#: Bits of keys (one scale per channel and block) and of values (one scale per token and group of
#: channels; None: all channels of a head), by codec.
CODEC_BITS: dict[str, tuple[int, int, int | None]] = {
    "int8": (8, 8, None),
    "k8v4": (8, 4, 32),
    "int4": (4, 4, 32),
}
#: Scale and zero point, float32.
SCALE_BYTES = 8
BLOCK_HEADER_BYTES = 64
#: Keys as they are, keys rotated, values.
DEVICE_TENSORS = 3
#: What the index keeps of a row beside its vectors: an id, a frame, and when it starts and ends.
INDEX_ROW_BYTES = 32
CONTENT_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the arithmetic needs of a model.

    Attributes:
        num_layers: Decoder layers.
        num_kv_heads: Key and value heads per layer.
        head_dim: Channels per head.
        tokens_per_frame: Vision tokens of a frame.
        itemsize: Bytes of a number in the cache.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    tokens_per_frame: int
    itemsize: int

    @property
    def kv_bytes_per_token(self) -> int:
        """2 x layers x kv_heads x head_dim x bytes."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.itemsize


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What cannot be computed from shapes; every one is an option of the command.

    Attributes:
        picture_bytes: Of one stored picture.
        disk_gb_s: Read rate of the disk, 10^9 bytes per second.
        link_gb_s: Rate from RAM to the device.
        search_gb_s: Rate at which the index is scanned.
        prefill_tokens_s: Tokens per second of prefill.
    """

    picture_bytes: int
    disk_gb_s: float = 1.0
    link_gb_s: float = 20.0
    search_gb_s: float = 5.0
    prefill_tokens_s: float = 5000.0


@dataclass(frozen=True, slots=True)
class TierPlan:
    """One tier of one stream.

    Attributes:
        bytes_per_segment: What a segment takes there, overhead included.
        bytes_per_token: The same per vision token.
        bytes_per_hour: The same per hour of stream.
        cap_bytes: What the configuration allows.
        wanted_bytes: What all the days would take.
        reach_s: How far back the cap reaches.
    """

    bytes_per_segment: int
    bytes_per_token: float
    bytes_per_hour: int
    cap_bytes: int
    wanted_bytes: int
    reach_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What streams take and how fast answers can come.

    Attributes:
        shape: The model.
        kv_bytes_per_token: The formula, as the device and the codec ``raw`` store it.
        codec: How segments are stored.
        segment_s: Seconds of stream in a segment.
        device_bytes: Most bytes of one stream's cache.
        index_bytes: RAM for the vectors of all that one stream can find.
        table_bytes: RAM for the tables that say when and where each of these segments is. Both
            count against the cap of the host, and the tier ``host`` has what they leave.
        tiers: Of one stream: ``host``, ``disk``, ``keyframes``.
        cameras: Streams.
        days: How long.
        total_bytes: Caps of all streams, by tier.
        disk_write_mb_s: All streams together, 10^6 bytes per second.
        disk_write_tb_year: The same over a year, 10^12 bytes.
        ttft_s: Parts of the time to the first word, and the sums ``from_host``, ``from_disk``.
        assumptions: What the times rest on.
    """

    shape: ModelShape
    kv_bytes_per_token: int
    codec: str
    segment_s: float
    device_bytes: int
    index_bytes: int
    table_bytes: int
    tiers: dict[str, TierPlan]
    cameras: int
    days: float
    total_bytes: dict[str, int]
    disk_write_mb_s: float
    disk_write_tb_year: float
    ttft_s: dict[str, float]
    assumptions: Assumptions


def block_bytes(codec: str, num_kv_heads: int, tokens: int, head_dim: int, itemsize: int) -> int:
    """Bytes of one encoded block: keys and values of some tokens in one layer.

    Raises:
        ConfigError: The arithmetic of this codec is not known.
    """
    if codec == "raw":
        keys = values = num_kv_heads * tokens * head_dim * itemsize
    elif codec in CODEC_BITS:
        key_bits, value_bits, group = CODEC_BITS[codec]
        groups = -(-head_dim // min(group or head_dim, head_dim))
        rows = num_kv_heads * tokens
        keys = rows * -(-head_dim * key_bits // 8) + num_kv_heads * head_dim * SCALE_BYTES
        values = rows * (-(-head_dim * value_bits // 8) + groups * SCALE_BYTES)
    else:
        raise ConfigError(unknown_name("codec", codec, ["raw", *CODEC_BITS]))
    return BLOCK_HEADER_BYTES + -(-keys // 8) * 8 + values


def example_head(config: HermesConfig, shape: ModelShape) -> SegmentHead:
    """The head of a whole segment, as large as heads become."""
    frames = config.memory.segment_frames
    tokens = frames * shape.tokens_per_frame
    return SegmentHead(
        segment_id=0,
        first_frame=0,
        frame_times_s=tuple(map(float, range(frames))),
        end_s=float(frames),
        frame_walls_s=(0.0,) * frames,
        tokens_per_frame=shape.tokens_per_frame,
        token_cells=np.arange(tokens, dtype=np.uint32),
        vectors=np.zeros(
            (_rows_per_segment(config, shape), len(config.retrieval.heads), shape.head_dim),
            np.float32,
        ),
        content_key=bytes(CONTENT_KEY_BYTES),
    )


def host_segment_bytes(config: HermesConfig, shape: ModelShape) -> int:
    """What a segment takes in RAM: blocks, head and objects."""
    layer = _layer_bytes(config, shape) + BLOB_BYTES
    return head_cost(example_head(config, shape)) + shape.num_layers * layer


def disk_segment_bytes(config: HermesConfig, shape: ModelShape) -> int:
    """What a segment takes on disk: one record, padded to pages."""
    head = len(layout.pack_head(example_head(config, shape)))
    header = layout.record_header_bytes(shape.num_layers + 1)
    return layout.aligned(header + head + shape.num_layers * _layer_bytes(config, shape))


def disk_pictures_bytes(config: HermesConfig, shape: ModelShape, picture_bytes: int) -> int:
    """What the pictures of a segment take on disk, with the head that finds it."""
    count = min(config.store.keyframes_per_segment, config.memory.segment_frames)
    head = len(layout.pack_head(example_head(config, shape)))
    return layout.aligned(layout.record_header_bytes(count + 1) + head + count * picture_bytes)


def usual_picture_bytes(config: HermesConfig) -> int:
    """A guess at a photograph of 16:9: 0.3 bytes per pixel at quality 90, less below."""
    side = config.store.keyframe_side
    return round(side * side * 9 / 16 * 0.3 * (config.store.keyframe_quality / 90) ** 2)


def make_plan(
    config: HermesConfig,
    shape: ModelShape,
    *,
    cameras: int,
    days: float,
    assumptions: Assumptions,
) -> Plan:
    """Plan ``cameras`` streams of ``days``, each under the caps of the configuration.

    Raises:
        ConfigError: ``source.sample_fps`` is null, or the codec's arithmetic is not known.
    """
    fps = config.source.sample_fps
    if fps is None:
        raise ConfigError("source.sample_fps: expected a number to plan with, got null (use --fps)")
    store, days_s = config.store, days * DAY_S
    segment_s = config.memory.segment_frames / fps
    pictures_cap = min(store.keyframe_bytes, store.disk_bytes // 2)
    pictures_cap = pictures_cap if store.keyframes_per_segment else 0
    disk = disk_segment_bytes(config, shape), store.disk_bytes - pictures_cap
    pictures = disk_pictures_bytes(config, shape, assumptions.picture_bytes), pictures_cap
    most = max(cap // size for size, cap in (disk, pictures))
    findable = min(most, round(days_s / segment_s))
    index_bytes, table_bytes = index_cost(config, shape, findable), table_cost(config, findable)
    left_bytes = max(0, store.host_bytes - index_bytes - table_bytes)
    host = host_segment_bytes(config, shape), left_bytes
    tokens = config.memory.segment_frames * shape.tokens_per_frame
    tiers = {
        name: _plan_tier(size, cap, tokens, segment_s, days_s)
        for name, (size, cap) in (("host", host), ("disk", disk), ("keyframes", pictures))
    }
    device_bytes = _device_bytes(config, shape)
    written = sum(size for size, cap in (disk, pictures) if cap)
    bytes_per_s = cameras * written / segment_s
    caps = {
        "device": device_bytes,
        "host": store.host_bytes,
        "disk": disk[1],
        "keyframes": pictures_cap,
    }
    return Plan(
        shape=shape,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        codec=store.codec,
        segment_s=segment_s,
        device_bytes=device_bytes,
        index_bytes=index_bytes,
        table_bytes=table_bytes,
        tiers=tiers,
        cameras=cameras,
        days=days,
        total_bytes={name: cameras * cap for name, cap in caps.items()},
        disk_write_mb_s=bytes_per_s / 1e6,
        disk_write_tb_year=bytes_per_s * YEAR_S / 1e12,
        ttft_s=_ttft_parts(config, shape, host[0], findable, assumptions),
        assumptions=assumptions,
    )


def _plan_tier(size: int, cap_bytes: int, tokens: int, segment_s: float, days_s: float) -> TierPlan:
    return TierPlan(
        bytes_per_segment=size,
        bytes_per_token=size / tokens,
        bytes_per_hour=round(size * HOUR_S / segment_s),
        cap_bytes=cap_bytes,
        wanted_bytes=round(size * days_s / segment_s),
        reach_s=cap_bytes // size * segment_s,
    )


def _layer_bytes(config: HermesConfig, shape: ModelShape) -> int:
    tokens = config.memory.segment_frames * shape.tokens_per_frame
    return block_bytes(
        config.store.codec, shape.num_kv_heads, tokens, shape.head_dim, shape.itemsize
    )


def _device_bytes(config: HermesConfig, shape: ModelShape) -> int:
    return config.memory.device_tokens * shape.kv_bytes_per_token // 2 * DEVICE_TENSORS


def index_cost(config: HermesConfig, shape: ModelShape, num_segments: int) -> int:
    """What the index of so many segments takes: its arrays have grown by doubling."""
    num_heads = len(config.retrieval.heads)
    if not num_segments or not num_heads:
        return 0
    row_bytes = _vector_bytes(config, shape) + INDEX_ROW_BYTES
    capacity = _rows_per_segment(config, shape) << (num_segments - 1).bit_length()
    return capacity * row_bytes + num_heads * shape.head_dim * 8


def table_cost(config: HermesConfig, num_segments: int) -> int:
    """What the table of times, the catalog of the tiers and the tables of the disk take."""
    store, frames = config.store, config.memory.segment_frames
    records = 1 + bool(store.keyframes_per_segment)
    per_segment = SEGMENT_OVERHEAD_BYTES + FRAME_TIME_BYTES * frames
    return num_segments * (per_segment + KNOWN_BYTES + records * ENTRY_BYTES)


def _vector_bytes(config: HermesConfig, shape: ModelShape) -> int:
    """Numbers of one row of the index, all retrieval heads together."""
    return len(config.retrieval.heads) * shape.head_dim * 4


def _rows_per_segment(config: HermesConfig, shape: ModelShape) -> int:
    groups = min(config.retrieval.vectors_per_frame, shape.tokens_per_frame)
    return config.memory.segment_frames * groups


def _ttft_parts(
    config: HermesConfig,
    shape: ModelShape,
    segment_bytes: int,
    findable: int,
    assumed: Assumptions,
) -> dict[str, float]:
    """The slowest case: every frame that is brought back lies in a segment of its own."""
    per_token_s = 1 / assumed.prefill_tokens_s
    rows = findable * _rows_per_segment(config, shape)
    searched_bytes = rows * _vector_bytes(config, shape)
    fetched = config.retrieval.max_frames * segment_bytes
    parts = {
        "pending_frames": config.memory.prefill_frames * shape.tokens_per_frame * per_token_s,
        "search": searched_bytes / (assumed.search_gb_s * 1e9),
        "disk_read": fetched / (assumed.disk_gb_s * 1e9),
        "copy_to_device": fetched / (assumed.link_gb_s * 1e9),
        "question": config.memory.question_tokens * per_token_s,
    }
    total = sum(parts.values())
    return {**parts, "from_host": total - parts["disk_read"], "from_disk": total}
