"""Paired differences between two results on the same questions."""

from __future__ import annotations

import numpy as np
import pytest

from hermes_like.evaluation import DatasetError
from hermes_like.evaluation.predictions import Predictions
from hermes_like.evaluation.scoring.compare import compare
from hermes_like.evaluation.scoring.scores import score
from tests.evaluation.test_scoring import many


def test_a_result_against_itself() -> None:
    result = many("rekv", {"a": "BBA", "b": "AAB", "c": "BAB"})
    found = compare(result, result)
    assert (found.total.difference, found.total.low, found.total.high) == (0, 0, 0)
    assert (found.num_questions, found.num_first_only, found.num_second_only) == (9, 0, 0)


def test_figures_are_those_of_the_reports_and_signs_are_first_minus_second() -> None:
    first = many("ovobench", {"a": "BBB", "b": "BAB"}, category="OCR")
    second = many("ovobench", {"a": "BAA", "b": "BBB"}, category="OCR")
    for scorer in ("official", "strict"):
        found = compare(first, second, scorer)
        one, two = score(first, scorer).total, score(second, scorer).total
        assert (found.total.first, found.total.second) == (one.score, two.score)
        assert found.total.difference == pytest.approx(1 / 6)
        back = compare(second, first, scorer).total
        assert back.difference == pytest.approx(-1 / 6)
        assert found.total.low is not None
        assert back.high == pytest.approx(-found.total.low)
    assert (found.num_first_only, found.num_second_only) == (2, 1)
    assert {d.section for d in found.differences} >= {"total", "micro", "macro"}


def test_pairing_takes_out_what_makes_videos_hard() -> None:
    """Hard and easy videos, one more right answer in each: the difference is sure."""
    generator = np.random.default_rng(2)
    right = generator.integers(0, 9, size=30)
    first = {str(v): "B" * (n + 1) + "A" * (9 - n) for v, n in enumerate(right)}
    second = {str(v): "B" * n + "A" * (10 - n) for v, n in enumerate(right)}
    one, two = many("rekv", first), many("rekv", second)
    alone = score(one, "strict").total
    paired = compare(one, two).total
    assert paired.difference == pytest.approx(0.1)
    assert paired.low is not None
    assert paired.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert paired.low > 0
    assert paired.high - paired.low < 0.2 * (alone.high - alone.low)


def test_what_cannot_be_compared() -> None:
    first = many("rekv", {"a": "BB"})
    with pytest.raises(DatasetError, match=r"1 question.* only in the first, 0 only in the"):
        compare(first, many("rekv", {"a": "B"}))
    with pytest.raises(DatasetError, match="dataset 'rekv' and 'mlvu' differ"):
        compare(first, many("mlvu", {"a": "BB"}))
    other = [row.model_copy(update={"edition_sha256": "1" * 64}) for row in first.rows]
    with pytest.raises(DatasetError, match="edition_sha256"):
        compare(first, Predictions(tuple(other)))


def test_the_same_change_in_every_video_has_no_interval() -> None:
    first = many("rekv", {"a": "BA", "b": "BA"})
    found = compare(first, many("rekv", {"a": "AA", "b": "AA"})).total
    assert (found.difference, found.low, found.high) == (0.5, None, None)


def test_a_single_video_has_no_interval() -> None:
    found = compare(many("rekv", {"a": "BA"}), many("rekv", {"a": "AA"})).total
    assert (found.difference, found.low, found.high) == (0.5, None, None)
