"""The fixed feature code between the vision half and the decoder of the sprites model.

A sprite is a sum of random vectors, one per fact; the tower learns to output that sum in each of
its tokens, and the decoder learns to read it, at the same time and without each other. Where a
frame shows two sprites, half of its tokens carry one and half the other: a sum of both leaves the
decoder guessing which sprite has what. This module knows the world's vocabulary but neither pixels
nor the tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from hermes_like.sprites.world import COLORS, DIGITS, SHAPES, ZONES, Sprite

FloatArray = npt.NDArray[np.float32]

CODE_DIM = 128
CODE_SEED = 20_261_129
#: Standard deviation of the noise the decoder sees on the code before real features exist.
CODE_NOISE = 0.075

#: Scale of one fact in the code, and of the word that names it.
FACT_SCALE = 0.25
PAIR_WEIGHT = 0.7
ZONE_WEIGHT = 0.5
EMPTY_SCALE = 0.125

#: Row of ``CodeTables.digit`` that stands for a sprite without a digit.
NO_DIGIT = len(DIGITS)

#: Which of two sprites each token of a frame carries, counted in the order of ``ZONES``:
#: the upper two tokens the first, the lower two the second.
TOKEN_ROLES = (0, 0, 1, 1)
NUM_ROLES = 2


@dataclass(frozen=True, slots=True)
class CodeTables:
    """Random vectors of the code, each of ``CODE_DIM`` entries with unit variance.

    Attributes:
        shape: ``[shapes, dim]``, S of the recipe.
        color: ``[colors, dim]``, C.
        digit: ``[digits + 1, dim]``, N; the last row means "no digit".
        zone: ``[zones, dim]``, Z.
        pair: ``[shapes, colors, dim]``, P; a product of signs, so that a pair never shown in
            training still has the vector its parts imply.
        zone_shape: ``[zones, shapes, dim]``, SZ.
        zone_color: ``[zones, colors, dim]``, CZ.
        zone_digit: ``[zones, digits + 1, dim]``, NZ.
        empty: ``[dim]``, E0, a frame that shows nothing.
    """

    shape: FloatArray
    color: FloatArray
    digit: FloatArray
    zone: FloatArray
    pair: FloatArray
    zone_shape: FloatArray
    zone_color: FloatArray
    zone_digit: FloatArray
    empty: FloatArray


@cache
def tables() -> CodeTables:
    """Return the tables; the same values in every process and on every machine."""
    rng = np.random.default_rng(CODE_SEED)
    num_shapes, num_colors, num_zones = len(SHAPES), len(COLORS), len(ZONES)

    def normal(*shape: int) -> FloatArray:
        return rng.standard_normal((*shape, CODE_DIM)).astype(np.float32)

    def signs(count: int) -> FloatArray:
        return np.where(rng.random((count, CODE_DIM)) < 0.5, -1.0, 1.0).astype(np.float32)

    shape, color = normal(num_shapes), normal(num_colors)
    digit, zone = normal(NO_DIGIT + 1), normal(num_zones)
    pair = signs(num_shapes)[:, None, :] * signs(num_colors)[None, :, :]
    return CodeTables(
        shape=shape,
        color=color,
        digit=digit,
        zone=zone,
        pair=pair,
        zone_shape=normal(num_zones, num_shapes),
        zone_color=normal(num_zones, num_colors),
        zone_digit=normal(num_zones, NO_DIGIT + 1),
        empty=normal(),
    )


@cache
def _sprite_codes() -> FloatArray:
    """Every sprite's code, ``[shapes, colors, zones, digits + 1, dim]``."""
    t = tables()
    code = t.shape[:, None, None, None] + t.color[None, :, None, None]
    code = code + t.zone[None, None, :, None] + t.digit[None, None, None, :]
    code = code + PAIR_WEIGHT * t.pair[:, :, None, None]
    bound = t.zone_shape.transpose(1, 0, 2)[:, None, :, None]
    bound = bound + t.zone_color.transpose(1, 0, 2)[None, :, :, None]
    bound = bound + t.zone_digit[None, None]
    scaled: FloatArray = (FACT_SCALE * (code + ZONE_WEIGHT * bound)).astype(np.float32)
    return scaled


def sprite_code(sprite: Sprite) -> FloatArray:
    """Return one sprite's share of its frame's code, ``[dim]`` float32."""
    digit = NO_DIGIT if sprite.digit is None else sprite.digit
    shape, color = SHAPES.index(sprite.shape), COLORS.index(sprite.color)
    code: FloatArray = _sprite_codes()[shape, color, ZONES.index(sprite.zone), digit]
    return code


def token_code(sprite: Sprite | None) -> FloatArray:
    """Return the code of a token that carries a sprite or, with None, an empty frame; ``[dim]``."""
    if sprite is None:
        return (EMPTY_SCALE * tables().empty).astype(np.float32)
    return sprite_code(sprite)


def role_sprites(sprites: Sequence[Sprite]) -> tuple[Sprite | None, Sprite | None]:
    """Return the sprite of each role; a lone sprite has both, an empty frame has none.

    Raises:
        ValueError: More than two sprites.
    """
    if len(sprites) > NUM_ROLES:
        raise ValueError(f"expected at most {NUM_ROLES} sprites in a frame, got {len(sprites)}")
    if not sprites:
        return None, None
    ordered = sorted(sprites, key=lambda sprite: ZONES.index(sprite.zone))
    return ordered[0], ordered[-1]


def frame_code(sprites: Sequence[Sprite]) -> FloatArray:
    """Return the codes of a frame's tokens, ``[tokens, dim]`` float32.

    Args:
        sprites: What the frame shows; none for an empty frame.
    """
    codes = [token_code(sprite) for sprite in role_sprites(sprites)]
    return np.stack([codes[role] for role in TOKEN_ROLES])


def frame_codes(frames: Sequence[Sequence[Sprite]]) -> FloatArray:
    """Return the codes of many frames, ``[frames, tokens, dim]`` float32."""
    if not frames:
        return np.zeros((0, len(TOKEN_ROLES), CODE_DIM), dtype=np.float32)
    return np.stack([frame_code(sprites) for sprites in frames])


def word_code(word: str) -> FloatArray | None:
    """Return the vector a word shares with the pictures, ``[dim]`` float32.

    Args:
        word: A shape ("star" or "stars"), a colour, a zone, a digit ("3"), "none" (no digit) or
            "nothing" (an empty frame).

    Returns:
        The fact's row times ``FACT_SCALE``; None for a word that names no fact.
    """
    row = _word_rows().get(word)
    return None if row is None else (FACT_SCALE * row).astype(np.float32)


@cache
def _word_rows() -> dict[str, FloatArray]:
    t = tables()
    rows: dict[str, FloatArray] = {"none": t.digit[NO_DIGIT], "nothing": t.empty}
    for index, shape in enumerate(SHAPES):
        plural = shape + ("es" if shape.endswith("s") else "s")
        rows[shape] = rows[plural] = t.shape[index]
    rows.update(zip(COLORS, t.color, strict=True))
    rows.update(zip(ZONES, t.zone, strict=True))
    rows.update((str(digit), t.digit[digit]) for digit in DIGITS)
    return rows
