"""A camera that sends the same picture again and again: connected, and blind."""

from __future__ import annotations

import zlib

import numpy as np

from hermes_like.records import Image


class FreezeWatch:
    """Notices a picture that does not change in a single pixel.

    Args:
        freeze_s: Seconds after which it counts as frozen; None: never.

    Attributes:
        is_frozen: Whether the picture seen last is.
    """

    def __init__(self, freeze_s: float | None) -> None:
        self._freeze_s = freeze_s
        self._last: tuple[tuple[int, ...], int] | None = None
        self._since_s = 0.0
        self.is_frozen = False

    def sees(self, image: Image, now_s: float) -> bool:
        """Take notice of a picture, ``[H, W, 3]`` uint8; whether it is frozen.

        Args:
            image: The picture.
            now_s: When it came, on the monotonic clock.
        """
        if self._freeze_s is None:
            return False
        # A checksum, not the picture itself: whoever gets the picture may paint over parts of it.
        found = image.shape, zlib.crc32(np.ascontiguousarray(image).reshape(-1).data)
        if found != self._last:
            self._last, self._since_s = found, now_s
        self.is_frozen = now_s - self._since_s >= self._freeze_s
        return self.is_frozen
