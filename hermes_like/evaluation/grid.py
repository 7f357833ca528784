"""Several settings on the same questions: what is missing is run, and every pair is compared.

Knows runs and scores. Knows no table for people.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from hermes_like.codec import CODECS
from hermes_like.config import HermesConfig
from hermes_like.errors import BudgetError, ConfigError
from hermes_like.evaluation.base import Dataset
from hermes_like.evaluation.passes import Selection
from hermes_like.evaluation.predictions import Prediction, Predictions, read_predictions
from hermes_like.evaluation.run import Place, run
from hermes_like.evaluation.scoring.compare import Difference, compare
from hermes_like.evaluation.scoring.scores import Scorer, score
from hermes_like.evaluation.scoring.tally import Row
from hermes_like.evaluation.settings import RunSettings
from hermes_like.evaluation.standing import RunReport, Watcher
from hermes_like.evaluation.worker import load
from hermes_like.models.base import ModelAdapter
from hermes_like.policies import POLICIES
from hermes_like.presets import with_settings
from hermes_like.records import Route


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a grid.

    Attributes:
        policy: ``policy.name``.
        device_tokens: ``memory.device_tokens``.
        codec: ``store.codec``.
        route: Where to look; None: by the words of each question.
    """

    policy: str
    device_tokens: int
    codec: str
    route: Route | None

    @property
    def name(self) -> str:
        """For tables and names of files."""
        return f"{self.policy}-{self.device_tokens}-{self.codec}-{self.route or 'auto'}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one setting came to.

    Attributes:
        setting: Which one.
        problem: Why it cannot be run; None: it was.
        report: Of the run.
        total: The dataset's own aggregate.
        ttft_s: Median time to the first text; None: nothing was answered.
    """

    setting: Setting
    problem: str | None = None
    report: RunReport | None = None
    total: Row | None = None
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two settings compared on the same questions.

    Attributes:
        first: Name of the one.
        second: Name of the other.
        total: First minus second, with a paired interval.
        num_first_only: Right in the first alone.
        num_second_only: Right in the second alone.
    """

    first: str
    second: str
    total: Difference
    num_first_only: int
    num_second_only: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Everything that came of it, in the order of the settings."""

    dataset: str
    scorer: Scorer
    outcomes: tuple[Outcome, ...]
    pairs: tuple[Pair, ...]


def settings_of(
    config: HermesConfig,
    policies: Sequence[str] = (),
    device_tokens: Sequence[int] = (),
    codecs: Sequence[str] = (),
    routes: Sequence[str] = (),
) -> list[Setting]:
    """Every combination; what is not named stays as the configuration has it.

    Raises:
        ConfigError: An unknown name.
    """
    for name in policies:
        POLICIES.get(name)
    for name in codecs:
        CODECS.get(name)
    known = ("auto", *get_args(Route))
    for name in routes:
        if name not in known:
            raise ConfigError(f"route: expected one of {', '.join(known)}, got {name!r}")
    combined = itertools.product(
        policies or (config.policy.name,),
        device_tokens or (config.memory.device_tokens,),
        codecs or (config.store.codec,),
        routes or ("auto",),
    )
    return [
        Setting(policy, tokens, codec, None if route == "auto" else cast(Route, route))
        for policy, tokens, codec, route in dict.fromkeys(combined)
    ]


def run_grid(
    dataset: Dataset,
    place: Place,
    base: RunSettings,
    settings: Sequence[Setting],
    out: Path,
    *,
    selection: Selection | None = None,
    num_workers: int = 1,
    scorer: Scorer = "strict",
    resamples: int = 2000,
    watching: Callable[[str], AbstractContextManager[Watcher]],
) -> Grid:
    """Run what is missing of every setting, and compare them all.

    A setting that does not fit the model is named in the result and the others are run.

    Args:
        dataset: As a reader gave it.
        place: Where it was read from.
        base: What all settings share.
        settings: See :func:`settings_of`.
        out: Folder with one file of predictions per setting.
        selection: Which part of the dataset.
        num_workers: See :func:`~hermes_like.evaluation.run.run`.
        scorer: By which rule.
        resamples: Draws of the bootstrap.
        watching: Shows how the run of a named setting goes.
    """
    model = load(base.config.model) if num_workers == 1 else None
    outcomes, results = [], {}
    for setting in settings:
        try:
            with watching(setting.name) as watch:
                outcome, rows = _run(
                    dataset, place, base, setting, out, selection, num_workers, model, watch
                )
        except (BudgetError, ConfigError) as error:
            outcomes.append(Outcome(setting, problem=str(error)))
            continue
        scores = score(rows, scorer, resamples=resamples)
        outcomes.append(Outcome(setting, None, outcome, scores.total, _ttft_s(rows.rows)))
        results[setting.name] = rows
    pairs = tuple(_pairs(results, scorer, resamples))
    return Grid(dataset.name, scorer, tuple(outcomes), pairs)


def _run(
    dataset: Dataset,
    place: Place,
    base: RunSettings,
    setting: Setting,
    out: Path,
    selection: Selection | None,
    num_workers: int,
    model: ModelAdapter | None,
    watch: Watcher,
) -> tuple[RunReport, Predictions]:
    config = with_settings(
        base.config,
        {
            "policy.name": setting.policy,
            "memory.device_tokens": setting.device_tokens,
            "store.codec": setting.codec,
        },
    )
    report = run(
        dataset,
        place,
        base.model_copy(update={"config": config, "route": setting.route}),
        out / f"{setting.name}.jsonl",
        selection=selection,
        num_workers=num_workers,
        model=model,
        watch=watch,
    )
    rows = read_predictions(report.path).rows
    wanted = report.question_ids
    return report, Predictions(tuple(row for row in rows if row.question_id in wanted))


def _pairs(results: dict[str, Predictions], scorer: Scorer, resamples: int) -> Iterator[Pair]:
    for first, second in itertools.combinations(results, 2):
        found = compare(results[first], results[second], scorer, resamples=resamples)
        yield Pair(first, second, found.total, found.num_first_only, found.num_second_only)


def _ttft_s(rows: Sequence[Prediction]) -> float | None:
    times = [row.ttft_s for row in rows if row.ttft_s is not None]
    return statistics.median(times) if times else None
