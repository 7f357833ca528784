"""A short evaluation that runs anywhere: the sprites set, and easy-VQA where its package is there.

    python -m pipelines.eval_quick --out runs/eval-quick

Streams are written once and answered questions are not asked again, so a second call only prints
the tables. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from hermes_like.config import HermesConfig
from hermes_like.errors import DatasetError
from hermes_like.evaluation import load_dataset
from hermes_like.evaluation.easyvqa_set import make_easyvqa
from hermes_like.evaluation.predictions import read_predictions
from hermes_like.evaluation.run import Place, run
from hermes_like.evaluation.scripted import make_sprites
from hermes_like.evaluation.settings import RunSettings, patient
from hermes_like.models import load_model
from hermes_like.presets import load_config
from pipelines import easyvqa
from pipelines.reporting import print_header, print_json, write_tables

#: Settings that are compared on both sets; ``ours`` is the preset of the model.
SETTINGS = ("window", "hermes", easyvqa.OURS)
SPRITES_VIDEOS, SPRITES_SECONDS, SPRITES_QUESTIONS = 4, 240, 40
EASYVQA_STREAMS, LATER = 6, (4, 16, 64, 256)


def sprites_cells(out: Path) -> easyvqa.Cells:
    """Answer the sprites set with every setting."""
    folder = out / "sprites"
    if not (folder / "sprites.json").exists():
        make_sprites(
            folder,
            num_videos=SPRITES_VIDEOS,
            seconds=SPRITES_SECONDS,
            num_questions=SPRITES_QUESTIONS,
        )
    dataset, model = load_dataset("sprites", folder), load_model("sprites")
    results = {}
    for setting in SETTINGS:
        path = out / "sprites-results" / f"{setting}.jsonl"
        how = RunSettings(config=patient(_sprites_config(setting)))
        run(dataset, Place(folder), how, path, model=model)
        results[setting] = read_predictions(path).rows
    return easyvqa.cells_of(results)


def easyvqa_cells(out: Path, package: Path | None) -> easyvqa.Cells:
    """Answer the easy-VQA streams with every setting.

    Raises:
        DatasetError: The package is not there.
    """
    folder = out / "easyvqa"
    if not (folder / "easyvqa.json").exists():
        make_easyvqa(folder, package=package, num_streams=EASYVQA_STREAMS, later=LATER)
    dataset, model = load_dataset("easyvqa", folder), load_model("easyvqa")
    return easyvqa.cells_of(
        easyvqa.run_settings(dataset, folder, SETTINGS, out / "easyvqa-results", model)
    )


def _sprites_config(setting: str) -> HermesConfig:
    return load_config("sprites" if setting == easyvqa.OURS else setting, env={})


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/eval-quick"))
    parser.add_argument("--package", type=Path, help="copy of easy-vqa; default: the installed one")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run both and print the tables."""
    args = parse(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    where = print_header("quick evaluation", {"out": str(args.out)})
    cells = {"sprites": sprites_cells(args.out)}
    title = "Right answers, percent (95 % interval): {}"
    tables = [easyvqa.accuracy_table(cells["sprites"], SETTINGS, title.format("sprites"))]
    try:
        cells["easyvqa"] = easyvqa_cells(args.out, args.package)
    except DatasetError as error:
        print(f"easy-VQA SKIPPED: {error}", flush=True)
    else:
        tables.append(easyvqa.accuracy_table(cells["easyvqa"], SETTINGS, title.format("easy-VQA")))
    write_tables(tables, args.out / "tables.md")
    print_json({**where, "cells": cells, "wall_s": round(time.perf_counter() - started, 1)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
