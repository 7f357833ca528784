"""Tables, figure and JSON of ``pipelines/long_recall.py``, from its finished moments."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.recall_report import COLORS, MARKERS
from pipelines.reporting import print_json, print_table, share, share_text, write_tables

Row = dict[str, Any]
#: What one unit gave: its fields, its moments, and its last line if it is whole.
Unit = tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any] | None]
#: Rows of one policy seen through one view.
Series = dict[str, list[Row]]

EXISTS = ("exists_yes", "exists_no")
DAY_S = 86_400
RESAMPLES = 2000


def print_report(units: Sequence[Unit], facts: dict[str, Any], out: Path, wall_s: float) -> None:
    """Print tables and a JSON line; write the figure and all figures as ``long_recall.json``."""
    series = series_of(units)
    ages = sorted({row["age"] for rows in series.values() for row in rows})
    cells = {name: _cells(rows, ages) for name, rows in series.items()}
    pairs = differences(series, ages)
    result: dict[str, Any] = {
        "cells": cells,
        "differences": pairs,
        "routing": {name: routing(rows) for name, rows in series.items()},
        "failures": {name: failures(rows, ages) for name, rows in series.items()},
        "types": {name: _types(rows) for name, rows in series.items()},
        "runs": _runs(units),
    }
    tables = _print_tables(result, ages)
    write_tables(tables, out / "tables.md")
    result["figure"] = str(_draw(cells, ages, out / "long_recall.png", facts))
    print(
        "Intervals are Wilson's at 95 %; differences are resampled by needle, whose questions are"
    )
    print("not independent. Moments that were not reached yet are missing from the cells.")
    everything = {"pipeline": "long_recall", **facts, "wall_s": round(wall_s, 1), **result}
    (out / "long_recall.json").write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    short = ("types", "failures", "runs")
    print_json({key: value for key, value in everything.items() if key not in short})


def series_of(units: Iterable[Unit]) -> Series:
    """Rows by policy and view, each with the stream it came from."""
    series: Series = defaultdict(list)
    for unit, moments, _ in units:
        for moment in moments:
            for row in moment["rows"]:
                name = unit["policy"] + (f" ({row['view']})" if row["view"] != "-" else "")
                series[name].append({
                    **row, "stream": unit["stream"], "frame": moment["frame"]
                })  # fmt: skip
    return dict(series)


def _key(row: Row) -> tuple[int, int, int, int]:
    return row["stream"], row["needle"], row["age"], row["number"]


def _right(rows: Iterable[Row], chosen: Callable[[Row], bool]) -> list[bool]:
    return [row["is_right"] for row in rows if chosen(row)]


def _cells(rows: Sequence[Row], ages: Sequence[int]) -> dict[str, Any]:
    """Shares by age, and over all of them."""
    cells: dict[str, Any] = {}
    for group in ("recall", *EXISTS, "now"):
        own = [row for row in rows if row["group"] == group]
        cells[group] = {str(a): share(_right(own, lambda r, a=a: r["age"] == a)) for a in ages}
        cells[group]["all"] = share([row["is_right"] for row in own])
    both = [row for row in rows if row["group"] in EXISTS]
    cells["exists"] = {str(a): share(_right(both, lambda r, a=a: r["age"] == a)) for a in ages}
    cells["exists"]["all"] = share([row["is_right"] for row in both])
    cells["false_alarms_per_day"] = false_alarms(rows, ages)
    return cells


def false_alarms(rows: Sequence[Row], ages: Sequence[int]) -> dict[str, Any]:
    """Look-alikes that were affirmed, per day of stream that was searched for one of them."""
    result: dict[str, Any] = {}
    for age in ages:
        own = [row for row in rows if row["group"] == "exists_no" and row["age"] == age]
        days = sum(row["frame"] for row in own) / DAY_S
        alarms = sum(row["said"] != "no" for row in own)
        rate = round(alarms / days, 3) if days else None
        result[str(age)] = {"alarms": alarms, "days": round(days, 2), "per_day": rate}
    return result


def differences(series: Series, ages: Sequence[int]) -> dict[str, Any]:
    """Paired differences in points, with intervals: against store-all, and now against a window."""
    result: dict[str, Any] = {}
    for name, rows in series.items():
        if not name.startswith("ours"):
            continue
        for other, groups in (("store_all (raw)", ("recall", "exists")), ("window", ("now",))):
            for group in groups:
                if other not in series:
                    continue
                for age in (*ages, None):
                    found = difference(rows, series[other], group, age)
                    if found is not None:
                        label = f"{name} - {other}: {group}"
                        result.setdefault(label, {})["all" if age is None else str(age)] = found
    return result


def difference(
    ours: Sequence[Row], others: Sequence[Row], group: str, age: int | None
) -> dict[str, Any] | None:
    """Mean difference of the same questions in points; needles are resampled for its interval."""
    theirs = {_key(row): row["is_right"] for row in others}
    by_needle: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in ours:
        fits = row["group"] in (EXISTS if group == "exists" else (group,))
        if fits and age in (None, row["age"]) and _key(row) in theirs:
            by_needle[row["stream"], row["needle"]].append(row["is_right"] - theirs[_key(row)])
    if not by_needle:
        return None
    sums = np.array([sum(values) for values in by_needle.values()], float)
    counts = np.array([len(values) for values in by_needle.values()], float)
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = 100 * sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.percentile(means, (2.5, 97.5))
    return {
        "points": round(100 * sums.sum() / counts.sum(), 2),
        "interval": [round(float(low), 2), round(float(high), 2)],
        "paired": int(counts.sum()),
        "needles": len(sums),
    }


def routing(rows: Sequence[Row]) -> dict[str, Any]:
    """Where questions went, and how often that was wrong, by direction."""
    went: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        went["exists" if row["group"] in EXISTS else row["group"]][row["route"]] += 1
    now, past = went.get("now", Counter()), went.get("recall", Counter())
    return {
        "went": {group: dict(counts) for group, counts in went.items()},
        "now_sent_to_memory": share([False] * now["now"] + [True] * (now.total() - now["now"])),
        "past_answered_from_present": share(
            [True] * past["now"] + [False] * (past.total() - past["now"])
        ),
    }


def failures(rows: Sequence[Row], ages: Sequence[int]) -> dict[str, Any]:
    """Why recall questions and questions for existence went wrong, by age.

    ``retrieval``: no frame that holds the answer came back and none of its tokens is resident;
    ``router``: the present was asked instead; ``model``: it was there, and the answer is wrong.
    """
    result: dict[str, Any] = {}
    for group in ("recall", "exists_yes"):
        for age in ages:
            own = [r for r in rows if r["group"] == group and r["age"] == age]
            causes = Counter(_cause(row) for row in own if not row["is_right"])
            found = sum(row["found"] or row["held"] > 0 for row in own)
            result.setdefault(group, {})[str(age)] = {
                "asked": len(own), "available": found, **causes
            }  # fmt: skip
    return result


def _cause(row: Row) -> str:
    if row["found"] or row["held"] > 0:
        return "model"
    return "router" if row["route"] == "now" else "retrieval"


def _types(rows: Sequence[Row]) -> dict[str, Any]:
    names = sorted({row["type"] for row in rows})
    return {name: share(_right(rows, lambda r, n=name: r["type"] == n)) for name in names}


def _runs(units: Sequence[Unit]) -> list[dict[str, Any]]:
    """Facts of each pass: speed, slots, and bytes at its first and last moments."""
    runs = []
    for unit, moments, last in units:
        if not moments:
            continue
        chosen = [moments[len(moments) // 8], moments[-1]]
        names = ("frame", "rss_anon_bytes", "device_bytes", "tiers")
        runs.append({
            "policy": unit["policy"], "stream": unit["stream"], "moments": len(moments),
            "bytes": [{name: moment[name] for name in names} for moment in chosen],
            **(last or {"is_whole": False}),
        })  # fmt: skip
    return runs


# -- printing ----------------------------------------------------------------------------------


def _print_tables(result: dict[str, Any], ages: Sequence[int]) -> list[str]:
    cells, labels = result["cells"], [_age_text(age) for age in ages]
    printed = []
    for group, title in (
        ("recall", "recall by age: % right (95 % interval) n"),
        ("exists", "was it there, needles and look-alikes together: % right"),
        ("exists_yes", "was it there, needles: % right"),
        ("exists_no", "was it there, look-alikes: % right"),
        ("now", "the present, by the age asked about beside it: % right"),
    ):
        rows = [
            [name, *(share_text(cell[group][key]) for key in (*map(str, ages), "all"))]
            for name, cell in cells.items()
            if cell[group]["all"]["asked"]
            and (group != "exists" or all(cell[part]["all"]["asked"] for part in EXISTS))
        ]
        printed.append(print_table(title, ["policy (view)", *labels, "all"], rows))
    rows = [
        [name, *(_alarm_text(cell["false_alarms_per_day"][str(age)]) for age in ages)]
        for name, cell in cells.items()
        if cell["exists_no"]["all"]["asked"]
    ]
    title = "false alarms per day of searched stream (alarms / days)"
    printed.append(print_table(title, ["policy (view)", *labels], rows))
    rows = [
        [label, *(_points_text(cell.get(key)) for key in (*map(str, ages), "all"))]
        for label, cell in result["differences"].items()
    ]
    title = "paired differences in points (95 % interval, resampled by needle)"
    printed.append(print_table(title, ["difference", *labels, "all"], rows))
    rows = [
        [
            name,
            share_text(found["now_sent_to_memory"]),
            share_text(found["past_answered_from_present"]),
            "; ".join(f"{g}: {dict(c)}" for g, c in found["went"].items()),
        ]
        for name, found in result["routing"].items()
    ]
    columns = ["policy (view)", "now sent to memory", "past from the present", "went"]
    printed.append(print_table("routing: % of questions", columns, rows))
    rows = [
        [f"{name}: {group}", *(_failure_text(found[group][str(age)]) for age in ages)]
        for name, found in result["failures"].items()
        for group in found
        if any(found[group][str(age)]["asked"] for age in ages)
    ]
    title = "event available of asked; wrong by cause (m model, r retrieval, p present asked)"
    printed.append(print_table(title, ["policy (view): group", *labels], rows))
    return printed


def _alarm_text(cell: dict[str, Any]) -> str:
    return (
        "-" if cell["per_day"] is None else f"{cell['per_day']} ({cell['alarms']}/{cell['days']})"
    )


def _points_text(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "-"
    low, high = cell["interval"]
    return f"{cell['points']:+.1f} ({low:+.1f} to {high:+.1f}) n={cell['paired']}"


def _failure_text(cell: dict[str, Any]) -> str:
    if not cell["asked"]:
        return "-"
    wrong = (("m", "model"), ("r", "retrieval"), ("p", "router"))
    return f"{cell['available']}/{cell['asked']}; " + " ".join(
        f"{short}{cell.get(name, 0)}" for short, name in wrong
    )


def _age_text(age: int) -> str:
    if age < 60:
        return f"{age} s"
    return f"{age / 60:g} min" if age < 3600 else f"{age / 3600:g} h"


def _draw(cells: dict[str, Any], ages: Sequence[int], path: Path, facts: dict[str, Any]) -> Path:
    """Recall and existence against age, one line per policy with its interval."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.8), dpi=120, layout="constrained")
    for axes, group, title in zip(
        figure.subplots(1, 2, sharey=True),
        ("recall", "exists"),
        ("recall questions right, %", "was it there: right, %"),
        strict=True,
    ):
        for index, (name, cell) in enumerate(cells.items()):
            shown = [age for age in ages if cell[group][str(age)]["asked"]]
            if not shown:
                continue
            values = [cell[group][str(age)]["percent"] for age in shown]
            ends = [cell[group][str(age)]["interval"] for age in shown]
            axes.errorbar(
                [age * (1 + 0.02 * (index - len(cells) / 2)) for age in shown],
                values,
                yerr=[
                    [max(0.0, v - low) for v, (low, _) in zip(values, ends, strict=True)],
                    [max(0.0, high - v) for v, (_, high) in zip(values, ends, strict=True)],
                ],
                label=name if group == "recall" else None,
                color=COLORS[index % len(COLORS)],
                marker=MARKERS[index % len(MARKERS)],
                linestyle=("-", "--", ":")[index // len(COLORS) % 3],
                markersize=4,
                linewidth=1.4,
                elinewidth=0.8,
                capsize=2,
            )
        axes.set_xscale("log")
        axes.set_xticks(list(ages), [_age_text(age) for age in ages])
        axes.minorticks_off()
        axes.set_ylim(-3, 103)
        axes.set_xlabel("age of the event")
        axes.set_title(title, loc="left", fontsize=10)
        axes.grid(alpha=0.25)
    figure.suptitle(f"sprites, device_tokens = {facts['device_tokens']}", x=0.01, ha="left")
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(path)
    return path
