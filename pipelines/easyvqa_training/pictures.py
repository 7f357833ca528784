"""Pictures of easy-VQA as arrays, and new ones made from them: moved, mirrored, other grounds.

A picture is one flat shape on one flat ground, so the shape can be lifted off and put down
elsewhere. Shapes are never turned: all triangles of the package stand upright.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from hermes_like.easyvqa.package import Picture
from hermes_like.easyvqa.questions import COLORS, SHAPES

ByteArray = npt.NDArray[np.uint8]
SIDE, PATCH = 64, 16
#: Shapes are scaled by up to this factor's logarithm, within the sides that pictures have, in
#: pixels.
MAX_LOG_SCALE = 0.35
LEAST_SIDE, MOST_SIDE = 8, 32


@dataclass(frozen=True, slots=True)
class LabelledPictures:
    """Pictures of which shape and colour are known.

    Attributes:
        pixels: ``[pictures, 64, 64, 3]`` uint8.
        shapes: ``[pictures]`` int64, indices into ``SHAPES``.
        colors: ``[pictures]`` int64, indices into ``COLORS``.
    """

    pixels: ByteArray
    shapes: npt.NDArray[np.int64]
    colors: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pixels)


def load_pictures(pictures: Iterable[Picture]) -> LabelledPictures:
    """Read the pictures whose shape and colour the package's answers tell."""
    known = [(picture, kind) for picture in pictures if (kind := picture.kind) is not None]
    return LabelledPictures(
        np.stack([read_pixels(picture) for picture, _ in known]),
        np.array([SHAPES.index(shape) for _, (shape, _) in known]),
        np.array([COLORS.index(color) for _, (_, color) in known]),
    )


def read_pixels(picture: Picture) -> ByteArray:
    """Pixels of one picture, uint8 ``[64, 64, 3]``.

    Raises:
        ValueError: It has another size.
    """
    with Image.open(picture.path) as opened:
        pixels = np.array(opened.convert("RGB"), dtype=np.uint8)
    if pixels.shape != (SIDE, SIDE, 3):
        raise ValueError(f"{picture.path}: expected {SIDE} x {SIDE} pixels, got {pixels.shape}")
    return pixels


def to_patches(pixels: ByteArray) -> torch.Tensor:
    """Patches as the tower takes them.

    Args:
        pixels: uint8 ``[frames, 64, 64, 3]``.

    Returns:
        float32 ``[frames, 16, 768]`` in [-1, 1].
    """
    x = torch.from_numpy(pixels).float().div_(127.5).sub_(1.0)
    grid = SIDE // PATCH
    x = x.view(len(pixels), grid, PATCH, grid, PATCH, 3)
    return x.permute(0, 1, 3, 5, 2, 4).reshape(len(pixels), grid * grid, -1)


class Variations:
    """Makes new pictures from those of the training split.

    Args:
        source: The pictures.
    """

    def __init__(self, source: LabelledPictures) -> None:
        self.source = source
        self._grounds = np.stack([_ground(pixels) for pixels in source.pixels])
        self._cuts = [
            _cut(p, ground) for p, ground in zip(source.pixels, self._grounds, strict=True)
        ]

    def draw(self, rng: np.random.Generator, chosen: Sequence[int]) -> ByteArray:
        """New pictures of the chosen ones, uint8 ``[len(chosen), 64, 64, 3]``.

        One in five is left as it is; the others are mirrored, scaled (rectangles each way on its
        own), moved and get the ground of another.
        """
        pictures = self.source.pixels[list(chosen)].copy()
        for row, index in enumerate(chosen):
            if rng.random() < 0.2:
                continue
            mask, colors = self._cuts[index]
            if rng.random() < 0.5:
                mask, colors = mask[:, ::-1], colors[:, ::-1]
            is_free = SHAPES[int(self.source.shapes[index])] == "rectangle"
            mask, colors = _scaled(rng, mask, colors, is_free=is_free)
            height, width = mask.shape
            top = int(rng.integers(SIDE - height + 1))
            left = int(rng.integers(SIDE - width + 1))
            picture = np.empty((SIDE, SIDE, 3), dtype=np.uint8)
            picture[:] = self._grounds[int(rng.integers(len(self._grounds)))]
            picture[top : top + height, left : left + width][mask] = colors[mask]
            pictures[row] = picture
        return pictures


def _ground(pixels: ByteArray) -> ByteArray:
    """The commonest colour of a picture, uint8 ``[3]``: shapes cover less than the ground."""
    packed = pixels.reshape(-1, 3) @ np.array([65536, 256, 1], dtype=np.int64)
    values, counts = np.unique(packed, return_counts=True)
    value = int(values[counts.argmax()])
    return np.array([value >> 16, value >> 8 & 255, value & 255], dtype=np.uint8)


def _cut(pixels: ByteArray, ground: ByteArray) -> tuple[npt.NDArray[np.bool_], ByteArray]:
    """The shape's box: which of its pixels are not ground, and their colours."""
    mask = (pixels != ground).any(axis=2)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return mask[box], pixels[box]


def _scaled(
    rng: np.random.Generator,
    mask: npt.NDArray[np.bool_],
    colors: ByteArray,
    *,
    is_free: bool,
) -> tuple[npt.NDArray[np.bool_], ByteArray]:
    """The shape made larger or smaller, nearest pixels; both ways by one factor unless free."""
    factors = np.exp(rng.uniform(-MAX_LOG_SCALE, MAX_LOG_SCALE, size=2))
    if not is_free:
        factors[:] = factors[0]
    sides = [
        int(np.clip(round(side * factor), min(side, LEAST_SIDE), max(side, MOST_SIDE)))
        for side, factor in zip(mask.shape, factors, strict=True)
    ]
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(np.int64)
        for new, old in zip(sides, mask.shape, strict=True)
    )
    return mask[np.ix_(rows, columns)], colors[np.ix_(rows, columns)]
