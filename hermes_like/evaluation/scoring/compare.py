"""Two results on the same questions: paired differences with intervals.

Both are averaged over the same drawn videos, so what makes a video hard cancels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from hermes_like.errors import DatasetError
from hermes_like.evaluation.predictions import Predictions
from hermes_like.evaluation.scoring import statistics
from hermes_like.evaluation.scoring.judge import Judgement
from hermes_like.evaluation.scoring.scores import Scorer, verdicts_of
from hermes_like.evaluation.scoring.statistics import Array, Figure
from hermes_like.evaluation.scoring.tally import Tally


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both results. Shares are 0 to 1.

    Attributes:
        section: Of the table; ``total``, ``micro`` and ``macro`` stand apart.
        name: Row; empty: the mean of the section.
        first: Figure of the first result; None: nothing counts.
        second: Figure of the second result.
        difference: First minus second.
        low: Lower end of its 95 % interval; None: a single video, or the same change in all.
        high: Upper end.
    """

    section: str
    name: str
    first: float | None
    second: float | None
    difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results compared.

    Attributes:
        dataset: Registered name.
        scorer: Which rule.
        total: The paper's own aggregate.
        differences: Every row of the table, the total first.
        num_questions: That both answered.
        num_first_only: Right in the first result alone.
        num_second_only: Right in the second result alone.
        num_videos: That were drawn from.
    """

    dataset: str
    scorer: Scorer
    total: Difference
    differences: tuple[Difference, ...]
    num_questions: int
    num_first_only: int
    num_second_only: int
    num_videos: int


def compare(
    first: Predictions,
    second: Predictions,
    scorer: Scorer = "strict",
    *,
    judgements: tuple[Mapping[str, Judgement], Mapping[str, Judgement]] | None = None,
    resamples: int = statistics.RESAMPLES,
    seed: int = statistics.SEED,
) -> Comparison:
    """Paired differences, first minus second.

    Args:
        first: One result.
        second: Another one, on the same questions; settings may and should differ.
        scorer: Which rule.
        judgements: Of both, for open questions.
        resamples: Draws of the bootstrap.
        seed: Of the draws.

    Raises:
        DatasetError: They are of different datasets or editions, or on different questions.
    """
    _check_same(first, second)
    videos = list(dict.fromkeys(row.video_id for row in first.rows))
    given = judgements or (None, None)
    one, two = (
        Tally(result.rows, verdicts_of(result.rows, scorer, judged), videos)
        for result, judged in zip((first, second), given, strict=True)
    )
    figures_one, figures_two = one.figures(), two.figures()
    keys = list(figures_one)
    pairs = [(figures_one[key][1], figures_two[key][1]) for key in keys]
    ranges = statistics.intervals(
        [partial(_minus, a, b) for a, b in pairs], len(videos), resamples, seed
    )
    found = []
    for key, (a, b), bounds in zip(keys, pairs, ranges, strict=True):
        left, right = statistics.point(a, len(videos)), statistics.point(b, len(videos))
        change = None if left is None or right is None else left - right
        num_videos = min(one.num_counted_videos(key), two.num_counted_videos(key))
        if bounds is None or change is None or not _tells(bounds, change, num_videos):
            found.append(Difference(*key, left, right, change, None, None))
        else:
            found.append(Difference(*key, left, right, change, *bounds))
    rights = [
        (_is_right(x.score, x.dropped), _is_right(y.score, y.dropped))
        for x, y in zip(one.verdicts, two.verdicts, strict=True)
    ]
    return Comparison(
        first.dataset,
        scorer,
        found[0],
        tuple(found),
        len(rights),
        sum(x and not y for x, y in rights),
        sum(y and not x for x, y in rights),
        len(videos),
    )


def _check_same(first: Predictions, second: Predictions) -> None:
    for name in ("dataset", "edition_sha256"):
        a, b = getattr(first, name), getattr(second, name)
        if a != b:
            raise DatasetError(f"cannot compare: {name} {a!r} and {b!r} differ")
    left = {row.question_id for row in first.rows}
    right = {row.question_id for row in second.rows}
    if left != right:
        example = sorted(left ^ right)[0]
        raise DatasetError(
            f"cannot compare: {len(left - right)} question(s) only in the first, "
            f"{len(right - left)} only in the second, {example!r} for one"
        )


def _tells(bounds: tuple[float, float], change: float, num_videos: int) -> bool:
    """Whether an interval says anything: one video, or the same change in all, leaves no width."""
    return num_videos > 1 and (bounds[0] < bounds[1] or change == 0)


def _minus(first: Figure, second: Figure, weights: Array) -> Array:
    return first(weights) - second(weights)


def _is_right(score: float, dropped: str) -> bool:
    return not dropped and score >= 0.5
