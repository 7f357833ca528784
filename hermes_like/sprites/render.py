"""Pictures of the sprites world: what an event looks like, in a standard and a training style.

Everything is drawn by area sampling: each sprite has a template of small cells, and a pixel is the
exact mean of the cells it covers. That makes drawing separable (two small matrix products), and
lets :func:`render_model_input` draw the model's 64x64 view of a frame directly, equal to resizing
the full frame except for rounding and noise. This module knows neither time nor the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hermes_like.sprites.world import Color, Shape, Sprite, Zone

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]

#: Side of the square picture the model sees; frames are stretched to it by area averaging.
MODEL_SIZE = 64

STANDARD_WIDTH = 320
STANDARD_HEIGHT = 240

#: Centre of each zone as shares of the frame's width and height.
ZONE_CENTERS: dict[Zone, tuple[float, float]] = {
    "left": (0.23, 0.5),
    "right": (0.77, 0.5),
    "top": (0.5, 0.23),
    "bottom": (0.5, 0.77),
    "center": (0.5, 0.5),
}

#: Zones that two sprites of one frame may take, in this order or the other, without touching.
PAIR_ZONES: tuple[tuple[Zone, Zone], ...] = (
    ("left", "right"),
    ("top", "bottom"),
    ("left", "top"),
    ("left", "bottom"),
    ("right", "top"),
    ("right", "bottom"),
)

COLOR_LEVELS: dict[Color, tuple[int, int, int]] = {
    "red": (222, 36, 40),
    "orange": (246, 140, 16),
    "yellow": (246, 232, 36),
    "green": (36, 172, 56),
    "cyan": (40, 216, 226),
    "blue": (44, 76, 232),
    "purple": (168, 48, 204),
    "white": (244, 244, 244),
}

_INK_LEVEL = 12.0
_OUTLINE_LEVEL = 250.0

#: Cells per side of a template, and the half width it spans in sprite radii.
_CELLS = 96
_EXTENT = 1.08

_DIGIT_HALF_STROKE = 0.115
_DIGIT_HALF_OUTLINE = 0.19


@dataclass(frozen=True, slots=True)
class RenderStyle:
    """How much frames differ from each other.

    Attributes:
        single_radius: Least and greatest radius of a lone sprite, in shares of the shorter side.
        pair_radius: The same when the frame shows two sprites.
        single_jitter: Greatest shift of a lone sprite's centre, in shares of width and height.
        pair_jitter: The same when the frame shows two sprites.
        color_jitter_levels: Greatest change per colour channel.
        gray_levels: Range of the background's grey.
        tint_levels: Greatest change per channel of the background.
        gradient_levels: Greatest change from the background's middle to its edge.
        noise_levels: Range of the standard deviation of pixel noise.
        blob_rate: Probability of one or two dull ellipses behind the sprites.
        free_size_rate: Probability that :func:`draw_size` returns a size other than the standard.
        blur_rate: Probability that the model's view is blurred a little.
        max_contrast_change: Greatest relative change of the contrast of the whole frame.
    """

    single_radius: tuple[float, float] = (0.195, 0.22)
    pair_radius: tuple[float, float] = (0.16, 0.175)
    single_jitter: float = 0.02
    pair_jitter: float = 0.012
    color_jitter_levels: float = 8.0
    gray_levels: tuple[float, float] = (70.0, 120.0)
    tint_levels: float = 8.0
    gradient_levels: float = 12.0
    noise_levels: tuple[float, float] = (1.0, 5.0)
    blob_rate: float = 0.0
    free_size_rate: float = 0.0
    blur_rate: float = 0.0
    max_contrast_change: float = 0.0


#: What videos and evaluations show.
STANDARD = RenderStyle()

#: What the vision tower is trained on: a superset of ``STANDARD`` in every respect.
TRAINING = RenderStyle(
    single_radius=(0.18, 0.225),
    pair_radius=(0.15, 0.178),
    single_jitter=0.03,
    pair_jitter=0.015,
    color_jitter_levels=14.0,
    gray_levels=(55.0, 140.0),
    tint_levels=14.0,
    gradient_levels=24.0,
    noise_levels=(0.0, 9.0),
    blob_rate=0.12,
    free_size_rate=0.7,
    blur_rate=0.4,
    max_contrast_change=0.06,
)


@dataclass(frozen=True, slots=True)
class Placement:
    """One sprite as drawn: its centre and radius in pixels, and its colour in levels."""

    sprite: Sprite
    center_x: float
    center_y: float
    radius: float
    color_levels: FloatArray


@dataclass(frozen=True, slots=True)
class _Ellipse:
    center_x: float
    center_y: float
    radius_x: float
    radius_y: float
    levels: FloatArray


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything about one frame but its pixel noise; ``width`` and ``height`` in pixels."""

    width: int
    height: int
    placements: tuple[Placement, ...]
    background_levels: FloatArray
    gradient_x: float
    gradient_y: float
    noise_level: float
    blobs: tuple[_Ellipse, ...] = ()
    contrast: float = 1.0


