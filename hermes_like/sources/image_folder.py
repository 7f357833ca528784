"""A folder of pictures as a stream: natural order of names, evenly spaced in time.

A folder has no clock. Its pictures are taken to be ``1 / sample_fps`` seconds apart, so that a
sampled run sees each of them once.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator
from pathlib import Path

import numpy as np
from PIL import Image as PILImage
from PIL import ImageOps

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError
from hermes_like.records import Frame, Image
from hermes_like.sources.base import Wanted
from hermes_like.sources.diagnose import open_error
from hermes_like.sources.owned import OwnedSource

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm"})


class ImageFolderSource(OwnedSource):
    """Frames from the pictures of a folder; unreadable ones are left out and named.

    Args:
        reference: The folder.
        config: ``sample_fps`` spaces the pictures (1 per second if None).

    Raises:
        SourceOpenError: The folder holds no picture, or none that can be read.
    """

    def __init__(self, reference: str, config: SourceConfig) -> None:
        super().__init__(reference, config)
        folder = Path(reference)
        try:
            entries = list(folder.iterdir())
        except OSError as error:
            raise open_error(folder, (error.strerror or str(error)).lower()) from error
        files = [file for file in entries if file.suffix.lower() in SUFFIXES and file.is_file()]
        self._files = sorted(files, key=lambda file: natural_key(file.name))
        self._fps = config.sample_fps or 1.0
        if not self._files:
            raise open_error(
                folder, f"the folder holds no pictures ({', '.join(sorted(SUFFIXES))})"
            )
        self._probe(folder)

    @property
    def duration_s(self) -> float | None:
        """Length if every picture can be read, in seconds."""
        return len(self._files) / self._fps

    def _probe(self, folder: Path) -> None:
        cause = ""
        for file in self._files:
            try:
                read_picture(file)
                return
            except SourceError as error:
                cause = cause or str(error)
        raise open_error(folder, f"none of {len(self._files)} pictures can be read; first: {cause}")

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        for index, file in enumerate(self._files):
            pts_s = index / self._fps
            if not wanted(pts_s):
                continue
            try:
                image = read_picture(file)
            except SourceError as error:
                self._num_dropped += 1
                self.warn(f"a picture was left out: {error}")
                continue
            yield self._frame(image, index, pts_s)


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``frame2`` before ``frame10``."""
    parts = re.split(r"(\d+)", name.casefold())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def read_picture(file: Path) -> Image:
    """Read one picture upright as ``[H, W, 3]`` uint8 RGB; transparency is ignored.

    Raises:
        SourceError: Names the file and the cause.
    """
    try:
        with warnings.catch_warnings(), PILImage.open(file) as opened:
            warnings.simplefilter("ignore")
            turned = ImageOps.exif_transpose(opened)
            if turned.mode.startswith("I") or turned.mode == "F":
                return _from_deep_grey(np.asarray(turned))
            return np.array(turned.convert("RGB"), dtype=np.uint8)
    except (OSError, ValueError, SyntaxError, PILImage.DecompressionBombError) as error:
        raise SourceError(f"{file}: {error}") from error


def _from_deep_grey(values: np.ndarray) -> Image:
    """Scale grey values of more than 8 bits, ``[H, W]``, to ``[H, W, 3]`` uint8."""
    highest = 1.0 if values.dtype.kind == "f" and values.max() <= 1.0 else 65535.0
    grey = np.clip(values.astype(np.float32) * (255.0 / highest), 0, 255).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)
