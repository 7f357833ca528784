"""Tables, figure and JSON of ``pipelines/bench.py``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from hermes_like.memory.budget import Budget
from pipelines.reporting import print_json, print_table, write_tables

if TYPE_CHECKING:
    from pipelines.bench import Measured

#: At most this share of ingest may go into scoring and compaction (at the shape of the bar).
BAR = 0.10
BAR_MODEL = "random:llava-onevision-0.5b"


def print_report(
    found: Sequence[Measured],
    limits: dict[str, float],
    facts: dict[str, Any],
    budget: Budget,
    path: Path,
    started: float,
) -> None:
    """Print tables, the bar and a JSON line; draw ``<path>.png``."""
    lengths = [_length(one, limits) for one in found]
    tables = [_print_speed(lengths), _print_memory(lengths, budget)]
    write_tables(tables, path.with_name(path.name + ".md"))
    _print_ceilings(limits, lengths)
    shares = _shares({name: sum(o.ingest[name] for o in found) for name in found[0].ingest})
    is_bar = str(facts["model"]).startswith(BAR_MODEL)
    verdict = ("pass" if shares["memory_work"] <= BAR else "FAIL") if is_bar else "no bar"
    print(
        f"memory work (scoring + compaction): {shares['memory_work']:.1%} of ingest, "
        f"{shares['memory_work_without_vision']:.1%} without vision; bar {BAR:.0%}: {verdict}"
    )
    if found[0].stats.device_tokens is not None:
        assert all(one["peak_slots"] <= one["device_tokens"] for one in lengths)
    _draw(lengths, path.with_name(path.name + ".png"), str(facts["model"]).partition(";")[0])
    print_json({
        "pipeline": "bench", **facts, "ceilings": limits, "shares": shares, "bar": verdict,
        "resident_tokens": budget.resident_tokens, "lengths": lengths,
        "figure": f"{path}.png", "wall_s": round(time.perf_counter() - started, 1),
    })  # fmt: skip


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile, in milliseconds."""
    return {
        "median_ms": round(1e3 * median(values), 2),
        "p95_ms": round(1e3 * float(np.percentile(values, 95)), 2),
    }


def _shares(ingest: dict[str, float]) -> dict[str, float]:
    total = sum(ingest.values())
    memory = ingest["scoring"] + ingest["compaction"]
    shares = {name: round(value / total, 4) for name, value in ingest.items()}
    shares["memory_work"] = round(memory / total, 4)
    shares["memory_work_without_vision"] = round(memory / (total - ingest["vision"]), 4)
    return shares


def _length(one: Measured, limits: dict[str, float]) -> dict[str, Any]:
    stats = one.stats
    slots = [layer.slots for layer in stats.layers]
    capacity = stats.device_tokens or round(stats.device_bytes / limits["cache_bytes_per_slot"])
    return {
        "frames": one.frames,
        "ingest_fps": round(one.num_ingested / sum(one.ingest.values()), 3),
        "shares": _shares(one.ingest),
        "ttft": _spread(one.ttft),
        "ttft_behind_chunk": _spread(one.ttft_chunk),
        "tpot_short": _spread(one.tpot_short),
        "tpot_100": _spread(one.tpot_long),
        "slots": max(slots),
        "peak_slots": stats.peak_slots,
        "device_tokens": stats.device_tokens,
        "cache_bytes": stats.device_bytes,
        "arithmetic_bytes": int(capacity * limits["cache_bytes_per_slot"]),
        "kv_bytes_in_use": int(limits["kv_bytes_per_token"] * sum(slots) / len(slots)),
    }


def _both(cell: dict[str, float]) -> str:
    return f"{cell['median_ms']:.1f} / {cell['p95_ms']:.1f}"


