"""Which reader opens a video file: the one that was asked for, or the first that can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_like.errors import SourceOpenError
from hermes_like.registry import Registry
from hermes_like.sources.base import FrameSource
from hermes_like.sources.diagnose import check_file, open_error
from hermes_like.sources.owned import OwnedSource

if TYPE_CHECKING:
    from hermes_like.config import SourceConfig

Reader = Callable[[Path, "SourceConfig"], OwnedSource]

READERS: Registry[Reader] = Registry(
    "reader",
    {
        "pyav": "hermes_like.sources.pyav_file:PyAVSource",
        "opencv": "hermes_like.sources.opencv_file:OpenCVSource",
        "decord": "hermes_like.sources.decord_file:DecordSource",
    },
)

#: Order in which ``auto`` tries the readers.
AUTO_ORDER = ("pyav", "opencv", "decord")

_INSTALL_HINTS = {
    "pyav": "pip install av",
    "opencv": "pip install opencv-python; on a slim image also: apt install libgl1 libglib2.0-0",
    "decord": "pip install decord; x86-64 Linux, Windows and Intel Macs only",
}


def open_video(reference: str, config: SourceConfig) -> FrameSource:
    """Open a video file.

    Args:
        reference: Path of the file.
        config: ``reader`` chooses.

    Raises:
        SourceOpenError: Names the file and the cause; in ``auto`` the cause that PyAV saw.
    """
    path = Path(reference)
    check_file(path)
    if config.reader == "auto":
        return _open_auto(path, config)
    return _open_with(config.reader, path, config)


def _open_with(reader: str, path: Path, config: SourceConfig) -> OwnedSource:
    try:
        return READERS.get(reader)(path, config)
    except ImportError as error:
        cause = f"reader {reader} is not available: {error} ({_INSTALL_HINTS.get(reader, '')})"
        raise open_error(path, cause) from error


def _open_auto(path: Path, config: SourceConfig) -> FrameSource:
    first_error: SourceOpenError | None = None
    for reader in AUTO_ORDER:
        try:
            source = _open_with(reader, path, config)
        except SourceOpenError as error:
            first_error = first_error or error
            continue
        if first_error is not None:
            source.warn(f"read with {reader}, because the default reader failed: {first_error}")
        return source
    assert first_error is not None
    raise first_error
