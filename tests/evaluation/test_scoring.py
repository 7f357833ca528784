"""Scores: published rules and the sane one, averages as papers take them, intervals, chance."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from hermes_like.errors import DatasetError
from hermes_like.evaluation.predictions import Poll, Prediction, Predictions, read_predictions
from hermes_like.evaluation.scoring import statistics
from hermes_like.evaluation.scoring.judge import Judgement
from hermes_like.evaluation.scoring.official import FAULTS, family, official
from hermes_like.evaluation.scoring.scores import Scorer, Scores, score, scorers_of
from hermes_like.evaluation.scoring.strict import strict
from tests.evaluation.fixtures import EDITIONS, load, predictions, write_lines


def row(dataset: str, reply: str | None, **fields: object) -> Prediction:
    """A prediction of a made-up question with four options, the second of which is true."""
    content: dict[str, object] = {
        "dataset": dataset,
        "edition_sha256": "0" * 64,
        "config_hash": "config",
        "question_id": "q",
        "video_id": "v",
        "position": 0,
        "kind": "choice",
        "category": "task",
        "question": "?",
        "options": ("one", "two", "three", "four"),
        "gold": "two",
        "gold_index": 1,
        "reply": reply,
    }
    return Prediction.model_validate(content | fields)


def many(dataset: str, outcomes: dict[str, str], **fields: object) -> Predictions:
    """Questions of several videos: each letter of ``outcomes[video]`` is a reply."""
    rows = []
    for video, replies in outcomes.items():
        for reply in replies:
            number = len(rows)
            own = {"question_id": str(number), "video_id": video, "position": number}
            rows.append(row(dataset, reply, **own, **fields))
    return Predictions(tuple(rows))


@pytest.mark.parametrize(
    ("dataset", "reply", "expected"),
    [
        ("streamingbench-real", "B. two", 1),
        ("streamingbench-real", "The answer is B", 0),
        ("streamingbench-real", "", None),
        ("streamingbench-real", None, None),
        ("ovobench", "Because of that", 1),
        ("ovobench", "Answer: C", 0),
        ("ovobench", None, 0),
        ("odvbench", "b", 1),
        ("odvbench", "it is a B", 0),
        ("odvbench", "", None),
        ("videomme", "Based on the video, C", 1),
        ("videomme", "it is two", None),
        ("videomme", None, None),
        ("mlvu", "B) two", 1),
        ("mlvu", "(B) two", 0),
        ("egoschema", "B", 1),
        ("egoschema", "no idea", 0),
        ("cgbench", '```json\n{"result": "B"}\n```', 1),
        ("cgbench", "B", None),
        ("mvbench", "B) two", 1),
        ("mvbench", "(b)", 1),
        ("mvbench", "", 1),
        ("mvbench", "C) three", 0),
        ("qaego4d", "Best option: (B) two", 1),
        ("rekv", "B", 1),
        ("rvs-ego", "B", 1),
    ],
)
def test_published_rules(dataset: str, reply: str | None, expected: int | None) -> None:
    verdict = official(row(dataset, reply), None)
    assert (None if verdict.dropped == "rule" else verdict.score) == expected
    assert family(dataset) in FAULTS


@pytest.mark.parametrize("name", sorted({name for name, *_ in EDITIONS}))
def test_strict_drops_and_guesses_nothing(name: str) -> None:
    for reply in (None, "", "no idea at all", "Based on the video"):
        verdict = strict(row(name, reply), None)
        assert (verdict.score, verdict.dropped, verdict.is_parsed) == (0, "", False)
    assert strict(row(name, "The answer is (B)."), None).score == 1


def test_longvideobench_guesses_the_same_every_time_and_at_chance() -> None:
    guesses = [official(row("longvideobench", "?", question_id=str(n)), None) for n in range(400)]
    assert [g.score for g in guesses] == [
        official(row("longvideobench", "?", question_id=str(n)), None).score for n in range(400)
    ]
    assert 0.15 < sum(g.score for g in guesses) / 400 < 0.35
    assert not any(g.is_parsed for g in guesses)


@pytest.mark.parametrize(
    ("kind", "gold", "reply", "by_rule", "sane"),
    [
        ("count", "2", "2", 1, 1),
        ("count", "12", "1 or 2", 1, 0),
        ("count", "2", "two", 0, 1),
        ("yes_no", "yes", "Yes", 1, 1),
        ("yes_no", "yes", "yes", 0, 1),
        ("yes_no", "no", "Yes. Not at all clear", 1, 0),
        ("yes_no", "no", "N", 1, 0),
    ],
)
def test_forward_test_points(kind: str, gold: str, reply: str, by_rule: int, sane: int) -> None:
    point = row("ovobench-forward", reply, kind=kind, gold=gold, options=(), gold_index=None)
    assert official(point, None).score == by_rule
    assert strict(point, None).score == sane


@pytest.mark.parametrize(
    ("last_s", "last", "reply", "by_rule", "sane"),
    [
        (100, "yes", "Second goal!", 1, 1),
        (102, "Yes.", "second goal", 0, 1),
        (103, "yes", "Second goal", 0, 0),
        (98, "no", "Second goal", 1, 0),
        (100, "yes", "Goal", 0, 0),
    ],
)
def test_proactive(last_s: float, last: str, reply: str, by_rule: int, sane: int) -> None:
    polls = (Poll(at_s=97, reply="no"), Poll(at_s=last_s, reply=last))
    fields = {"kind": "proactive", "gold": "Second goal", "gold_s": 100, "gold_index": None}
    given = row("streamingbench-proactive", reply, polls=polls, options=(), **fields)
    assert official(given, None).score == by_rule
    assert strict(given, None).score == sane


def test_hidden_answers_do_not_count() -> None:
    hidden = row("egoschema", "A", gold=None, gold_index=None)
    assert official(hidden, None).dropped == strict(hidden, None).dropped == "hidden"
    wrong = row("mlvu", "A", gold="a glove", gold_index=None)
    assert (strict(wrong, None).score, strict(wrong, None).dropped) == (0, "")


def test_ovobench_averages_as_the_paper_does() -> None:
    rows = []
    for task, outcomes in (("OCR", "BBBB"), ("ACR", "AB"), ("EPM", "BA"), ("REC", "10")):
        for reply in outcomes:
            number = len(rows)
            own = {"question_id": str(number), "position": number, "video_id": str(number % 3)}
            if task == "REC":
                own |= {"kind": "count", "gold": "1", "gold_index": None, "item_id": "item"}
            rows.append(row("ovobench", reply, category=task, **own))
    report = score(Predictions(tuple(rows)), "official")
    means = {part.title: part.mean.score for part in report.parts}
    assert means == {
        "Real-Time Visual Perception": pytest.approx((1 + 0.5) / 2),
        "Backward Tracing": pytest.approx(0.5),
        "Forward Active Responding": pytest.approx(0.5),
    }
    assert report.total.name == "Overall Avg."
    assert report.total.score == pytest.approx((0.75 + 0.5 + 0.5) / 3)
    assert report.micro.score == pytest.approx(7 / 10)
    assert report.macro.score == pytest.approx((1 + 0.5 + 0.5 + 0.5) / 4)
    assert report.extras["REC_by_item"] == 0.5
    assert report.total.chance == pytest.approx((0.25 + 0.25 + 0) / 3)


def test_mlvu_average_leaves_generation_out() -> None:
    rows = [
        row("mlvu", reply, category=task, question_id=str(n), position=n, video_id=str(n))
        for n, (task, reply) in enumerate([("TR", "B)"), ("TR", "A)"), ("ER", "B)"), ("VS", "A)")])
    ]
    report = score(Predictions(tuple(rows)), "official")
    assert (report.total.name, report.total.score) == ("M-Avg", 0.75)
    assert [r.name for r in report.parts[0].rows] == ["TR", "ER"]
    assert report.micro.score == 0.5


def test_official_drops_what_strict_counts() -> None:
    result = many("streamingbench", {"a": "BB", "b": "A"}, category="OP")
    missing = result.rows[0].model_copy(update={"reply": None, "question_id": "x", "error": "no"})
    result = Predictions((*result.rows, missing.model_copy(update={"position": 9})))
    by_rule, sane = score(result, "official"), score(result, "strict")
    assert (by_rule.total.score, by_rule.total.num, by_rule.num_dropped) == (
        pytest.approx(2 / 3),
        3,
        1,
    )
    assert (sane.total.score, sane.total.num, sane.num_dropped) == (0.5, 4, 0)
    assert by_rule.num_errors == sane.num_errors == 1
    assert sane.total.unparsed == by_rule.total.unparsed == 0.25


@pytest.mark.parametrize("scorer", ["official", "strict"])
@pytest.mark.parametrize(("name", "fixture"), [(name, fixture) for name, fixture, *_ in EDITIONS])
def test_every_dataset_can_be_scored(
    name: str, fixture: str, scorer: Scorer, tmp_path: Path
) -> None:
    """True answers as replies: what has one and is parsed by the strict rule is right."""
    dataset = load(name, fixture)
    rows = predictions(dataset)
    read = read_predictions(write_lines(tmp_path / "p.jsonl", rows))
    if scorer not in scorers_of(name):
        with pytest.raises(DatasetError, match="nobody has published"):
            score(read, scorer, resamples=100)
        return
    report = score(read, scorer, resamples=100)
    assert report.micro.num_asked == len(rows)
    assert sum(part.mean.num_asked for part in report.parts[:1]) <= len(rows)
    assert report.dataset == name
    assert report.notes
    if scorer == "strict":
        wrong = sum(q.kind == "choice" and q.gold_index is None for q in dataset.questions)
        wrong -= sum(q.gold is None for q in dataset.questions)
        wrong += sum(q.kind == "proactive" for q in dataset.questions)
        counted = report.micro.num
        assert (report.micro.score or 0) * counted == pytest.approx(counted - wrong)


def test_open_questions_without_a_judge() -> None:
    dataset = load("rvs-ego", "rvs_rekv")
    report = score(Predictions(tuple(predictions(dataset, _1="no"))), "strict")
    assert (report.total.num, report.total.num_asked, report.num_unjudged) == (2, 3, 1)
    assert report.total.score == 0.5
    assert report.extras["yes_no_accuracy"] == 0.5
    assert report.extras["exact_match"] == pytest.approx(2 / 3)
    assert report.total.chance == 0.5
    assert any("without a judge" in note for note in report.notes)


def test_open_questions_with_a_judge_that_fails_once() -> None:
    rows = Predictions(tuple(predictions(load("rvs-ego", "rvs_rekv"))))
    said = (Judgement(True, 5.0), Judgement(None, None, "busy"), Judgement(False, 1.0))
    judged = {r.question_id: given for r, given in zip(rows.rows, said, strict=True)}
    by_rule = score(rows, "official", judgements=judged, judge="model")
    sane = score(rows, "strict", judgements=judged, judge="model")
    assert (by_rule.total.score, by_rule.total.num) == (0.5, 2)
    assert (sane.total.score, sane.total.num) == (pytest.approx(1 / 3), 3)
    assert sane.extras["judge_score_0_to_5"] == 3.0
    assert sane.judge == "model"


def test_short_answers_by_exact_match() -> None:
    rows = Predictions(tuple(predictions(load("activitynet-qa", "activitynet"), _1="blue")))
    report = score(rows, "official")
    assert [(r.name, r.score) for r in report.parts[0].rows] == [("color", 0.0), ("yes/no", 1.0)]
    assert report.total.score == 0.5


def test_intervals_grow_when_questions_of_a_video_go_together() -> None:
    """80 questions at 50 %: alike within each of 4 videos, or each video half and half."""
    alike = score(
        many("rekv", {"a": "B" * 20, "b": "A" * 20, "c": "B" * 20, "d": "A" * 20}), "strict"
    )
    mixed = score(many("rekv", dict.fromkeys("abcd", "AB" * 10)), "strict")
    assert alike.total.score == mixed.total.score == 0.5
    assert alike.total.low is not None
    assert alike.total.high is not None
    assert alike.total.high - alike.total.low > 0.8
    # No video differs from another: Wilson's interval of 4 videos, not of 80 questions.
    assert (mixed.total.low, mixed.total.high) == statistics.wilson(0.5, 4)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    generator = np.random.default_rng(5)
    hits = 0
    for _ in range(120):
        chance = generator.beta(4, 4, size=40)
        outcomes = {
            str(video): "".join(generator.choice(["B", "A"], p=[p, 1 - p], size=5))
            for video, p in enumerate(chance)
        }
        total = score(many("rekv", outcomes), "strict", resamples=300).total
        assert total.low is not None
        assert total.high is not None
        hits += total.low <= 0.5 <= total.high
    assert 0.88 < hits / 120 <= 1.0


def test_intervals_are_the_same_for_the_same_seed_and_none_for_one_video() -> None:
    generator = np.random.default_rng(0)
    outcomes = {str(video): "".join(generator.choice(["B", "A"], 7)) for video in range(30)}
    result = many("rekv", outcomes)
    assert score(result, "strict", seed=1) == score(result, "strict", seed=1)
    few = [score(result, "strict", seed=seed, resamples=100) for seed in range(4)]
    assert len({report.total.low for report in few}) > 1
    single = score(many("rekv", {"a": "BBA"}), "strict").total
    assert (single.low, single.high) == (None, None)


def test_nothing_that_counts_gives_no_figure() -> None:
    hidden = row("egoschema", "A", gold=None, gold_index=None)
    report: Scores = score(Predictions((hidden,)), "official")
    assert (report.total.score, report.total.num, report.num_hidden) == (None, 0, 1)


def test_wilson() -> None:
    low, high = statistics.wilson(0.5, 100)
    assert (low, high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))
    assert statistics.wilson(1.0, 10)[1] == pytest.approx(1)
    assert statistics.wilson(0.0, 10)[0] == pytest.approx(0)
    assert not math.isnan(statistics.wilson(0.0, 1)[1])
