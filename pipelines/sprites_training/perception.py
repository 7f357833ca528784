"""Counts how often the vision half misreads a frame, over a million frames and more.

    python -m pipelines.sprites_training.perception --frames 1000000

A token is right when the code nearest to it, among the codes of all sprites the world allows and
of the empty frame, is that of the sprite it should carry; a frame is right when all its tokens are.
A token closer to its own code than half the least distance between any two codes is right at once,
and only the others are searched; the search is exhaustive and thus exact. The count resumes where
it stopped.
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

from hermes_like.models.sprites import weights_folder
from hermes_like.sprites.render import STANDARD, TRAINING, RenderStyle
from hermes_like.sprites.world import COLORS, DIGITS, SHAPES, ZONES, Sprite
from pipelines.sprites_training.code import TOKEN_ROLES, frame_codes, role_sprites, token_code
from pipelines.sprites_training.frames import Content, ContentMix, draw_content, render_batch
from pipelines.sprites_training.vision import VisionHalf, load_vision

FloatArray = npt.NDArray[np.float32]

#: A token nearer than this to its own code is right: any two codes lie further apart than twice
#: this (the least distance is 3.72, one sprite with two digits).
SAFE_RESIDUAL = 1.8

CHUNK_FRAMES = 2000

ATTRIBUTES = ("presence", "zone", "shape", "color", "digit")
STYLES: dict[str, RenderStyle] = {
    "standard": STANDARD,
    "free": replace(TRAINING, free_size_rate=1.0),
}


@cache
def all_sprites() -> tuple[Sprite | None, ...]:
    """Return everything a token can carry; None is an empty frame."""
    digits: tuple[int | None, ...] = (*DIGITS, None)
    return (
        None,
        *(
            Sprite(shape, color, zone, digit)
            for zone in ZONES
            for shape in SHAPES
            for color in COLORS
            for digit in digits
        ),
    )


@cache
def all_codes() -> FloatArray:
    """Return their codes, ``[sprites, dim]`` float32."""
    return np.stack([token_code(sprite) for sprite in all_sprites()])


def nearest_sprite(token: FloatArray) -> Sprite | None:
    """Return what the code nearest to a token, ``[dim]`` float32, stands for. Exhaustive."""
    distance = ((all_codes() - token) ** 2).sum(1)
    return all_sprites()[int(distance.argmin())]


def misread_attributes(truth: Sprite | None, read: Sprite | None) -> set[str]:
    """Return which of ``ATTRIBUTES`` differ."""
    if truth is None or read is None:
        return set() if truth is read else {"presence"}
    names = ("zone", "shape", "color", "digit")
    return {name for name in names if getattr(truth, name) != getattr(read, name)}


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
        residuals = np.linalg.norm(tokens - frame_codes(contents), axis=2)
        self.num_frames += len(contents)
        self.residual_sum += float(residuals.sum())
        self.residual_max = max(self.residual_max, float(residuals.max()))
        wrong: dict[int, set[str]] = {}
        for frame, place in np.argwhere(residuals >= safe_residual).tolist():
            self.num_searched_tokens += 1
            truth = role_sprites(contents[frame])[TOKEN_ROLES[place]]
            read = nearest_sprite(tokens[frame, place])
            if read != truth:
                self.num_wrong_tokens += 1
                wrong.setdefault(frame, set()).update(misread_attributes(truth, read))
                self._keep_example(truth, read)
        self.num_wrong_frames += len(wrong)
        self.frames_by_sprites.update(str(len(content)) for content in contents)
        self.wrong_frames_by_sprites.update(str(len(contents[frame])) for frame in wrong)
        for names in wrong.values():
            self.wrong_frames_by_attribute.update(names)

    def _keep_example(self, truth: Sprite | None, read: Sprite | None) -> None:
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


def _describe(sprite: Sprite | None) -> str:
    return (
        "nothing"
        if sprite is None
        else f"{sprite.color} {sprite.shape} {sprite.zone} {sprite.digit}"
    )


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
    parser.add_argument(
        "--tower",
        type=Path,
        default=weights_folder(),
        help="tower.safetensors, or the folder of a whole model; default: the bundled one",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/sprites/perception.json"))
    parser.add_argument("--seed", type=int, default=1_000_000_007)


def run_perception(args: argparse.Namespace) -> None:
    """Count misread frames from the options; goes on from ``--out`` if the weights are the same."""
    torch.set_num_threads(1)
    vision = load_vision(args.tower)
    file = args.tower / "model.safetensors" if args.tower.is_dir() else args.tower
    weights_sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
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
