"""``hermes-like ask``: watch a video to its end, then answer questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hermes_like.cli import options
from hermes_like.cli.folder import known
from hermes_like.cli.output import print_answer
from hermes_like.cli.stream import observe_all, scan_progress, watching

if TYPE_CHECKING:
    from hermes_like.session import StreamSession

Questions = Annotated[
    list[str], typer.Argument(help="One or more questions.", metavar="QUESTION...")
]


def ask(
    video: options.Video,
    questions: Questions,
    memory: options.Memory = None,
    route: options.Route = None,
    since: options.Since = None,
    until: options.Until = None,
    model: options.Model = None,
    preset: options.Preset = None,
    policy: options.Policy = None,
    sample_fps: options.SampleFps = None,
    start_time: options.StartTime = None,
    settings: options.Settings = None,
    key_file: options.KeyFile = None,
    as_json: options.Json = False,
) -> None:
    """Watch a video to its end and answer questions about it.

    With --memory DIR the video is watched once. Later calls answer from DIR,
    with the settings of the first one, and go on where it was broken off.
    'hermes-like memory ask DIR' does without the video.
    """
    past = None if memory is None else known(memory, key_file)
    stored = None if past is None else past.config
    config = options.build_config(preset, model, policy, sample_fps, start_time, settings, stored)
    since_s = options.stream_seconds(since, "--since")
    until_s = options.stream_seconds(until, "--until")
    with watching(video, config, past=past) as (session, frames):
        observe_all(session, frames)
        ask_all(session, questions, route, since_s, until_s, as_json=as_json)


def ask_all(
    session: StreamSession,
    questions: Sequence[str],
    route: options.RouteName | None,
    since_s: float | None,
    until_s: float | None,
    *,
    as_json: bool,
) -> None:
    """Ask questions one after the other and print the answers."""
    for question in questions:
        with scan_progress() as show:
            answer = session.ask(
                question,
                route=None if route is None else route.value,
                since_s=since_s,
                until_s=until_s,
                on_progress=show,
            )
        print_answer(answer, as_json=as_json)
