"""The table of times: what is kept up to date step by step equals what is found out anew."""

from __future__ import annotations

import random

import numpy as np

from hermes_like.tiers.base import SegmentHead
from hermes_like.timeline import MAX_FRAME_S, Timeline


def head(segment_id: int, times_s: tuple[float, ...], end_s: float) -> SegmentHead:
    num_frames = len(times_s)
    return SegmentHead(
        segment_id,
        segment_id * num_frames,
        times_s,
        end_s,
        (None,) * num_frames,
        1,
        np.arange(num_frames, dtype=np.uint32),
        np.zeros((num_frames, 1, 1), dtype=np.float32),
        b"",
    )


def anew(heads: dict[int, SegmentHead]) -> Timeline:
    timeline = Timeline()
    timeline.add_all(heads.values())
    return timeline


def test_footage_after_every_step() -> None:
    """Added at the end, replaced, forgotten from the front and in the middle, with holes."""
    for seed in range(20):
        rng = random.Random(seed)
        timeline, known, next_id, now_s = Timeline(), dict[int, SegmentHead](), 0, 0.0
        for _ in range(80):
            step = rng.random()
            if step < 0.6 or not known:
                times_s = []
                for _ in range(3):
                    times_s.append(now_s)
                    now_s += rng.choice((1.0, 1.0, 1.0, MAX_FRAME_S + 5.0))
                known[next_id] = head(next_id, tuple(times_s), now_s)
                timeline.add(known[next_id])
                next_id += 1
                now_s += rng.choice((0.0, 0.0, 30.0))
            elif step < 0.7:
                timeline.add(known[rng.choice(list(known))])
            else:
                count = min(rng.choice((1, 2, 5)), len(known))
                ids = sorted(known)[:count] if step < 0.9 else rng.sample(sorted(known), count)
                timeline.remove([*ids, 10_000])
                for gone in ids:
                    del known[gone]
            fresh = anew(known)
            assert timeline.footage() == fresh.footage()
            assert timeline.between(None, None) == fresh.between(None, None)
            assert (len(timeline), timeline.num_frames) == (len(fresh), fresh.num_frames)


def test_footage_is_not_found_out_anew_for_every_question() -> None:
    timeline = Timeline()
    for segment_id in range(50):
        start_s = 4.0 * segment_id
        timeline.add(head(segment_id, (start_s, start_s + 2), start_s + 4))
        assert timeline._footage == [(0.0, start_s + 4)]
    timeline.remove(range(10))
    assert timeline._footage == [(40.0, 200.0)]