def _print_speed(lengths: Sequence[dict[str, Any]]) -> str:
    names = ("vision", "prefill", "scoring", "compaction")
    columns = ["frames", "ingest fps", *(f"{name} %" for name in names)]
    columns += ["TTFT ms", "TTFT behind a chunk ms", "TPOT ms", "TPOT of 100 tokens ms"]
    rows = [
        [
            str(one["frames"]),
            f"{one['ingest_fps']:.2f}",
            *(f"{100 * one['shares'][name]:.1f}" for name in names),
            *(_both(one[n]) for n in ("ttft", "ttft_behind_chunk", "tpot_short", "tpot_100")),
        ]
        for one in lengths
    ]
    return print_table("speed against stream length (median / p95)", columns, rows)


def _print_memory(lengths: Sequence[dict[str, Any]], budget: Budget) -> str:
    columns = ["frames", "slots", "peak slots", "device_tokens", "cache bytes", "by arithmetic"]
    rows = [
        [
            str(one["frames"]),
            str(one["slots"]),
            str(one["peak_slots"]),
            str(one["device_tokens"] or "no cap"),
            f"{one['cache_bytes']:,}",
            f"{one['arithmetic_bytes']:,}",
        ]
        for one in lengths
    ]
    return print_table(f"memory (resident budget {budget.resident_tokens} tokens)", columns, rows)


def _print_ceilings(limits: dict[str, float], lengths: Sequence[dict[str, Any]]) -> None:
    print(
        f"arithmetic: K and V {limits['kv_bytes_per_token']:,} bytes per token (2 x layers x "
        f"kv_heads x head_dim x bytes); a slot of this cache holds three tensors, a position and "
        f"an id: {limits['cache_bytes_per_slot']:,} bytes over all layers"
    )
    print(
        f"ceilings: {limits['weight_bytes_per_token'] / 1e6:,.1f} MB of weights per token at "
        f"{limits['memory_gb_per_s']} GB/s: TPOT of at least {1e3 * limits['tpot_floor_s']:.2f} ms "
        f"(measured {lengths[-1]['tpot_100']['median_ms']:.2f}); prefill at "
        f"{limits['matmul_gflop_per_s']} GFLOP/s: at least "
        f"{1e3 * limits['prefill_floor_s_per_frame']:.1f} ms a frame"
    )


def _draw(lengths: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Ingest, latency and slots against stream length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), dpi=120, layout="constrained")
    speed, latency, memory = figure.subplots(1, 3)
    frames = [one["frames"] for one in lengths]
    places = [str(count) for count in frames]
    below = np.zeros(len(lengths))
    for name, color in zip(
        ("vision", "prefill", "scoring", "compaction"),
        ("#c9c9c9", "#3b7ea1", "#f2a541", "#b5323e"),
        strict=True,
    ):
        cost = np.array([1e3 * one["shares"][name] / one["ingest_fps"] for one in lengths])
        speed.bar(places, cost, bottom=below, label=name, color=color, width=0.6)
        below += cost
    speed.set_ylabel("ms per frame")
    for key, label, color in (
        ("ttft_behind_chunk", "TTFT behind a chunk", "#b5323e"),
        ("ttft", "TTFT", "#f2a541"),
        ("tpot_100", "TPOT of 100 tokens", "#3b7ea1"),
    ):
        values = [one[key]["median_ms"] for one in lengths]
        latency.plot(places, values, marker="o", label=label, color=color)
    latency.set_ylabel("ms, median")
    latency.set_yscale("log")
    memory.plot(places, [one["peak_slots"] for one in lengths], marker="o", label="peak slots")
    if lengths[-1]["device_tokens"]:
        memory.axhline(lengths[-1]["device_tokens"], color="#222222", ls="--", label="the cap")
    memory.set_ylim(bottom=0)
    memory.set_ylabel("slots per layer")
    for axes in (speed, latency, memory):
        axes.set_xlabel("frames seen")
        axes.grid(alpha=0.25, axis="y")
        axes.legend(frameon=False, fontsize=8)
    figure.suptitle(title, x=0.01, ha="left")
    figure.savefig(path)
