"""One contract for all retrievers, and what similarity makes of a question."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from hermes_like.config import RetrievalConfig
from hermes_like.errors import ConfigError
from hermes_like.index import SegmentIndex
from hermes_like.retrieval import RETRIEVERS, Constraints, Found, Hit, ResidentFrames
from hermes_like.retrieval.base import FloatArray
from hermes_like.retrieval.similarity import SimilarityRetriever, scorer
from tests.retrieval.segments import DIM, HEADS, segment

CONSTRAINTS = [
    Constraints(8),
    Constraints(0),
    Constraints(1000),
    Constraints(5, start_s=20.0, end_s=61.5),
    Constraints(6, gap_frames=3),
    Constraints(7, neighbour_frames=2),
    Constraints(7, neighbour_frames=1, gap_frames=2, end_s=50.0, exclude=frozenset(range(30, 40))),
    Constraints(4, start_s=1e6),
]


def queries(seed: int = 0, tokens: int = 6) -> FloatArray:
    rng = np.random.default_rng([seed, 7])
    return rng.standard_normal((tokens, HEADS, DIM)).astype(np.float32)


def resident(first: int = 96, count: int = 4) -> ResidentFrames:
    heads = [segment(number) for number in range(first // 4, (first + count + 3) // 4)]
    frames = np.arange(first, first + count, dtype=np.int64)
    return ResidentFrames(frames, np.concatenate([head.vectors for head in heads])[:count])


def index(count: int = 25) -> SegmentIndex:
    return SegmentIndex.build(map(segment, range(count)), num_heads=HEADS, head_dim=DIM)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@pytest.mark.parametrize("normalisation", ["standard", "centred", "none"])
@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("name", RETRIEVERS.names())
def test_contract(name: str, pooling: str, normalisation: str, constraints: Constraints) -> None:
    config = RetrievalConfig.model_validate({"pooling": pooling, "normalisation": normalisation})
    retriever = RETRIEVERS.get(name)(config)
    found = retriever.find(queries(), index(), constraints, resident())
    frames = [hit.frame for hit in found.hits]
    assert len(set(frames)) == len(frames) <= constraints.max_frames
    assert all(hit.segment_id == hit.frame // 4 for hit in found.hits)
    assert all(math.isfinite(hit.score) for hit in found.hits)
    assert not {*resident().frames.tolist(), *constraints.exclude}.intersection(frames)
    start_s = -math.inf if constraints.start_s is None else constraints.start_s
    end_s = math.inf if constraints.end_s is None else constraints.end_s
    assert all(frame + 1 > start_s and frame < end_s for frame in frames)
    assert found == retriever.find(queries(), index(), constraints, resident())
    free = retriever.find(queries(), index(), Constraints(1), resident())
    assert found.best_resident == free.best_resident
    empty = retriever.find(
        queries(), SegmentIndex(HEADS, DIM), constraints, ResidentFrames.none(HEADS, DIM)
    )
    assert empty == Found()
    assert empty.margin == -math.inf
    assert not empty.beats(-math.inf)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'similarity'"):
        RETRIEVERS.get("similarty")


@pytest.mark.parametrize("normalisation", ["standard", "centred", "none"])
@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_scores_are_what_the_words_say(pooling: str, normalisation: str) -> None:
    config = RetrievalConfig.model_validate({"pooling": pooling, "normalisation": normalisation})
    past = index()
    score = scorer(queries(), past, config)
    rows = np.concatenate([segment(number).vectors for number in range(25)]).astype(np.float64)
    total = np.zeros(100)
    for head in range(HEADS):
        logits = queries()[:, head].astype(np.float64) @ rows[:, head].T
        if pooling == "mean":
            logits = logits.mean(0, keepdims=True)
        if normalisation != "none":
            logits -= logits.mean(1, keepdims=True)
        best = logits.max(0)
        if normalisation == "standard":
            best = (best - best.mean()) / best.std()
        total += best
    assert score(rows.astype(np.float32)) == pytest.approx(total, abs=1e-4)
    ranking = past.top(score)
    assert ranking.frames.tolist() == np.argsort(-total).tolist()


def test_a_large_stream_is_judged_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    past = index(200)
    standard = RetrievalConfig(normalisation="standard")
    exact = past.top(scorer(queries(), past, standard))
    monkeypatch.setattr("hermes_like.retrieval.similarity.SAMPLE_ROWS", 400)
    sampled = past.top(scorer(queries(), past, standard))
    assert len(set(exact.frames[:20]) & set(sampled.frames[:20])) >= 18
    assert sampled.scores[:20] == pytest.approx(exact.scores[:20], abs=0.5)
    assert not np.array_equal(exact.scores, sampled.scores)


def test_a_channel_that_all_keys_share_does_not_matter() -> None:
    """Keys of real models have a few channels with large offsets."""
    config = RetrievalConfig()
    vectors = [segment(number).vectors for number in range(25)]
    loud = queries()
    loud[:, :, 0] = 10.0
    for keys in vectors:
        keys[:, :, 0] = 100.0
    heads = [replace(segment(i), vectors=keys) for i, keys in enumerate(vectors)]
    past = SegmentIndex.build(heads, num_heads=HEADS, head_dim=DIM)
    quiet = [replace(head, vectors=head.vectors.copy()) for head in heads]
    for head in quiet:
        head.vectors[:, :, 0] = 0.0
    plain = SegmentIndex.build(quiet, num_heads=HEADS, head_dim=DIM)
    found = past.top(scorer(loud, past, config), 10)
    wanted = plain.top(scorer(loud, plain, config), 10)
    assert found.frames.tolist() == wanted.frames.tolist()
    assert found.scores == pytest.approx(wanted.scores, abs=1e-3)


def planted(*frames: int) -> tuple[SegmentIndex, FloatArray]:
    """An index in which a question's second token matches some frames, the earlier the better."""
    question = queries(3)
    heads = [segment(number) for number in range(25)]
    for rank, frame in enumerate(frames):
        vector = (20.0 - rank) * question[1] / np.linalg.norm(question[1], axis=-1, keepdims=True)
        heads[frame // 4].vectors[frame % 4] = vector
    return SegmentIndex.build(heads, num_heads=HEADS, head_dim=DIM), question


def find(
    past: SegmentIndex,
    question: FloatArray,
    constraints: Constraints,
    held: ResidentFrames | None = None,
) -> Found:
    return SimilarityRetriever(RetrievalConfig()).find(
        question, past, constraints, held or ResidentFrames.none(HEADS, DIM)
    )


def test_one_token_that_matches_is_enough() -> None:
    past, question = planted(42, 10)
    assert [hit.frame for hit in find(past, question, Constraints(2)).hits] == [42, 10]


def test_an_event_is_hit_once() -> None:
    past, question = planted(42, 43, 41, 44, 70)
    frames = [hit.frame for hit in find(past, question, Constraints(2, gap_frames=2)).hits]
    assert frames == [42, 70]
    frames = [hit.frame for hit in find(past, question, Constraints(3, gap_frames=1)).hits]
    assert frames == [42, 44, 70]


def test_neighbours_follow_their_hit_and_count() -> None:
    past, question = planted(42, 70)
    wide = Constraints(6, neighbour_frames=2, gap_frames=4)
    hits = find(past, question, wide).hits
    assert [hit.frame for hit in hits] == [42, 41, 43, 40, 44, 70]
    assert hits[0] == find(past, question, Constraints(1)).hits[0]
    bounded = Constraints(9, neighbour_frames=2, end_s=43.0, exclude=frozenset({41}))
    assert [hit.frame for hit in find(past, question, bounded).hits][:2] == [42, 40]
    edge, question = planted(0)
    frames = [hit.frame for hit in find(edge, question, Constraints(3, neighbour_frames=1)).hits]
    assert frames[:2] == [0, 1]


def test_the_margin_compares_with_what_is_resident() -> None:
    past, question = planted(42, 98)
    found = find(past, question, Constraints(1), resident())
    assert [hit.frame for hit in found.hits] == [42]
    assert found.best_resident is not None
    weak = find(past, question, Constraints(1, end_s=40.0), resident())
    assert weak.best_resident == found.best_resident
    assert weak.best_past is not None
    assert weak.best_past < found.best_past
    assert weak.margin == pytest.approx(weak.best_past - found.best_resident)
    assert found.beats(found.margin)
    assert not found.beats(found.margin + 1e-6)
    alone = find(past, question, Constraints(1))
    assert alone.best_resident is None
    assert alone.margin == math.inf


def test_constraints_are_checked() -> None:
    with pytest.raises(ValueError, match="gap_frames: expected 0 or more, got -1"):
        Constraints(1, gap_frames=-1)
    assert Found((Hit(0, 1, 2.0),), 1.5).margin == 0.5
