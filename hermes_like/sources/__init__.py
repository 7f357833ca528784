"""Pixels in: video files, image folders, scripted sprites."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.registry import Registry, unknown_name
from hermes_like.sources.base import FrameSource
from hermes_like.sources.video_file import READERS

__all__ = ["READERS", "SOURCES", "FrameSource", "open_source"]

#: How each kind of reference is opened. A name and a colon in a reference ("sprites:seed=3") choose
#: the kind; paths are ``file`` or ``folder``.
SOURCES: Registry[Callable[[str, SourceConfig], FrameSource]] = Registry(
    "kind of source",
    {
        "file": "hermes_like.sources.video_file:open_video",
        "folder": "hermes_like.sources.image_folder:ImageFolderSource",
        "sprites": "hermes_like.sprites.source:open_sprites",
    },
)

_PATH_KINDS = frozenset({"file", "folder"})
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):")


def open_source(reference: str | Path, config: SourceConfig | None = None) -> FrameSource:
    """Open a source of frames.

    Args:
        reference: Path of a video file or of a folder of pictures, or ``sprites:seed=3,frames=9``.
        config: Reader, wall time of second 0, watchdog; None: the defaults.

    Raises:
        SourceOpenError: Names the reference and the cause.
    """
    config = config or SourceConfig()
    text = str(reference)
    kind = kind_of(text)
    if config.watchdog_s is not None and kind in _PATH_KINDS:
        from hermes_like.sources.watchdog import WatchdogSource

        return WatchdogSource(text, config)
    return SOURCES.get(kind)(text, config)


def kind_of(reference: str) -> str:
    """Name in :data:`SOURCES` under which a reference is opened.

    Raises:
        SourceOpenError: The reference names an unknown kind.
    """
    path = Path(reference)
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError:  # a name too long for the file system, for example
        is_folder = exists = False
    if is_folder:
        return "folder"
    scheme = _SCHEME.match(reference)
    if scheme is None or exists:
        return "file"
    name = scheme.group(1)
    schemes = [known for known in SOURCES.names() if known not in _PATH_KINDS]
    if name not in schemes:
        raise SourceOpenError(f"{reference}: {unknown_name('kind of source', name, schemes)}")
    return name
