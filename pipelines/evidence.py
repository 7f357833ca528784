"""Does the first evidence span of an answer show the event the answer is about?

    python -m pipelines.evidence --streams 30

Held-out sprites streams of 8 to 64 frames through ``StreamSession``, without a budget and under
one. After each stream every recall type is asked once, about something that was there. A top span
is right if it overlaps the true event; since a span over the whole stream always would, the table
puts its length beside the event's, and the share that a span of the same length at a random place
would reach. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from hermes_like.config import HermesConfig
from hermes_like.models import ModelAdapter, load_model
from hermes_like.presets import load_config, preset_path
from hermes_like.records import Answer
from hermes_like.session import StreamSession
from hermes_like.sprites.questions import Question, draw_question, types_of
from hermes_like.sprites.source import SpritesSource
from hermes_like.sprites.stories import draw_story
from hermes_like.sprites.world import Story
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

#: No other pipeline and no training draws from this seed.
SEED = 20_261_130
POLICIES = "full,hermes"
LENGTHS = "8,16,32,64"
GOAL_PERCENT = 80.0

#: Half-open range of frames.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer and its first span, in frames.

    Attributes:
        policy: Preset.
        num_frames: Length of the stream.
        type: Type of the question.
        is_right: Whether the answer is true.
        has_span: Whether any evidence was given.
        overlaps: Whether the first span overlaps a true event.
        covers: Whether it holds a true event from its first to its last frame.
        any_overlaps: Whether any reported span overlaps a true event.
        span_frames: Length of the first span.
        event_frames: Length of the longest true event.
        by_chance: Share of the places of a span of this length that overlap a true event.
    """

    policy: str
    num_frames: int
    type: str
    is_right: bool
    has_span: bool
    overlaps: bool
    covers: bool
    any_overlaps: bool
    span_frames: int
    event_frames: int
    by_chance: float


def spans_of(answer: Answer) -> list[Span]:
    """Evidence as ranges of frames of a stream with one frame per second, strongest first."""
    return [(int(e.start_s), max(int(e.end_s), int(e.start_s) + 1)) for e in answer.evidence]


def meets(a: Span, b: Span) -> bool:
    """Whether two ranges share a frame."""
    return a[0] < b[1] and b[0] < a[1]


