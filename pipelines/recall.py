"""Recall against age: how long each policy remembers an event, at the same number of slots.

    python -m pipelines.recall --streams 2 --out runs/recall

Scripted streams at one frame per second. Each carries a few needles (events whose shape, colour and
number occur nowhere else) and every needle is asked about at every age: what it was, whether it
was, whether a look-alike was, and beside it what is visible now. Frames are rendered and encoded
once per stream, and all policies read the same vision tokens through ``StreamSession``. A policy is
a preset, or a preset with fields changed: ``hermes@policy.frame_quota=0``.

The first streams are long enough for the greatest age; ``--short-streams`` further ones stop at
``--short-age`` and sharpen the figures below it. A killed run continues where it was: there is one
file per stream and one line per policy. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hermes_like.models import ModelAdapter, load_model
from hermes_like.presets import preset_path
from hermes_like.records import Answer
from hermes_like.session import StreamSession
from hermes_like.sprites.source import SpritesSource
from pipelines.needles import Moment, NeedleStream, draw_stream, group_of
from pipelines.recall_jobs import (
    Job,
    append_line,
    configuration,
    read_lines,
    remaining,
    split_policies,
)
from pipelines.recall_report import print_report
from pipelines.replay import Replay, numbered
from pipelines.reporting import bundled_model, print_header, save_config

POLICIES = "window,sink_window,uniform,hermes,hermes_paper,hermes_released,full"
AGES = "10,30,60,120,300,600,1800,3600,7200"
#: No other pipeline and no training draws from this seed.
SEED = 20_261_129
VISION_BATCH = 16


def encode(model: ModelAdapter, stream: NeedleStream, seed: int) -> Tensor:
    """Render and encode a whole stream, ``[frames, tokens_per_frame, hidden]``."""
    parts = []
    with SpritesSource(stream.story, seed=seed) as source:
        frames = iter(source)
        while images := [frame.image for frame in islice(frames, VISION_BATCH)]:
            parts.append(model.embed_frames(images))
    return torch.cat(parts)


def run_policy(session: StreamSession, stream: NeedleStream, most_frames: int) -> dict[str, Any]:
    """Pass a stream through a session, asking at every moment up to ``most_frames``."""
    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    seen = 0
    for moment in stream.moments:
        if moment.frame > most_frames:
            break
        for index in range(seen, moment.frame):
            session.observe(numbered(index))
        seen = moment.frame
        rows += _ask(session, moment)
    stats = session.stats()
    return {
        "rows": rows,
        "frames": stats.num_frames,
        "peak_slots": stats.peak_slots,
        "resident_tokens": session.memory.budget.resident_tokens,
        "wall_s": round(time.perf_counter() - started, 1),
    }


def _ask(session: StreamSession, moment: Moment) -> Iterator[dict[str, Any]]:
    held = _tokens_held(session, moment.needle.start_frame, moment.needle.end_frame)
    for query in moment.queries:
        reply: Answer = session.ask(query.text)
        yield {
            "needle": moment.needle.start_frame,
            "age": moment.age,
            "group": group_of(query),
            "type": query.type,
            "is_right": reply.text == query.truth,
            "said": reply.text,
            "truth": query.truth,
            "held": held,
        }


def _tokens_held(session: StreamSession, start_frame: int, end_frame: int) -> float:
    """Tokens of some frames that are resident, on average over layers."""
    memory = session.memory
    low, high = start_frame * memory.tokens_per_frame, end_frame * memory.tokens_per_frame
    counts = [int(((s.ids >= low) & (s.ids < high)).sum()) for s in memory.cache.layers]
    return round(sum(counts) / len(counts), 2)


def run_job(job: Job) -> None:
    """Run what is left of a stream, one line per policy."""
    torch.set_num_threads(1)
    settings = {policy: job.settings(policy) for policy in job.policies}  # before weights change
    model = load_model("sprites")
    stream = draw_stream(job.seed, job.index, job.ages)
    tokens = encode(model, stream, job.seed + job.index)
    for policy in job.policies:
        config = configuration(policy, job.device_tokens)
        most = job.full_frames if config.policy.name == "full" else stream.story.num_frames
        with StreamSession(Replay(model, tokens), config) as session:  # type: ignore[arg-type]
            result = run_policy(session, stream, most)
        append_line(job.file, {"settings": settings[policy], **result})
        print(f"  stream {job.index} {policy}: {result['wall_s']} s", flush=True)


def plan(args: argparse.Namespace) -> list[Job]:
    """Long streams first, then short ones."""
    ages = tuple(sorted({int(age) for age in args.ages.split(",")}))
    short = tuple(age for age in ages if age <= args.short_age)
    lengths = [ages] * args.streams + [short] * (args.short_streams if short else 0)
    policies = split_policies(args.policies)
    return [
        Job(i, a, policies, args.device_tokens, args.full_frames, args.seed, args.out)
        for i, a in enumerate(lengths)
    ]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--policies", default=POLICIES, help="presets (preset@key=value: one field changed)"
    )
    parser.add_argument("--ages", default=AGES, help="seconds of stream, separated by commas")
    parser.add_argument("--streams", type=int, default=1, help="streams up to the greatest age")
    parser.add_argument("--short-streams", type=int, default=0, help="further, shorter streams")
    parser.add_argument("--short-age", type=int, default=600, help="where the shorter ones end")
    parser.add_argument("--device-tokens", type=int, default=256)
    parser.add_argument("--full-frames", type=int, default=2000, help="where 'full' stops")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=1, help="streams at a time, one core each")
    parser.add_argument("--report-only", action="store_true", help="run nothing more")
    parser.add_argument("--out", type=Path, default=Path("runs/recall"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, then report on everything."""
    args = parse(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    jobs = plan(args)
    saved = {
        policy: save_config(configuration(policy, args.device_tokens), args.out / f"{policy}.yaml")
        for policy in split_policies(args.policies)
    }
    facts = {
        "model": bundled_model(),
        "presets": ", ".join(str(preset_path(policy.split("@")[0])) for policy in saved),
        "resolved configs": ", ".join(map(str, saved.values())),
        "device_tokens": args.device_tokens,
        "streams": f"{len(jobs)}, one frame per second",
        "warm-up": "none needed: accuracy, not speed",
    }
    where = print_header("recall against age", facts)
    left = [] if args.report_only else [job for job in map(remaining, jobs) if job is not None]
    if args.jobs > 1 and len(left) > 1:
        with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
            list(pool.map(run_job, left))
    else:
        for job in left:
            run_job(job)
    lines = [line for job in jobs for line in read_lines(job)]
    if not lines:
        raise SystemExit("nothing has been run yet with these settings and weights")
    facts |= {"seed": args.seed, "streams_run_now": len(left)}
    print_report(lines, {**where, **facts}, args.out, time.perf_counter() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
