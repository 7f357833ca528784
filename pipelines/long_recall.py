"""Recall and existence against age, up to a day: ours beside store-all and eviction-only policies.

    python -m pipelines.long_recall --hours 1 --streams 4          an afternoon on two cores
    python -m pipelines.long_recall --hours 24 --streams 4         the full grid: a job of hours
    python -m pipelines.long_recall --report-only --hours 24 --streams 4

One frame per second. Every needle is asked about at every age through every view (codecs, routes,
an oracle; see ``long_views.py``). Frames are rendered and encoded once per stream; all policies
read the same vision tokens through a session, and the keys, values and vectors of every segment are
real. A killed run continues with the policies and streams that are not finished. The last line
printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from hermes_like.models import ModelAdapter, load_model
from hermes_like.sprites.world import Story
from pipelines.long_jobs import (
    RAW_ONLY,
    Unit,
    anonymous_bytes,
    read_unit,
    slug,
    split_policies,
    use_weights,
)
from pipelines.long_needles import LongStream, draw_long_stream
from pipelines.long_report import print_report
from pipelines.long_views import EXTRAS, StudySession
from pipelines.long_vision import Film, encode_films, read_tokens, run_all, vision_digest
from pipelines.needles import Moment, group_of
from pipelines.replay import Replay, numbered
from pipelines.reporting import bundled_model, print_header, save_config

POLICIES = "ours,store_all,window,hermes,uniform,sink_window"
CODECS = "int8,raw,k8v4,int4"
AGES = "60,600,3600,28800,86400"
#: No other pipeline and no training draws from this seed.
SEED = 20_261_207


def film_of(model: ModelAdapter, unit: Unit, story: Story) -> Film:
    """The film of a stream; its file is named after what its tokens depend on."""
    drawn = f"{unit.seed}-{unit.stream}-{max(unit.ages)}-{unit.num_needles}"
    variants = "" if unit.variants is None else f"-v{unit.variants}"
    file = unit.out / f"vision_{drawn}{variants}-{vision_digest(model)}.npy"
    return Film(story, (unit.seed, unit.stream), file, unit.variants)


def stream_of(unit: Unit) -> LongStream:
    """The stream of a unit."""
    return draw_long_stream(unit.seed, unit.stream, unit.ages, unit.num_needles)


def run_unit(unit: Unit) -> None:
    """Pass a stream through a session, asking at every moment; one line per moment."""
    torch.set_num_threads(1)
    use_weights(unit.weights)
    settings = unit.settings  # before weights change
    model = load_model("sprites")
    stream = stream_of(unit)
    tokens = read_tokens(film_of(model, unit, stream.story))
    folder = unit.out / f"memory_{unit.stream:03d}.{slug(unit.policy)}" if unit.is_on_disk else None
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    session = StudySession(
        Replay(model, tokens),  # type: ignore[arg-type]
        unit.config,
        codecs=unit.codecs,
        extras=unit.extras,
        num_scanned=unit.num_scanned,
        folder=folder if unit.config.store.enabled else None,
    )
    started, asked_s, seen = time.perf_counter(), 0.0, 0
    with unit.file.open("w", encoding="utf-8") as file, session:
        _write(file, {"settings": settings})
        for moment in stream.moments:
            for index in range(seen, moment.frame):
                session.observe(numbered(index))
            seen = moment.frame
            before = time.perf_counter()
            rows = _ask(session, moment)
            asked_s += time.perf_counter() - before
            _write(file, {"rows": rows, "frame": seen, **_bytes(session)})
        stats = session.stats()
        wall_s = time.perf_counter() - started
        last = {
            "is_whole": True,
            "frames": stats.num_frames,
            "peak_slots": stats.peak_slots,
            "resident_tokens": session.memory.budget.resident_tokens,
            "wall_s": round(wall_s, 1),
            "ingest_s": round(wall_s - asked_s, 1),
            "store_state": stats.store_state,
        }
        _write(file, last)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"  stream {unit.stream} {unit.policy}: {last['wall_s']} s", flush=True)


def _write(file: Any, line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def _bytes(session: StudySession) -> dict[str, Any]:
    stats = session.stats()
    return {
        "rss_anon_bytes": anonymous_bytes(),
        "device_bytes": stats.device_bytes,
        "tiers": {name: used for name, (used, _, _) in stats.tiers.items()},
    }


def _ask(session: StudySession, moment: Moment) -> list[dict[str, Any]]:
    """Every query of a moment through every view."""
    needle = moment.needle
    about = range(needle.start_frame, needle.end_frame)
    held = _tokens_held(session, needle.start_frame, needle.end_frame)
    rows = []
    for number, query in enumerate(moment.queries):
        group = group_of(query)
        for view in session.views:
            if group not in view.groups:
                continue
            asked = session.ask_through(view, query.text, about)
            answer = asked.answer
            rows.append({
                "view": view.name,
                "needle": needle.start_frame,
                "age": moment.age,
                "number": number,
                "group": group,
                "type": query.type,
                "is_right": answer.text == query.truth,
                "said": answer.text,
                "truth": query.truth,
                "held": held,
                "route": answer.route,
                "found": asked.has_found,
                "ttft_ms": round(1e3 * answer.ttft_s, 2),
                "parts_ms": {k: round(1e3 * v, 2) for k, v in answer.parts_s.items()},
            })  # fmt: skip
    return rows


def _tokens_held(session: StudySession, start_frame: int, end_frame: int) -> float:
    """Tokens of some frames that are resident, on average over layers."""
    memory = session.memory
    low, high = start_frame * memory.tokens_per_frame, end_frame * memory.tokens_per_frame
    counts = [int(((s.ids >= low) & (s.ids < high)).sum()) for s in memory.cache.layers]
    return round(sum(counts) / len(counts), 2)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0, help="ages above this are left out")
    parser.add_argument("--ages", default=AGES, help="seconds of stream, separated by commas")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--first-stream", type=int, default=0)
    parser.add_argument("--needles", type=int, default=24, help="of a stream, at most")
    parser.add_argument("--policies", default=POLICIES, help="presets or aliases, @key=value")
    parser.add_argument("--codecs", default=CODECS, help="views of a store; the first is ours")
    parser.add_argument("--views", default=",".join(EXTRAS), help="further views of a store")
    parser.add_argument(
        "--scan-codecs", type=int, default=4, help="codecs that are asked about what never was"
    )
    parser.add_argument("--tier", choices=("host", "disk"), default="host", help="of the store")
    parser.add_argument(
        "--variants", type=int, default=0, help="pictures drawn of the same sprites; 0: all differ"
    )
    parser.add_argument("--device-tokens", type=int, default=256)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one core each")
    parser.add_argument("--weights", type=Path, help="other weights than the bundled ones")
    parser.add_argument("--encode-only", action="store_true", help="vision tokens, nothing more")
    parser.add_argument("--report-only", action="store_true", help="run nothing more")
    parser.add_argument("--out", type=Path, default=Path("runs/long_recall"))
    return parser.parse_args(argv)


def plan(args: argparse.Namespace) -> list[Unit]:
    """Stream by stream, all policies of each."""
    ages = tuple(sorted(a for a in map(int, args.ages.split(",")) if a <= 3600 * args.hours))
    extras = tuple(name for name in args.views.split(",") if name)
    units = []
    for stream in range(args.first_stream, args.first_stream + args.streams):
        for policy in split_policies(args.policies):
            is_raw = policy.split("@")[0] in RAW_ONLY
            units.append(
                Unit(
                    policy=policy,
                    stream=stream,
                    ages=ages,
                    num_needles=args.needles,
                    codecs=("raw",) if is_raw else tuple(args.codecs.split(",")),
                    extras=tuple(e for e in extras if not is_raw or e == "recipe"),
                    num_scanned=args.scan_codecs,
                    device_tokens=args.device_tokens,
                    is_on_disk=args.tier == "disk",
                    seed=args.seed,
                    out=args.out,
                    variants=args.variants or None,
                    weights=args.weights,
                )
            )
    return units


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, then report on everything."""
    args = parse(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    use_weights(args.weights)
    units = plan(args)
    args.out.mkdir(parents=True, exist_ok=True)
    saved = {u.policy: save_config(u.config, args.out / f"{slug(u.policy)}.yaml") for u in units}
    facts: dict[str, Any] = {
        "model": bundled_model(),
        "resolved configs": ", ".join(map(str, saved.values())),
        "device_tokens": args.device_tokens,
        "streams": f"{args.streams} of one frame per second, tier {args.tier}",
        "pictures": f"at most {args.variants} of the same sprites"
        if args.variants
        else "all differ",
        "seed": args.seed,
        "warm-up": "none needed: accuracy, not speed",
    }
    where = print_header("recall and existence against age", facts)
    left = [] if args.report_only else [unit for unit in units if read_unit(unit)[1] is None]
    if left:
        model = load_model("sprites")
        streams = {unit.stream: unit for unit in left}.values()
        films = [film_of(model, unit, stream_of(unit).story) for unit in streams]
        encode_films(model, films, args.jobs, args.weights)
        if args.encode_only:
            return 0
        run_all(run_unit, left, args.jobs)
    found = [(asdict(unit), *read_unit(unit)) for unit in units]
    if not any(moments for _, moments, _ in found):
        raise SystemExit("nothing has been run yet with these settings and weights")
    facts["units_run_now"] = len(left)
    print_report(found, {**where, **facts}, args.out, time.perf_counter() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
