"""Pixels in: video files, image folders, cameras and network streams, scripted sprites."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_like.errors import SourceOpenError
from hermes_like.registry import Registry, unknown_name
from hermes_like.sources.address import redacted
from hermes_like.sources.base import FrameSource
from hermes_like.sources.video_file import READERS

if TYPE_CHECKING:  # a process that only reads a camera starts sooner without
    from hermes_like.config import SourceConfig

__all__ = ["READERS", "SOURCES", "FrameSource", "open_source"]

_NETWORK = ("rtsp", "rtsps", "http", "https", "tcp", "udp")

#: How each kind of reference is opened. A name and a colon in a reference ("sprites:seed=3") choose
#: the kind; paths are ``file`` or ``folder``.
SOURCES: Registry[Callable[[str, SourceConfig], FrameSource]] = Registry(
    "kind of source",
    {
        "file": "hermes_like.sources.video_file:open_video",
        "folder": "hermes_like.sources.image_folder:ImageFolderSource",
        "sprites": "hermes_like.sprites.source:open_sprites",
        **dict.fromkeys(_NETWORK, "hermes_like.sources.live.network:open_network"),
        "webcam": "hermes_like.sources.live.network:open_webcam",
        "watch": "hermes_like.sources.live.folder_watch:open_watch",
        "realtime": "hermes_like.sources.live.realtime:open_realtime",
    },
)

_PATH_KINDS = frozenset({"file", "folder"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LIVE_FOLDER = re.compile(r"folder:.*\?live")


def open_source(reference: str | Path, config: SourceConfig | None = None) -> FrameSource:
    """Open a source of frames.

    Args:
        reference: Path of a video file or of a folder of pictures, ``sprites:seed=3,frames=9``, or
            something live: ``rtsp[s]://``, ``http[s]://`` (multipart JPEG, HLS), ``tcp://`` and
            ``udp://`` (MPEG-TS), ``webcam:0``, ``watch:FOLDER`` (also ``folder:FOLDER?live``),
            ``realtime:FILE``.
        config: Reader, wall time of second 0, watchdog, limits of live sources; None: the defaults.

    Raises:
        SourceOpenError: Names the reference and the cause.
    """
    from hermes_like.config import SourceConfig

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
    if _LIVE_FOLDER.fullmatch(reference):
        return "watch"
    name = scheme.group(1).lower()
    schemes = [known for known in SOURCES.names() if known not in _PATH_KINDS]
    if name not in schemes:
        raise SourceOpenError(
            f"{redacted(reference)}: {unknown_name('kind of source', name, schemes)}"
        )
    return name
