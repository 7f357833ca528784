"""Opening the past of one stream: its folder, the tiers over it, and what both depend on."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from hermes_like.codec import CODECS
from hermes_like.codec.thinning import thin_record
from hermes_like.config import HermesConfig
from hermes_like.long_term import LongTermMemory
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.plan import block_bytes
from hermes_like.retrieval.vectors import usable_heads
from hermes_like.tiers import Thinning, open_tiers
from hermes_like.tiers.disk import open_disk
from hermes_like.tiers.fingerprint import Fingerprint

#: More than the head of a segment takes beside its vectors: times and cells.
HEAD_ALLOWANCE_BYTES = 64 * 1024
#: Likeness at which the step ``thin`` leaves tokens out where ``store.thin_threshold`` is null.
THIN_AT_CAP = 0.9


def open_long_term(
    memory: DeviceMemory, config: HermesConfig, folder: Path | str | None, key: bytes | None
) -> LongTermMemory:
    """Open the tiers of a stream and read what they know.

    Args:
        memory: The stream's memory on the device.
        config: The whole configuration.
        folder: Where the past is kept beyond the process; None: in RAM only.
        key: For encryption at rest.

    Raises:
        ConfigError: A cap cannot hold what it must.
        StorageError: The folder cannot be used.
    """
    told: list[LongTermMemory] = []

    def on_evicted(segment_ids: Sequence[int]) -> None:
        for long_term in told:
            long_term.on_evicted(segment_ids)

    disk = None
    with no_collection():
        if folder is not None and config.store.disk_bytes:
            fingerprint = fingerprint_of(memory, config)
            disk = open_disk(Path(folder), fingerprint=fingerprint, config=config.store, key=key)
        chain = open_tiers(
            config.store,
            store=disk,
            segment_bytes=segment_bytes(memory, config),
            on_evicted=on_evicted,
            thinning=Thinning(
                partial(thin_record, threshold=config.store.thin_threshold or THIN_AT_CAP),
                keep_whole=config.store.checkpoint_segments,
            ),
        )
        long_term = LongTermMemory(memory, chain, config, disk)
    told.append(long_term)
    return long_term


@contextmanager
def no_collection() -> Iterator[None]:
    """Put off Python's search for cycles while a memory is opened.

    Reading the heads of a day makes many objects and no cycles, and the search would walk over all
    that the process holds, several times, before the first frame or question.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def segment_bytes(memory: DeviceMemory, config: HermesConfig) -> int:
    """Bytes of a stored segment by arithmetic: encoded blocks of all layers, and its head.

    A block with numbers that cannot be quantised is stored raw and takes more; it then has to fit
    into what is free.
    """
    dims = memory.adapter.dims
    tokens = config.memory.segment_frames * dims.tokens_per_frame
    itemsize = dims.dtype.itemsize
    layer = block_bytes(config.store.codec, dims.num_kv_heads, tokens, dims.head_dim, itemsize)
    groups = min(config.retrieval.vectors_per_frame, dims.tokens_per_frame)
    num_vectors = config.memory.segment_frames * groups * len(config.retrieval.heads)
    return dims.num_layers * layer + num_vectors * dims.head_dim * 4 + HEAD_ALLOWANCE_BYTES


def fingerprint_of(memory: DeviceMemory, config: HermesConfig) -> Fingerprint:
    """What stored segments depend on."""
    codec = CODECS.get(config.store.codec)
    heads = usable_heads(config.retrieval.heads, memory.adapter.dims)
    return Fingerprint.of(
        format_version=1,
        codec=codec.name,
        codec_version=codec.version,
        sample_fps=config.source.sample_fps,
        retrieval_heads=[list(head) for head in heads],
        torch=torch.__version__,
        device=memory.adapter.dims.device.type,
        **memory.adapter.identity(),
    )