def draw_size(rng: np.random.Generator, style: RenderStyle) -> tuple[int, int]:
    """Draw a frame's width and height in pixels, aspects from 0.55 to 1.9 where sizes are free."""
    if rng.random() >= style.free_size_rate:
        return STANDARD_WIDTH, STANDARD_HEIGHT
    aspect = math.exp(rng.uniform(math.log(0.55), math.log(1.9)))
    shorter = rng.uniform(80, 240)
    width, height = (shorter * aspect, shorter) if aspect > 1 else (shorter, shorter / aspect)
    return round(width), round(height)


def draw_scene(
    sprites: Sequence[Sprite],
    rng: np.random.Generator,
    *,
    width: int = STANDARD_WIDTH,
    height: int = STANDARD_HEIGHT,
    style: RenderStyle = STANDARD,
) -> Scene:
    """Draw all that is random about a frame except its noise.

    Args:
        sprites: What the frame shows: none, one, or two in zones of ``PAIR_ZONES``.
        rng: Source of the randomness.
        width: Frame width in pixels.
        height: Frame height in pixels.
        style: Ranges to draw from.

    Raises:
        ValueError: More than two sprites, or two in zones that collide.
    """
    _check_zones(sprites)
    side = min(width, height)
    radius_range = style.pair_radius if len(sprites) > 1 else style.single_radius
    jitter = style.pair_jitter if len(sprites) > 1 else style.single_jitter
    placements = tuple(
        _draw_placement(
            sprite, rng, width, height, rng.uniform(*radius_range) * side, jitter, style
        )
        for sprite in sprites
    )
    gray = rng.uniform(*style.gray_levels)
    tint = rng.uniform(-style.tint_levels, style.tint_levels, 3)
    gradient = rng.uniform(-style.gradient_levels, style.gradient_levels, 2)
    blobs: tuple[_Ellipse, ...] = ()
    if style.blob_rate and rng.random() < style.blob_rate:
        blobs = tuple(_draw_blob(rng, gray, width, height) for _ in range(rng.integers(1, 3)))
    change = style.max_contrast_change
    return Scene(
        width=width,
        height=height,
        placements=placements,
        background_levels=(gray + tint).astype(np.float32),
        gradient_x=float(gradient[0]),
        gradient_y=float(gradient[1]),
        noise_level=float(rng.uniform(*style.noise_levels)),
        blobs=blobs,
        contrast=1.0 + rng.uniform(-change, change) if change else 1.0,
    )


