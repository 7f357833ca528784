"""Tables, figure and JSON of ``pipelines/ttft.py``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pipelines.reporting import print_json, print_table, write_tables

PARTS = ("plan", "query", "search", "read", "decode", "merge", "prefill")
COLORS = ("#222222", "#7b5ea7", "#b5323e", "#c98b2b", "#f2a541", "#4f8f4a", "#3b7ea1")
#: The longest stream may take this much more than the shortest, searching left out.
BAR = 0.20
HOUR_S = 3600


def print_report(
    found: Sequence[dict[str, Any]],
    shapes: dict[str, Any],
    facts: dict[str, Any],
    out: Path,
    wall_s: float,
) -> None:
    """Print tables, the bar and a JSON line; draw ``ttft.png``."""
    lengths = [
        {
            "frames": one["frames"],
            "ingest_s": one["ingest_s"],
            "tiers": {tier: _tier(asked) for tier, asked in one["asked"].items()},
            "bytes": one["bytes"],
        }
        for one in found
    ]
    search = {str(one["frames"]): _search_rate(one) for one in lengths}
    bars = _bars(lengths)
    tables = [_print_ttft(lengths), _print_bytes(lengths, search), _print_shapes(shapes)]
    write_tables(tables, out / "tables.md")
    for tier, ratio in bars.items():
        verdict = "met" if ratio <= 1 + BAR else "MISSED"
        print(f"{tier}: longest / shortest stream without searching: {ratio}, bar {verdict}")
    result = {
        "pipeline": "ttft",
        **facts,
        "wall_s": round(wall_s, 1),
        "lengths": lengths,
        "search_ms_per_100k_vectors": search,
        "longest_to_shortest_without_search": bars,
        "shapes": shapes,
        "figure": str(_draw(lengths, out / "ttft.png")),
    }
    (out / "ttft.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print_json(result)


def _tier(asked: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of all parts, and what was brought back."""
    values = {name: [one[name] for one in asked] for name in ("ttft", *PARTS)}
    without = [one["ttft"] - one["search"] for one in asked]
    return {
        "ttft_ms": round(median(values["ttft"]), 2),
        "p95_ms": round(float(np.percentile(values["ttft"], 95)), 2),
        "without_search_ms": round(median(without), 2),
        "parts_ms": {name: round(median(values[name]), 2) for name in PARTS},
        "frames": round(float(np.mean([one["frames"] for one in asked])), 1),
        "read_from": sorted({tier for one in asked for tier in one["tiers"]}),
    }


def _search_rate(one: dict[str, Any]) -> float | None:
    """Milliseconds of searching per 100,000 vectors of a head."""
    rows = one["bytes"]["rows"]
    if not rows:
        return None
    return round(float(one["tiers"]["host"]["parts_ms"]["search"]) / rows * 1e5, 2)


def _bars(lengths: Sequence[dict[str, Any]]) -> dict[str, float]:
    first, last = lengths[0]["tiers"], lengths[-1]["tiers"]
    return {
        tier: round(last[tier]["without_search_ms"] / first[tier]["without_search_ms"], 3)
        for tier in first
    }


def _print_ttft(lengths: Sequence[dict[str, Any]]) -> str:
    columns = ["stream, tier", "TTFT ms", "p95", "without search", *PARTS, "frames", "read from"]
    rows = [
        [
            f"{_age_text(one['frames'])}, {tier}",
            *(f"{cell[name]:.1f}" for name in ("ttft_ms", "p95_ms", "without_search_ms")),
            *(f"{cell['parts_ms'][name]:.1f}" for name in PARTS),
            f"{cell['frames']:g}",
            ", ".join(cell["read_from"]) or "device",
        ]
        for one in lengths
        for tier, cell in one["tiers"].items()
    ]
    return print_table("time to the first token, medians in ms", columns, rows)


def _print_bytes(lengths: Sequence[dict[str, Any]], search: dict[str, Any]) -> str:
    columns = [
        "stream",
        "device",
        "host / cap",
        "disk / cap",
        "pictures / cap",
        "index",
        "RSS anon",
        "the same less host",
        "KV written per hour",
        "search ms per 10^5",
        "ingest fps",
    ]
    rows = []
    for one in lengths:
        size, tiers = one["bytes"], one["bytes"]["tiers"]
        rows.append([
            _age_text(one["frames"]), _mib(size["device"]),
            *(f"{_mib(tiers[n][0])} / {_mib(tiers[n][1])}" if n in tiers else "-"
              for n in ("host", "disk", "source")),
            _mib(size["index"]), _mib(size["rss_anon"]),
            _mib(size["rss_anon"] - (tiers["host"][0] if "host" in tiers else 0)),
            _mib(size["written"] * HOUR_S / one["frames"]),
            f"{search[str(one['frames'])]}", f"{one['frames'] / max(1e-9, one['ingest_s']):.0f}",
        ])  # fmt: skip
    return print_table("bytes in MiB", columns, rows)


def _print_shapes(shapes: dict[str, Any]) -> str:
    codecs = list(next(iter(shapes["by_shape"].values()))["codec_bytes_per_hour"])
    columns = ["shape, 1 fps", "bytes per token", "raw by arithmetic", *codecs]
    rows = [
        [
            name,
            f"{cell['bytes_per_token']:,}",
            _gib(cell["arithmetic_bytes_per_hour"]),
            *(_gib(cell["codec_bytes_per_hour"][codec]) for codec in codecs),
        ]
        for name, cell in shapes["by_shape"].items()
    ]
    for name, cell in shapes["checked"].items():
        parts = (f"{codec} {cell[codec]['written']:,}" for codec in codecs)
        sizes = ", ".join(parts)
        print(f"{name}, a segment through a session: raw {cell['arithmetic_raw']:,}; {sizes}")
    return print_table("GiB per hour of stream", columns, rows)


def _mib(size: float) -> str:
    return f"{size / 2**20:.1f}"


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f}"


def _age_text(frames: int) -> str:
    if frames < 60:
        return f"{frames} s"
    return f"{frames / 60:g} min" if frames < HOUR_S else f"{frames / HOUR_S:g} h"


def _draw(lengths: Sequence[dict[str, Any]], path: Path) -> Path:
    """Stacked parts by length, a panel per tier."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), dpi=120, layout="constrained")
    tiers = list(lengths[0]["tiers"])
    for axes, tier in zip(figure.subplots(1, len(tiers), sharey=True), tiers, strict=True):
        places = [_age_text(one["frames"]) for one in lengths]
        below = np.zeros(len(lengths))
        for name, color in zip(PARTS, COLORS, strict=True):
            cost = np.array([one["tiers"][tier]["parts_ms"][name] for one in lengths])
            axes.bar(places, cost, bottom=below, label=name, color=color, width=0.65)
            below += cost
        axes.set_title(tier, loc="left", fontsize=10)
        axes.set_xlabel("stream")
        axes.grid(alpha=0.25, axis="y")
        axes.tick_params(axis="x", labelsize=7)
        if tier == tiers[0]:
            axes.set_ylabel("ms to the first token, median")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(path)
    return path
