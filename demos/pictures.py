"""Small JPEG pictures for a page, as bytes and as text that stands in the page itself."""

from __future__ import annotations

import base64
import io

import PIL.Image

from hermes_like.records import Image

LONGEST_SIDE, QUALITY = 320, 82


def to_jpeg(image: Image) -> bytes:
    """JPEG of ``[H, W, 3]`` uint8, at most :data:`LONGEST_SIDE` pixels long."""
    picture = PIL.Image.fromarray(image)
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def data_address(jpeg: bytes) -> str:
    """An address that holds the picture itself, so that no request is needed for it."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")
