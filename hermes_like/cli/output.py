"""Answers and times as text for people and as JSON for machines."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

import typer
from tqdm import tqdm

from hermes_like.records import Answer, Evidence, Tier

#: How tiers are called where people read.
_TIERS: dict[Tier, str] = {
    "device": "the device",
    "host": "RAM",
    "disk": "disk",
    "remote": "remote storage",
    "source": "a picture",
}


def clock(seconds: float) -> str:
    """Stream time as ``1:23``, or ``1:02:03`` from an hour on; tenths where they matter."""
    if seconds < 0:
        return f"-{clock(-seconds)}"
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}:{minutes:02d}:" if hours else f"{minutes}:"
    return f"{text}{rest // 10:02d}" + (f".{rest % 10}" if rest % 10 else "")


def size(num_bytes: int) -> str:
    """Bytes as a short text, in powers of 1024."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def answer_json(answer: Answer) -> str:
    """One line: every field of the answer, times in ISO 8601."""
    return json.dumps(dataclasses.asdict(answer), default=_encode, ensure_ascii=False)


def print_answer(answer: Answer, *, as_json: bool) -> None:
    """Write an answer to stdout, without breaking a progress bar."""
    with tqdm.external_write_mode():
        _write_answer(answer, as_json)


def _write_answer(answer: Answer, as_json: bool) -> None:
    if as_json:
        typer.echo(answer_json(answer))
        return
    typer.echo(f"{clock(answer.asked_at_s):>7}  Q  {answer.question}")
    for part in answer.parts or (answer,):
        _write_part(part, f"{part.stream}: " if answer.parts else "")


def _write_part(answer: Answer, name: str) -> None:
    told = [f"{answer.ttft_s:.2f} s to the first word", f"route {answer.route}"]
    if answer.status != "ok":
        told.append(answer.status.replace("_", " "))
    typer.echo(f"         A  {name}{answer.text}  ({', '.join(told)})")
    if answer.evidence:
        typer.echo(f"            seen at {', '.join(map(_span, answer.evidence))}")
    # Where there is no footage at all, the answer has said so.
    for missing in answer.missing if answer.status != "no_footage" else ():
        span = f"{clock(missing.start_s)}-{clock(missing.end_s)}"
        typer.echo(f"            not consulted: {span} ({missing.reason})")
    for note in answer.notes:
        if note == answer.text:
            continue
        typer.echo(f"            note: {note}")


def _span(evidence: Evidence) -> str:
    times = [clock(evidence.start_s), clock(evidence.end_s)]
    where = "" if evidence.tier == "device" else f", from {_TIERS[evidence.tier]}"
    text = f"{'-'.join(dict.fromkeys(times))} ({evidence.score:.0%}{where})"
    if evidence.wall_time is not None:
        text += f" on {evidence.wall_time.isoformat(sep=' ', timespec='seconds')}"
    return text


def _encode(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"expected something that JSON can hold, got {type(value).__name__}")
