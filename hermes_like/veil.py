"""Areas of the picture that nobody may see: painted black before anything is encoded or stored.

Knows polygons and pixels; nothing of models, tiers or cameras.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PIL import Image as Pictures
from PIL import ImageDraw

from hermes_like.config import Polygon
from hermes_like.records import Frame


class Veil:
    """Paints the same areas of every frame black.

    Args:
        masks: Areas that may not be seen, corners ``(x, y)`` from 0 to 1.
        zones: Areas outside of which nothing may be seen; none: everything may.
    """

    def __init__(self, masks: Sequence[Polygon], zones: Sequence[Polygon]) -> None:
        self.masks, self.zones = tuple(masks), tuple(zones)
        self._hidden: np.ndarray | None = None

    def apply(self, frame: Frame) -> Frame:
        """Return the frame with hidden areas black; the frame itself where there are none."""
        if not self.masks and not self.zones:
            return frame
        height, width = frame.image.shape[:2]
        if self._hidden is None or self._hidden.shape != (height, width):
            self._hidden = self.hidden(height, width)
        image = frame.image.copy()
        image[self._hidden] = 0
        return replace(frame, image=image)

    def hidden(self, height: int, width: int) -> np.ndarray:
        """Which pixels are painted, bool ``[height, width]``. A touched pixel counts as hidden."""
        shown = self._filled(self.zones, height, width) if self.zones else None
        hidden = self._filled(self.masks, height, width)
        return hidden if shown is None else hidden | ~shown

    @staticmethod
    def _filled(polygons: Sequence[Polygon], height: int, width: int) -> np.ndarray:
        canvas = Pictures.new("1", (width, height))
        draw = ImageDraw.Draw(canvas)
        for polygon in polygons:
            draw.polygon([(x * width, y * height) for x, y in polygon], fill=1, outline=1)
        return np.array(canvas, dtype=bool)
