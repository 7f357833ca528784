"""Which heads, pooling and gate margin find the past: calibrated on planted events.

    python -m pipelines.calibrate
    python -m pipelines.calibrate --write configs/sprites.yaml

Long scripted streams carry events whose shape, colour and number occur nowhere else. They pass
once through a session with the preset's memory, while the vectors of every (layer, KV head) and
the queries of every question are recorded. A greedy search picks the heads on some of the streams;
the others show what the choice is worth, against the mean of everything and against the model's
own attention over an unlimited cache. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from hermes_like.config import HermesConfig, RetrievalConfig
from hermes_like.index import SegmentIndex
from hermes_like.models import load_model
from hermes_like.presets import header, load_config, preset_path, to_yaml
from hermes_like.retrieval.base import Constraints, Found, ResidentFrames
from hermes_like.retrieval.similarity import SimilarityRetriever
from pipelines.calibrate_oracle import Ranks, oracle_ranks
from pipelines.calibrate_record import (
    AskedQuestion,
    RecordedStream,
    every_head,
    index_at,
    record,
)
from pipelines.calibrate_report import (
    NOT_FOUND,
    Outcome,
    as_outcomes,
    print_tables,
    recall_json,
)
from pipelines.calibrate_search import (
    Choice,
    Variant,
    about_past,
    about_present,
    choose_heads,
    choose_margin,
    drift,
    present_margin,
    score_all,
)
from pipelines.calibrate_speed import speed
from pipelines.calibrate_streams import draw_planted_stream
from pipelines.reporting import (
    bundled_model,
    print_header,
    print_json,
    share,
    write_tables,
)

#: No other pipeline and no training draws from this seed.
SEED = 20_261_202
#: The recipe of the literature: all layers, one query, raw dot products.
BASELINE = Variant(1, "mean", "none")
#: Pooling and normalisation that are tried.
WAYS = (("max", "standard"), ("max", "centred"), ("mean", "standard"))
#: Fields of the configuration that are chosen.
CHOSEN = ("heads", "pooling", "normalisation", "vectors_per_frame", "gate_margin")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", default="sprites", help="memory and policy of the streams")
    parser.add_argument("--model", default=None, help="instead of the preset's")
    parser.add_argument("--streams", type=int, default=3, help="to choose on")
    parser.add_argument("--held-out", type=int, default=3, help="to report on")
    parser.add_argument("--frames", type=int, default=1024, help="of a stream")
    parser.add_argument("--oracle-streams", type=int, default=2, help="0: no oracle")
    parser.add_argument("--oracle-frames", type=int, default=256, help="of an oracle's stream")
    parser.add_argument("--speed-frames", type=int, default=86_400, help="of the timed index")
    parser.add_argument("--groups", default="1,2", help="vectors per frame that are tried")
    parser.add_argument("--max-heads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--write", type=Path, default=None, help="put the choice into this preset")
    parser.add_argument("--out", type=Path, default=Path("runs/calibrate"))
    return parser.parse_args(argv)


def find_all(
    streams: Iterable[RecordedStream], choice: Choice, gap_frames: int, most: int
) -> list[tuple[AskedQuestion, Found]]:
    """Ask a retriever every question, as a session would."""
    variant, chosen = choice.variant, list(choice.heads)
    retriever = SimilarityRetriever(variant.config)
    found = []
    for stream in streams:
        indexes: dict[int, SegmentIndex] = {}
        for question in stream.questions:
            frame = question.asked.frame
            if frame not in indexes:
                indexes[frame] = index_at(stream, frame, variant.groups, chosen)
            held = question.resident[variant.groups]
            result = retriever.find(
                question.queries[:, chosen],
                indexes[frame],
                Constraints(most, gap_frames=gap_frames),
                ResidentFrames(held.frames, held.vectors[:, chosen]),
            )
            found.append((question, result))
    return found


def outcomes(found: Sequence[tuple[AskedQuestion, Found]]) -> list[Outcome]:
    """Where the events were among the hits."""
    result = []
    for question, hits in found:
        targets, event = question.targets(), question.asked.planted
        if event is None or not targets:
            continue
        places = [place for place, hit in enumerate(hits.hits) if hit.frame in targets]
        age = question.asked.frame - event.end_frame
        rank = places[0] if places else NOT_FOUND
        result.append(Outcome(question.asked.type, age, event.has_company, rank))
    return result


def search(streams: Sequence[RecordedStream], groups: Sequence[int], most: int) -> list[Choice]:
    """The best heads of every variant, best variant first."""
    choices = []
    for count in groups:
        for pooling, normalisation in (
            ("max", "standard"),
            ("max", "centred"),
            ("mean", "standard"),
        ):
            variant = Variant(count, pooling, normalisation)
            choices.append(choose_heads(about_past(score_all(streams, variant)), variant, most))
    # Among equals the smaller index.
    return sorted(
        choices,
        key=lambda c: (-round(c.fitness.value, 2), c.variant.groups, len(c.heads)),
    )


def fetch_rates(
    found: Sequence[tuple[AskedQuestion, Found]], margin: float
) -> dict[str, dict[str, object]]:
    """Share of questions that stay with what is resident (now) and that fetch (recall)."""
    now = [not hits.beats(margin) for q, hits in found if q.asked.planted is None]
    recall = [hits.beats(margin) for q, hits in found if q.targets()]
    return {"now_stays": share(now), "recall_fetches": share(recall)}


def retrieval_config(
    config: RetrievalConfig, choice: Choice, heads: Sequence[tuple[int, int]], margin: float
) -> RetrievalConfig:
    """The configuration with the choice put in."""
    values = {
        **config.model_dump(),
        "heads": tuple(heads[number] for number in choice.heads),
        "pooling": choice.variant.pooling,
        "normalisation": choice.variant.normalisation,
        "vectors_per_frame": choice.variant.groups,
        "gate_margin": round(margin, 2),
    }
    return RetrievalConfig.model_validate(values)


def write_preset(path: Path, retrieval: RetrievalConfig) -> None:
    """Put the choice into a preset, with its comment on top and every field explained."""
    config = load_config(path, env={}).model_copy(update={"retrieval": retrieval})
    path.write_text(f"{header(path)}\n\n{to_yaml(config)}", encoding="utf-8")


def streams_config(args: argparse.Namespace, preset: str) -> HermesConfig:
    """A preset for the streams: frames prefilled a segment at a time, which changes no key."""
    overrides = {} if args.model is None else {"model.name": args.model}
    segment = load_config(preset, overrides, {}).memory.segment_frames
    return load_config(preset, overrides | {"memory.prefill_frames": str(segment)}, {})


def main(argv: Sequence[str] | None = None) -> int:
    """Record, choose, report."""
    args = parse(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    config = streams_config(args, args.preset)
    model = load_model(config.model.name)
    heads, groups = every_head(model), [int(count) for count in args.groups.split(",")]
    facts = {
        "model": bundled_model() if config.model.name == "sprites" else config.model.name,
        "preset": str(preset_path(args.preset)),
        "streams": f"{args.streams} to choose on, {args.held_out} held out, {args.frames} frames",
        "seed": args.seed,
    }
    where = print_header("calibration of retrieval", facts)
    recorded = []
    for number in range(args.streams + args.held_out):
        stream = draw_planted_stream(args.seed, number, args.frames)
        recorded.append(record(model, config, stream, args.seed + number, groups))
        print(f"  stream {number} recorded, {time.perf_counter() - started:.0f} s", flush=True)
    training, held_out = recorded[: args.streams], recorded[args.streams :]
    choices = search(training, groups, args.max_heads)
    choice = choices[0]
    scored = score_all(training, choice.variant)
    present = [item.margin(choice.heads) for item in about_present(scored)]
    past = [item.margin(choice.heads) for item in about_past(scored)]
    margin = choose_margin(present, past)
    retrieval = retrieval_config(config.retrieval, choice, heads, margin)
    oracle: Ranks = {}
    if args.oracle_streams:
        full = streams_config(args, "full")
        names = [heads[number] for number in choice.heads]
        for number in range(args.oracle_streams):
            stream = draw_planted_stream(args.seed + 1, number, args.oracle_frames)
            ranks = oracle_ranks(model, full, stream, number, names, choice.variant)
            for name, by_type in ranks.items():
                for type, values in by_type.items():
                    oracle.setdefault(name, {}).setdefault(type, []).extend(values)
    everything = Choice(BASELINE, tuple(range(len(heads))), choice.fitness)
    if BASELINE.groups not in groups:
        everything = replace(everything, variant=replace(BASELINE, groups=groups[0]))
    gap = retrieval.gap_frames
    found = find_all(held_out, choice, 0, 16)
    found_apart = find_all(held_out, choice, gap, 16)
    results = {
        "chosen": outcomes(found),
        f"chosen, gap {gap}": outcomes(found_apart),
        "mean of everything": outcomes(find_all(held_out, everything, 0, 16)),
    }
    rates = {}
    for name, value in (("margin", margin), ("margin for the present", present_margin(present))):
        rates[f"{name} {value:.2f}, chosen on"] = _rates(present, past, value)
        rates[f"{name} {value:.2f}, held out"] = fetch_rates(found_apart, value)
    quickness = speed(
        len(choice.heads), model.dims.head_dim, choice.variant.groups, args.speed_frames
    )
    moved = drift(about_past(score_all(held_out, choice.variant)), choice.heads)
    tables = print_tables(choices, heads, results, oracle, rates, quickness, moved)
    write_tables(tables, args.out / "tables.md")
    if args.write is not None:
        write_preset(args.write, retrieval)
        print(f"written: {args.write}")
    print_json(
        {
            **where,
            **facts,
            "retrieval": {
                name: getattr(retrieval, name)
                for name in (
                    "heads",
                    "pooling",
                    "normalisation",
                    "vectors_per_frame",
                    "gate_margin",
                )
            },
            "recall": {name: recall_json(values) for name, values in results.items()},
            "oracle": {name: recall_json(as_outcomes(by_type)) for name, by_type in oracle.items()},
            "gate": rates,
            "drift": round(moved, 3),
            "speed": quickness,
            "wall_s": round(time.perf_counter() - started, 1),
        }
    )
    return 0


def _rates(
    present: Sequence[float], past: Sequence[float], margin: float
) -> dict[str, dict[str, object]]:
    return {
        "now_stays": share([value < margin for value in present]),
        "recall_fetches": share([value >= margin for value in past]),
    }


if __name__ == "__main__":
    sys.exit(main())
