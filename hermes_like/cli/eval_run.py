"""``hermes-like eval run`` and ``grid``: datasets answered with a model.

Exit codes: 0 every question has a reply, 1 failure, 2 usage or configuration, 3 videos are missing
or broken, 4 questions have no reply for other reasons. 3 and 4 come after everything else was run.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tqdm import tqdm

from hermes_like.cli import eval_tables, options
from hermes_like.errors import ConfigError

if TYPE_CHECKING:
    from hermes_like.evaluation.base import Dataset
    from hermes_like.evaluation.hands import Hand
    from hermes_like.evaluation.passes import Selection
    from hermes_like.evaluation.run import Place
    from hermes_like.evaluation.settings import RunSettings
    from hermes_like.evaluation.standing import RunReport, Standing
    from hermes_like.evaluation.worker import Setup

#: Exit status when videos are missing or broken, and when questions have no reply otherwise.
VIDEOS_MISSING, UNANSWERED = 3, 4


class ContextName(StrEnum):
    """What a question may have seen."""

    STREAM = "stream"
    OFFICIAL = "official"


DatasetName = Annotated[str, typer.Argument(help="Name; the command datasets lists them.")]
Folder = Annotated[Path, typer.Argument(help="The download, or one annotation file of it.")]
Videos = Annotated[
    Path | None, typer.Option(help="Where the videos lie, if elsewhere.", metavar="DIR")
]
Edition = Annotated[str | None, typer.Option(help="Which edition to read, if there are several.")]
Tasks = Annotated[
    str | None, typer.Option(help="Only these rows of the table.", metavar="NAME,...")
]
OnlyVideo = Annotated[
    list[str] | None,
    typer.Option("--video", help="Only this video; may be repeated.", metavar="ID"),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only so many videos, the first ones.")]
Context = Annotated[
    ContextName,
    typer.Option(
        help="stream: each video once from its beginning. official: a question sees only what its "
        "protocol shows (StreamingBench: the last 60 s), one pass each."
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        help="Where the past of a video goes when RAM is full, while it is watched; without it, "
        "what store.host_bytes cannot hold is forgotten.",
        metavar="DIR",
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="Videos at a time, in processes of their own.")]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Workers on a Ray cluster: its address, or 'local'. Needs the extra 'ray'.",
        metavar="ADDRESS",
    ),
]


def run(
    dataset: DatasetName,
    folder: Folder,
    out: Annotated[Path, typer.Option(help="File of predictions; what it holds is not run again.")],
    model: options.Model = None,
    preset: options.Preset = None,
    policy: options.Policy = None,
    sample_fps: options.SampleFps = None,
    settings: options.Settings = None,
    route: options.Route = None,
    context: Context = ContextName.STREAM,
    tasks: Tasks = None,
    video: OnlyVideo = None,
    limit: Limit = None,
    videos: Videos = None,
    edition: Edition = None,
    scratch: Scratch = None,
    workers: Workers = 1,
    ray: RayAddress = None,
    as_json: options.Json = False,
) -> None:
    """Answer the questions of a dataset, each at its time; go on where a run was broken off.

    Exit status: 0 all answered, 3 videos missing or broken, 4 other questions without a reply.
    """
    from hermes_like.evaluation.run import run as run_dataset

    loaded, place = _loaded(dataset, folder, videos, edition, scratch)
    chosen = _selection(tasks, video, limit)
    how = run_settings(preset, model, policy, sample_fps, settings, route, context)
    with Bar() as bar:
        report = run_dataset(
            loaded,
            place,
            how,
            out,
            selection=chosen,
            num_workers=workers,
            hands=None if ray is None else _ray_hands(ray),
            watch=bar,
        )
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), default=str, ensure_ascii=False))
    else:
        eval_tables.print_run(report, eval_tables.make_console())
    status = status_of([report])
    if status:
        raise typer.Exit(status)


def grid(
    dataset: DatasetName,
    folder: Folder,
    out: Annotated[
        Path, typer.Option(help="Folder with one file per setting; nothing is run twice.")
    ],
    policies: Annotated[str | None, typer.Option(metavar="NAME,...")] = None,
    device_tokens: Annotated[str | None, typer.Option(metavar="N,...")] = None,
    codecs: Annotated[str | None, typer.Option(metavar="NAME,...")] = None,
    routes: Annotated[str | None, typer.Option(help="auto, now, ...", metavar="NAME,...")] = None,
    model: options.Model = None,
    preset: options.Preset = None,
    sample_fps: options.SampleFps = None,
    settings: options.Settings = None,
    context: Context = ContextName.STREAM,
    tasks: Tasks = None,
    video: OnlyVideo = None,
    limit: Limit = None,
    videos: Videos = None,
    edition: Edition = None,
    scratch: Scratch = None,
    workers: Workers = 1,
    as_json: options.Json = False,
) -> None:
    """Run every combination of settings that has not been run, and compare each with each.

    Exit status as of 'eval run'; 4 also if a setting does not fit the model.
    """
    from hermes_like.evaluation.grid import run_grid, settings_of

    loaded, place = _loaded(dataset, folder, videos, edition, scratch)
    base = run_settings(preset, model, None, sample_fps, settings, None, context)
    found = run_grid(
        loaded,
        place,
        base,
        settings_of(
            base.config,
            names(policies),
            whole_numbers("--device-tokens", device_tokens),
            names(codecs),
            names(routes),
        ),
        out,
        selection=_selection(tasks, video, limit),
        num_workers=workers,
        watching=Bar,
    )
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found), default=str, ensure_ascii=False))
    else:
        eval_tables.print_grid(found, eval_tables.make_console())
    status = status_of([o.report for o in found.outcomes if o.report is not None])
    if not status and any(outcome.problem for outcome in found.outcomes):
        status = UNANSWERED
    if status:
        raise typer.Exit(status)


def status_of(reports: Sequence[RunReport]) -> int:
    """Exit status of some runs."""
    if any(report.absent for report in reports):
        return VIDEOS_MISSING
    return UNANSWERED if any(report.refused for report in reports) else 0


class Bar:
    """Questions, videos, accuracy so far and time left, on stderr where that is a terminal."""

    def __init__(self, title: str = "") -> None:
        self._bar = tqdm(
            desc=title or "questions",
            unit="q",
            disable=None,
            leave=False,
            mininterval=0.1 if sys.stderr.isatty() else 5.0,
        )

    def __call__(self, standing: Standing) -> None:
        """Show how far a run is."""
        if self._bar.total is None:
            # What earlier runs have answered took no time in this one.
            self._bar.total, self._bar.initial = standing.num_questions, standing.num_reused
            self._bar.n = standing.num_reused
        accuracy = "-" if standing.accuracy is None else f"{100 * standing.accuracy:.1f} %"
        self._bar.set_postfix_str(
            f"{standing.num_videos_done}/{standing.num_videos} videos, {accuracy} right",
            refresh=False,
        )
        self._bar.update(standing.num_done - self._bar.n)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


def _loaded(
    dataset: str,
    folder: Path,
    videos: Path | None,
    edition: str | None,
    scratch: Path | None,
) -> tuple[Dataset, Place]:
    from hermes_like.evaluation import load_dataset
    from hermes_like.evaluation.run import Place

    loaded = load_dataset(dataset, folder, videos=videos, edition=edition)
    return loaded, Place(folder, videos, edition, scratch)


def _selection(tasks: str | None, videos: list[str] | None, limit: int | None) -> Selection:
    from hermes_like.evaluation.passes import Selection

    return Selection(names(tasks), tuple(videos or ()), limit)


def names(text: str | None) -> tuple[str, ...]:
    """Names from a list with commas."""
    return tuple(filter(None, (name.strip() for name in (text or "").split(","))))


def whole_numbers(option: str, text: str | None) -> list[int]:
    """Whole numbers from a list with commas.

    Raises:
        ConfigError: Names the option; something else stands there.
    """
    try:
        return [int(name) for name in names(text)]
    except ValueError:
        raise ConfigError(f"{option}: expected whole numbers, got {text!r}") from None


def run_settings(
    preset: str | None,
    model: str | None,
    policy: str | None,
    sample_fps: str | None,
    settings: list[str] | None,
    route: options.RouteName | None,
    context: ContextName,
) -> RunSettings:
    from hermes_like.evaluation.settings import RunSettings, patient

    config = options.build_config(preset, model, policy, sample_fps, None, settings)
    if config.source.start_time is not None:
        raise ConfigError("source.start_time: expected none; times of a dataset are stream times")
    named = frozenset(setting.partition("=")[0].strip() for setting in settings or [])
    return RunSettings(
        config=patient(config, named),
        route=None if route is None else route.value,
        context=context.value,
    )


def _ray_hands(address: str) -> Callable[[Setup, int], Sequence[Hand]]:
    from hermes_like.evaluation import ray_hands

    ray_hands.connect(address)
    return ray_hands.ray_hands