def paint(scene: Scene, rng: np.random.Generator) -> ByteArray:
    """Return the frame of a scene, ``[height, width, 3]`` uint8 RGB; ``rng`` gives the noise."""
    x_edges = np.arange(scene.width + 1, dtype=np.float32)
    y_edges = np.arange(scene.height + 1, dtype=np.float32)
    canvas = _composite(scene, (x_edges[:-1], x_edges[1:]), (y_edges[:-1], y_edges[1:]))
    canvas += scene.noise_level * rng.standard_normal(canvas.shape, dtype=np.float32)
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8)


def render_frame(
    sprites: Sequence[Sprite],
    rng: np.random.Generator,
    *,
    width: int = STANDARD_WIDTH,
    height: int = STANDARD_HEIGHT,
    style: RenderStyle = STANDARD,
) -> ByteArray:
    """Return one frame that shows the sprites, ``[height, width, 3]`` uint8 RGB.

    Args:
        sprites: What to show: none, one, or two in zones of ``PAIR_ZONES``.
        rng: Source of jitter, background and noise.
        width: Frame width in pixels.
        height: Frame height in pixels.
        style: Ranges to draw from.

    Raises:
        ValueError: More than two sprites, or two in zones that collide.
    """
    return paint(draw_scene(sprites, rng, width=width, height=height, style=style), rng)


def model_view(scene: Scene, rng: np.random.Generator, *, blur: float = 0.0) -> FloatArray:
    """Return what the model sees of a scene, ``[64, 64, 3]`` float32 levels from 0 to 255.

    The same pixels as ``interpolate(frame, (64, 64), mode="area")`` of the painted frame up to
    rounding: each output pixel covers the same whole frame pixels, and noise is scaled down by
    the number of them.

    Args:
        scene: What to draw.
        rng: Source of the noise.
        blur: By how many output pixels each pixel's window is widened on both sides.
    """
    x_low, x_high = _area_windows(scene.width)
    y_low, y_high = _area_windows(scene.height)
    num_averaged = float((x_high - x_low).mean() * (y_high - y_low).mean())
    if blur:
        x_low, x_high = _widened(x_low, x_high, blur * scene.width / MODEL_SIZE, scene.width)
        y_low, y_high = _widened(y_low, y_high, blur * scene.height / MODEL_SIZE, scene.height)
    canvas = _composite(scene, (x_low, x_high), (y_low, y_high))
    if scene.noise_level > 0:
        noise = np.float32(scene.noise_level / math.sqrt(num_averaged))
        canvas += noise * rng.standard_normal(canvas.shape, dtype=np.float32)
    return np.clip(canvas, 0.0, 255.0, out=canvas)


def render_model_input(
    sprites: Sequence[Sprite], rng: np.random.Generator, *, style: RenderStyle = STANDARD
) -> FloatArray:
    """Return the model's view of a fresh frame at a drawn size, ``[64, 64, 3]`` float32 levels.

    Raises:
        ValueError: More than two sprites, or two in zones that collide.
    """
    width, height = draw_size(rng, style)
    scene = draw_scene(sprites, rng, width=width, height=height, style=style)
    blur = 0.0
    if style.blur_rate and rng.random() < style.blur_rate:
        blur = rng.uniform(0.0, 0.4)
    return model_view(scene, rng, blur=blur)


def _check_zones(sprites: Sequence[Sprite]) -> None:
    if len(sprites) > 2:
        raise ValueError(f"a frame shows at most 2 sprites, got {len(sprites)}")
    if len(sprites) == 2:
        zones = (sprites[0].zone, sprites[1].zone)
        if zones not in PAIR_ZONES and zones[::-1] not in PAIR_ZONES:
            raise ValueError(f"two sprites need zones that do not touch (PAIR_ZONES), got {zones}")


