"""Frames and labels for the vision tower: random contents, a pool of renderings, fresh noise.

This module knows what a frame shows and how it looks to the model; it knows no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from hermes_like.sprites.render import MODEL_SIZE, PAIR_ZONES, RenderStyle, render_model_input
from hermes_like.sprites.world import COLORS, DIGITS, HELD_OUT_PAIRS, SHAPES, ZONES, Sprite
from pipelines.sprites_training.code import frame_codes, role_sprites

PATCH_SIZE = 16
NUM_PATCHES = (MODEL_SIZE // PATCH_SIZE) ** 2
PATCH_VALUES = 3 * PATCH_SIZE * PATCH_SIZE

NUM_ZONES, NUM_SHAPES, NUM_COLORS, NUM_DIGITS = len(ZONES), len(SHAPES), len(COLORS), len(DIGITS)

#: Columns of a label row: shape, colour and digit per zone (one past the last means none), pairs
#: of shape and colour, digits. All are small integers.
SHAPE_COLUMNS = slice(0, 5)
COLOR_COLUMNS = slice(5, 10)
DIGIT_COLUMNS = slice(10, 15)
PAIR_COLUMNS = slice(15, 15 + NUM_SHAPES * NUM_COLORS)
ANY_DIGIT_COLUMNS = slice(15 + NUM_SHAPES * NUM_COLORS, 15 + NUM_SHAPES * NUM_COLORS + NUM_DIGITS)
NUM_COLUMNS = ANY_DIGIT_COLUMNS.stop

Content = tuple[Sprite, ...]


@dataclass(frozen=True, slots=True)
class ContentMix:
    """How often a drawn frame is empty or shows two sprites, and how often a sprite has a digit."""

    empty_rate: float = 0.06
    pair_rate: float = 0.34
    digit_rate: float = 0.75
    held_out_only: bool = False


def draw_content(rng: np.random.Generator, mix: ContentMix = ContentMix()) -> Content:
    """Draw what a frame shows; held-out pairs never, or only, depending on the mix."""
    kind = rng.random()
    if kind < mix.empty_rate and not mix.held_out_only:
        return ()
    if kind < 1.0 - mix.pair_rate:
        return (_draw_sprite(rng, ZONES[rng.integers(NUM_ZONES)], mix),)
    zones = PAIR_ZONES[rng.integers(len(PAIR_ZONES))]
    first = _draw_sprite(rng, zones[0], mix)
    while True:
        second = _draw_sprite(rng, zones[1], mix)
        if second.shape != first.shape:
            return (first, second)


def _draw_sprite(rng: np.random.Generator, zone: str, mix: ContentMix) -> Sprite:
    digit = int(rng.integers(NUM_DIGITS)) if rng.random() < mix.digit_rate else None
    while True:
        shape = SHAPES[rng.integers(NUM_SHAPES)]
        color = COLORS[rng.integers(NUM_COLORS)]
        if ((shape, color) in HELD_OUT_PAIRS) == mix.held_out_only:
            return Sprite(shape, color, zone, digit)  # type: ignore[arg-type]


def label_rows(content: Content) -> npt.NDArray[np.int16]:
    """Return the labels of a frame, one row per token role, ``[roles, NUM_COLUMNS]`` int16."""
    return np.stack([_label_row(sprite) for sprite in role_sprites(content)])


def _label_row(sprite: Sprite | None) -> npt.NDArray[np.int16]:
    row = np.zeros(NUM_COLUMNS, dtype=np.int16)
    row[SHAPE_COLUMNS], row[COLOR_COLUMNS] = NUM_SHAPES, NUM_COLORS
    row[DIGIT_COLUMNS] = NUM_DIGITS
    if sprite is not None:
        zone = ZONES.index(sprite.zone)
        shape, color = SHAPES.index(sprite.shape), COLORS.index(sprite.color)
        row[SHAPE_COLUMNS.start + zone] = shape
        row[COLOR_COLUMNS.start + zone] = color
        row[PAIR_COLUMNS.start + shape * NUM_COLORS + color] = 1
        if sprite.digit is not None:
            row[DIGIT_COLUMNS.start + zone] = sprite.digit
            row[ANY_DIGIT_COLUMNS.start + sprite.digit] = 1
    return row


def to_patches(levels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Cut a picture, ``[64, 64, 3]``, into ``[patches, values]`` in the order of the stock conv."""
    side = MODEL_SIZE // PATCH_SIZE
    grid = levels.reshape(side, PATCH_SIZE, side, PATCH_SIZE, 3)
    return grid.transpose(0, 2, 4, 1, 3).reshape(NUM_PATCHES, PATCH_VALUES)


