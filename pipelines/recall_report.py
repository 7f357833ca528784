"""Tables, figure and JSON of ``pipelines/recall.py``, from its finished lines."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from pipelines.reporting import print_json, print_table, share, share_text, write_tables

Row = dict[str, Any]
Line = dict[str, Any]
Cells = dict[str, dict[str, Any]]

COLORS = ("#8c8c8c", "#c98b2b", "#3b7ea1", "#b5323e", "#7b5ea7", "#4f8f4a", "#222222")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
EXISTS = ("exists_yes", "exists_no")


def print_report(lines: Sequence[Line], facts: dict[str, Any], out: Path, wall_s: float) -> None:
    """Print tables and a JSON line; write ``recall.png`` and all figures as ``recall.json``."""
    rows = _by_policy(lines)
    ages = sorted({row["age"] for asked in rows.values() for row in asked})
    recall = {name: _by_age(asked, ages, ("recall",)) for name, asked in rows.items()}
    tables: dict[str, Any] = {
        "recall": recall,
        "exists": {name: _by_age(asked, ages, EXISTS) for name, asked in rows.items()},
        "now": {name: _by_age(asked, ages, ("now",)) for name, asked in rows.items()},
        "groups": {name: _groups(asked) for name, asked in rows.items()},
        "recall_types": {name: _types(asked) for name, asked in rows.items()},
        "needle_tokens_held": {name: _held(asked, ages) for name, asked in rows.items()},
        "nothing_said": {name: _nothing(asked, ages) for name, asked in rows.items()},
        "policies": {name: _facts(name, lines) for name in rows},
    }
    write_tables(_print_tables(tables, ages), out / "tables.md")
    picture = _draw(recall, ages, out / "recall.png", facts)
    events = {str(age): _num_needles(lines, age) for age in ages}
    print("Intervals are Wilson's at 95 % and take questions as independent;")
    print(f"questions about the same needle are not. Needles by age: {events}")
    result = {"pipeline": "recall", **facts, "needles": events, "wall_s": round(wall_s, 1)}
    result |= {"figure": str(picture), **tables}
    (out / "recall.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    short = ("now", "exists", "recall_types", "nothing_said")
    print_json({key: value for key, value in result.items() if key not in short})


def _by_policy(lines: Iterable[Line]) -> dict[str, list[Row]]:
    """All rows by policy; a stream that was run twice counts once."""
    rows: dict[str, list[Row]] = defaultdict(list)
    seen = set()
    for line in lines:
        key = line["settings"]["policy"], line["settings"]["stream"]
        if key not in seen:
            seen.add(key)
            rows[key[0]] += line["rows"]
    return dict(rows)


def _num_needles(lines: Iterable[Line], age: int) -> int:
    return len({
        (line["settings"]["stream"], row["needle"])
        for line in lines for row in line["rows"] if row["age"] == age
    })  # fmt: skip


def _right(rows: Iterable[Row], chosen: Callable[[Row], bool]) -> list[bool]:
    return [row["is_right"] for row in rows if chosen(row)]


def _by_age(rows: Sequence[Row], ages: Sequence[int], groups: Sequence[str]) -> Cells:
    return {
        str(age): share(_right(rows, lambda row: row["age"] == age and row["group"] in groups))  # noqa: B023
        for age in ages
    }


def _groups(rows: Sequence[Row]) -> Cells:
    names = ("now", "recall", *EXISTS)
    return {name: share(_right(rows, lambda row: row["group"] == name)) for name in names}  # noqa: B023


def _types(rows: Sequence[Row]) -> Cells:
    names = sorted({row["type"] for row in rows if row["group"] == "recall"})
    return {name: share(_right(rows, lambda row: row["type"] == name)) for name in names}  # noqa: B023


def _held(rows: Sequence[Row], ages: Sequence[int]) -> dict[str, float | None]:
    values = {age: [row["held"] for row in rows if row["age"] == age] for age in ages}
    return {str(age): round(mean(held), 2) if held else None for age, held in values.items()}


def _nothing(rows: Sequence[Row], ages: Sequence[int]) -> dict[str, float | None]:
    """Percentage of recall questions answered "nothing" or "none", which is honest and wrong."""
    result: dict[str, float | None] = {}
    for age in ages:
        said = [r["said"] for r in rows if r["age"] == age and r["group"] == "recall"]
        empty = sum(text in ("nothing", "none") for text in said)
        result[str(age)] = round(100 * empty / len(said), 1) if said else None
    return result


def _facts(name: str, lines: Sequence[Line]) -> dict[str, Any]:
    own = [line for line in lines if line["settings"]["policy"] == name]
    return {
        "resident_tokens": own[0]["resident_tokens"],
        "peak_slots": max(line["peak_slots"] for line in own),
        "frames": sum(line["frames"] for line in own),
        "wall_s": round(sum(line["wall_s"] for line in own), 1),
    }


def _print_tables(tables: dict[str, Any], ages: Sequence[int]) -> list[str]:
    printed = []
    columns = ["policy", *(f"{age} s" for age in ages)]
    for key, title in (
        ("recall", "recall by age: % right (95 % interval) n"),
        ("exists", "was it there, needles and look-alikes: % right"),
    ):
        cells = tables[key]
        rows = [[name, *(share_text(c[str(age)]) for age in ages)] for name, c in cells.items()]
        printed.append(print_table(title, columns, rows))
    held, silent = tables["needle_tokens_held"], tables["nothing_said"]
    rows = [
        [name, *(_pair_text(held[name][str(age)], silent[name][str(age)]) for age in ages)]
        for name in held
    ]
    title = 'needle tokens resident per layer / % of recall answered "nothing"'
    printed.append(print_table(title, columns, rows))
    columns = [
        "policy",
        "now",
        "recall",
        "exists: was",
        "exists: was not",
        "peak slots",
        "resident",
    ]
    rows = []
    for name, groups in tables["groups"].items():
        facts = tables["policies"][name]
        slots = [str(facts["peak_slots"]), str(facts["resident_tokens"] or "no cap")]
        rows.append([name, *(share_text(groups[g]) for g in ("now", "recall", *EXISTS)), *slots])
    return [*printed, print_table("all ages together", columns, rows)]


def _pair_text(held: float | None, silent: float | None) -> str:
    return "-" if held is None or silent is None else f"{held:g} / {silent:.0f} %"


def _draw(recall: dict[str, Cells], ages: Sequence[int], path: Path, facts: dict[str, Any]) -> Path:
    """Recall against age, one line per policy with its interval."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    for index, (name, cells) in enumerate(recall.items()):
        shown = [age for age in ages if cells[str(age)]["asked"]]
        # Lines that lie on each other stay visible: each a little to the side of the last.
        places = [age * (1 + 0.025 * (index - len(recall) / 2)) for age in shown]
        values = [cells[str(age)]["percent"] for age in shown]
        ends = [cells[str(age)]["interval"] for age in shown]
        below = [max(0.0, v - low) for v, (low, _) in zip(values, ends, strict=True)]
        above = [max(0.0, high - v) for v, (_, high) in zip(values, ends, strict=True)]
        axes.errorbar(
            places,
            values,
            yerr=[below, above],
            label=name,
            color=COLORS[index % len(COLORS)],
            marker=MARKERS[index % len(MARKERS)],
            markersize=5,
            linewidth=1.6,
            elinewidth=0.8,
            capsize=2,
        )
    axes.set_xscale("log")
    axes.set_xticks(list(ages), [_age_text(age) for age in ages])
    axes.minorticks_off()
    axes.set_ylim(-3, 103)
    axes.set_xlabel("age of the event")
    axes.set_ylabel("recall questions right, %")
    axes.grid(alpha=0.25)
    axes.set_title(
        f"sprites, device_tokens = {facts['device_tokens']}; bars: 95 % intervals", loc="left"
    )
    figure.legend(loc="outside right center", frameon=False)
    figure.savefig(path)
    return path


def _age_text(age: int) -> str:
    if age < 60:
        return f"{age} s"
    return f"{age / 60:g} min" if age < 3600 else f"{age / 3600:g} h"
