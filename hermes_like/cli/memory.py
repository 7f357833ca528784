"""``hermes-like memory``: verbs for a memory folder.

stat, verify, rebuild-index and export take the fingerprint from the folder and load no weights;
ask, show and erase open it with its model; forget needs neither.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hermes_like.cli import memory_stat, options
from hermes_like.cli.ask import Questions, ask_all
from hermes_like.cli.folder import is_memory, known, opened, require_room
from hermes_like.cli.note import NOTE_NAME
from hermes_like.cli.output import clock, size
from hermes_like.cli.resuming import require_long_term
from hermes_like.cli.show_memory import print_stats, show_memory
from hermes_like.errors import ConfigError, MemoryLockedError

if TYPE_CHECKING:
    from hermes_like.session import StreamSession
    from hermes_like.tiers.misses import Loss

Folder = Annotated[
    Path, typer.Argument(help="A memory folder.", metavar="DIR", exists=True, file_okay=False)
]
From = Annotated[
    str, typer.Option("--from", help="Stream time: seconds, M:SS or H:MM:SS.", metavar="TIME")
]
To = Annotated[str, typer.Option("--to", help="Stream time, exclusive.", metavar="TIME")]
Encoded = Annotated[
    bool, typer.Option("--encoded", help="Write blocks as stored (uint8), do not decode them.")
]

app = typer.Typer(no_args_is_help=True, help="Look into a memory folder, ask it, and repair it.")


@app.command("ask", no_args_is_help=True)
def ask_memory(
    folder: Folder,
    questions: Questions,
    route: options.Route = None,
    since: options.Since = None,
    until: options.Until = None,
    model: options.Model = None,
    preset: options.Preset = None,
    settings: options.Settings = None,
    key_file: options.KeyFile = None,
    as_json: options.Json = False,
) -> None:
    """Answer questions from memory alone, without the video."""
    since_s = options.stream_seconds(since, "--since")
    until_s = options.stream_seconds(until, "--until")
    with _session(folder, key_file, model, preset, settings) as session:
        ask_all(session, questions, route, since_s, until_s, as_json=as_json)


@app.command("stat", no_args_is_help=True)
def stat(
    folder: Folder,
    key_file: options.KeyFile = None,
    as_json: options.Json = False,
) -> None:
    """Show what a memory holds: time spans, bytes against caps, model, what is missing."""
    key = options.load_memory_key(key_file)
    try:
        with opened(folder, key) as memory:
            found = memory_stat.describe(memory)
    except MemoryLockedError:
        found = memory_stat.describe_locked(folder)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        memory_stat.print_stat(found)


@app.command("show", no_args_is_help=True)
def show(
    video: Annotated[str, typer.Argument(help="Video or memory folder.", metavar="VIDEO|DIR")],
    model: options.Model = None,
    preset: options.Preset = None,
    policy: options.Policy = None,
    sample_fps: options.SampleFps = None,
    settings: options.Settings = None,
    png: Annotated[
        Path | None, typer.Option(help="Draw memory over stream time (VIDEO).", metavar="FILE")
    ] = None,
    key_file: options.KeyFile = None,
    as_json: options.Json = False,
) -> None:
    """Show what each layer holds on the device, of a memory or after watching a video."""
    if not is_memory(Path(video)):
        show_memory(video, model, preset, policy, sample_fps, settings, png, as_json)
        return
    if png is not None:
        raise ConfigError("--png: expected a video to watch, got a memory folder")
    with _session(Path(video), key_file, model, preset, settings) as session:
        stats = session.stats()
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(stats)))
    else:
        print_stats(stats, Console())


@app.command("verify", no_args_is_help=True)
def verify(folder: Folder, key_file: options.KeyFile = None, as_json: options.Json = False) -> None:
    """Read every record; exit code 1 and the damaged stretches if there are any."""
    with opened(folder, options.load_memory_key(key_file)) as memory:
        report = memory.store.verify()
        losses = list(memory.store.misses.lost)
        notes = [*memory.problems, *memory.store.notes]
    # What could not be read at all is in the report only.
    problems = [*memory.problems, *report.damaged]
    is_whole = not losses and not problems
    if as_json:
        values = {
            "is_whole": is_whole,
            **dataclasses.asdict(report),
            "lost": [dataclasses.asdict(loss) for loss in losses],
            "notes": notes,
        }
        typer.echo(json.dumps(values))
    else:
        typer.echo(
            f"{report.num_segments} segments and the pictures of {report.num_keyframes} are "
            f"whole, {size(report.num_bytes)} read"
        )
        for line in [*map(_loss, losses), *problems]:
            typer.echo(f"damaged: {line}")
    if not is_whole:
        raise typer.Exit(1)


@app.command("rebuild-index", no_args_is_help=True)
def rebuild_index(folder: Folder, key_file: options.KeyFile = None) -> None:
    """Write the index of a memory anew from its volumes."""
    with opened(folder, options.load_memory_key(key_file), is_read_only=False) as memory:
        count = memory.store.rebuild()
    typer.echo(f"{count} records in the index of {folder}")


@app.command("erase", no_args_is_help=True)
def erase(
    folder: Folder,
    from_: From,
    to: To,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also everything later, which has seen what is erased.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    model: options.Model = None,
    preset: options.Preset = None,
    settings: options.Settings = None,
    key_file: options.KeyFile = None,
) -> None:
    """Make a stretch unreadable, for good. Whole segments go, so it may be a little more."""
    start_s, end_s = options.stream_seconds(from_, "--from"), options.stream_seconds(to, "--to")
    assert start_s is not None
    assert end_s is not None
    if end_s <= start_s:
        raise ConfigError(f"--to: expected a time after {clock(start_s)}, got {clock(end_s)}")
    if not yes:
        end = "the end" if deep else clock(end_s)
        typer.confirm(f"Erase {clock(start_s)} to {end} from {folder} for good?", abort=True)
    with _session(folder, key_file, model, preset, settings) as session:
        before = _num_segments(session)
        first_s, last_s = session.erase(start_s, end_s, deep=deep)
        count = before - _num_segments(session)
    typer.echo(f"erased {clock(first_s)}-{clock(last_s)} ({count} segments) from {folder}")


@app.command("forget", no_args_is_help=True)
def forget(
    folder: Folder,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a whole memory, for good. Its key is not needed; other files in DIR stay."""
    from hermes_like.tiers.destroy import destroy_memory

    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("expected --yes, since there is no terminal to ask on")
        typer.confirm(f"Remove the memory in {folder} for good?", abort=True)
    num_bytes = destroy_memory(folder)
    typer.echo(f"removed the memory in {folder}, {size(num_bytes)}")


