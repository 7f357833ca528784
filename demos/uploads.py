"""Files that visitors bring: taken over, judged by decoding them, counted against a quota.

What a file is called says nothing; whether a picture comes out of it does. This module knows no
page and no memory.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from hermes_like.cli.output import size
from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError, SourceOpenError
from hermes_like.sources import open_source

#: How long an upload may take to reach its place after it was announced.
ARRIVAL_S = 5.0
#: Uploads that nobody has taken after this are removed.
LEFTOVER_S = 600.0


def take_upload(upload: Path, folder: Path, max_bytes: int, config: SourceConfig) -> Path:
    """Move an upload to a folder of its visitor, if it is a video.

    Args:
        upload: Where the server put it.
        folder: Where it goes.
        max_bytes: Largest file that is taken.
        config: How it would be read.

    Returns:
        Its new place; only the visitor's own code removes it from there.

    Raises:
        SourceOpenError: It is too large, or no picture could be decoded. The file is gone then.
    """
    name = upload.name
    _wait_for(upload)
    num_bytes = upload.stat().st_size
    if num_bytes > max_bytes:
        upload.unlink()
        raise SourceOpenError(f"{name}: expected at most {size(max_bytes)}, got {size(num_bytes)}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = folder / f"clip{_suffix(name)}"
    shutil.move(upload, place)
    place.chmod(0o600)
    try:
        check_video(place, name, config)
    except SourceError:
        place.unlink(missing_ok=True)
        raise
    return place


def check_video(path: Path, name: str, config: SourceConfig) -> None:
    """Decode one picture.

    Raises:
        SourceOpenError: Nothing came out.
    """
    try:
        with open_source(path, config) as source:
            first = next(iter(source), None)
    except SourceError as error:
        cause = str(error).removeprefix(f"{path}: ")
        raise SourceOpenError(f"{name} is no video that can be read: {cause}") from error
    if first is None:
        raise SourceOpenError(f"{name} is no video that can be read: it holds no pictures")


def _wait_for(upload: Path) -> None:
    """The server announces a file before its own move is over."""
    until_s = time.monotonic() + ARRIVAL_S
    while not upload.is_file():
        if time.monotonic() > until_s:
            raise SourceOpenError(f"{upload.name}: the upload did not arrive; please send it again")
        time.sleep(0.05)


def _suffix(name: str) -> str:
    """Readers and browsers look at it, so it is kept if it is harmless."""
    match = re.search(r"\.[A-Za-z0-9]{1,5}$", name)
    return match.group(0).lower() if match else ""


def used_bytes(*roots: Path) -> int:
    """Bytes of all files below some folders; files that vanish meanwhile do not count."""
    total = 0
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                try:
                    total += os.lstat(os.path.join(folder, name)).st_size
                except FileNotFoundError:
                    continue
    return total


def remove_leftovers(folder: Path, age_s: float = LEFTOVER_S) -> int:
    """Remove uploads that nobody took, and return how many there were."""
    oldest_s, count = time.time() - age_s, 0
    for path in list(folder.rglob("*")):
        try:
            if path.is_file() and path.stat().st_mtime < oldest_s:
                path.unlink()
                count += 1
            elif path.is_dir() and path.stat().st_mtime < oldest_s and not any(path.iterdir()):
                path.rmdir()
        except OSError:  # somebody else was quicker
            continue
    return count
