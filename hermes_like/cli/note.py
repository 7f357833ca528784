"""What the command line notes in a memory folder: the video that was watched, and how.

With it the same video is not watched twice, and the options of the first call need not be repeated.
It loads neither torch nor a decoder.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_like.config import HermesConfig, SourceConfig
from hermes_like.errors import ConfigError, StorageError

#: Under which name the note lies in the folder.
NOTE_NAME = "watched"
NOTE_VERSION = 1
#: Keys of ``source`` that decide which frames are taken, and when they were.
SAMPLING_KEYS = ("sample_fps", "skip_duplicates", "duplicate_threshold", "start_time")


@dataclass(frozen=True, slots=True)
class Watched:
    """A source of frames, and how far it was watched.

    Attributes:
        reference: Absolute path, or what else the user named.
        size_bytes: Of the file, or the number of files in a folder; None where there is no path.
        mtime_ns: When the path was changed last; None where there is none.
        sampling: Values of :data:`SAMPLING_KEYS`.
        num_frames: Frames observed when the end was reached; 0 before.
        is_complete: Whether it was watched to its end.
    """

    reference: str
    size_bytes: int | None
    mtime_ns: int | None
    sampling: Mapping[str, Any]
    num_frames: int = 0
    is_complete: bool = False

    @classmethod
    def of(cls, video: str, config: SourceConfig) -> Watched:
        """Describe what the user named, as it is now."""
        values = config.model_dump(mode="json")
        sampling = {key: values[key] for key in SAMPLING_KEYS}
        path = Path(video)
        try:
            state = path.stat()
            size = sum(1 for _ in path.iterdir()) if path.is_dir() else state.st_size
        except (OSError, ValueError):
            return cls(_absolute(video), None, None, sampling)
        return cls(str(path.resolve()), size, state.st_mtime_ns, sampling)

    @property
    def exists(self) -> bool:
        """Whether a file or a folder was found."""
        return self.size_bytes is not None

    def require_same(self, now: Watched, folder: Path) -> None:
        """Refuse to go on with another video, or with other sampling.

        A file that moved is the same one; a start time that is not given again is kept.

        Raises:
            ConfigError: Says what the folder remembers and what came.
        """
        is_same = self.reference == now.reference
        if self.exists and now.exists:
            is_same = (self.size_bytes, self.mtime_ns, Path(self.reference).name) == (
                now.size_bytes, now.mtime_ns, Path(now.reference).name,
            )  # fmt: skip
        if not is_same:
            raise ConfigError(
                f"{folder}: remembers {self.words()}, got {now.words()}; a memory holds one "
                "video: take another folder, or ask with 'hermes-like memory ask'"
            )
        for key in SAMPLING_KEYS:
            old, new = self.sampling.get(key), now.sampling[key]
            if old != new and not (key == "start_time" and new is None):
                raise ConfigError(
                    f"{folder}: was watched with source.{key} {old}, got {new}; "
                    "take another folder for that"
                )

    def words(self) -> str:
        """The source with size and date, for messages."""
        if self.size_bytes is None or self.mtime_ns is None:
            return self.reference
        when = datetime.fromtimestamp(self.mtime_ns / 1e9, UTC)
        return f"{self.reference} ({self.size_bytes} bytes, {when:%Y-%m-%d %H:%M:%S} UTC)"


@dataclass(frozen=True, slots=True)
class Note:
    """Contents of the note.

    Attributes:
        config: Configuration of the first call, as plain values by section.
        watched: The source.
    """

    config: Mapping[str, Mapping[str, Any]]
    watched: Watched

    @classmethod
    def of(cls, config: HermesConfig, watched: Watched) -> Note:
        """Put a note together."""
        return cls(config.model_dump(mode="json"), watched)

    def to_bytes(self) -> bytes:
        """As JSON."""
        values = {"version": NOTE_VERSION, **dataclasses.asdict(self)}
        return json.dumps(values, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Note:
        """Read what :meth:`to_bytes` wrote.

        Raises:
            StorageError: It is something else, or of a later version.
        """
        try:
            values = json.loads(data)
            version, config = int(values["version"]), dict(values["config"])
            known = {field.name for field in dataclasses.fields(Watched)}
            source = {key: value for key, value in values["watched"].items() if key in known}
            note = cls(config, Watched(**source))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"note of the command line: {error}") from error
        if version > NOTE_VERSION:
            raise StorageError(
                f"note of the command line: written in version {version}; this release reads up "
                f"to {NOTE_VERSION}"
            )
        return note


def _absolute(video: str) -> str:
    """Path or reference of what is not there: ``sprites:seed=3`` stays as it is."""
    return video if ":" in video.split("/", 1)[0] else str(Path(video).absolute())