def _draw_placement(
    sprite: Sprite,
    rng: np.random.Generator,
    width: int,
    height: int,
    radius: float,
    jitter: float,
    style: RenderStyle,
) -> Placement:
    center_x, center_y = ZONE_CENTERS[sprite.zone]
    shift_x, shift_y = rng.uniform(-jitter, jitter, 2)
    color_shift = rng.uniform(-style.color_jitter_levels, style.color_jitter_levels, 3)
    levels = np.clip(np.asarray(COLOR_LEVELS[sprite.color]) + color_shift, 0, 255)
    return Placement(
        sprite=sprite,
        center_x=(center_x + shift_x) * width,
        center_y=(center_y + shift_y) * height,
        radius=radius,
        color_levels=levels.astype(np.float32),
    )


def _draw_blob(rng: np.random.Generator, gray: float, width: int, height: int) -> _Ellipse:
    side = min(width, height)
    levels = gray + rng.choice((-1.0, 1.0)) * rng.uniform(10, 30) + rng.uniform(-5, 5, 3)
    return _Ellipse(
        center_x=rng.uniform(0, width),
        center_y=rng.uniform(0, height),
        radius_x=rng.uniform(0.06, 0.2) * side,
        radius_y=rng.uniform(0.06, 0.2) * side,
        levels=np.asarray(levels, dtype=np.float32),
    )


Windows = tuple[FloatArray, FloatArray]


