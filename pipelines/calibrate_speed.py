"""How long the index of a day takes to build and to ask. This module knows no model."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from hermes_like.config import RetrievalConfig
from hermes_like.index import SegmentIndex
from hermes_like.retrieval.similarity import scorer
from hermes_like.tiers.base import SegmentHead

DAY_FRAMES = 86_400


def speed(
    num_heads: int, head_dim: int, groups: int, num_frames: int = DAY_FRAMES
) -> dict[str, float]:
    """Building the index of some frames, one per second, and asking it.

    Returns:
        Wall times; of what is repeated the shortest, which other work on the machine disturbs
        least, and of the search the median too.
    """
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((num_frames * groups, num_heads, head_dim)).astype(np.float32)
    heads = [
        SegmentHead(
            number,
            number * 4,
            tuple(float(number * 4 + offset) for offset in range(4)),
            float(number * 4 + 4),
            (None,) * 4,
            4,
            np.arange(16, dtype=np.uint32),
            rows[number * 4 * groups : (number + 1) * 4 * groups],
            bytes(16),
        )
        for number in range(num_frames // 4)
    ]
    build_s, index = _timed(
        lambda: SegmentIndex.build(heads, num_heads=num_heads, head_dim=head_dim), 1
    )
    queries = rng.standard_normal((12, num_heads, head_dim)).astype(np.float32)
    config = RetrievalConfig()
    scorer_s, score = _timed(lambda: scorer(queries, index, config))
    whole_s, _ = _timed(lambda: index.top(score, 40))
    usual_s, _ = _timed(lambda: index.top(score, 40), 15, median)
    hour_s, _ = _timed(
        lambda: index.top(score, 40, start_s=num_frames / 2, end_s=num_frames / 2 + 3600)
    )
    remove_s, _ = _timed(lambda: index.remove([7, 8]), 1)
    return {
        "frames": num_frames,
        "rows_per_frame": groups,
        "rebuild_s": round(build_s, 3),
        "prepare_question_ms": round(1e3 * scorer_s, 2),
        "search_all_ms": round(1e3 * whole_s, 2),
        "search_all_median_ms": round(1e3 * usual_s, 2),
        "search_hour_ms": round(1e3 * hour_s, 2),
        "ms_per_100000_vectors": round(1e3 * whole_s * 1e5 / (len(rows) * num_heads), 2),
        "remove_ms": round(1e3 * remove_s, 2),
        "index_mib": round(index.num_bytes / 2**20, 1),
    }


def _timed(
    call: Callable[[], Any], repeats: int = 5, choose: Callable[[list[float]], float] = min
) -> tuple[float, Any]:
    """Seconds of some calls, the shortest unless told otherwise, and the last result."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return choose(times), result
