"""What lies in a download: annotation files by name, and the video that a row means.

Knows names only; opens nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from hermes_like.errors import DatasetError
from hermes_like.evaluation.files import SUFFIXES

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".flv", ".ts", ".mpg", ".mpeg", ".wmv"}
)
#: Frames stored as one array; found, and named as what they are by the check.
ARRAY_SUFFIXES = frozenset({".npy", ".npz"})
PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
#: Left behind by an archiver, never data.
_JUNK = ("__macosx", ".")


@dataclass(frozen=True, slots=True)
class Reference:
    """A name by which to look for a video.

    Attributes:
        text: Path or name as the annotations have it.
        num_parts: How many of its parts must agree at least, counted from the end.
        within: Words that the folders of the path must contain; case, underscores and hyphens do
            not matter.
    """

    text: str
    num_parts: int = 1
    within: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The video that a row means.

    Attributes:
        path: File or folder of pictures.
        others: Further ones whose names fit as well.
    """

    path: Path
    others: tuple[Path, ...] = ()


class Listing:
    """Files of a folder, found in one walk.

    Args:
        folder: The download, or one file: then only that file, and the videos beside it.
        videos: Where the videos lie; None: in the folder.

    Raises:
        DatasetError: A folder is not there.
    """

    def __init__(self, folder: Path, videos: Path | None = None) -> None:
        if not folder.exists():
            raise DatasetError(f"{folder}: expected a folder or an annotation file, got nothing")
        if videos is not None and not videos.is_dir():
            raise DatasetError(f"{videos}: expected a folder of videos")
        self.root = folder.parent if folder.is_file() else folder
        entries = list(_walk(self.root))
        named = [folder] if folder.is_file() else [path for path, _ in entries]
        self.annotations = [path for path in named if path.suffix.lower() in SUFFIXES]
        #: Last part, or last two, without ending and in small letters, from the end, to the paths
        #: with all their parts from the end.
        self._ending: dict[tuple[str, ...], list[tuple[Path, tuple[str, ...]]]] = defaultdict(list)
        for path, is_folder in entries if videos is None else _walk(videos):
            is_video = path.suffix.lower() in VIDEO_SUFFIXES | ARRAY_SUFFIXES
            if is_folder or is_video:
                name = path.name if is_folder else path.stem
                parts = tuple(map(str.casefold, (name, *reversed(path.parts[:-1]))))
                for num_parts in (1, 2):
                    self._ending[parts[:num_parts]].append((path, parts))

    def matching(self, patterns: Sequence[str]) -> list[Path]:
        """Annotation files whose end of the path fits one of the patterns, sorted."""
        wanted = [f"*/{pattern.casefold()}" for pattern in patterns]
        return sorted(
            path
            for path in self.annotations
            if any(fnmatch(f"/{path.as_posix().casefold()}", pattern) for pattern in wanted)
        )

    def relative(self, path: Path) -> str:
        """How a file is named in reports."""
        return path.relative_to(self.root).as_posix()

    def find(self, *references: str | Reference) -> Found | None:
        """The video whose path agrees best with a reference, from its end backwards.

        Neither case nor ending of a name matter (copies differ in both).

        Args:
            references: Tried in order.
        """
        for reference in references:
            given = Reference(reference) if isinstance(reference, str) else reference
            wanted = _parts(given.text)
            candidates = self._ending.get(wanted[: min(given.num_parts, 2)], []) if wanted else []
            scored = [
                (score, path)
                for path, parts in candidates
                if (score := _num_agreeing(parts, wanted)) >= given.num_parts
                and _plain(given.within) in _plain(path.parent.as_posix())
            ]
            if scored:
                best = max(score for score, _ in scored)
                path, *others = sorted(path for score, path in scored if score == best)
                return Found(path, tuple(others))
        return None


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Files, and folders that hold pictures, with whether it is a folder; pictures left out."""
    seen = set()
    for base, folders, names in os.walk(folder, followlinks=True):
        # Downloads are often links into a shared store; a link to a folder above must not loop.
        real = os.path.realpath(base)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.lower().startswith(_JUNK))
        has_pictures = False
        for name in sorted(names):
            suffix = os.path.splitext(name)[1].lower()
            if name.startswith("."):
                continue
            if suffix in PICTURE_SUFFIXES:
                has_pictures = True
            else:
                yield Path(base, name), False
        if has_pictures:
            yield Path(base), True


def _parts(reference: str) -> tuple[str, ...]:
    """Parts from the end in small letters, the last one without its ending."""
    posix = reference.replace("\\", "/").casefold()
    parts = [part for part in PurePosixPath(posix).parts if part not in (".", "/")]
    return (_stem(parts[-1]), *reversed(parts[:-1])) if parts else ()


def _stem(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return stem if dot and f".{suffix}" in VIDEO_SUFFIXES | ARRAY_SUFFIXES else name


def _num_agreeing(parts: Sequence[str], wanted: Sequence[str]) -> int:
    """How many parts agree, counted from the end."""
    pairs = enumerate(zip(parts, wanted, strict=False))
    shorter = min(len(parts), len(wanted))
    return next((index for index, (mine, theirs) in pairs if mine != theirs), shorter)


def _plain(text: str) -> str:
    return text.casefold().replace("_", " ").replace("-", " ")
