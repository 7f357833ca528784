"""``hermes-like eval``: datasets checked, run and scored. Only running needs a model."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from tqdm import tqdm

from hermes_like.cli import eval_more, eval_run, eval_tables, options
from hermes_like.errors import ConfigError

if TYPE_CHECKING:
    from hermes_like.evaluation.predictions import Predictions
    from hermes_like.evaluation.scoring.judge import Judge, Judgement

_KEY_VARIABLE = "HERMES_LIKE_JUDGE_KEY"

app = typer.Typer(
    no_args_is_help=True,
    help="Check datasets, run them, and score predictions; only running needs a model.",
)
app.command("run", no_args_is_help=True)(eval_run.run)
app.command("grid", no_args_is_help=True)(eval_run.grid)
app.command("serve-pipe")(eval_more.serve_pipe)
app.command("make-easyvqa", no_args_is_help=True)(eval_more.make_easyvqa)
app.command("make-sprites", no_args_is_help=True)(eval_more.make_sprites)


class ScorerName(StrEnum):
    """By which rule replies count."""

    OFFICIAL = "official"
    STRICT = "strict"


@app.command("check", no_args_is_help=True)
def check(
    dataset: Annotated[str, typer.Argument(help="Name; the command datasets lists them.")],
    folder: Annotated[Path, typer.Argument(help="The download, or one annotation file of it.")],
    videos: Annotated[
        Path | None, typer.Option(help="Where the videos lie, if elsewhere.", metavar="DIR")
    ] = None,
    edition: Annotated[
        str | None, typer.Option(help="Which edition to read, if there are several.")
    ] = None,
    opens: Annotated[
        bool, typer.Option("--open", help="Also decode the first frame of every video.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Say what is there and what is missing. Exit status 3: videos are missing or broken."""
    from hermes_like.evaluation import load_dataset
    from hermes_like.evaluation.check import check_dataset

    loaded = load_dataset(dataset, folder, videos=videos, edition=edition)
    with _Progress("videos") as progress:
        report = check_dataset(loaded, opens=opens, progress=progress)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), default=str, ensure_ascii=False))
    else:
        eval_tables.print_check(report, eval_tables.make_console())
    if not report.is_complete:
        raise typer.Exit(eval_run.VIDEOS_MISSING)


@app.command("datasets")
def datasets() -> None:
    """List the datasets that can be read, by name."""
    from hermes_like.evaluation import DATASETS

    for name in DATASETS.names():
        typer.echo(f"{name:28} {DATASETS.get(name).title}")


@app.command("score", no_args_is_help=True)
def score(
    predictions: Annotated[
        list[Path], typer.Argument(help="File of predictions, or the shards of one result.")
    ],
    dataset: Annotated[
        str | None, typer.Option(help="Refuse predictions for another dataset.", metavar="NAME")
    ] = None,
    scorer: Annotated[
        ScorerName | None,
        typer.Option(help="official: as published; default: both that there are."),
    ] = None,
    compare_to: Annotated[
        Path | None, typer.Option("--compare", help="Another result on the same questions.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help=f"Address of a judge of free words, OpenAI protocol; key from {_KEY_VARIABLE}.",
            metavar="URL",
        ),
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="Name of the judge's model.")] = None,
    judge_cache: Annotated[
        Path | None, typer.Option(help="File in which verdicts are kept.", metavar="FILE")
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Draws of the bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Score predictions: table, chance level, 95 % intervals over videos, unparsed replies."""
    from hermes_like.evaluation.predictions import read_predictions
    from hermes_like.evaluation.scoring import scores

    result = read_predictions(*predictions)
    if dataset is not None:
        scores.check_dataset(result, dataset)
    other = None if compare_to is None else read_predictions(compare_to)
    asked = _judge(judge, judge_model, judge_cache)
    judged = None if asked is None else _judged(result, asked)
    other_judged = None if asked is None or other is None else _judged(other, asked)
    known = scores.scorers_of(result.rows[0].dataset)
    for name in known if scorer is None else (scorer.value,):
        report = scores.score(
            result,
            name,
            judgements=judged,
            judge=None if asked is None else asked.name,
            resamples=resamples,
            seed=seed,
        )
        _show(report, as_json, eval_tables.print_scores)
        if other is not None:
            from hermes_like.evaluation.scoring.compare import compare

            pair = None if judged is None or other_judged is None else (judged, other_judged)
            found = compare(result, other, name, judgements=pair, resamples=resamples, seed=seed)
            _show(found, as_json, eval_tables.print_comparison)


@app.command("export", no_args_is_help=True)
def export(
    predictions: Annotated[
        list[Path], typer.Argument(help="File of predictions, or the shards of one result.")
    ],
    form: Annotated[str, typer.Option("--to", help="egoschema | svbench | vlmevalkit | lmms-eval")],
) -> None:
    """Write predictions to stdout as a submission, or as results of another harness."""
    from hermes_like.evaluation import export as forms
    from hermes_like.evaluation.predictions import read_predictions

    typer.echo(forms.export(read_predictions(*predictions), form), nl=False)


def _judge(address: str | None, model: str | None, cache: Path | None) -> Judge | None:
    if address is None:
        return None
    if model is None:
        raise ConfigError("--judge: expected --judge-model with it")
    from hermes_like.evaluation.scoring.judge import Judge

    return Judge(address, model, cache=cache, key=os.environ.get(_KEY_VARIABLE))


def _judged(result: Predictions, judge: Judge) -> dict[str, Judgement]:
    from hermes_like.evaluation.scoring.scores import judgements_of

    with _Progress("judged") as progress:
        return judgements_of(result, judge, progress)


def _show(report: Any, as_json: bool, print_it: Callable[[Any, Console], None]) -> None:
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), ensure_ascii=False))
    else:
        print_it(report, eval_tables.make_console())


class _Progress:
    """A bar on stderr where that is a terminal."""

    def __init__(self, unit: str) -> None:
        self._bar = tqdm(unit=f" {unit}", disable=None, leave=False)

    def __call__(self, done: int, total: int) -> None:
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
