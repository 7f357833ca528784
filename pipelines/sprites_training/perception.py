"""Counts how often the vision half misreads a frame, over a million frames and more.

    python -m pipelines.sprites_training.perception --frames 1000000

A token is right when the code nearest to it, among the codes of all frames the world allows, is
that of the frame it came from; a frame is right when all its tokens are. Searching four million
codes for each token would take days, so a token closer to its own code than half the least
distance between any two codes is right at once, and only the others are searched. The search is
exhaustive over one and two sprites and thus exact. The count resumes where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hermes_like.sprites.render import PAIR_ZONES, STANDARD, TRAINING, RenderStyle
from hermes_like.sprites.world import COLORS, DIGITS, SHAPES, ZONES, Sprite
from pipelines.sprites_training.code import frame_code, sprite_code
from pipelines.sprites_training.frames import Content, ContentMix, draw_content, render_batch
from pipelines.sprites_training.vision import VisionHalf, load_vision

FloatArray = npt.NDArray[np.float32]

#: A token nearer than this to its own code is right: any two codes lie further apart than twice
#: this (the least distance is 2.3, two sprites that swap their digits or their shapes).
SAFE_RESIDUAL = 1.1

CHUNK_FRAMES = 2000

ATTRIBUTES = ("count", "zone", "shape", "color", "digit")
STYLES: dict[str, RenderStyle] = {
    "standard": STANDARD,
    "free": replace(TRAINING, free_size_rate=1.0),
}


@cache
def zone_sprites(zone_index: int) -> tuple[Sprite, ...]:
    """Return every sprite a zone can show."""
    digits: tuple[int | None, ...] = (*DIGITS, None)
    return tuple(
        Sprite(shape, color, ZONES[zone_index], digit)
        for shape in SHAPES
        for color in COLORS
        for digit in digits
    )


@cache
def zone_codes(zone_index: int) -> FloatArray:
    """Return their codes, ``[sprites, dim]`` float32."""
    return np.stack([sprite_code(sprite) for sprite in zone_sprites(zone_index)])


@cache
def _pair_constants(first: int, second: int) -> FloatArray:
    """Squared norms of the sums of two sprites' codes; infinite where both have one shape."""
    a, b = zone_codes(first), zone_codes(second)
    norms = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] + 2 * a @ b.T
    per_shape = len(a) // len(SHAPES)
    shape = np.arange(len(a)) // per_shape
    norms[shape[:, None] == shape[None]] = np.inf
    return norms.astype(np.float32)


def nearest_content(token: FloatArray) -> Content:
    """Return the frame content whose code is nearest to a token, ``[dim]`` float32.

    Exhaustive over the empty frame, all single sprites and all pairs of different shapes in
    zones that can be shown together.
    """
    empty = frame_code(())
    best, content = float(empty @ empty - 2 * token @ empty), ()  # type: tuple[float, Content]
    scores = [-2 * zone_codes(zone) @ token for zone in range(len(ZONES))]
    for zone, score in enumerate(scores):
        distance = score + (zone_codes(zone) ** 2).sum(1)
        index = int(distance.argmin())
        if distance[index] < best:
            best, content = float(distance[index]), (zone_sprites(zone)[index],)
    for names in PAIR_ZONES:
        first, second = (ZONES.index(name) for name in names)
        distance = _pair_constants(first, second) + scores[first][:, None] + scores[second][None]
        index = int(distance.argmin())
        if distance.flat[index] < best:
            best = float(distance.flat[index])
            i, j = divmod(index, len(scores[second]))
            content = (zone_sprites(first)[i], zone_sprites(second)[j])
    return content


def misread_attributes(truth: Content, read: Content) -> set[str]:
    """Return which of ``ATTRIBUTES`` differ; sprites are matched by zone, then in order."""
    if len(truth) != len(read):
        return {"count"}
    wrong = set()
    if {s.zone for s in truth} != {s.zone for s in read}:
        wrong.add("zone")
    for a, b in zip(
        sorted(truth, key=lambda s: s.zone), sorted(read, key=lambda s: s.zone), strict=True
    ):
        wrong |= {
            name for name in ("shape", "color", "digit") if getattr(a, name) != getattr(b, name)
        }
    return wrong


@torch.no_grad()
def frame_tokens(vision: VisionHalf, patches: torch.Tensor) -> FloatArray:
    """Return the tokens of frames given as uint8 patches, ``[frames, tokens, dim]`` float32."""
    scaled = patches.float().sub_(127.5).mul_(1 / 127.5)
    tokens: FloatArray = vision(scaled).numpy()
    return tokens


