"""``hermes-like watch``: cameras with a view to ask in, or one video asked at given times."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hermes_like.cli import options
from hermes_like.cli.folder import known
from hermes_like.cli.output import clock, print_answer
from hermes_like.cli.stream import observe_all, watching
from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError
from hermes_like.records import Frame, SessionStats

if TYPE_CHECKING:
    from hermes_like.cli.folder import Known


class TimedQuestion(BaseModel):
    """A question and the stream time, in seconds, at which it is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    at_s: float = Field(ge=0)
    question: str = Field(min_length=1)


def watch(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Camera addresses, video files, folders; NAME=SOURCE gives a name.",
            metavar="SOURCE...",
        ),
    ],
    questions: Annotated[
        Path | None,
        typer.Option(
            help="YAML, JSON or JSON lines with at_s (seconds) and question: one source is "
            "watched without a view and asked at these times.",
            metavar="FILE",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    memory: options.Memory = None,
    model: options.Model = None,
    preset: options.Preset = None,
    policy: options.Policy = None,
    sample_fps: options.SampleFps = None,
    start_time: options.StartTime = None,
    settings: options.Settings = None,
    key_file: options.KeyFile = None,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval", help="Seconds between status lines, without a terminal.", min=0.1
        ),
    ] = 10.0,
    as_json: Annotated[
        bool, typer.Option("--json", "--jsonl", help="One JSON object per line on stdout.")
    ] = False,
) -> None:
    """Watch cameras and ask about them while they run.

    In a terminal, a table shows each camera and its memory, and questions are
    typed below it. Without one, or with --jsonl, questions are lines on stdin
    and everything that happens is a line on stdout. '@NAME question' asks one
    camera. Ctrl-C ends; with --memory DIR the next call goes on.

    With --questions FILE one video is watched and asked at given times.
    Questions whose time is over are left out: later frames would be known.
    """
    if questions is not None:
        if len(sources) != 1:
            raise ConfigError(f"--questions: expected one source, got {len(sources)}")
        past = None if memory is None else known(memory, key_file)
        stored = None if past is None else past.config
        config = options.build_config(
            preset, model, policy, sample_fps, start_time, settings, stored
        )
        _ask_at_times(sources[0], read_questions(questions), config, past, as_json=as_json)
        return
    from hermes_like.cli.live import watch_live

    config = options.build_config(preset, model, policy, sample_fps, start_time, settings)
    key = None if memory is None else options.load_memory_key(key_file)
    watch_live(sources, config, memory, key, as_json=as_json, interval_s=interval_s)


def _ask_at_times(
    video: str,
    questions: Sequence[TimedQuestion],
    config: HermesConfig,
    past: Known | None,
    *,
    as_json: bool,
) -> None:
    """Watch one source and ask each question as the stream reaches its time."""
    waiting = deque(questions)
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
