"""Frames whose keys the question's queries match best, judged against the rest of the stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hermes_like.config import RetrievalConfig
from hermes_like.index import Ranking, Scorer, SegmentIndex
from hermes_like.retrieval.base import (
    Constraints,
    FloatArray,
    Found,
    Hit,
    ResidentFrames,
    Retriever,
)

#: Rows of the stream that a head's scores are judged against; more would change them by < 2 %.
SAMPLE_ROWS = 4096
_EPSILON = 1e-6


class SimilarityRetriever(Retriever):
    """Exact search over all frames in range.

    Per head, each question token scores each frame; pooling takes the best token or the mean of
    all. The best frames of every head are taken in turn. The sum over heads is what the gate
    compares with the frames that are resident.
    """

    def find(
        self,
        queries: FloatArray,
        index: SegmentIndex,
        constraints: Constraints,
        resident: ResidentFrames,
    ) -> Found:
        """Rank, thin out neighbours of better hits, add the wanted neighbours."""
        if not queries.shape[0] or not queries.shape[1] or not len(index):
            return Found()
        score = scorer(queries, index, self.config)
        best = float(score(resident.vectors).max()) if resident.vectors.shape[0] else None
        if not constraints.max_frames:
            return Found(best_resident=best)
        exclude = constraints.exclude.union(resident.frames.tolist())
        rankings, best_past = index.top_of_each(
            score,
            # Each hit, of whatever head, pushes out as many neighbours as the gap has frames.
            constraints.max_frames * (2 * constraints.gap_frames + 1),
            start_s=constraints.start_s,
            end_s=constraints.end_s,
            exclude=exclude,
        )
        chosen = _in_turn(rankings, constraints.max_frames, constraints.gap_frames)
        hits = _with_neighbours(chosen, index, score, constraints, exclude)
        return Found(hits, best, best_past)


def scorer(queries: FloatArray, index: SegmentIndex, config: RetrievalConfig) -> Scorer:
    """Turn queries into a scorer, as the configuration says.

    Keys are centred by the stream's mean, so that channels all keys share do not choose between
    the tokens of a question. Standardising comes after pooling: before it, the small scores of
    words that match nothing would be blown up to the size of those that do.

    Args:
        queries: float32 ``[tokens, heads, head_dim]``.
        index: The stream to judge against.
        config: Pooling and normalisation.
    """
    weights = np.array(queries, np.float32)
    if config.pooling == "mean":
        weights = weights.mean(axis=0, keepdims=True)
    offsets = np.zeros(weights.shape[:2], np.float32)
    if config.normalisation == "none":
        return Scorer(weights, offsets)
    offsets = -np.einsum("thd,hd->th", weights, index.mean()).astype(np.float32)
    if config.normalisation == "centred":
        return Scorer(weights, offsets)
    raw, sample = Scorer(weights, offsets), index.sample(SAMPLE_ROWS)
    for head in range(weights.shape[1]):
        scores = raw.head(head, sample[:, head]).astype(np.float64)
        scale = max(float(scores.std()), _EPSILON)
        weights[:, head] /= scale
        offsets[:, head] = (offsets[:, head] - float(scores.mean())) / scale
    return Scorer(weights, offsets)


def _with_neighbours(
    chosen: Sequence[Hit],
    index: SegmentIndex,
    score: Scorer,
    constraints: Constraints,
    exclude: frozenset[int],
) -> tuple[Hit, ...]:
    """Hits in their order, each followed by its neighbours, nearest first."""
    if not constraints.neighbour_frames:
        return tuple(chosen)
    around = {hit.frame: _around(hit.frame, constraints.neighbour_frames) for hit in chosen}
    wanted = {frame for frames in around.values() for frame in frames}
    near = index.top(
        score,
        start_s=constraints.start_s,
        end_s=constraints.end_s,
        exclude=exclude,
        only=wanted,
    )
    known = {hit.frame: hit for hit in _as_hits(near)}
    ordered: dict[int, Hit] = {}
    for hit in chosen:
        ordered.setdefault(hit.frame, hit)
        for frame in around[hit.frame]:
            if frame in known:
                ordered.setdefault(frame, known[frame])
    return tuple(ordered.values())[: constraints.max_frames]


def _as_hits(ranking: Ranking) -> list[Hit]:
    columns = (ranking.segments.tolist(), ranking.frames.tolist(), ranking.scores.tolist())
    return [Hit(*row) for row in zip(*columns, strict=True)]


def _in_turn(rankings: Sequence[Ranking], count: int, gap_frames: int) -> list[Hit]:
    """The best frames of every head in turn, no two within ``gap_frames`` of each other.

    Different questions match through different heads, and where many frames share half of what is
    asked about, a sum over heads buries the one head that knows both halves together.
    """
    taken: set[int] = set()
    chosen: list[Hit] = []
    waiting = [iter(_as_hits(ranking)) for ranking in rankings]
    while waiting and len(chosen) < count:
        for hits in list(waiting):
            hit = next((hit for hit in hits if hit.frame not in taken), None)
            if hit is None:
                waiting.remove(hits)
            elif len(chosen) < count:
                chosen.append(hit)
                taken.update(range(hit.frame - gap_frames, hit.frame + gap_frames + 1))
    return chosen


def _around(frame: int, count: int) -> list[int]:
    """Neighbours of a frame, nearest first, the earlier before the later."""
    return [frame + sign * step for step in range(1, count + 1) for sign in (-1, 1)]
