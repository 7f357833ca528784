"""Does it help to check what was found before it is brought back? Recall with and without.

    python -m pipelines.recall_verify --streams 2 --noise 0,1

Streams, look-alikes and questions are those of ``long_recall``, whose vision tokens are read where
they are there already. Every recall question is asked twice through the same memory: as always, and
with ``retrieval.verify_frames``. Vision tokens may get noise, in units of their own deviation, so
that frames are misread more often than by the bundled model. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hermes_like.models import load_model
from pipelines.long_jobs import Unit
from pipelines.long_recall import SEED, film_of, stream_of
from pipelines.long_views import StudySession, View
from pipelines.long_vision import encode_films, read_tokens
from pipelines.needles import group_of
from pipelines.replay import Replay, numbered
from pipelines.reporting import (
    bundled_model,
    print_header,
    print_json,
    print_table,
    save_config,
    share,
    share_text,
    write_tables,
)

CODEC = "int8"
NEEDLES = 24

Row = dict[str, Any]


def noisy(tokens: Tensor, noise: float, seed: int) -> Tensor:
    """Vision tokens ``[frames, tokens, hidden]`` with noise, in units of their deviation."""
    if not noise:
        return tokens
    generator = torch.Generator().manual_seed(seed)
    deviation = float(tokens[:256].std())
    return tokens + noise * deviation * torch.randn(tokens.shape, generator=generator)


def views(session: StudySession, verify_frames: int) -> tuple[View, View]:
    """The memory as it is, and the same with a check of what was found."""
    plain = session.scan_view(CODEC, verify_frames=0)
    checked = session.scan_view(CODEC, verify_frames=verify_frames)
    return plain, checked


def run(unit: Unit, noise: float, ages: Sequence[int], verify_frames: int) -> list[Row]:
    """One stream at one level of noise: a row per question."""
    model = load_model("sprites")
    stream = stream_of(unit)
    film = film_of(model, unit, stream.story)
    encode_films(model, [film])
    tokens = noisy(read_tokens(film), noise, unit.stream)
    rows: list[Row] = []
    seen = 0
    with StudySession(Replay(model, tokens), unit.config, codecs=(CODEC,)) as session:  # type: ignore[arg-type]
        both = views(session, verify_frames)
        for moment in (m for m in stream.moments if m.age in ages):
            for index in range(seen, moment.frame):
                session.observe(numbered(index))
            seen = moment.frame
            about = range(moment.needle.start_frame, moment.needle.end_frame)
            for query in moment.queries:
                if group_of(query) != "recall":
                    continue
                plain, checked = (session.ask_through(view, query.text, about) for view in both)
                rows.append({
                    "stream": unit.stream, "noise": noise, "age": moment.age, "type": query.type,
                    "plain": plain.answer.text == query.truth,
                    "checked": checked.answer.text == query.truth,
                    "found": plain.has_found,
                    "kept": checked.has_found,
                    "told": len(checked.answer.notes),
                    "plain_ms": round(1e3 * plain.answer.ttft_s, 2),
                    "checked_ms": round(1e3 * checked.answer.ttft_s, 2),
                })  # fmt: skip
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Shares of right answers, what changed, and what it costs."""
    names = ("plain_ms", "checked_ms")
    means = {name: round(sum(r[name] for r in rows) / max(1, len(rows)), 1) for name in names}
    return {
        "plain": share([r["plain"] for r in rows]),
        "checked": share([r["checked"] for r in rows]),
        "found": share([r["found"] for r in rows]),
        "kept": share([r["kept"] for r in rows]),
        "repaired": sum(r["checked"] and not r["plain"] for r in rows),
        "broken": sum(r["plain"] and not r["checked"] for r in rows),
        **means,
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ages", default="60,600,3600", help="seconds, separated by commas")
    parser.add_argument(
        "--longest", type=int, default=3600, help="age that the streams are made for"
    )
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--first-stream", type=int, default=0)
    parser.add_argument("--noise", default="0", help="levels, separated by commas")
    parser.add_argument("--verify-frames", type=int, default=16)
    parser.add_argument("--device-tokens", type=int, default=256)
    parser.add_argument("--tokens", type=Path, default=Path("runs/long_recall_1h"))
    parser.add_argument("--out", type=Path, default=Path("runs/recall_verify"))
    return parser.parse_args(argv)


def unit_of(args: argparse.Namespace, stream: int) -> Unit:
    """One stream of ``long_recall``."""
    return Unit(
        policy="ours",
        stream=stream,
        ages=(60, 600, args.longest),
        num_needles=NEEDLES,
        codecs=(CODEC,),
        extras=(),
        num_scanned=1,
        device_tokens=args.device_tokens,
        is_on_disk=False,
        seed=SEED,
        out=args.tokens,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run all streams at all levels of noise and report."""
    args = parse(argv)
    torch.set_num_threads(1)
    started_s = time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    units = [unit_of(args, args.first_stream + number) for number in range(args.streams)]
    facts: dict[str, Any] = {
        "model": bundled_model(),
        "resolved config": str(save_config(units[0].config, args.out / "ours.yaml")),
        "verify_frames": args.verify_frames,
        "device_tokens": args.device_tokens,
        "codec": CODEC,
        "warm-up": "none needed: accuracy; milliseconds are means under whatever load there was",
    }
    where = print_header("recall with and without a check of what was found", facts)
    ages = tuple(map(int, args.ages.split(",")))
    rows = [
        row
        for noise in map(float, args.noise.split(","))
        for unit in units
        for row in run(unit, noise, ages, args.verify_frames)
    ]
    (args.out / "rows.json").write_text(json.dumps(rows) + "\n", encoding="utf-8")
    cells = []
    for noise in sorted({row["noise"] for row in rows}):
        for age in ages:
            own = [r for r in rows if r["noise"] == noise and r["age"] == age]
            cells.append({"noise": noise, "age_s": age, **summary(own)})
    table = [
        [
            f"{c['noise']:g}", str(c["age_s"]), share_text(c["plain"]), share_text(c["checked"]),
            str(c["repaired"]), str(c["broken"]), share_text(c["found"]), share_text(c["kept"]),
            f"{c['plain_ms']}", f"{c['checked_ms']}",
        ]
        for c in cells
    ]  # fmt: skip
    columns = ["noise", "age s", "right", "right, checked", "repaired", "broken"]
    columns += ["found", "kept", "ms", "ms, checked"]
    write_tables([print_table("recall", columns, table)], args.out / "tables.md")
    wall_s = round(time.perf_counter() - started_s, 1)
    print_json({"pipeline": "recall_verify", **where, **facts, "wall_s": wall_s, "cells": cells})
    return 0


if __name__ == "__main__":
    sys.exit(main())
