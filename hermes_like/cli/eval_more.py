"""``hermes-like eval make-sprites`` and ``serve-pipe``: a dataset to try, a door for others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from hermes_like.cli import options
from hermes_like.cli.eval_run import ContextName, run_settings


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