@cache
def _area_windows(size: int) -> Windows:
    """First and last-plus-one source pixel of each output pixel, as torch's area mode has it."""
    index = np.arange(MODEL_SIZE)
    low = index * size // MODEL_SIZE
    high = -((-(index + 1) * size) // MODEL_SIZE)
    return low.astype(np.float32), high.astype(np.float32)


def _widened(low: FloatArray, high: FloatArray, by: float, size: int) -> Windows:
    by32 = np.float32(by)
    return np.maximum(low - by32, 0), np.minimum(high + by32, np.float32(size))


def _composite(scene: Scene, x_windows: Windows, y_windows: Windows) -> FloatArray:
    """Mean level of each window, ``[rows, columns, 3]`` float32, without noise."""
    slope_x = scene.gradient_x * ((x_windows[0] + x_windows[1]) / scene.width - 1)
    slope_y = scene.gradient_y * ((y_windows[0] + y_windows[1]) / scene.height - 1)
    slope = slope_y.astype(np.float32)[:, None] + slope_x.astype(np.float32)[None, :]
    canvas: FloatArray = slope[:, :, None] + scene.background_levels
    for blob in scene.blobs:
        layers = _template("circle", None)
        radius = (blob.radius_x, blob.radius_y)
        center = (blob.center_x, blob.center_y)
        _stamp(canvas, layers, blob.levels[None], center, radius, x_windows, y_windows)
    for placed in scene.placements:
        layers = _template(placed.sprite.shape, placed.sprite.digit)
        levels = np.full((len(layers), 3), _OUTLINE_LEVEL, dtype=np.float32)
        levels[0] = placed.color_levels
        levels[2:] = _INK_LEVEL
        center, radius = (placed.center_x, placed.center_y), (placed.radius, placed.radius)
        _stamp(canvas, layers, levels, center, radius, x_windows, y_windows)
    if scene.contrast != 1.0:
        middle = np.float32(128.0)
        canvas = (canvas - middle) * np.float32(scene.contrast) + middle
    return canvas


def _stamp(
    canvas: FloatArray,
    layers: FloatArray,
    levels: FloatArray,
    center: tuple[float, float],
    radius: tuple[float, float],
    x_windows: Windows,
    y_windows: Windows,
) -> None:
    """Blend a template's layers over the canvas, in place."""
    columns, x_weights = _window_weights(x_windows, center[0], radius[0] * _EXTENT)
    rows, y_weights = _window_weights(y_windows, center[1], radius[1] * _EXTENT)
    shares = np.matmul(np.matmul(y_weights, layers), x_weights.T)
    region = canvas[rows, columns]
    covered = shares.sum(axis=0)[:, :, None]
    flat = shares.reshape(len(layers), -1).T @ levels
    region *= 1.0 - covered
    region += flat.reshape(region.shape)


def _window_weights(windows: Windows, center: float, half_width: float) -> tuple[slice, FloatArray]:
    """Windows that touch a template, and the share each of its cells has in each of them."""
    cells_per_pixel = _CELLS / (2.0 * half_width)
    low = (windows[0] - (center - half_width)) * cells_per_pixel
    high = (windows[1] - (center - half_width)) * cells_per_pixel
    first = int(np.searchsorted(high, 0.0, side="right"))
    last = int(np.searchsorted(low, float(_CELLS), side="left"))
    low, high = low[first:last, None], high[first:last, None]
    cell = np.arange(_CELLS, dtype=np.float32)
    inside = np.minimum(np.maximum(np.concatenate((low, high)) - cell, 0), 1)
    covered = (inside[last - first :] - inside[: last - first]) / (high - low)
    return slice(first, last), covered.astype(np.float32, copy=False)


@cache
def _template(shape: Shape, digit: int | None) -> FloatArray:
    """Layers that partition what a sprite covers, ``[1 or 3, cells, cells]`` float32 shares.

    The first is the coloured shape; with a digit, outline and ink follow, and the shape is what
    they leave over.
    """
    body = _coverage(_shape_distance(shape))
    if digit is None:
        return body[None]
    distance = _stroke_distance(_DIGIT_STROKES[digit])
    ink = _coverage(distance - _DIGIT_HALF_STROKE)
    plate = _coverage(distance - _DIGIT_HALF_OUTLINE)
    return np.stack([body * (1 - plate), plate - ink, ink]).astype(np.float32)


def _coverage(distance: FloatArray) -> FloatArray:
    """Share of each cell inside a shape, from signed distances in sprite radii (inside < 0)."""
    cell_width = 2.0 * _EXTENT / _CELLS
    share: FloatArray = np.clip(0.5 - distance / cell_width, 0, 1).astype(np.float32)
    return share


@cache
def _grid() -> tuple[FloatArray, FloatArray]:
    """Cell centres in sprite radii, ``x`` to the right and ``y`` down."""
    axis = ((np.arange(_CELLS) + 0.5) / _CELLS * 2 - 1) * _EXTENT
    x, y = np.meshgrid(axis.astype(np.float32), axis.astype(np.float32))
    return x, y


Point = tuple[float, float]


def _segment_distance(start: Point, end: Point) -> FloatArray:
    x, y = _grid()
    dx, dy = end[0] - start[0], end[1] - start[1]
    along = ((x - start[0]) * dx + (y - start[1]) * dy) / max(dx * dx + dy * dy, 1e-12)
    along = np.clip(along, 0, 1)
    distance: FloatArray = np.hypot(x - start[0] - along * dx, y - start[1] - along * dy)
    return distance.astype(np.float32)


def _stroke_distance(strokes: Sequence[Sequence[Point]]) -> FloatArray:
    """Distance from each cell to the nearest of some polylines."""
    parts = [_segment_distance(start, end) for stroke in strokes for start, end in pairwise(stroke)]
    distance: FloatArray = np.min(parts, axis=0)
    return distance


def _polygon_distance(corners: Sequence[Point]) -> FloatArray:
    """Signed distance from each cell to a polygon, negative inside."""
    x, y = _grid()
    inside = np.zeros(x.shape, dtype=bool)
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        if y0 == y1:
            continue
        crosses = (y0 > y) != (y1 > y)
        inside ^= crosses & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
    distance = _stroke_distance([[*corners, corners[0]]])
    return np.where(inside, -distance, distance).astype(np.float32)


def _disc_distance(center: Point, radius: float) -> FloatArray:
    x, y = _grid()
    distance: FloatArray = np.hypot(x - center[0], y - center[1]) - np.float32(radius)
    return distance


def _shape_distance(shape: Shape) -> FloatArray:
    """Signed distance from each cell to a shape of radius one, negative inside."""
    if shape == "circle":
        return _disc_distance((0, 0), 0.97)
    if shape == "ring":
        return np.maximum(_disc_distance((0, 0), 1.0), -_disc_distance((0, 0), 0.68))
    if shape == "moon":
        return np.maximum(_disc_distance((-0.05, 0), 1.0), -_disc_distance((0.5, -0.1), 0.78))
    return _polygon_distance(_SHAPE_CORNERS[shape])


def _star_corners() -> list[Point]:
    corners = []
    for i in range(10):
        radius = 1.04 if i % 2 == 0 else 0.5
        angle = math.pi * (i / 5 - 0.5)
        corners.append((radius * math.cos(angle), 0.05 + radius * math.sin(angle)))
    return corners


def _heart_corners() -> list[Point]:
    corners = []
    for i in range(60):
        t = 2 * math.pi * i / 60
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        corners.append((x / 16.5, -(y + 2.5) / 15.5))
    return corners


def _cross_corners() -> list[Point]:
    a, b = 0.36, 0.98
    quarter = [(a, -b), (a, -a), (b, -a)]
    turned = [(-y, x) for x, y in quarter]
    return [
        *quarter,
        *turned,
        *((-x, -y) for x, y in quarter),
        *((-x, -y) for x, y in turned),
    ]


_SHAPE_CORNERS: dict[Shape, list[Point]] = {
    "square": [(-0.76, -0.76), (0.76, -0.76), (0.76, 0.76), (-0.76, 0.76)],
    "triangle": [(0.0, -1.0), (0.98, 0.76), (-0.98, 0.76)],
    "star": _star_corners(),
    "cross": _cross_corners(),
    "diamond": [(0.0, -1.04), (0.86, 0.0), (0.0, 1.04), (-0.86, 0.0)],
    "heart": _heart_corners(),
    "arrow": [
        (-1.0, -0.36), (0.1, -0.36), (0.1, -0.94), (1.04, 0.0), (0.1, 0.94), (0.1, 0.36),
        (-1.0, 0.36),
    ],
}  # fmt: skip


def _arc(center: Point, radius: Point, start_deg: float, end_deg: float) -> list[Point]:
    """Points of an elliptic arc; 0 degrees is to the right, 90 degrees down."""
    angles = np.linspace(math.radians(start_deg), math.radians(end_deg), 12)
    return [
        (center[0] + radius[0] * math.cos(angle), center[1] + radius[1] * math.sin(angle))
        for angle in angles
    ]


#: Polylines of each digit, in sprite radii.
_DIGIT_STROKES: tuple[tuple[list[Point], ...], ...] = (
    (_arc((0, 0), (0.34, 0.5), 0, 360),),
    ([(-0.2, -0.3), (0.04, -0.5), (0.04, 0.5)], [(-0.2, 0.5), (0.28, 0.5)]),
    ([*_arc((0, -0.2), (0.32, 0.3), 190, 390), (-0.32, 0.5), (0.36, 0.5)],),
    ([(-0.32, -0.5), (0.32, -0.5), (-0.02, -0.12), *_arc((-0.04, 0.19), (0.36, 0.31), -80, 155)],),
    ([(0.14, 0.5), (0.14, -0.5), (-0.36, 0.2), (0.38, 0.2)],),
    ([(0.32, -0.5), (-0.27, -0.5), (-0.3, -0.05), *_arc((-0.02, 0.18), (0.36, 0.32), -110, 150)],),
    ([(0.22, -0.5), (-0.16, -0.1), *_arc((0, 0.2), (0.33, 0.3), 200, 560)],),
    ([(-0.34, -0.5), (0.34, -0.5), (-0.1, 0.5)],),
    (_arc((0, -0.26), (0.26, 0.24), 0, 360), _arc((0, 0.25), (0.34, 0.26), 0, 360)),
    ([(-0.22, 0.5), (0.16, 0.1), *_arc((0, -0.2), (0.33, 0.3), 20, 380)],),
)
