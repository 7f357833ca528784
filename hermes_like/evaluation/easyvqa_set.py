"""Streams of easy-VQA images as a dataset: folders of pictures, and questions with the truth.

The pictures are the package's own files, byte for byte. Knows the package; knows no model.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hermes_like.easyvqa.package import Picture, Split, package_folder, read_split
from hermes_like.easyvqa.streams import Stream, StreamQuestion, draw_memory_stream, now_streams
from hermes_like.errors import DatasetError
from hermes_like.evaluation.readers.easyvqa import FILE, FORMAT

#: ``memory``: planted images asked about now and later; ``now``: all questions of a split at once.
SetKind = Literal["memory", "now"]
#: Digits of a picture's number in its stream.
_NUMBER = "{:06}.png"


def make_easyvqa(
    folder: Path,
    *,
    kind: SetKind = "memory",
    package: Path | None = None,
    split: Split = "test",
    num_streams: int = 8,
    later: Sequence[int] = (4, 16, 64, 256),
    images_per_stream: int = 100,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write streams of easy-VQA images and questions about them.

    Args:
        folder: Made if it is not there.
        kind: ``memory``: planted images, asked about at once and some images later; ``now``: every
            image of the split once, asked all its questions while it is shown.
        package: Copy of the package; None: the installed one.
        split: Whose images and questions.
        num_streams: Of ``memory``; ``now``: only so many of its streams, 0: all.
        later: ``memory``: how many images later to ask.
        images_per_stream: ``now``: length of a stream.
        seed: The same seed gives the same streams.
        progress: Called with how many streams are done and how many there are.

    Returns:
        The annotation file.

    Raises:
        DatasetError: The folder holds annotations already, or the package is not there.
    """
    path = folder / FILE
    if path.exists():
        raise DatasetError(f"{path}: expected a folder without annotations; they are not replaced")
    data = package_folder(package)
    pictures = read_split(data, split)
    if kind == "now":
        rng = np.random.default_rng([seed, 1])
        streams = list(now_streams(pictures, rng, images_per_stream))
        streams = streams[: num_streams or len(streams)]
    else:
        streams = [
            draw_memory_stream(
                f"memory-{number:03}", pictures, np.random.default_rng([seed, 0, number]), later
            )
            for number in range(num_streams)
        ]
    rows = []
    for number, stream in enumerate(streams, 1):
        rows.append(_row(stream))
        _write_pictures(stream.pictures, folder / rows[-1]["folder"])
        if progress is not None:
            progress(number, len(streams))
    content = {
        "format": FORMAT,
        "split": split,
        "seed": seed,
        "questions_sha256": hashlib.sha256(
            (data / split / "questions.json").read_bytes()
        ).hexdigest(),
        "streams": rows,
    }
    # Last and at once: a folder with annotations is whole.
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, path)
    return path


def _row(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "folder": f"streams/{stream.name}",
        "images": [picture.image_id for picture in stream.pictures],
        "questions": list(map(_entry, stream.questions)),
    }


def _entry(asked: StreamQuestion) -> dict[str, Any]:
    return {
        "question": asked.text,
        "answer": asked.question.answer,
        "wanted": asked.question.read.form.wanted,
        "naming": asked.naming,
        "shown_s": asked.shown_s,
        "asked_s": asked.asked_s,
        "package_question": asked.question.number,
    }


def _write_pictures(pictures: Sequence[Picture], folder: Path) -> None:
    """Put the pictures into a folder by number; links where the file system has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, picture in _numbered(pictures, folder):
        path.unlink(missing_ok=True)
        try:
            os.link(picture.path, path)
        except OSError:
            shutil.copyfile(picture.path, path)


def _numbered(pictures: Sequence[Picture], folder: Path) -> Iterator[tuple[Path, Picture]]:
    for number, picture in enumerate(pictures):
        yield folder / _NUMBER.format(number), picture
