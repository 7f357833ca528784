"""The package easy-vqa as it lies on the disk: images, questions, and what answers tell of images.

What an image shows is taken from the package's own answers and from nothing else. Few images have
all of it said outright, so each keeps the shapes and the colours that its answers leave possible.
Opens no image.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hermes_like.easyvqa.questions import COLORS, SHAPES, ReadQuestion, read_question
from hermes_like.errors import DatasetError

Split = Literal["train", "test"]
MODULE: Final = "easy_vqa"


@dataclass(frozen=True, slots=True)
class PackageQuestion:
    """One question about one image.

    Attributes:
        number: Place in the file of its split, from 0.
        text: As the package has it.
        answer: As the package has it.
        read: What it asks.
    """

    number: int
    text: str
    answer: str
    read: ReadQuestion


@dataclass(frozen=True, slots=True)
class Picture:
    """One image.

    Attributes:
        image_id: Its number in its split.
        path: The PNG file.
        questions: Those of the package about it.
        shapes: Shapes that its answers leave possible.
        colors: Colours that its answers leave possible.
    """

    image_id: int
    path: Path
    questions: tuple[PackageQuestion, ...]
    shapes: frozenset[str]
    colors: frozenset[str]

    @property
    def kind(self) -> tuple[str, str] | None:
        """Shape and colour, if the answers tell both."""
        if len(self.shapes) != 1 or len(self.colors) != 1:
            return None
        return next(iter(self.shapes)), next(iter(self.colors))

    def may_show(self, word: str) -> bool:
        """Whether a shape or a colour is possible."""
        return word in self.shapes or word in self.colors


def package_folder(folder: Path | None = None) -> Path:
    """Where the package lies.

    Args:
        folder: A copy of it, or its folder ``data``; None: the installed one.

    Raises:
        DatasetError: It is not installed, or the folder is another one.
    """
    if folder is None:
        spec = importlib.util.find_spec(MODULE)
        if spec is None or spec.origin is None:
            raise DatasetError(
                "the package easy-vqa is not installed: expected it (pip install easy-vqa) "
                "or a copy of it, named by --package"
            )
        folder = Path(spec.origin).parent
    for data in (folder / "data", folder, folder / MODULE / "data"):
        if (data / "test" / "questions.json").is_file():
            return data
    raise DatasetError(f"{folder}: expected the package easy-vqa, found no test/questions.json")


def read_split(data: Path, split: Split) -> tuple[Picture, ...]:
    """All images of one split, by number.

    Args:
        data: As :func:`package_folder` gives it.
        split: Which one.

    Raises:
        DatasetError: A file is missing or is not as expected, or answers contradict each other.
    """
    by_image: dict[int, list[PackageQuestion]] = {}
    path = data / split / "questions.json"
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        for number, (text, answer, image_id) in enumerate(rows):
            asked = PackageQuestion(number, text, answer, read_question(text))
            by_image.setdefault(int(image_id), []).append(asked)
    except (OSError, ValueError, TypeError) as error:
        raise DatasetError(f"{path}: expected [question, answer, image] rows: {error}") from error
    return tuple(
        _picture(data / split / "images" / f"{image_id}.png", image_id, by_image[image_id])
        for image_id in sorted(by_image)
    )


def known_kinds(pictures: Iterable[Picture]) -> list[tuple[Picture, tuple[str, str]]]:
    """Images of which shape and colour are known, with both."""
    return [(picture, kind) for picture in pictures if (kind := picture.kind) is not None]


def _picture(path: Path, image_id: int, questions: Sequence[PackageQuestion]) -> Picture:
    if not path.is_file():
        raise DatasetError(f"{path}: expected an image, got nothing")
    possible = {
        (shape, color)
        for shape in SHAPES
        for color in COLORS
        if all(q.read.answer(shape, color) == q.answer for q in questions)
        and all(q.read.is_about(shape, color) for q in questions if q.read.form.wanted != "yes_no")
    }
    if not possible:
        raise DatasetError(f"{path}: the answers about this image contradict each other")
    shapes, colors = zip(*possible, strict=True)
    return Picture(image_id, path, tuple(questions), frozenset(shapes), frozenset(colors))