@dataclass(slots=True)
class FrameBatch:
    """Some frames as the model gets them.

    Attributes:
        patches: ``[frames, patches, values]`` uint8 levels, without noise if so drawn.
        labels: ``[frames, roles, NUM_COLUMNS]`` int16.
        codes: ``[frames, tokens, dim]`` float32, the code each token should carry.
    """

    patches: torch.Tensor
    labels: torch.Tensor
    codes: torch.Tensor

    def __len__(self) -> int:
        return len(self.patches)

    def select(self, index: torch.Tensor) -> FrameBatch:
        """Return the frames of an index, ``[k]`` int64."""
        return FrameBatch(self.patches[index], self.labels[index], self.codes[index])


def concatenate(batches: Sequence[FrameBatch]) -> FrameBatch:
    """Return several batches as one."""
    return FrameBatch(
        torch.cat([b.patches for b in batches]),
        torch.cat([b.labels for b in batches]),
        torch.cat([b.codes for b in batches]),
    )


def render_batch(
    contents: Sequence[Content], rng: np.random.Generator, style: RenderStyle
) -> FrameBatch:
    """Render frames of given contents at sizes drawn from the style, pixel noise included."""
    patches = np.empty((len(contents), NUM_PATCHES, PATCH_VALUES), dtype=np.uint8)
    for i, content in enumerate(contents):
        patches[i] = np.rint(to_patches(render_model_input(content, rng, style=style)))
    return FrameBatch(
        torch.from_numpy(patches),
        torch.from_numpy(np.stack([label_rows(content) for content in contents])),
        torch.from_numpy(frame_codes(contents)),
    )


def draw_batch(
    count: int,
    rng: np.random.Generator,
    style: RenderStyle,
    mix: ContentMix = ContentMix(),
) -> FrameBatch:
    """Draw contents and render them."""
    return render_batch([draw_content(rng, mix) for _ in range(count)], rng, style)


class NoiseBank:
    """Cheap pixel noise: slices of one long row of normal numbers, scaled per frame."""

    def __init__(self, rng: np.random.Generator, length: int = 3_000_000) -> None:
        self._bank = torch.from_numpy(rng.standard_normal(length, dtype=np.float32))

    def add(
        self, patches: torch.Tensor, rng: np.random.Generator, max_level: float
    ) -> torch.Tensor:
        """Return model input, ``[frames, patches, values]`` float32 in [-1, 1], from uint8 levels.

        The standard deviation per frame is uniform from 0 to ``max_level`` in model pixels.
        """
        frames = patches.float()
        frames -= 127.5
        size = patches[0].numel()
        starts = rng.integers(0, len(self._bank) - size, len(patches))
        sigmas = rng.uniform(0.0, max_level, len(patches))
        for i, (start, sigma) in enumerate(zip(starts.tolist(), sigmas.tolist(), strict=True)):
            noise = self._bank[start : start + size].view_as(frames[i])
            frames[i].add_(noise, alpha=sigma)
        return frames.clamp_(-127.5, 127.5).mul_(1 / 127.5)


def clean(style: RenderStyle) -> RenderStyle:
    """Return the style without pixel noise, for frames that get it afresh at every use."""
    return replace(style, noise_levels=(0.0, 0.0))