@app.command("export", no_args_is_help=True)
def export(
    folder: Folder,
    out: Annotated[Path, typer.Argument(help="New or empty folder.", metavar="OUT")],
    encoded: Encoded = False,
    key_file: options.KeyFile = None,
) -> None:
    """Write a safetensors file per segment, the pictures, and manifest.json. Not encrypted."""
    from hermes_like.cli.memory_export import export_memory

    with opened(folder, options.load_memory_key(key_file)) as memory:
        done = export_memory(memory, out, is_encoded=encoded)
    typer.echo(
        f"wrote {done.num_segments} segments and {done.num_pictures} pictures, "
        f"{size(done.num_bytes)}, to {out}"
    )
    for problem in done.problems:
        typer.echo(f"not exported: {problem}", err=True)
    if done.problems:
        raise typer.Exit(1)


@contextmanager
def _session(
    folder: Path,
    key_file: Path | None,
    model: str | None,
    preset: str | None,
    settings: list[str] | None,
) -> Iterator[StreamSession]:
    """A memory with its model. Nothing is written at the end: asking changes nothing."""
    if not is_memory(folder):
        raise ConfigError(f"{folder}: expected the folder of a memory")
    past = known(folder, key_file)
    config = options.build_config(preset, model, settings=settings, stored=past.config)
    from hermes_like.models import load_model
    from hermes_like.session import StreamSession

    if not config.store.enabled or not config.store.disk_bytes:
        raise ConfigError("expected store.enabled true and store.disk_bytes above 0")
    require_room(folder, config.store)
    session = StreamSession.open(load_model(config.model), folder, config, key=past.key)
    try:
        # Raises where another model wrote a memory that has no segment yet.
        require_long_term(session).get_note(NOTE_NAME)
        yield session
    finally:
        session.close(save=False)


def _num_segments(session: StreamSession) -> int:
    return len(require_long_term(session).timeline)


def _loss(loss: Loss) -> str:
    """A loss in words."""
    what = "keys and values" if loss.content == "kv" else "pictures"
    if loss.segment_id is None or loss.start_s is None or loss.end_s is None:
        return f"{what} of an unknown segment ({loss.reason})"
    when = f"{clock(loss.start_s)}-{clock(loss.end_s)}"
    return f"{when}: {what} of segment {loss.segment_id} ({loss.reason})"