def judge(policy: str, story: Story, question: Question, answer: Answer) -> Finding:
    """Compare the spans of an answer with the true events."""
    starts = [story.start_frame(index) for index in question.evidence]
    lengths = [story.events[index].num_frames for index in question.evidence]
    events = [(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    spans = spans_of(answer)
    top = spans[0] if spans else (0, 0)
    size = top[1] - top[0]
    places = range(story.num_frames - size + 1)
    lucky = sum(any(meets((p, p + size), event) for event in events) for p in places)
    return Finding(
        policy=policy,
        num_frames=story.num_frames,
        type=question.type,
        is_right=answer.text == question.answer,
        has_span=bool(spans),
        overlaps=any(meets(top, event) for event in events),
        covers=any(top[0] <= start and end <= top[1] for start, end in events),
        any_overlaps=any(meets(span, event) for span in spans for event in events),
        span_frames=size,
        event_frames=max(lengths),
        by_chance=lucky / len(places),
    )


def examine(
    model: ModelAdapter, config: HermesConfig, policy: str, num_frames: int, seed: list[int]
) -> Iterator[Finding]:
    """Ask one question of each recall type after one stream."""
    rng = np.random.default_rng(seed)
    story = draw_story(rng, num_frames, min_event_frames=2)
    with StreamSession(model, config) as session, SpritesSource(story, seed=seed[-1]) as source:
        for frame in source:
            session.observe(frame)
        for type in types_of("recall"):
            question = draw_question(rng, story, type)
            if question is not None and question.evidence:
                yield judge(policy, story, question, session.ask(question.text))


def summary(findings: Sequence[Finding]) -> dict[str, Any]:
    """Shares and mean lengths of some findings; ``goal`` is judged by ``overlaps``."""
    shown = [finding for finding in findings if finding.has_span]
    return {
        "overlaps": share([f.overlaps for f in findings]),
        "covers": share([f.covers for f in findings]),
        "any_overlaps": share([f.any_overlaps for f in findings]),
        "answers_right": share([f.is_right for f in findings]),
        "overlaps_when_right": share([f.overlaps for f in findings if f.is_right]),
        "overlaps_by_chance_percent": round(100 * mean(f.by_chance for f in shown), 1)
        if shown
        else None,
        "without_span": len(findings) - len(shown),
        "mean_span_frames": round(mean(f.span_frames for f in shown), 2) if shown else None,
        "mean_event_frames": round(mean(f.event_frames for f in findings), 2),
    }


def print_part(title: str, parts: dict[str, dict[str, Any]]) -> str:
    """One table, a row per part; returned as Markdown."""
    columns = ["part", "top span right", "by chance", "covers event", "any span right"]
    columns += ["answer right", "right answers: top span right", "span / event frames"]
    rows = [
        [
            name,
            share_text(part["overlaps"]),
            f"{part['overlaps_by_chance_percent']} %",
            *(share_text(part[k]) for k in ("covers", "any_overlaps", "answers_right")),
            share_text(part["overlaps_when_right"]),
            f"{part['mean_span_frames']} / {part['mean_event_frames']}",
        ]
        for name, part in parts.items()
    ]
    return print_table(f"{title}: % (95 % interval) n", columns, rows)


def parts_of(findings: Sequence[Finding], key: str) -> dict[str, dict[str, Any]]:
    """Summaries by one attribute."""
    values = dict.fromkeys(getattr(finding, key) for finding in findings)
    return {
        str(value): summary([f for f in findings if getattr(f, key) == value]) for value in values
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Examine all policies and lengths."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--policies", default=POLICIES, help="presets, separated by commas")
    parser.add_argument("--lengths", default=LENGTHS, help="frames, separated by commas")
    parser.add_argument("--streams", type=int, default=30, help="streams of each length")
    parser.add_argument("--device-tokens", type=int, default=256)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=Path("runs/evidence"))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    policies = args.policies.split(",")
    overrides = {
        "memory.device_tokens": str(args.device_tokens),
        "answer.keep_conversation": "false",
    }
    configs = {policy: load_config(policy, overrides) for policy in policies}
    model = load_model("sprites")
    facts = {
        "model": bundled_model(),
        "presets": ", ".join(str(preset_path(policy)) for policy in policies),
        "resolved configs": ", ".join(
            str(save_config(config, args.out / f"{name}.yaml")) for name, config in configs.items()
        ),
        "device_tokens": f"{args.device_tokens} (full: no cap)",
        "streams": f"{args.streams} of each length {args.lengths}, one frame per second",
        "warm-up": "none needed: accuracy, not speed",
    }
    where = print_header("evidence of recall answers", facts)
    results: dict[str, Any] = {}
    tables: list[str] = []
    for policy, config in configs.items():
        findings = [
            finding
            for length in map(int, args.lengths.split(","))
            for number in range(args.streams)
            for finding in examine(model, config, policy, length, [args.seed, length, number])
        ]
        lines = [json.dumps(asdict(finding)) for finding in findings]
        (args.out / f"{policy}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        parts = {name: parts_of(findings, name) for name in ("num_frames", "type")}
        results[policy] = {"all": summary(findings), **parts}
        by_length = {**parts["num_frames"], "all": results[policy]["all"]}
        tables.append(print_part(f"{policy}, by stream length", by_length))
        tables.append(print_part(f"{policy}, by type", parts["type"]))
        percent = results[policy]["all"]["overlaps"]["percent"]
        verdict = "reached" if percent >= GOAL_PERCENT else "MISSED"
        print(f"{policy}: goal of {GOAL_PERCENT:g} % {verdict} with {percent} %")
    write_tables(tables, args.out / "tables.md")
    wall_s = round(time.perf_counter() - started, 1)
    result = {"pipeline": "evidence", **where, **facts, "wall_s": wall_s, "results": results}
    (args.out / "evidence.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print_json(result | {"results": {name: parts["all"] for name, parts in results.items()}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
