"""Accuracy on easy-VQA now, and some images later, for every policy at the same device budget.

    hermes-like eval make-easyvqa runs/easyvqa/memory --streams 12 --later 4,16,64,256,1024
    python -m pipelines.easyvqa runs/easyvqa/memory
    hermes-like eval make-easyvqa runs/easyvqa/now --now
    python -m pipelines.easyvqa runs/easyvqa/now --settings window,ours

Each setting is run once over each stream; what the folder of results holds is not run again.
``ours`` is the preset ``easyvqa``: the policy hermes with everything that was seen kept off the
device and found again. The others are the presets of the same name with this model. The last line
printed is JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError
from hermes_like.evaluation import load_dataset
from hermes_like.evaluation.base import Dataset
from hermes_like.evaluation.predictions import Prediction, read_predictions
from hermes_like.evaluation.run import Place, run
from hermes_like.evaluation.scoring.scores import verdicts_of
from hermes_like.evaluation.settings import RunSettings, patient
from hermes_like.models import ModelAdapter, load_model
from hermes_like.presets import load_config
from pipelines.reporting import (
    print_header,
    print_json,
    print_table,
    share,
    write_tables,
)

OURS = "ours"
#: Row of all questions about the newest image together.
ALL_NOW = "now, all"
SETTINGS = ("window", "sink_window", "uniform", "hermes", OURS)

Cells = dict[str, dict[str, dict[str, object]]]


def config_of(setting: str) -> HermesConfig:
    """Configuration of one setting.

    Raises:
        ConfigError: There is no such setting.
    """
    if setting not in SETTINGS:
        raise ConfigError(f"--settings: expected some of {', '.join(SETTINGS)}, got {setting!r}")
    ours = load_config("easyvqa", env={})
    if setting == OURS:
        return ours
    same = {"model.name": "easyvqa", "memory.prefill_frames": str(ours.memory.prefill_frames)}
    return load_config(setting, same, {})


def run_settings(
    dataset: Dataset, folder: Path, settings: Sequence[str], out: Path, model: ModelAdapter
) -> dict[str, tuple[Prediction, ...]]:
    """Answer every question with every setting that has not been run; one file each."""
    found = {}
    for setting in settings:
        started = time.perf_counter()
        path = out / f"{setting}.jsonl"
        how = RunSettings(config=patient(config_of(setting), frozenset()))
        run(dataset, Place(folder), how, path, model=model)
        found[setting] = read_predictions(path).rows
        print(f"  {setting}: {time.perf_counter() - started:.0f} s", flush=True)
    return found


def cells_of(results: dict[str, tuple[Prediction, ...]]) -> Cells:
    """Share of right answers by row of the table and by setting."""
    cells: Cells = {}
    for setting, rows in results.items():
        right: dict[str, list[bool]] = {}
        for row, verdict in zip(rows, verdicts_of(rows, "strict"), strict=True):
            names = [row.category, *([ALL_NOW] if row.category.startswith("now ") else [])]
            for name in names:
                right.setdefault(name, []).append(verdict.score == 1.0)
        for category, values in right.items():
            cells.setdefault(category, {})[setting] = share(values)
    return cells


def cell_text(cell: dict[str, Any] | None) -> str:
    """A share for a table: percentage, interval, number asked."""
    if cell is None:
        return "-"
    low, high = cell["interval"]
    return f"{cell['percent']:.1f} ({low:.1f}-{high:.1f}; n={cell['asked']})"


def row_key(category: str) -> tuple[int, int, str]:
    """Order of the rows: now, by content and by time, each by how many images later."""
    parts = category.split()
    later = next((int(part) for part in parts if part.isdecimal()), 0)
    return (0 if parts[0].startswith("now") else 2 if parts[0] == "by" else 1, later, parts[-1])


def accuracy_table(cells: Cells, settings: Sequence[str], title: str) -> str:
    """Print accuracy by row and setting; returns Markdown."""
    rows = [
        [category, *(cell_text(cells[category].get(setting)) for setting in settings)]
        for category in sorted(cells, key=row_key)
    ]
    return print_table(title, ("questions", *settings), rows)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="written by: hermes-like eval make-easyvqa")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--out", type=Path, help="default: the folder's name with -results")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run and report."""
    args = parse(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    settings = args.settings.split(",")
    for setting in settings:
        config_of(setting)
    out = args.out or args.folder.with_name(f"{args.folder.name}-results")
    dataset = load_dataset("easyvqa", args.folder)
    facts: dict[str, object] = {
        "annotations": dataset.edition.sha256[:12],
        "streams": len(dataset.videos),
        "questions": len(dataset.questions),
    }
    where = print_header("easy-VQA", facts)
    model = load_model("easyvqa")
    cells = cells_of(run_settings(dataset, args.folder, settings, out, model))
    table = accuracy_table(cells, settings, "Right answers, percent (95 % interval)")
    write_tables([table], out / "tables.md")
    print_json(
        {**where, **facts, "cells": cells, "wall_s": round(time.perf_counter() - started, 1)}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
