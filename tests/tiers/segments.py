"""Seeded segments of random bytes, and what it takes to compare them."""

from __future__ import annotations

import numpy as np

from hermes_like.tiers.base import Keyframe, KeyframeRecord, SegmentHead, SegmentRecord

FRAMES = 4


def make_head(segment_id: int, version: int = 0) -> SegmentHead:
    """A head whose vectors and cells depend on its id and version."""
    rng = np.random.default_rng((segment_id, version, 1))
    first = segment_id * FRAMES
    return SegmentHead(
        segment_id=segment_id,
        first_frame=first,
        frame_times_s=tuple(float(first + i) for i in range(FRAMES)),
        end_s=float(first + FRAMES),
        frame_walls_s=(None, *(1e9 + first + i for i in range(1, FRAMES))),
        tokens_per_frame=6,
        token_cells=np.sort(rng.choice(6 * FRAMES, 20, replace=False)).astype(np.uint32),
        vectors=rng.standard_normal((FRAMES, 2, 16), dtype=np.float32),
        content_key=rng.bytes(16),
        is_approximate=bool(version % 2),
    )


def make_segment(
    segment_id: int, num_bytes: int = 20_000, layers: int = 3, version: int = 0
) -> SegmentRecord:
    """A segment with about ``num_bytes`` in ``layers`` blocks of different length."""
    rng = np.random.default_rng((segment_id, version, 2))
    blocks = tuple(rng.bytes(num_bytes // layers + 7 * i) for i in range(layers))
    return SegmentRecord(make_head(segment_id, version), blocks)


def make_pictures(segment_id: int, num_bytes: int = 3_000) -> KeyframeRecord:
    """Two pictures of a segment (random bytes; a store does not look into them)."""
    rng = np.random.default_rng((segment_id, 3))
    images = tuple(Keyframe(segment_id * FRAMES + i, rng.bytes(num_bytes // 2)) for i in (1, 3))
    return KeyframeRecord(make_head(segment_id), images)


def same_heads(first: SegmentHead, second: SegmentHead) -> bool:
    """Whether two heads agree in every field, arrays bit for bit."""
    for name in SegmentHead.__slots__:
        mine, other = getattr(first, name), getattr(second, name)
        if isinstance(mine, np.ndarray):
            if mine.dtype != other.dtype or mine.shape != other.shape:
                return False
            if mine.tobytes() != other.tobytes():
                return False
        elif mine != other:
            return False
    return True


def same(first: SegmentRecord | KeyframeRecord, second: SegmentRecord | KeyframeRecord) -> bool:
    """Whether two records agree bit for bit."""
    if isinstance(first, SegmentRecord) and isinstance(second, SegmentRecord):
        blobs = [bytes(a) == bytes(b) for a, b in zip(first.layers, second.layers, strict=True)]
    elif isinstance(first, KeyframeRecord) and isinstance(second, KeyframeRecord):
        blobs = [
            a.frame == b.frame and bytes(a.data) == bytes(b.data)
            for a, b in zip(first.images, second.images, strict=True)
        ]
    else:
        return False
    return all(blobs) and same_heads(first.head, second.head)
