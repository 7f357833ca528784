"""Which heads find past images of easy-VQA: chosen on streams of its training split.

    python -m pipelines.easyvqa_calibrate --write configs/easyvqa.yaml

The search is that of ``pipelines/calibrate.py``; streams and questions are those of
``hermes-like eval make-easyvqa``, made of training images. Half of the streams choose, the others
show what the choice is worth. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hermes_like.easyvqa.package import Picture, package_folder, read_split
from hermes_like.easyvqa.streams import Stream, StreamQuestion, draw_memory_stream
from hermes_like.models import load_model
from hermes_like.presets import load_config
from hermes_like.records import Frame
from pipelines.calibrate import retrieval_config, search, write_preset
from pipelines.calibrate_record import RecordedStream, every_head, record_frames
from pipelines.calibrate_search import (
    about_past,
    about_present,
    choose_margin,
    fitness,
    score_all,
)
from pipelines.calibrate_streams import Asked
from pipelines.easyvqa_training.pictures import read_pixels
from pipelines.reporting import print_header, print_json

#: No training and no evaluation draws from this seed.
SEED = 20_261_203


@dataclass(frozen=True, slots=True)
class PlantedImage:
    """An image that a question is about, as the search wants to know it."""

    start_frame: int
    end_frame: int
    has_company: bool = False


def frames_of(pictures: Sequence[Picture]) -> Iterator[Frame]:
    """The pictures as frames, one per second."""
    for index, picture in enumerate(pictures):
        yield Frame(read_pixels(picture), index, float(index))


def asked_of(stream: Stream) -> list[Asked]:
    """Questions about the newest image and about one that was shown earlier."""
    found = []
    for question in stream.questions:
        if question.naming == "time":
            continue
        kind = "what" if question.question.read.form.wanted != "yes_no" else "yes_no"
        is_shown = question.question.read.form.wanted != "yes_no" or (
            (question.question.answer == "yes") != question.question.read.form.is_negated
        )
        planted = None
        if question.naming == "content":
            if not is_shown:
                continue  # there is nothing to find
            planted = PlantedImage(question.shown_s, question.shown_s + 1)
        found.append(_asked(question, kind, planted))
    return found


def _asked(question: StreamQuestion, kind: str, planted: PlantedImage | None) -> Asked:
    # ``Asked`` is written for sprites; the search reads no more of an event than what is here.
    return Asked(question.asked_s + 1, question.text, kind, planted)  # type: ignore[arg-type]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", type=Path, help="copy of easy-vqa; default: the installed one")
    parser.add_argument("--preset", default="easyvqa", help="memory and policy of the streams")
    parser.add_argument("--streams", type=int, default=8, help="half of them to choose on")
    parser.add_argument("--later", default="48,200,500", help="images later at which is asked")
    parser.add_argument("--groups", default="1,2", help="vectors per frame that are tried")
    parser.add_argument("--max-heads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--write", type=Path, help="put the choice into this preset")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Record, choose, report."""
    args = parse(argv)
    torch.set_num_threads(1)
    started = time.perf_counter()
    segment = load_config(args.preset, env={}).memory.segment_frames
    config = load_config(args.preset, {"memory.prefill_frames": str(segment)}, {})
    model = load_model(config.model)
    heads, groups = every_head(model), [int(count) for count in args.groups.split(",")]
    where = print_header("calibration of retrieval on easy-VQA", {"seed": args.seed})
    pictures = read_split(package_folder(args.package), "train")
    later = [int(count) for count in args.later.split(",")]
    recorded: list[RecordedStream] = []
    for number in range(args.streams):
        rng = np.random.default_rng([args.seed, number])
        stream = draw_memory_stream(f"train-{number}", pictures, rng, later)
        asked = asked_of(stream)
        recorded.append(record_frames(model, config, frames_of(stream.pictures), asked, groups))
        print(f"  stream {number} recorded, {time.perf_counter() - started:.0f} s", flush=True)
    half = max(1, args.streams // 2)
    training, held_out = recorded[:half], recorded[half:] or recorded[:half]
    choices = search(training, groups, args.max_heads)
    choice = choices[0]
    scored = score_all(training, choice.variant)
    margin = choose_margin(
        [item.margin(choice.heads) for item in about_present(scored)],
        [item.margin(choice.heads) for item in about_past(scored)],
    )
    retrieval = retrieval_config(config.retrieval, choice, heads, margin)
    held = fitness(about_past(score_all(held_out, choice.variant)), choice.heads)
    if args.write is not None:
        write_preset(args.write, retrieval)
        print(f"written: {args.write}")
    print_json(
        {
            **where,
            "heads": retrieval.heads,
            "pooling": retrieval.pooling,
            "normalisation": retrieval.normalisation,
            "vectors_per_frame": retrieval.vectors_per_frame,
            "gate_margin": retrieval.gate_margin,
            "chosen_on": _figures(choice.fitness),
            "held_out": _figures(held),
            "wall_s": round(time.perf_counter() - started, 1),
        }
    )
    return 0


def _figures(found: object) -> dict[str, float]:
    names = ("recall_1", "recall_8", "separation")
    return {name: round(float(getattr(found, name)), 3) for name in names}


if __name__ == "__main__":
    sys.exit(main())
