"""The feature code between the vision half and the decoder."""

from __future__ import annotations

import numpy as np
import pytest

from hermes_like.sprites.world import COLORS, SHAPES, ZONES, Sprite
from pipelines.sprites_training.code import (
    CODE_DIM,
    NO_DIGIT,
    frame_code,
    frame_codes,
    role_sprites,
    tables,
    word_code,
)

STAR = Sprite("star", "red", "left", 3)
MOON = Sprite("moon", "blue", "top")


def test_code_is_the_sum_of_the_recipe() -> None:
    t = tables()
    shape, color, zone = SHAPES.index("moon"), COLORS.index("blue"), ZONES.index("top")
    bound = t.zone_shape[zone, shape] + t.zone_color[zone, color] + t.zone_digit[zone, NO_DIGIT]
    expected = t.shape[shape] + t.color[color] + t.digit[NO_DIGIT] + t.zone[zone]
    expected = 0.25 * (expected + 0.7 * t.pair[shape, color] + 0.5 * bound)
    np.testing.assert_allclose(frame_code([MOON])[0], expected, rtol=1e-5, atol=1e-5)
    assert (frame_code([MOON]) == frame_code([MOON])[0]).all()


def test_two_sprites_share_the_tokens_out_in_the_order_of_zones() -> None:
    both = frame_code([STAR, MOON])
    assert np.array_equal(both, frame_code([MOON, STAR]))
    assert np.array_equal(both[:2], frame_code([STAR])[:2])
    assert np.array_equal(both[2:], frame_code([MOON])[2:])
    assert role_sprites([MOON, STAR]) == (STAR, MOON)
    assert role_sprites([MOON]) == (MOON, MOON)
    with pytest.raises(ValueError, match="at most 2 sprites"):
        role_sprites([STAR, MOON, STAR])


def test_frame_code_leaves_the_tables_alone() -> None:
    before = frame_code([STAR]).copy()
    frame_code([STAR, MOON])
    assert np.array_equal(frame_code([STAR]), before)


def test_frame_codes_stacks_and_may_be_empty() -> None:
    codes = frame_codes([(), (STAR,), (STAR, MOON)])
    assert codes.shape == (3, 4, CODE_DIM)
    assert codes.dtype == np.float32
    assert np.array_equal(codes[1], frame_code([STAR]))
    assert frame_codes([]).shape == (0, 4, CODE_DIM)


def test_tables_are_pinned() -> None:
    """Shipped weights depend on these numbers; a change here orphans them."""
    total = sum(float(np.abs(frame_code([Sprite(s, "red", "left", 3)])[0]).sum()) for s in SHAPES)
    assert total == pytest.approx(PINNED_TOTAL, rel=1e-5)


@pytest.mark.parametrize("word", ["star", "crosses", "cyan", "center", "7", "none", "nothing"])
def test_words_have_codes(word: str) -> None:
    code = word_code(word)
    assert code is not None
    assert code.shape == (CODE_DIM,)


def test_word_points_at_its_frames() -> None:
    star, moon = word_code("star"), word_code("moon")
    assert star is not None
    assert moon is not None
    code = frame_code([STAR])[0]
    assert star @ code > 2 * abs(moon @ code)


def test_plain_words_have_none() -> None:
    assert word_code("what") is None
    np.testing.assert_array_equal(word_code("star"), word_code("stars"))


PINNED_TOTAL = 619.1862373352051
