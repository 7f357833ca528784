"""Renders the frames of a bank and runs them through the trained tower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from hermes_like.sprites.render import PAIR_ZONES, STANDARD, TRAINING
from hermes_like.sprites.stories import one_of
from hermes_like.sprites.world import (
    COLORS,
    DIGITS,
    HELD_OUT_PAIRS,
    SHAPES,
    ZONES,
    Color,
    Shape,
    Sprite,
    Zone,
)
from pipelines.sprites_training.bank import save_bank
from pipelines.sprites_training.code import frame_codes
from pipelines.sprites_training.frames import render_batch
from pipelines.sprites_training.vision import load_vision

Sprites = tuple[Sprite, ...]
CHUNK_FRAMES = 200


def bank_contents(rng: np.random.Generator, renderings: int, num_pairs: int) -> list[Sprites]:
    """Return what the frames of a bank show: every lone sprite several times, and random pairs."""
    kinds = [(s, c) for s in SHAPES for c in COLORS if (s, c) not in HELD_OUT_PAIRS]
    lone: list[Sprites] = [
        (Sprite(shape, color, zone, digit),)
        for shape, color in kinds
        for zone in ZONES
        for digit in (None, *DIGITS)
    ]
    empty: list[Sprites] = [()] * (100 * renderings)
    return lone * renderings + empty + [_pair(rng, kinds) for _ in range(num_pairs)]


def fill_bank(
    tower: Path, out: Path, *, renderings: int = 4, num_pairs: int = 5_000, seed: int = 11
) -> float:
    """Write a bank; half of the frames in the standard style, half in the tower's training style.

    Args:
        tower: Weights of the vision half.
        out: File to write.
        renderings: Renderings of every lone sprite.
        num_pairs: Frames with two sprites.
        seed: Seed of contents and pictures.

    Returns:
        Share of the code's variance that the features explain.
    """
    rng = np.random.default_rng(seed)
    contents = bank_contents(rng, renderings, num_pairs)
    features = np.concatenate(list(_encode(tower, contents, rng)))
    codes = frame_codes(contents)
    explained = 1 - ((features - codes) ** 2).sum() / ((codes - codes.mean((0, 1))) ** 2).sum()
    save_bank(out.with_suffix(".tmp"), contents, features)
    out.with_suffix(".tmp").replace(out)
    return float(explained)


@torch.no_grad()
def _encode(
    tower: Path, contents: Sequence[Sprites], rng: np.random.Generator
) -> Iterator[npt.NDArray[np.float32]]:
    vision = load_vision(tower)
    for index, start in enumerate(range(0, len(contents), CHUNK_FRAMES)):
        chunk = contents[start : start + CHUNK_FRAMES]
        batch = render_batch(chunk, rng, STANDARD if index % 2 else TRAINING)
        yield vision(batch.patches.float() / 127.5 - 1.0).numpy()


def _pair(rng: np.random.Generator, kinds: Sequence[tuple[Shape, Color]]) -> Sprites:
    zones: tuple[Zone, Zone] = one_of(rng, PAIR_ZONES)
    first = one_of(rng, kinds)
    second = one_of(rng, [kind for kind in kinds if kind[0] != first[0] and kind[1] != first[1]])
    digits = [one_of(rng, DIGITS) if rng.random() < 0.5 else None for _ in range(2)]
    return (Sprite(*first, zones[0], digits[0]), Sprite(*second, zones[1], digits[1]))
