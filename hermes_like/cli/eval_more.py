"""``hermes-like eval make-sprites``, ``make-easyvqa`` and ``serve-pipe``.

Datasets to try without looking for any, and a door for other programs.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from hermes_like.cli import options
from hermes_like.cli.eval_run import ContextName, run_settings, whole_numbers


def make_sprites(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; made if it is not there.")],
    videos: Annotated[int, typer.Option(min=1, help="How many videos.")] = 4,
    seconds: Annotated[int, typer.Option(min=8, help="Length of each.")] = 120,
    questions: Annotated[int, typer.Option(min=1, help="About each video.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
) -> None:
    """Write a small dataset of the sprites world, for trying out 'eval' without any download."""
    from hermes_like.evaluation.scripted import make_sprites as make

    with tqdm(total=videos, unit=" videos", disable=None, leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.update(done - bar.n)

        path = make(
            folder,
            num_videos=videos,
            seconds=seconds,
            num_questions=questions,
            seed=seed,
            progress=show,
        )
    typer.echo(path)


class SplitName(StrEnum):
    """Split of the package easy-vqa."""

    TEST = "test"
    TRAIN = "train"


def make_easyvqa(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; made if it is not there.")],
    now: Annotated[
        bool,
        typer.Option("--now", help="All images once, asked all their questions while shown."),
    ] = False,
    package: Annotated[
        Path | None,
        typer.Option(help="Copy of the package easy-vqa; default: the installed one."),
    ] = None,
    split: Annotated[SplitName, typer.Option(help="Whose images and questions.")] = SplitName.TEST,
    streams: Annotated[
        int | None, typer.Option(min=1, help="How many; default: 8, with --now all of them.")
    ] = None,
    later: Annotated[
        str, typer.Option(help="How many images later to ask.", metavar="N,...")
    ] = "4,16,64,256",
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
) -> None:
    """Write streams of easy-VQA images (pip install easy-vqa) with questions about them.

    Some images are asked about at once and again many images later, by what they show and by when
    they were shown; no other image fits the question.
    """
    from hermes_like.evaluation.easyvqa_set import make_easyvqa as make

    with tqdm(unit=" streams", disable=None, leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        path = make(
            folder,
            kind="now" if now else "memory",
            package=package,
            split="train" if split is SplitName.TRAIN else "test",
            num_streams=streams or (0 if now else 8),
            later=whole_numbers("--later", later),
            seed=seed,
            progress=show,
        )
    typer.echo(path)


def serve_pipe(
    model: options.Model = None,
    preset: options.Preset = None,
    policy: options.Policy = None,
    sample_fps: options.SampleFps = None,
    settings: options.Settings = None,
    route: options.Route = None,
) -> None:
    """Answer another program's questions about videos: JSON lines on stdin and stdout.

    Lines {"open": PATH}, {"ask": QUESTION, "at_s": SECONDS}, {"close": true}; one reply each.
    """
    from hermes_like.evaluation.pipe import PipeServer, serve
    from hermes_like.evaluation.worker import load, own_stdout

    how = run_settings(preset, model, policy, sample_fps, settings, route, ContextName.STREAM)
    with own_stdout() as replies:
        serve(PipeServer(load(how.config.model), how), sys.stdin, replies)
