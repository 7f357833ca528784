"""The report on one result: every row with its chance level, interval and unparsed rate.

Puts rules, tables and statistics together. Knows no dataset by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hermes_like.errors import DatasetError
from hermes_like.evaluation.predictions import Prediction, Predictions
from hermes_like.evaluation.scoring import statistics, words
from hermes_like.evaluation.scoring.judge import Judge, Judgement
from hermes_like.evaluation.scoring.official import FAULTS, family, has_rule, official
from hermes_like.evaluation.scoring.strict import is_in_time, strict
from hermes_like.evaluation.scoring.tally import Row, Tally, is_yes_no
from hermes_like.evaluation.scoring.verdict import Rule, Verdict

Scorer = Literal["official", "strict"]
SCORERS: Mapping[Scorer, Rule] = {"official": official, "strict": strict}


@dataclass(frozen=True, slots=True)
class Part:
    """A section of a table: its rows, and their mean as the paper takes it."""

    title: str
    rows: tuple[Row, ...]
    mean: Row


@dataclass(frozen=True, slots=True)
class Scores:
    """The report.

    Attributes:
        dataset: Registered name.
        edition_sha256: Of the annotations.
        config_hash: Of the settings.
        protocol: How the videos were shown.
        scorer: ``official`` or ``strict``.
        judge: Who judged free words; None: nobody.
        total: The paper's own aggregate, under its name.
        micro: Over all questions.
        macro: Over tasks, unweighted.
        parts: Sections of the table.
        num_videos: That questions were asked about.
        num_hidden: Questions whose true answer is not public.
        num_unjudged: Open questions that need a judge.
        num_dropped: Taken out of the denominator by the rule.
        num_errors: Without a reply because something failed.
        extras: Further figures by name.
        notes: What has to be said beside the figures.
    """

    dataset: str
    edition_sha256: str
    config_hash: str
    protocol: str
    scorer: Scorer
    judge: str | None
    total: Row
    micro: Row
    macro: Row
    parts: tuple[Part, ...]
    num_videos: int
    num_hidden: int
    num_unjudged: int
    num_dropped: int
    num_errors: int
    extras: Mapping[str, float]
    notes: tuple[str, ...]


def judgements_of(
    predictions: Predictions, judge: Judge, progress: Callable[[int, int], None] | None = None
) -> dict[str, Judgement]:
    """Ask a judge about every open question whose answer is public.

    Args:
        predictions: What to judge.
        judge: Whom to ask.
        progress: Called with how many are done and how many there are.

    Raises:
        ModelError: The server refuses every request.
    """
    rows = [row for row in predictions.rows if row.kind == "open" and row.gold is not None]
    found = {}
    for number, row in enumerate(rows, 1):
        found[row.question_id] = judge.judge(row.question, str(row.gold), row.reply)
        if progress is not None:
            progress(number, len(rows))
    return found


def scorers_of(dataset: str) -> tuple[Scorer, ...]:
    """Rules by which a dataset can be scored."""
    return ("official", "strict") if has_rule(dataset) else ("strict",)


def verdicts_of(
    rows: Sequence[Prediction],
    scorer: Scorer,
    judgements: Mapping[str, Judgement] | None = None,
) -> list[Verdict]:
    """Each prediction by one of the rules.

    Args:
        rows: What to score.
        scorer: Which rule.
        judgements: By question; None: there is no judge.

    Raises:
        DatasetError: There is no published rule for this dataset.
    """
    if scorer == "official" and rows and not has_rule(rows[0].dataset):
        raise DatasetError(
            f"{rows[0].dataset}: nobody has published how it is scored; "
            "expected the scorer strict, got official"
        )
    rule = SCORERS[scorer]
    known = judgements or {}
    return [rule(row, known.get(row.question_id)) for row in rows]


def score(
    predictions: Predictions,
    scorer: Scorer,
    *,
    judgements: Mapping[str, Judgement] | None = None,
    judge: str | None = None,
    resamples: int = statistics.RESAMPLES,
    seed: int = statistics.SEED,
) -> Scores:
    """Score a result.

    Args:
        predictions: At least one row.
        scorer: ``official``: the published rule of the dataset; ``strict``: the sane one.
        judgements: By question, for open questions; None: there is no judge.
        judge: Its name, for the report.
        resamples: Draws of the bootstrap.
        seed: Of the draws.
    """
    tally = Tally(predictions.rows, verdicts_of(predictions.rows, scorer, judgements))
    figures = tally.figures()
    chances = tally.chances().figures()
    ranges = statistics.intervals(
        [figure for _, figure in figures.values()], tally.num_videos, resamples, seed
    )
    rows = {
        key: tally.row(key, name, figure, chances[key][1], bounds)
        for (key, (name, figure)), bounds in zip(figures.items(), ranges, strict=True)
    }
    dropped = [verdict.dropped for verdict in tally.verdicts]
    first = predictions.rows[0]
    return Scores(
        dataset=first.dataset,
        edition_sha256=first.edition_sha256,
        config_hash=first.config_hash,
        protocol=first.protocol,
        scorer=scorer,
        judge=judge if judgements is not None else None,
        total=rows["total", ""],
        micro=rows["micro", ""],
        macro=rows["macro", ""],
        parts=tuple(
            Part(
                section.title,
                tuple(rows[section.title, name] for name in cells.names),
                rows[section.title, ""],
            )
            for section, cells in tally.parts
        ),
        num_videos=tally.num_videos,
        num_hidden=dropped.count("hidden"),
        num_unjudged=dropped.count("unjudged"),
        num_dropped=dropped.count("rule"),
        num_errors=sum(row.error is not None for row in predictions.rows),
        extras=_extras(predictions.rows, tally.verdicts, judgements),
        notes=_notes(first, scorer, dropped, predictions.num_torn),
    )


def _extras(
    rows: Sequence[Prediction],
    verdicts: Sequence[Verdict],
    judgements: Mapping[str, Judgement] | None,
) -> dict[str, float]:
    """Figures beside the table that some papers report, or that need no judge."""
    found: dict[str, list[float]] = {}
    items: dict[str, list[float]] = {}
    for row, verdict in zip(rows, verdicts, strict=True):
        if row.kind == "open" and row.gold is not None:
            found.setdefault("exact_match", []).append(words.exact_match(row.reply, row.gold))
            found.setdefault("token_f1", []).append(words.token_f1(row.reply, row.gold))
            if is_yes_no(row):
                said = words.yes_no(row.reply) == row.gold.strip().strip(".!").casefold()
                found.setdefault("yes_no_accuracy", []).append(said)
            given = None if judgements is None else judgements.get(row.question_id)
            if given is not None and given.score is not None:
                found.setdefault("judge_score_0_to_5", []).append(given.score)
        if row.kind == "proactive":
            found.setdefault("in_time", []).append(is_in_time(row))
        if row.kind in ("count", "yes_no") and row.item_id != row.question_id:
            items.setdefault(f"{row.category} {row.item_id}", []).append(verdict.score)
    by_task: dict[str, list[float]] = {}
    for name, values in items.items():
        by_task.setdefault(name.split(" ")[0], []).append(sum(values) / len(values))
    found |= {f"{task}_by_item": values for task, values in by_task.items()}
    return {name: sum(values) / len(values) for name, values in found.items()}


def _notes(
    first: Prediction, scorer: Scorer, dropped: Sequence[str], num_torn: int
) -> tuple[str, ...]:
    notes = []
    if scorer == "official":
        notes.append(f"published rule: {FAULTS[family(first.dataset)]}")
    else:
        notes.append("nothing dropped, nothing guessed: what was not understood is wrong")
    if "unjudged" in dropped:
        notes.append("without a judge only questions whose answer is yes or no count")
    if num_torn:
        notes.append(f"{num_torn} file(s) ended in the middle of a line, which does not count")
    if first.protocol == "offline":
        notes.append("offline: the whole video was read before the first question")
    return tuple(notes)


def check_dataset(predictions: Predictions, name: str) -> None:
    """Refuse a result of another dataset than the one named.

    Raises:
        DatasetError: It is of another one.
    """
    if predictions.dataset != name:
        raise DatasetError(f"expected predictions for {name}, got {predictions.dataset}")
