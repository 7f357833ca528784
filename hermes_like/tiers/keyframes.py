"""Pictures of frames as JPEG or WebP files in memory, and which frames get one.

Knows nothing of segments, tiers or models.
"""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
from PIL import Image as Pictures
from PIL import UnidentifiedImageError

from hermes_like.errors import StorageError
from hermes_like.records import Image

PictureFormat = Literal["jpeg", "webp"]


def encode_picture(
    image: Image, format: PictureFormat = "jpeg", quality: int = 90, longest_side: int = 640
) -> bytes:
    """Compress a picture; equal input gives equal bytes.

    Args:
        image: ``[H, W, 3]`` uint8 RGB.
        format: Of the file.
        quality: 1 to 100, as the format understands it.
        longest_side: In pixels; a larger picture is made smaller first, a smaller one stays.

    Raises:
        ValueError: Another shape or dtype.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise ValueError(f"expected [H, W, 3] uint8 with pixels, got {image.shape} {image.dtype}")
    picture = Pictures.fromarray(np.ascontiguousarray(image))
    height, width = image.shape[:2]
    shrink = longest_side / max(height, width)
    if shrink < 1:
        size = max(1, round(width * shrink)), max(1, round(height * shrink))
        picture = picture.resize(size, Pictures.Resampling.BOX)
    buffer = io.BytesIO()
    # Colour at full resolution: models look at small coloured things.
    options = {"subsampling": 0} if format == "jpeg" else {}
    picture.save(buffer, format=format, quality=quality, **options)
    return buffer.getvalue()


def decode_picture(data: bytes | memoryview) -> Image:
    """Return the picture of a JPEG or WebP file, ``[H, W, 3]`` uint8 RGB.

    Raises:
        StorageError: The bytes are no such file, or are cut short.
    """
    try:
        with Pictures.open(io.BytesIO(data), formats=("JPEG", "WEBP")) as picture:
            return np.array(picture.convert("RGB"))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise StorageError(
            f"expected a JPEG or WebP picture, got {len(data)} bytes of else: {error}"
        ) from error


def choose_keyframes(num_frames: int, count: int) -> list[int]:
    """Offsets of ``count`` frames spread evenly over ``num_frames``, ascending, each once.

    Each stands in the middle of its share, so one picture is the middle frame.
    """
    count = min(count, num_frames)
    return [(2 * index + 1) * num_frames // (2 * count) for index in range(count)]
