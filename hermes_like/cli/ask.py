"""``hermes-like ask``: watch a video to its end, then answer questions."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes_like.cli import options
from hermes_like.cli.output import print_answer
from hermes_like.cli.stream import observe_all, watching


def ask(
    video: options.Video,
    questions: Annotated[
        list[str], typer.Argument(help="One or more questions.", metavar="QUESTION...")
    ],
    model: options.Model = None,
    preset: options.Preset = None,
    policy: options.Policy = None,
    sample_fps: options.SampleFps = None,
    start_time: options.StartTime = None,
    settings: options.Settings = None,
    as_json: options.Json = False,
) -> None:
    """Watch a video to its end and answer questions about it."""
    config = options.build_config(preset, model, policy, sample_fps, start_time, settings)
    with watching(video, config) as (session, frames):
        observe_all(session, frames)
        for question in questions:
            print_answer(session.ask(question), as_json=as_json)
