"""``hermes-like plan``: what cameras and days take in every tier, before anything is bought."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from hermes_like.cli import options
from hermes_like.cli.output import size
from hermes_like.cli.plan_card import fit_cards, print_cards
from hermes_like.cli.plan_model import model_shape

if TYPE_CHECKING:
    from hermes_like.config import HermesConfig
    from hermes_like.plan import Plan


def plan(
    model: options.Model = None,
    fps: Annotated[
        str | None, typer.Option(help="Frames per second to look at.", metavar="FPS")
    ] = None,
    cameras: Annotated[int, typer.Option(min=1, help="Streams, each with its own caps.")] = 1,
    days: Annotated[float, typer.Option(min=0.001, help="How long they run.")] = 1.0,
    preset: options.Preset = None,
    settings: options.Settings = None,
    tokens_per_frame: Annotated[
        int | None, typer.Option(min=1, help="Vision tokens of a frame, if not the model's own.")
    ] = None,
    picture_kib: Annotated[
        float | None, typer.Option(min=0.1, help="Assumed size of a picture; default: by its side.")
    ] = None,
    disk_gb_s: Annotated[float, typer.Option(min=0.001, help="Assumed disk reads, GB/s.")] = 1.0,
    link_gb_s: Annotated[float, typer.Option(min=0.001, help="Assumed RAM to device, GB/s.")] = 20,
    search_gb_s: Annotated[float, typer.Option(min=0.001, help="Assumed index scan, GB/s.")] = 5.0,
    prefill_tokens_s: Annotated[
        float, typer.Option(min=0.1, help="Assumed prefill, tokens per second.")
    ] = 5000,
    gpu_gb: Annotated[
        list[float] | None,
        typer.Option(
            min=0.1,
            help="Memory of a GPU in GiB: what memory.device_tokens may be there; repeatable.",
        ),
    ] = None,
    reserve_gb: Annotated[
        float, typer.Option(min=0, help="Assumed for driver, activations and pictures, GiB.")
    ] = 2.0,
    as_json: options.Json = False,
) -> None:
    """Plan capacity: bytes per tier, how far back each reaches, disk wear, time to an answer."""
    from hermes_like import plan as arithmetic

    config = options.build_config(preset, model, None, fps, None, settings)
    picture_bytes = (
        arithmetic.usual_picture_bytes(config) if picture_kib is None else round(picture_kib * 1024)
    )
    made = arithmetic.make_plan(
        config,
        model_shape(config.model, tokens_per_frame),
        cameras=cameras,
        days=days,
        assumptions=arithmetic.Assumptions(
            picture_bytes, disk_gb_s, link_gb_s, search_gb_s, prefill_tokens_s
        ),
    )
    cards = fit_cards(config, gpu_gb or (), streams=cameras, reserve_gb=reserve_gb)
    if as_json:
        found = {"cards": [dataclasses.asdict(card) for card in cards]} if cards else {}
        typer.echo(json.dumps(dataclasses.asdict(made) | found))
        return
    console = Console(soft_wrap=True, highlight=False)
    _print(made, config, console)
    if cards:
        print_cards(cards, console)


def _print(made: Plan, config: HermesConfig, console: Console) -> None:
    shape = made.shape
    console.print(
        f"{config.model.name}: 2 x {shape.num_layers} layers x {shape.num_kv_heads} kv heads x "
        f"{shape.head_dim} head_dim x {shape.itemsize} bytes = {made.kv_bytes_per_token} bytes per "
        f"token; {shape.tokens_per_frame} tokens per frame"
    )
    console.print(
        f"a segment: {config.memory.segment_frames} frames, {_span(made.segment_s)}, codec "
        f"{made.codec}; cache on the device: up to {size(made.device_bytes)} "
        f"({config.memory.device_tokens} slots, 3 tensors)"
    )
    console.print(_table(made))
    streams = "1 stream" if made.cameras == 1 else f"{made.cameras} streams"
    caps = ", ".join(f"{name} {size(total)}" for name, total in made.total_bytes.items())
    console.print(f"{streams}, caps together: {caps}")
    console.print(
        f"RAM of each stream beside its segments, part of store.host_bytes: index "
        f"{size(made.index_bytes)}, tables {size(made.table_bytes)}"
    )
    console.print(
        f"disk writes: {made.disk_write_mb_s:.3g} MB/s, {made.disk_write_tb_year:.3g} TB per year"
    )
    parts = ", ".join(
        f"{name.replace('_', ' ')} {_milliseconds(part)}"
        for name, part in made.ttft_s.items()
        if not name.startswith("from_")
    )
    console.print(
        f"time to the first word: {_milliseconds(made.ttft_s['from_host'])} from RAM, "
        f"{_milliseconds(made.ttft_s['from_disk'])} from disk, for {config.retrieval.max_frames} "
        f"frames in as many segments ({parts})"
    )
    assumed = made.assumptions
    console.print(
        f"assumed: picture {size(assumed.picture_bytes)}, disk {assumed.disk_gb_s:g} GB/s, RAM to "
        f"device {assumed.link_gb_s:g} GB/s, index {assumed.search_gb_s:g} GB/s, prefill "
        f"{assumed.prefill_tokens_s:g} tokens/s; nothing was measured"
    )


def _table(made: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    heads = ("tier", "per token", "per segment", "per hour", "cap", "reaches back")
    for name in (*heads, f"{made.days:g} days take"):
        table.add_column(name, justify="left" if name == "tier" else "right")
    for name, tier in made.tiers.items():
        table.add_row(
            name,
            f"{tier.bytes_per_token:.1f} B",
            size(tier.bytes_per_segment),
            size(tier.bytes_per_hour),
            size(tier.cap_bytes),
            _span(tier.reach_s),
            size(tier.wanted_bytes),
        )
    return table


def _span(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
