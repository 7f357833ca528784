"""Speed and memory against stream length: ingest, its shares, TTFT, TPOT, bytes, slots.

    python -m pipelines.bench                                     the bundled sprites model
    python -m pipelines.bench --model random:llava-onevision-0.5b
    python -m pipelines.bench --model random:llava-onevision-7b   needs an accelerator
    python -m pipelines.bench --model random:qwen3-vl-8b          any name of ``random:<shape>``

One session runs through all stream lengths; at each it is asked with nothing pending and behind a
whole chunk (the question comes with the chunk's last frame and waits for its encoding, prefill and
compaction). Pictures are made before the clock starts. A real shape on a CPU spends seconds per
picture in the vision tower: ``--vision-frames`` (3 there, all on an accelerator) encodes only so
many and repeats their tokens, and the share of vision is then worked out from their mean. Weights
of a random shape are made on their device, in their number type. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hermes_like.config import HermesConfig
from hermes_like.models import ModelAdapter, load_model
from hermes_like.models.loading import resolve_device
from hermes_like.presets import load_config, preset_names, preset_path
from hermes_like.records import Frame, SessionStats
from hermes_like.session import StreamSession
from hermes_like.sprites.source import open_sprites
from pipelines.bench_report import print_report
from pipelines.ceilings import ceilings
from pipelines.replay import Replay, numbered
from pipelines.reporting import bundled_model, print_header, save_config

SHORT_TOKENS, LONG_TOKENS = 8, 100
NUM_PICTURES = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """What differs between the bundled model and real shapes.

    Attributes:
        preset: Configuration to start from.
        lengths: Stream lengths, in frames.
        repeats: Questions of each kind at each length.
        vision_frames: Pictures that are really encoded; 0: all of them.
        question: What is asked.
        overrides: Changed settings.
    """

    preset: str
    lengths: tuple[int, ...]
    repeats: int
    vision_frames: int
    question: str
    overrides: dict[str, str] = field(default_factory=dict)


SPRITES = Settings(
    "sprites",
    (64, 256, 1024, 4096),
    7,
    0,
    "what is visible now ?",
    {
        "memory.device_tokens": "512",
        "memory.prefill_frames": "4",
        "memory.answer_tokens": str(LONG_TOKENS),
    },
)
RANDOM = Settings("llava-onevision-0.5b", (64,), 1, 3, "What is happening now?")


@dataclass(slots=True)
class Measured:
    """What was found at one stream length; seconds.

    Attributes:
        frames: Stream length.
        ingest: Work since the last length, as a difference of session statistics.
        num_ingested: Frames of that work.
        ttft: With nothing pending.
        ttft_chunk: Behind a whole chunk.
        tpot_short: Per token of short answers.
        tpot_long: Per token with ``min_tokens = 100``.
        stats: Of the session at this length.
    """

    frames: int
    ingest: dict[str, float]
    num_ingested: int
    ttft: list[float]
    ttft_chunk: list[float]
    tpot_short: list[float]
    tpot_long: list[float]
    stats: SessionStats


class Bench:
    """A session and the frames that go into it."""

    def __init__(self, model: ModelAdapter, config: HermesConfig, settings: Settings) -> None:
        self.settings, self.vision_s_per_frame = settings, 0.0
        self._pictures = self._draw(model)
        if settings.vision_frames:
            model = self._replay(model)
        self._chunk = config.memory.prefill_frames
        with StreamSession(model, config) as self.session:
            self._num = 0
            self.observe(1)
            self.ask(2)
        self.session = StreamSession(model, config)
        self._num = 0

    def _draw(self, model: ModelAdapter) -> list[np.ndarray[Any, Any]]:
        if model.name == "sprites":
            with open_sprites(f"sprites:seed=5,frames={NUM_PICTURES}", load_config().source) as s:
                return [frame.image for frame in s]
        rng = np.random.default_rng(5)
        count = self.settings.vision_frames or NUM_PICTURES
        return list(rng.integers(0, 256, (count, 384, 384, 3), dtype=np.uint8))

    def _replay(self, model: ModelAdapter) -> ModelAdapter:
        """Encode the pictures one by one on the clock; the stream repeats their tokens."""
        model.embed_frames(self._pictures[:1])  # warm-up
        start = time.perf_counter()
        tokens = torch.cat([model.embed_frames([picture]) for picture in self._pictures])
        self.vision_s_per_frame = (time.perf_counter() - start) / len(self._pictures)
        return Replay(model, tokens)  # type: ignore[return-value]

    def observe(self, count: int) -> None:
        """Take in the next frames, one per second."""
        for _ in range(count):
            if self.settings.vision_frames:
                frame = numbered(self._num)
            else:
                image = self._pictures[self._num % len(self._pictures)]
                frame = Frame(image, self._num, float(self._num))
            self._num += 1
            self.session.observe(frame)

    def ask(self, tokens: int) -> tuple[float, float]:
        """TTFT and TPOT of an answer of exactly so many tokens."""
        answer = self.session.ask(
            self.settings.question,
            max_tokens=tokens,
            min_tokens=tokens,
            keep_conversation=False,
        )
        assert answer.num_tokens == tokens, answer
        return answer.ttft_s, answer.tpot_s

    def behind_chunk(self) -> float:
        """TTFT of a question that comes together with the last frame of a chunk."""
        self.observe(self._chunk - 1)
        start = time.perf_counter()
        self.observe(1)
        waited = time.perf_counter() - start
        return waited + self.ask(1)[0]

    def measure(self, length: int) -> Measured:
        """Go on to a stream length and measure there."""
        before, seen = self._work(), self._num
        self.observe(length - self._num)
        after = self._work()
        self.ask(SHORT_TOKENS)  # warm-up
        short = [self.ask(SHORT_TOKENS) for _ in range(self.settings.repeats)]
        long = [self.ask(LONG_TOKENS) for _ in range(min(3, self.settings.repeats))]
        stats = self.session.stats()
        return Measured(
            frames=length,
            ingest={name: after[name] - before[name] for name in after},
            num_ingested=length - seen,
            ttft=[ttft for ttft, _ in short],
            ttft_chunk=[self.behind_chunk() for _ in range(self.settings.repeats)],
            tpot_short=[tpot for _, tpot in short],
            tpot_long=[tpot for _, tpot in long],
            stats=stats,
        )

    def _work(self) -> dict[str, float]:
        stats = self.session.stats()
        encoded = self.vision_s_per_frame * self._num  # what replaying left out
        return {
            "vision": stats.vision_s + encoded,
            "prefill": stats.prefill_s,
            "scoring": stats.scoring_s,
            "compaction": stats.compaction_s,
        }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; what is not given depends on the model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="sprites", help="sprites or random:<shape>")
    parser.add_argument("--preset", help="default: the model's own")
    parser.add_argument("--frames", help="stream lengths, ascending, separated by commas")
    parser.add_argument("--device-tokens", type=int)
    parser.add_argument("--segment-frames", type=int, help="also prefilled in one pass")
    parser.add_argument("--vision-frames", type=int, help="pictures really encoded; 0: all")
    parser.add_argument("--device", default="auto", help="auto | cpu | cuda")
    parser.add_argument("--dtype", default="auto", help="auto | float32 | bfloat16 | float16")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    return parser.parse_args(argv)


def preset_of_shape(shape: str) -> str:
    """The preset of a random shape; one without takes that of a name that begins most alike.

    Of several, a tiny shape takes the first, any other the last, which is the largest.
    """
    names = preset_names()
    if shape in names:
        return shape
    for length in range(len(shape), 4, -1):
        alike = [name for name in names if name.startswith(shape[:length])]
        if alike:
            return alike[0 if shape.endswith("-tiny") else -1]
    return RANDOM.preset


def settings_of(args: argparse.Namespace) -> Settings:
    """Defaults of the model, with what the command line says."""
    base = SPRITES if args.model == "sprites" else RANDOM
    shape = args.model.partition(":")[2]
    preset = args.preset or (base.preset if base is SPRITES else preset_of_shape(shape))
    overrides = {**base.overrides, "model.name": args.model}
    overrides |= {"model.device": args.device, "model.dtype": args.dtype}
    if args.device_tokens is not None:
        overrides["memory.device_tokens"] = str(args.device_tokens)
    if args.segment_frames is not None:
        overrides["memory.segment_frames"] = str(args.segment_frames)
        overrides["memory.prefill_frames"] = str(args.segment_frames)
    lengths = tuple(map(int, args.frames.split(","))) if args.frames else base.lengths
    repeats = base.repeats if args.repeats is None else args.repeats
    vision = args.vision_frames
    if vision is None:
        vision = base.vision_frames if resolve_device(args.device).type == "cpu" else 0
    return Settings(preset, lengths, repeats, vision, base.question, overrides)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report."""
    args = parse(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    started = time.perf_counter()
    settings = settings_of(args)
    config = load_config(settings.preset, settings.overrides)
    name = args.model.replace(":", "-")
    saved = save_config(config, args.out / f"{name}.yaml")
    model = load_model(config.model)
    encoded = "every frame" if not settings.vision_frames else f"{settings.vision_frames}, repeated"
    named = bundled_model() if args.model == "sprites" else f"{args.model}, random weights"
    facts: dict[str, Any] = {
        "model": f"{named}; {model.dims.dtype}, {model.dims.device}",
        "preset": str(preset_path(settings.preset)),
        "overrides": settings.overrides,
        "resolved config": str(saved),
        "policy": config.policy.name,
        "device_tokens": config.memory.device_tokens,
        "chunk": f"{config.memory.prefill_frames} frames of {model.dims.tokens_per_frame} tokens",
        "pictures encoded": encoded,
        "warm-up": "one frame and one answer in a session of its own; one answer at each length",
        "repeats": settings.repeats,
    }
    where = print_header(f"bench of {args.model}", facts)
    limits = ceilings(model)
    bench = Bench(model, config, settings)
    with bench.session:
        found = [bench.measure(length) for length in settings.lengths]
        budget = bench.session.memory.budget
    print_report(found, limits, {**where, **facts}, budget, args.out / name, started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