class PerceptionCount:
    """Running totals over frames of one style."""

    def __init__(self) -> None:
        self.num_frames = 0
        self.num_searched_tokens = 0
        self.num_wrong_frames = 0
        self.num_wrong_tokens = 0
        self.residual_sum = 0.0
        self.residual_max = 0.0
        self.wrong_frames_by_attribute: Counter[str] = Counter()
        self.frames_by_sprites: Counter[str] = Counter()
        self.wrong_frames_by_sprites: Counter[str] = Counter()
        self.examples: list[dict[str, Any]] = []

    def add(self, contents: Sequence[Content], tokens: FloatArray, safe_residual: float) -> None:
        """Count some frames, tokens ``[frames, tokens, dim]``."""
        codes = np.stack([frame_code(content) for content in contents])
        residuals = np.linalg.norm(tokens - codes[:, None], axis=2)
        self.num_frames += len(contents)
        self.residual_sum += float(residuals.sum())
        self.residual_max = max(self.residual_max, float(residuals.max()))
        wrong: dict[int, set[str]] = {}
        for frame, token in np.argwhere(residuals >= safe_residual):
            self.num_searched_tokens += 1
            read = nearest_content(tokens[frame, token])
            if set(read) != set(contents[frame]):
                self.num_wrong_tokens += 1
                wrong.setdefault(int(frame), set()).update(
                    misread_attributes(contents[frame], read)
                )
                self._keep_example(contents[frame], read)
        self.num_wrong_frames += len(wrong)
        self.frames_by_sprites.update(str(len(content)) for content in contents)
        self.wrong_frames_by_sprites.update(str(len(contents[frame])) for frame in wrong)
        for names in wrong.values():
            self.wrong_frames_by_attribute.update(names)

    def _keep_example(self, truth: Content, read: Content) -> None:
        if len(self.examples) < 100:
            self.examples.append({"truth": _describe(truth), "read": _describe(read)})

    def state(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        return {
            "num_frames": self.num_frames,
            "num_wrong_frames": self.num_wrong_frames,
            "num_wrong_tokens": self.num_wrong_tokens,
            "num_searched_tokens": self.num_searched_tokens,
            "error_per_frame": self.num_wrong_frames / max(self.num_frames, 1),
            "wrong_frames_by_attribute": {
                name: self.wrong_frames_by_attribute[name] for name in ATTRIBUTES
            },
            "frames_by_sprites": {n: self.frames_by_sprites[n] for n in "012"},
            "wrong_frames_by_sprites": {n: self.wrong_frames_by_sprites[n] for n in "012"},
            "residual_sum": self.residual_sum,
            "residual_mean": self.residual_sum / max(4 * self.num_frames, 1),
            "residual_max": self.residual_max,
            "examples": self.examples,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> PerceptionCount:
        """Return the totals saved by :meth:`state`."""
        count = cls()
        for name in ("num_frames", "num_wrong_frames", "num_wrong_tokens", "num_searched_tokens"):
            setattr(count, name, state[name])
        count.residual_sum, count.residual_max = state["residual_sum"], state["residual_max"]
        count.wrong_frames_by_attribute = Counter(state["wrong_frames_by_attribute"])
        count.frames_by_sprites = Counter(state["frames_by_sprites"])
        count.wrong_frames_by_sprites = Counter(state["wrong_frames_by_sprites"])
        count.examples = state["examples"]
        return count


def _describe(content: Content) -> str:
    words = [f"{s.color} {s.shape} {s.zone} {s.digit}" for s in content]
    return "; ".join(words) or "nothing"


def count_frames(
    vision: VisionHalf,
    count: PerceptionCount,
    rng: np.random.Generator,
    num_frames: int,
    style: RenderStyle,
    mix: ContentMix,
) -> None:
    """Render and count some more frames."""
    contents = [draw_content(rng, mix) for _ in range(num_frames)]
    tokens = frame_tokens(vision, render_batch(contents, rng, style).patches)
    count.add(contents, tokens, SAFE_RESIDUAL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the ``perception`` command."""
    parser.add_argument("--frames", type=int, default=1_000_000, help="frames to count in all")
    parser.add_argument("--style", choices=sorted(STYLES), default="standard")
    parser.add_argument("--held-out", action="store_true", help="only pairs never trained on")
    parser.add_argument("--tower", type=Path, default=Path("runs/sprites/tower/tower.safetensors"))
    parser.add_argument("--out", type=Path, default=Path("runs/sprites/perception.json"))
    parser.add_argument("--seed", type=int, default=1_000_000_007)


def run_perception(args: argparse.Namespace) -> None:
    """Count misread frames from the options; goes on from ``--out`` if the weights are the same."""
    torch.set_num_threads(1)
    vision = load_vision(args.tower)
    weights_sha256 = hashlib.sha256(args.tower.read_bytes()).hexdigest()
    setting = {
        "style": args.style,
        "held_out": args.held_out,
        "seed": args.seed,
        "weights_sha256": weights_sha256,
    }
    count, minutes = PerceptionCount(), 0.0
    if args.out.exists():
        saved = json.loads(args.out.read_text())
        if all(saved.get(key) == value for key, value in setting.items()):
            count, minutes = PerceptionCount.from_state(saved), saved["minutes"]
    mix = ContentMix(held_out_only=args.held_out)
    start = time.monotonic()
    while count.num_frames < args.frames:
        rng = np.random.default_rng((args.seed, count.num_frames))
        num_frames = min(CHUNK_FRAMES, args.frames - count.num_frames)
        count_frames(vision, count, rng, num_frames, STYLES[args.style], mix)
        total_minutes = minutes + (time.monotonic() - start) / 60
        result = setting | {"minutes": round(total_minutes, 3)} | count.state()
        partial = args.out.with_suffix(".partial")
        partial.write_text(json.dumps(result, indent=1))
        os.replace(partial, args.out)


def main(argv: list[str] | None = None) -> None:
    """Run the ``perception`` command on its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    run_perception(parser.parse_args(argv))


if __name__ == "__main__":
    main()
