"""A closed stretch of the stream as it leaves the device: the write-through unit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hermes_like.memory.hierarchy import KVBlock
from hermes_like.memory.provenance import FrameRecord
from hermes_like.records import Frame, Image

KEY_BYTES = 20


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A closed stretch of the stream with its keys and values, before compaction touches them.

    Attributes:
        segment_id: Running number.
        first_frame: Running number of its first frame in the stream.
        records: One per frame.
        end_s: Stream time at which its last frame gives way to the next one.
        blocks: One per decoder layer.
        images: Pictures to keep, by frame offset in the segment.
        content_key: Hash of the frames' pixels, chained over the stream.
    """

    segment_id: int
    first_frame: int
    records: tuple[FrameRecord, ...]
    end_s: float
    blocks: tuple[KVBlock, ...]
    images: Mapping[int, Image]
    content_key: bytes

    @property
    def start_s(self) -> float:
        """Stream time of its first frame."""
        return self.records[0].pts_s


def chain_key(before: bytes, frames: Sequence[Frame]) -> bytes:
    """Hash of some frames and of everything before them, ``KEY_BYTES`` long.

    Args:
        before: Key of what came before; empty at the start.
        frames: Consecutive frames.
    """
    digest = hashlib.blake2b(before, digest_size=KEY_BYTES)
    for frame in frames:
        digest.update(repr((frame.image.shape, frame.pts_s)).encode())
        digest.update(frame.image.tobytes())
    return digest.digest()
