"""The index against brute force, and what adding and removing leave behind."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from hermes_like.index import Scorer, SegmentIndex
from tests.retrieval.segments import DIM, HEADS, brute_force, segment


def scorer(seed: int = 0, tokens: int = 5) -> Scorer:
    rng = np.random.default_rng([seed, 99])
    weights = rng.standard_normal((tokens, HEADS, DIM)).astype(np.float32)
    return Scorer(weights, rng.standard_normal((tokens, HEADS)).astype(np.float32))


def built(count: int, *, groups: int = 1) -> SegmentIndex:
    return SegmentIndex.build(
        (segment(i, groups=groups) for i in reversed(range(count))), num_heads=HEADS, head_dim=DIM
    )


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_ranking_is_that_of_brute_force(groups: int) -> None:
    heads = [segment(i, groups=groups) for i in range(30)]
    index = SegmentIndex.build(heads, num_heads=HEADS, head_dim=DIM)
    assert len(index) == 120
    assert index.num_rows == 120 * groups
    for seed in range(5):
        wanted = brute_force(heads, scorer(seed))
        ranked = sorted(wanted, key=lambda frame: -wanted[frame])
        everything = index.top(scorer(seed))
        assert everything.frames.tolist() == ranked
        assert everything.scores == pytest.approx([wanted[f] for f in ranked], abs=1e-4)
        assert everything.segments.tolist() == [frame // 4 for frame in ranked]
        for count in (0, 1, 7, 120, 500):
            assert index.top(scorer(seed), count).frames.tolist() == ranked[:count]


@pytest.mark.parametrize(
    ("start_s", "end_s", "frames"),
    [
        (None, None, range(40)),
        (10.0, None, range(10, 40)),
        (10.5, 12.0, range(10, 12)),
        (None, 0.5, range(1)),
        (39.0, None, range(39, 40)),
        (40.0, None, range(0)),
        (None, 0.0, range(0)),
    ],
)
def test_time_and_exclusion_hold_before_scoring(
    start_s: float | None, end_s: float | None, frames: range
) -> None:
    index = built(10)
    found = index.top(scorer(), start_s=start_s, end_s=end_s)
    assert sorted(found.frames.tolist()) == list(frames)
    without = index.top(scorer(), start_s=start_s, end_s=end_s, exclude={10, 11, 39, 77})
    assert set(without.frames.tolist()) == set(frames) - {10, 11, 39}
    only = index.top(scorer(), start_s=start_s, end_s=end_s, only={10, 11, 39, 77})
    assert set(only.frames.tolist()) == set(frames) & {10, 11, 39}


def test_the_last_frame_lasts_to_the_end_of_its_segment() -> None:
    index = SegmentIndex(HEADS, DIM)
    index.add(replace(segment(0), end_s=9.0))
    assert index.top(scorer(), start_s=8.5).frames.tolist() == [3]
    assert not len(index.top(scorer(), start_s=9.0))


def test_scores_in_chunks_are_those_of_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    index = built(50)
    before = index.top(scorer(), exclude={3, 50, 51})
    monkeypatch.setattr("hermes_like.index._CHUNK_ROWS", 7)
    after = index.top(scorer(), exclude={3, 50, 51})
    assert before.frames.tolist() == after.frames.tolist()
    assert before.scores == pytest.approx(after.scores, abs=1e-5)


@pytest.mark.parametrize("shared_product", [0, 1 << 27])
@pytest.mark.parametrize("num_rows", [0, 1, 51, 52, 53, 1000])
def test_products_in_parts_are_those_of_one_piece(
    num_rows: int, shared_product: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_like.index.ONE_CORE_PRODUCT", 52 * 5 * DIM)
    monkeypatch.setattr("hermes_like.index.SHARED_PRODUCT", shared_product)
    rng, score = np.random.default_rng(num_rows), scorer()
    vectors = rng.standard_normal((num_rows, HEADS, DIM)).astype(np.float32)
    for head in range(HEADS):
        keys = vectors[:, head]  # strided, as resident frames are
        wanted = (score.weights[:, head] @ keys.T + score.offsets[:, head, None]).max(axis=0)
        assert score.head(head, keys) == pytest.approx(wanted, abs=1e-4)


def test_mean_and_sample_are_those_of_all_rows() -> None:
    heads = [segment(i, groups=2) for i in range(20)]
    index = SegmentIndex(HEADS, DIM)
    assert index.sample(5).shape == (0, HEADS, DIM)
    assert not index.mean().any()
    for head in heads:
        index.add(head)
    rows = np.concatenate([head.vectors for head in heads])
    assert index.mean() == pytest.approx(rows.astype(np.float64).mean(0), abs=1e-6)
    assert np.array_equal(index.sample(1000), rows)
    sample = index.sample(9)
    places = [int(np.flatnonzero((rows == row).all(axis=(1, 2)))[0]) for row in sample]
    assert places[0] == 0
    assert places[-1] == len(rows) - 1
    assert set(np.diff(places)) <= {19, 20}


def test_what_is_removed_is_gone_and_the_rest_is_as_if_it_had_never_been() -> None:
    index = built(20)
    gone = {0, 7, 8, 19}
    index.remove([*gone, 1234])
    fresh = SegmentIndex.build(
        (segment(i) for i in range(20) if i not in gone), num_heads=HEADS, head_dim=DIM
    )
    assert len(index) == len(fresh) == index.num_rows == 64
    assert [i in index for i in range(20)] == [i not in gone for i in range(20)]
    assert index.mean() == pytest.approx(fresh.mean(), abs=1e-9)
    ranked, again = index.top(scorer()), fresh.top(scorer())
    assert ranked.frames.tolist() == again.frames.tolist()
    assert np.array_equal(ranked.scores, again.scores)
    for number in range(HEADS):
        held = index._keys(number)
        for segment_id in gone:
            for vector in segment(segment_id).vectors[:, number]:
                assert not (held == vector).all(axis=1).any()
    index.remove(range(20))
    assert len(index) == index.num_rows == len(index.top(scorer())) == 0
    assert not index.mean().any()


def test_a_removed_segment_may_come_again() -> None:
    index = built(5)
    index.remove([2])
    index.add(segment(2, seed=1))
    heads = [segment(i, seed=int(i == 2)) for i in range(5)]
    wanted = brute_force(heads, scorer())
    found = index.top(scorer())
    assert found.frames.tolist() == sorted(wanted, key=lambda frame: -wanted[frame])
    assert sorted(index.top(scorer(), start_s=8.0, end_s=12.0).frames.tolist()) == [8, 9, 10, 11]


def test_segments_that_do_not_fit_are_refused_and_change_nothing() -> None:
    index = built(3)
    before = index.top(scorer())
    good = segment(7)
    bad = {
        "already": segment(1),
        "expected vectors": replace(good, vectors=good.vectors[:, :1]),
        "same number of vectors": replace(good, vectors=good.vectors[:3]),
        "finite": replace(good, vectors=np.full_like(good.vectors, np.nan)),
        "an id below": replace(good, segment_id=1 << 41),
    }
    for message, head in bad.items():
        with pytest.raises(ValueError, match=message):
            index.add_all([segment(5), head])
    with pytest.raises(ValueError, match="already"):
        index.add_all([good, good])
    assert 5 not in index
    after = index.top(scorer())
    assert before.frames.tolist() == after.frames.tolist()
    index.add(replace(good, segment_id=(1 << 41) - 1))
    assert (1 << 41) - 1 in index.top(scorer()).segments


def test_bytes_grow_with_the_rows_and_cover_them() -> None:
    index = SegmentIndex(HEADS, DIM)
    sizes = []
    for number in range(64):
        index.add(segment(number))
        sizes.append(index.num_bytes)
        assert index.num_bytes >= index.num_rows * HEADS * (4 * DIM + 8)
    assert sizes == sorted(sizes)
    assert sizes[-1] < 2 * index.num_rows * (HEADS * (4 * DIM + 48) + 32) + 4096


def test_reading_while_a_stream_is_written() -> None:
    index = built(4)
    errors: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(4, 400):
                index.add(segment(number))
                if number % 5 == 0:
                    index.remove([number - 3])
        except BaseException as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        found = index.top(scorer(), 8)
        assert len(set(found.frames.tolist())) == 8
    writer.join()
    assert not errors
    assert len(index) == 4 * (400 - 79)  # multiples of 5 in the range


def test_no_heads_find_nothing() -> None:
    index = SegmentIndex(0, DIM)
    index.add(replace(segment(0), vectors=np.zeros((4, 0, 0), np.float32)))
    assert len(index) == 0
    with pytest.raises(ValueError, match="channels"):
        SegmentIndex(1, 0)
