"""Examine the bundled sprites model: right whole answers per group, type and condition.

    python -m pipelines.evaluate_sprites --questions 400

New streams, fresh frames of random sizes, the stock model in fp32, greedy answers. Prints a table;
the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from hermes_like.sprites.questions import GROUPS
from pipelines.reporting import wilson
from pipelines.sprites_training.answering import StockAnswerer
from pipelines.sprites_training.conditions import Condition, Reply, examine, standard_conditions

WEIGHTS = Path("hermes_like/sprites/weights")
#: Training and development never drew from this seed.
SEED = 987_654
MAX_STREAMS = 4_000

Cell = dict[str, float | int | list[float]]


def cell(replies: Sequence[Reply]) -> Cell:
    """Return hits, questions, share and interval of some replies."""
    hits = sum(reply.is_right for reply in replies)
    low, high = wilson(hits, len(replies))
    return {
        "hits": hits,
        "asked": len(replies),
        "percent": round(100 * hits / max(1, len(replies)), 1),
        "interval": [round(100 * low, 1), round(100 * high, 1)],
    }


def run_condition(
    answerer: StockAnswerer, condition: Condition, seed: int, num_questions: int
) -> dict[str, dict[str, Cell]]:
    """Draw streams until every group that comes up at all has been asked about often enough."""
    rng = np.random.default_rng([seed, *condition.name.encode()])
    by_group: dict[str, list[Reply]] = defaultdict(list)
    by_type: dict[str, list[Reply]] = defaultdict(list)
    for _ in range(MAX_STREAMS):
        for reply in examine(answerer, condition, rng):
            by_group[reply.question.group].append(reply)
            by_type[reply.question.type].append(reply)
        if by_group and min(map(len, by_group.values())) >= num_questions:
            break
    return {
        "groups": {group: cell(by_group[group]) for group in GROUPS if group in by_group},
        "types": {type: cell(replies) for type, replies in sorted(by_type.items())},
    }


def table(results: dict[str, dict[str, dict[str, Cell]]]) -> str:
    """Return a Markdown table, one row per condition."""
    lines = [
        f"| condition | {' | '.join(GROUPS)} |",
        "| --- |" + " --- |" * len(GROUPS),
    ]
    for name, result in results.items():
        cells = [_cell_text(result["groups"].get(group)) for group in GROUPS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell_text(entry: Cell | None) -> str:
    if entry is None:
        return "-"
    low, high = entry["interval"]  # type: ignore[misc]
    return f"{entry['percent']} ({low}-{high}; n={entry['asked']})"


def main(argv: list[str] | None = None) -> int:
    """Examine one checkpoint and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, default=WEIGHTS)
    parser.add_argument("--questions", type=int, default=400, help="least number per group and row")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--only", default="", help="conditions whose name contains one of these, a,b"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/sprites/evaluation.json"))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    started = time.monotonic()
    answerer = StockAnswerer(args.model)
    results = {
        condition.name: run_condition(answerer, condition, args.seed, args.questions)
        for condition in standard_conditions()
        if any(part in condition.name for part in args.only.split(","))
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    print(
        json.dumps(
            {
                "model": str(args.model),
                "seed": args.seed,
                "minutes": round((time.monotonic() - started) / 60, 1),
                "percent": {
                    name: {group: c["percent"] for group, c in result["groups"].items()}
                    for name, result in results.items()
                },
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
