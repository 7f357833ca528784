"""What a scan costs per frame it asks about, one by one and several in one pass.

    python -m pipelines.scan_speed --batches 1,4,16

The streams are those of ``scan_report``, whose vision tokens are read where they are there already.
Every target is scanned for with every batch in turn, so that a busy machine disturbs all alike; the
events must be the same. CPU time is told beside the time that passed: it does not depend on what
else the machine does. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hermes_like.models import load_model
from pipelines.long_views import StudySession
from pipelines.long_vision import encode_films, read_tokens
from pipelines.replay import Replay, numbered
from pipelines.reporting import bundled_model, print_header, print_json, print_table, write_tables
from pipelines.scan_report import SEED, Unit, film_of
from pipelines.scan_streams import draw_counted_stream

CODEC = "int8"


def measure(session: StudySession, question: str, batch: int) -> dict[str, Any]:
    """One scan: what it found, how many frames it asked about, and how long it took."""
    scanner = session.scan_view(CODEC, scan_batch=batch).scanner
    text = session.model.scan_question(question)
    assert scanner is not None
    assert text is not None
    with session._fork() as (cache, table):
        started_s, started_cpu_s = time.perf_counter(), time.process_time()
        found = scanner.scan(text, cache, table)
        took_s = time.perf_counter() - started_s
        cpu_s = time.process_time() - started_cpu_s
    events = [(event.first_frame, event.last_frame) for event in found.events]
    return {
        "batch": batch,
        "events": events,
        "asked": found.asked,
        "took_s": took_s,
        "cpu_s": cpu_s,
    }


def _per_frame(rows: Sequence[dict[str, Any]], name: str) -> float:
    """Median milliseconds per frame that was asked about."""
    return round(1e3 * statistics.median(r[name] / max(1, r["asked"]) for r in rows), 2)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", default="1,4,16", help="frames in one pass, at most")
    parser.add_argument("--stream", type=int, default=0)
    parser.add_argument("--frames", type=int, default=3600, help="of the stream that are watched")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device-tokens", type=int, default=256)
    parser.add_argument("--tokens", type=Path, default=Path("runs/scan_report"))
    parser.add_argument("--out", type=Path, default=Path("runs/scan_speed"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Watch one stream, scan it for all its targets with all batches, report."""
    args = parse(argv)
    torch.set_num_threads(1)
    unit = Unit("ours", args.stream, 3600, CODEC, args.device_tokens, SEED, args.tokens, None)
    facts: dict[str, Any] = {
        "model": bundled_model(),
        "device_tokens": args.device_tokens,
        "codec": CODEC,
        "stream": f"{args.frames} frames",
        "warm-up": "one scan per batch",
    }
    where = print_header("what a scan costs per frame", facts)
    model = load_model("sprites")
    film = film_of(model, unit)
    encode_films(model, [film])
    stream = draw_counted_stream(SEED, args.stream, 3600)
    batches = list(map(int, args.batches.split(",")))
    rows: list[dict[str, Any]] = []
    with StudySession(Replay(model, read_tokens(film)), unit.config, codecs=(CODEC,)) as session:  # type: ignore[arg-type]
        for index in range(args.frames):
            session.observe(numbered(index))
        for batch in batches:
            measure(session, stream.targets[0].question, batch)
        for _ in range(args.repeats):
            for target in stream.targets:
                found = [measure(session, target.question, batch) for batch in batches]
                if any(each["events"] != found[0]["events"] for each in found):
                    print(f"  {target.question!r}: the batches do not agree")
                rows += found
    cells = []
    for batch in batches:
        own = [row for row in rows if row["batch"] == batch]
        cells.append({
            "batch": batch,
            "asked_per_scan": round(sum(r["asked"] for r in own) / len(own), 1),
            "median_scan_s": round(statistics.median(r["took_s"] for r in own), 3),
            "ms_per_frame": _per_frame(own, "took_s"),
            "cpu_ms_per_frame": _per_frame(own, "cpu_s"),
        })  # fmt: skip
    columns = list(cells[0])
    table = print_table(
        "scans of all targets", columns, [[str(cell[name]) for name in columns] for cell in cells]
    )
    args.out.mkdir(parents=True, exist_ok=True)
    write_tables([table], args.out / "tables.md")
    print_json({"pipeline": "scan_speed", **where, **facts, "cells": cells})
    return 0


if __name__ == "__main__":
    sys.exit(main())
