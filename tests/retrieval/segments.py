"""Segment heads with random vectors, and what the index should find in them, by brute force."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hermes_like.index import Scorer
from hermes_like.tiers.base import SegmentHead

HEADS, DIM = 2, 8


def segment(segment_id: int, *, frames: int = 4, groups: int = 1, seed: int = 0) -> SegmentHead:
    """A segment of a stream with one frame per second and segments of equal length."""
    rng = np.random.default_rng([seed, segment_id])
    first = segment_id * frames
    vectors = rng.standard_normal((frames * groups, HEADS, DIM)).astype(np.float32) + 1.5
    return SegmentHead(
        segment_id=segment_id,
        first_frame=first,
        frame_times_s=tuple(float(first + i) for i in range(frames)),
        end_s=float(first + frames),
        frame_walls_s=(None,) * frames,
        tokens_per_frame=4,
        token_cells=np.arange(frames * 4, dtype=np.uint32),
        vectors=vectors,
        content_key=bytes(16),
    )


def brute_force(heads: Sequence[SegmentHead], scorer: Scorer) -> dict[int, float]:
    """Score of every frame, in float64, frame by frame."""
    scores = {}
    for head in heads:
        rows = head.vectors.reshape(head.num_frames, -1, HEADS, DIM).astype(np.float64)
        for offset, frame in enumerate(rows):
            scores[head.first_frame + offset] = max(
                sum(
                    max(
                        w @ row[h] + b
                        for w, b in zip(scorer.weights[:, h], scorer.offsets[:, h], strict=True)
                    )
                    for h in range(HEADS)
                )
                for row in frame
            )
    return scores
