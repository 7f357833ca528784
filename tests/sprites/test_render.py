"""The pictures of the sprites world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hermes_like.sprites.render import (
    COLOR_LEVELS,
    MODEL_SIZE,
    PAIR_ZONES,
    STANDARD,
    TRAINING,
    draw_scene,
    draw_size,
    model_view,
    paint,
    render_frame,
    render_model_input,
)
from hermes_like.sprites.world import COLORS, SHAPES, ZONES, Sprite

STAR = Sprite("star", "red", "left", 3)


def test_frame_is_uint8_rgb_of_the_asked_size() -> None:
    frame = render_frame([STAR], np.random.default_rng(0), width=200, height=120)
    assert frame.shape == (120, 200, 3)
    assert frame.dtype == np.uint8


def test_same_seed_same_frame_other_seed_other_frame() -> None:
    frames = [render_frame([STAR], np.random.default_rng(seed)) for seed in (5, 5, 6)]
    assert np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[0], frames[2])


def test_empty_frame_is_dull() -> None:
    frame = render_frame([], np.random.default_rng(1)).astype(int)
    assert (frame.max(axis=2) - frame.min(axis=2)).mean() < 40


@pytest.mark.parametrize("zone", ZONES)
def test_sprite_lies_in_its_zone(zone: str) -> None:
    frame = render_frame([Sprite("circle", "red", zone)], np.random.default_rng(2))  # type: ignore[arg-type]
    red = (frame[..., 0] > 180) & (frame[..., 1] < 90)
    rows, columns = np.nonzero(red)
    assert red.sum() > 4000
    expected = {
        "left": (0.23, 0.5), "right": (0.77, 0.5), "top": (0.5, 0.23), "bottom": (0.5, 0.77),
        "center": (0.5, 0.5),
    }[zone]  # fmt: skip
    assert abs(columns.mean() / 320 - expected[0]) < 0.03
    assert abs(rows.mean() / 240 - expected[1]) < 0.03


@pytest.mark.parametrize("style", [STANDARD, TRAINING])
def test_two_sprites_never_touch(style: object) -> None:
    assert style in (STANDARD, TRAINING)
    rng = np.random.default_rng(3)
    for k in range(600):
        zones = PAIR_ZONES[k % len(PAIR_ZONES)]
        width, height = draw_size(rng, style)  # type: ignore[arg-type]
        sprites = [Sprite("star", "red", zones[0], 1), Sprite("moon", "blue", zones[1], 2)]
        scene = draw_scene(sprites, rng, width=width, height=height, style=style)  # type: ignore[arg-type]
        a, b = scene.placements
        gap = np.hypot(a.center_x - b.center_x, a.center_y - b.center_y) - a.radius - b.radius
        assert gap > 0, (width, height, zones)


def test_colliding_zones_and_crowds_are_refused() -> None:
    rng = np.random.default_rng(4)
    center = Sprite("moon", "blue", "center")
    with pytest.raises(ValueError, match="PAIR_ZONES"):
        render_frame([STAR, center], rng)
    with pytest.raises(ValueError, match="at most 2"):
        render_frame([STAR, center, center], rng)


@pytest.mark.parametrize("size", [(320, 240), (97, 181), (233, 130)])
def test_model_view_equals_area_resize_of_the_frame(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    sprites = [STAR, Sprite("ring", "cyan", "bottom", 8)]
    scene = draw_scene(sprites, rng, width=size[0], height=size[1], style=TRAINING)
    scene = replace(scene, noise_level=0.0)
    frame = torch.from_numpy(paint(scene, rng)).permute(2, 0, 1)[None].float()
    resized = torch.nn.functional.interpolate(frame, (MODEL_SIZE, MODEL_SIZE), mode="area")[0]
    # Rounding to whole levels moves a pixel by half a level at most.
    assert np.abs(resized.permute(1, 2, 0).numpy() - model_view(scene, rng)).max() < 0.51


def test_every_sprite_looks_different_from_every_other() -> None:
    quiet = replace(
        STANDARD, single_radius=(0.2, 0.2), single_jitter=0.0, color_jitter_levels=0.0,
        gray_levels=(90, 90), tint_levels=0.0, gradient_levels=0.0, noise_levels=(0.0, 0.0),
    )  # fmt: skip
    rng = np.random.default_rng(6)
    looks = [Sprite(shape, "red", "center") for shape in SHAPES]
    looks += [Sprite("circle", "red", "center", digit) for digit in range(10)]
    looks += [Sprite("star", color, "center") for color in COLORS[1:]]
    views = np.stack([render_model_input([s], rng, style=quiet).ravel() for s in looks])
    distances = np.abs(views[:, None] - views[None]).sum(axis=2) / 255
    np.fill_diagonal(distances, np.inf)
    assert distances.min() > 15  # as if 5 pixels went from black to white


def test_colors_are_far_apart() -> None:
    levels = np.array(list(COLOR_LEVELS.values()), dtype=float)
    distances = np.linalg.norm(levels[:, None] - levels[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert distances.min() > 80
