"""A directory that somebody writes pictures or clips into, read as they become complete.

A file counts as complete when it has not changed for a while and can be read whole; what cannot be
read stays until it changes or is given up and counted. Every picture keeps the time at which it was
taken: a file's time of change, counted back through a clip.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError, SourceOpenError
from hermes_like.sources.image_folder import SUFFIXES, natural_key, read_picture
from hermes_like.sources.live.clock import Clock
from hermes_like.sources.live.connection import Arrival, Connection
from hermes_like.sources.live.pictures import Counts
from hermes_like.sources.live.source import LiveSource

logger = logging.getLogger(__name__)

CLIP_SUFFIXES = frozenset({".mp4", ".mkv", ".ts", ".webm", ".avi", ".mov", ".m4v", ".mpg"})

POLL_S = 0.25

#: A picture that has not changed for this long may be complete.
SETTLE_S = 1.0

#: The same for a clip: recorders write every few seconds, and some formats look whole at any time.
CLIP_SETTLE_S = 5.0

#: A file that has not changed for this long and cannot be read never will be.
GIVE_UP_S = 30.0


@dataclass(slots=True)
class SeenFile:
    """What is known of a file: size and time of change, and since when they have been so."""

    state: tuple[int, int]
    since_s: float
    is_done: bool = False


class FolderWatch(Connection):
    """Pictures of files that appear in a folder.

    Args:
        folder: The folder.
        clock: Tells when a file has settled.
        seen: What is known of files, shared by all connections of a source: files that
            are in it and done are not read.
    """

    def __init__(self, folder: Path, clock: Clock, seen: dict[str, SeenFile]) -> None:
        self._folder, self._clock, self._seen = folder, clock, seen
        self._closed = threading.Event()

    def close(self) -> None:
        """End the wait for files."""
        self._closed.set()

    def arrivals(self) -> Iterator[Arrival]:
        """Look for files again and again."""
        while not self._closed.is_set():
            for file in self._settled():
                yield from self._read(file)
                if self._closed.is_set():
                    return
            self._clock.wait(self._closed, POLL_S)

    def _settled(self) -> list[Path]:
        """Files that may be complete and were not read."""
        now_s = self._clock.monotonic()
        files = _files(self._folder)
        for name in self._seen.keys() - {file.name for file, _ in files}:
            del self._seen[name]
        settled = []
        for file, state in files:
            seen = self._seen.get(file.name)
            if seen is None or seen.state != state:
                seen = self._seen[file.name] = SeenFile(state, now_s)
            is_clip = file.suffix.lower() in CLIP_SUFFIXES
            settle_s = CLIP_SETTLE_S if is_clip else SETTLE_S
            is_ripe = now_s - seen.since_s >= settle_s
            if is_ripe and not seen.is_done:
                settled.append(file)
        return settled

    def _read(self, file: Path) -> Iterator[Arrival]:
        """Yield the pictures of a file; an incomplete one is left for later."""
        seen = self._seen[file.name]
        try:
            if file.suffix.lower() in SUFFIXES:
                image = read_picture(file)
                seen.is_done = True
                yield Arrival(None, lambda: image, self._age_s(seen))
            else:
                yield from self._read_clip(file, seen)
        except SourceError as error:
            self._fail(seen, error)

    def _read_clip(self, file: Path, seen: SeenFile) -> Iterator[Arrival]:
        from hermes_like.sources.live.pyav_pictures import last_time_s, read_stream

        request = {"url": f"file:{file}", "name": str(file)}
        length_s = last_time_s(request)
        seen.is_done = True
        counts = Counts()
        for arrival in read_stream(request, counts, lambda: None):
            if self._closed.is_set():
                return
            left_s = max(length_s - (arrival.media_s or 0.0), 0.0)
            yield Arrival(None, arrival.to_image, self._age_s(seen) + left_s)
        self.num_damaged += counts.num_damaged
        self.num_decode_errors += counts.num_decode_errors

    def _age_s(self, seen: SeenFile) -> float:
        return max(self._clock.wall().timestamp() - seen.state[1] / 1e9, 0.0)

    def _fail(self, seen: SeenFile, error: SourceError) -> None:
        """A file cannot be read, or broke off in the middle: will it ever be whole?"""
        if seen.is_done or self._clock.monotonic() - seen.since_s >= GIVE_UP_S:
            seen.is_done = True
            self.num_damaged += 1
            logger.warning("a file was left out: %s", error)


def open_watch(reference: str, config: SourceConfig, clock: Clock | None = None) -> LiveSource:
    """Open ``watch:FOLDER`` or ``folder:FOLDER?live``; with ``?existing``, all of its files.

    Nothing runs away from a folder, so a slow consumer is waited for and no frame is dropped.

    Raises:
        SourceOpenError: There is no such folder.
    """
    text = reference.partition(":")[2].removesuffix("?live")
    folder = Path(text.removesuffix("?existing"))
    if not folder.is_dir():
        raise SourceOpenError(f"{reference}: expected a folder, there is none at {folder}")
    own_clock = clock or Clock()
    seen: dict[str, SeenFile] = {}
    if not text.endswith("?existing"):
        now_s = own_clock.monotonic()
        seen = {file.name: SeenFile(state, now_s, is_done=True) for file, state in _files(folder)}
    return LiveSource(
        reference,
        config,
        connect=lambda: FolderWatch(folder, own_clock, seen=seen),
        clock=own_clock,
        waits_for_consumer=True,
    )


def _files(folder: Path) -> list[tuple[Path, tuple[int, int]]]:
    """Pictures and clips, oldest first, with size and time of change in nanoseconds."""
    found = []
    try:
        for file in folder.iterdir():
            if file.suffix.lower() in SUFFIXES | CLIP_SUFFIXES:
                try:
                    status = file.stat()
                except FileNotFoundError:  # renamed or cleared away meanwhile
                    continue
                found.append((file, (status.st_size, status.st_mtime_ns)))
    except OSError as error:
        raise SourceError(f"{folder}: {(error.strerror or str(error)).lower()}") from error
    return sorted(found, key=lambda item: (item[1][1], natural_key(item[0].name)))
