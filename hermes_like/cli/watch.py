"""``hermes-like watch``: answer questions at their time, while the stream goes on."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hermes_like.cli import options
from hermes_like.cli.folder import known
from hermes_like.cli.output import clock, print_answer
from hermes_like.cli.stream import observe_all, watching
from hermes_like.errors import ConfigError
from hermes_like.records import Frame, SessionStats


class TimedQuestion(BaseModel):
    """A question and the stream time, in seconds, at which it is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    at_s: float = Field(ge=0)
    question: str = Field(min_length=1)


def watch(
    video: options.Video,
    questions: Annotated[
        Path,
        typer.Option(
            help="YAML, JSON or JSON lines with at_s (seconds) and question.",
            metavar="FILE",
            exists=True,
            dir_okay=False,
        ),
    ],
    memory: options.Memory = None,
    model: options.Model = None,
    preset: options.Preset = None,
    policy: options.Policy = None,
    sample_fps: options.SampleFps = None,
    start_time: options.StartTime = None,
    settings: options.Settings = None,
    key_file: options.KeyFile = None,
    as_json: options.Json = False,
) -> None:
    """Answer questions at their time, as the stream reaches it.

    With --memory DIR a call that was broken off is gone on with. Questions
    whose time is over are left out: later frames would be known.
    """
    waiting = deque(read_questions(questions))
    past = None if memory is None else known(memory, key_file)
    stored = None if past is None else past.config
    config = options.build_config(preset, model, policy, sample_fps, start_time, settings, stored)
    with watching(video, config, past=past) as (session, frames):
        leave_out_past(waiting, session.stats())

        def ask_due(now_s: float) -> None:
            while waiting and waiting[0].at_s < now_s:
                print_answer(session.ask(waiting.popleft().question), as_json=as_json)

        def before(frame: Frame) -> None:
            ask_due(frame.pts_s)

        observe_all(session, frames, before)
        end_s = session.stats().stream_s
        if waiting and waiting[-1].at_s > end_s + 1.0:
            typer.echo(f"the stream ended at {clock(end_s)}; later questions come now", err=True)
        ask_due(float("inf"))


def leave_out_past(waiting: deque[TimedQuestion], stats: SessionStats) -> None:
    """Drop questions whose time was over before the session went on, and say so."""
    count = 0
    while waiting and stats.num_frames and waiting[0].at_s < stats.stream_s:
        waiting.popleft()
        count += 1
    if count:
        typer.echo(
            f"{count} questions from before {clock(stats.stream_s)} are left out, that much was "
            "watched; 'hermes-like memory ask' answers them from what is known now",
            err=True,
        )


def read_questions(path: Path) -> list[TimedQuestion]:
    """Read questions and sort them by time; equal times keep their order.

    Raises:
        ConfigError: Not readable, or an entry is not ``{at_s, question}``.
    """
    entries = _read_entries(path)
    questions = []
    for number, entry in enumerate(entries, start=1):
        try:
            questions.append(TimedQuestion.model_validate(entry))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "entry"
            raise ConfigError(
                f"{path}: question {number}: {place}: {first['msg']}, got {first['input']!r} "
                "(expected keys: at_s, question)"
            ) from None
    return sorted(questions, key=lambda question: question.at_s)


def _read_entries(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        entries = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not readable as questions: {error}") from error
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: expected a list of questions, got {type(entries).__name__}")
    return entries
