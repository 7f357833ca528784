"""Pictures of any size to the one size a stream has, for towers that take patches of any grid.

Plain torch on the model's device. It knows sizes and number types, not models.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hermes_like.errors import ConfigError
from hermes_like.records import Image

Resample = Literal["bicubic", "area"]


def resized(image: Image, size: tuple[int, int], device: torch.device, how: Resample) -> Tensor:
    """One picture at a size, whole grey levels where it is interpolated.

    On Apple's devices torch lacks these filters; there the CPU does it before the picture is moved.

    Args:
        image: uint8 ``[H, W, 3]``.
        size: Height and width to bring it to.
        device: Where the result shall be.
        how: The filter.

    Returns:
        float32 ``[1, 3, height, width]``, 0 to 255.
    """
    at = torch.device("cpu") if device.type == "mps" else device
    x = torch.from_numpy(image).to(at).permute(2, 0, 1)[None].float()
    if how == "area":
        x = F.interpolate(x, size, mode="area")
    else:
        x = F.interpolate(x, size, mode="bicubic", antialias=True).clamp(0, 255).round()
    return x.to(device)


def frame_size(pixels: int, shape: tuple[int, int], unit: int) -> tuple[int, int]:
    """Height and width for pictures of a shape under a budget, in whole units.

    Args:
        pixels: Most pixels of a frame.
        shape: Height and width of the pictures, in any measure.
        unit: Side of the square that becomes one vision token, in pixels.

    Raises:
        ConfigError: The budget does not even pay for one row of tokens of that shape.
    """
    tall, wide = shape
    tokens = pixels // (unit * unit)
    # Whole numbers throughout: 252 x 448 pixels must give 9 x 16 units, not 8 x 15.
    rows, columns = math.isqrt(tokens * tall // wide), math.isqrt(tokens * wide // tall)
    if rows < 1 or columns < 1:
        raise ConfigError(
            f"frame_pixels: expected at least {unit * unit * -(-max(shape) // min(shape))} for "
            f"pictures of {tall} by {wide} in tokens of {unit} x {unit}, got {pixels}"
        )
    return rows * unit, columns * unit


def fitted(image: Image, size: tuple[int, int], unit: int, device: torch.device) -> Tensor:
    """One picture at a size, float32 ``[1, 3, height, width]``, whole grey levels 0 to 255.

    A picture of about the same shape is stretched, by less than a unit. One of another shape keeps
    its shape and gets black borders, so that things look the same in all streams.

    Args:
        image: uint8 ``[H, W, 3]``.
        size: Height and width to bring it to.
        unit: Side of a vision token, in pixels.
        device: Where to work.
    """
    tall, wide = size
    inner = _inside(image.shape[0], image.shape[1], size)
    if tall - inner[0] < unit and wide - inner[1] < unit:
        inner = size
    x = resized(image, inner, device, "bicubic")
    top, left = (tall - inner[0]) // 2, (wide - inner[1]) // 2
    return F.pad(x, (left, wide - inner[1] - left, top, tall - inner[0] - top))


def _inside(tall: int, wide: int, size: tuple[int, int]) -> tuple[int, int]:
    """The largest height and width of a shape inside a size, at least one pixel each."""
    scale = min(size[0] / tall, size[1] / wide)
    return max(1, min(size[0], round(tall * scale))), max(1, min(size[1], round(wide * scale)))


def patches(pixels: Tensor, patch: int, merge: int, repeats: int) -> Tensor:
    """Cut pictures into patches, those of one vision token side by side.

    Args:
        pixels: ``[frames, channels, height, width]``; sides are multiples of ``patch * merge``.
        patch: Side of a patch.
        merge: Patches of a vision token per side.
        repeats: Times a picture stands behind itself, for towers that look at several at once.

    Returns:
        ``[frames * rows * columns, channels * repeats * patch * patch]``.
    """
    frames, channels, height, width = pixels.shape
    rows, columns = height // (patch * merge), width // (patch * merge)
    cut = pixels.reshape(frames, channels, rows, merge, patch, columns, merge, patch)
    cut = cut.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(6)
    cut = cut.expand(-1, -1, -1, -1, -1, -1, repeats, -1, -1)
    return cut.reshape(frames * rows * columns * merge * merge, -1)
