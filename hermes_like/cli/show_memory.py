"""``hermes-like memory show VIDEO``: what each layer holds, as a table and a picture."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hermes_like.cli import options
from hermes_like.cli.history import History
from hermes_like.cli.output import clock, size
from hermes_like.cli.stream import observe_all, watching
from hermes_like.records import Frame, LayerStats, SessionStats


def show_memory(
    video: options.Video,
    model: options.Model = None,
    preset: options.Preset = None,
    policy: options.Policy = None,
    sample_fps: options.SampleFps = None,
    settings: options.Settings = None,
    png: Annotated[
        Path | None, typer.Option(help="Draw memory over stream time.", metavar="FILE")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show what memory holds when a video has been watched (with --png: and on the way)."""
    config = options.build_config(preset, model, policy, sample_fps, None, settings)
    history = History()
    with watching(video, config) as (session, frames):

        def after(_: Frame) -> None:
            if png is not None:
                history.note_frame(session)

        observe_all(session, frames, after=after)
        history.add(session)
    stats = history.moments[-1].stats
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(stats)))
    else:
        print_stats(stats, Console())
    if png is not None:
        from hermes_like.cli.plot import draw_history

        draw_history(history.moments, png, title=f"{stats.stream}, policy {config.policy.name}")
        typer.echo(f"wrote {png}", err=True)


def print_stats(stats: SessionStats, console: Console) -> None:
    """Print one row per decoder layer, then bytes against arithmetic and where the time went."""
    console.print(_layer_table(stats))
    cap = "no cap" if stats.device_tokens is None else f"device_tokens {stats.device_tokens}"
    console.print(
        f"{stats.num_frames} frames, {stats.num_segments} segments, {clock(stats.stream_s)} of "
        f"video; fullest layer so far: {stats.peak_slots} slots ({cap})",
        highlight=False,
        soft_wrap=True,
    )
    agree = "equals" if stats.device_bytes == stats.expected_bytes else "does NOT equal"
    console.print(
        f"cache {size(stats.device_bytes)} on the device: {stats.device_bytes} bytes, which "
        f"{agree} slots x shapes, {stats.expected_bytes}",
        highlight=False,
        soft_wrap=True,
    )
    for name, (used_bytes, cap_bytes, segments) in stats.tiers.items():
        console.print(
            f"{name}: {size(used_bytes)} of {size(cap_bytes)} for {segments} segments",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"time for vision {stats.vision_s:.2f} s, prefill {stats.prefill_s:.2f} s, "
        f"scoring {stats.scoring_s:.2f} s, compaction {stats.compaction_s:.2f} s, "
        f"store {stats.store_s:.2f} s",
        highlight=False,
        soft_wrap=True,
    )


def _layer_table(stats: SessionStats) -> Table:
    table = Table(title=f"memory of {stats.stream}", title_justify="left", box=None, pad_edge=False)
    for name in ("layer", "band", "prefix", "short", "mid", "summary", "slots", "frames", "oldest"):
        table.add_column(name, justify="left" if name == "band" else "right")
    if stats.device_tokens is not None:
        table.add_column("of the cap")
    for layer in stats.layers:
        table.add_row(*_layer_row(layer, stats.device_tokens))
    return table


def _layer_row(layer: LayerStats, device_tokens: int | None) -> list[str]:
    counts = (layer.prefix, layer.short, layer.mid, layer.summary, layer.slots, layer.num_frames)
    oldest = "-" if layer.oldest_s is None else clock(layer.oldest_s)
    row = [str(layer.layer_index), layer.band, *map(str, counts), oldest]
    if device_tokens is not None:
        filled = round(10 * layer.slots / device_tokens)
        row.append("█" * filled + "░" * (10 - filled))
    return row
