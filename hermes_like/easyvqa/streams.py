"""Streams of easy-VQA images at one per second, and when which question is asked about them.

The package has one image per question and 24 kinds of images, so in a stream most questions would
fit many images. A stream therefore plants a few images whose shape or colour is shown by no other
image before the question, and leaves two colours out altogether. True answers are the package's
own. Knows the package; opens no image and knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import numpy as np

from hermes_like.easyvqa.package import PackageQuestion, Picture
from hermes_like.easyvqa.questions import COLORS, SHAPES
from hermes_like.errors import DatasetError

T = TypeVar("T")

#: How a question names its image: it is the newest one; by what it shows; by when it was shown.
Naming = Literal["now", "content", "time"]

#: Colours that planted images have alone, and colours that no image of a stream may have.
NUM_PLANTED_COLORS: Final = 3
NUM_ABSENT_COLORS: Final = 2
#: Planted images come within so many seconds from the beginning.
PLANTED_BEFORE_S: Final = 24
#: Images shown before the first planted one.
FIRST_S: Final = 2


@dataclass(frozen=True, slots=True)
class StreamQuestion:
    """One question about one image of a stream. Times are whole seconds: one image each.

    Attributes:
        question: The package's question.
        text: As it is asked.
        naming: How it names its image.
        shown_s: When the image was shown.
        asked_s: When it is asked; the image of this second is the newest that may be seen.
    """

    question: PackageQuestion
    text: str
    naming: Naming
    shown_s: int
    asked_s: int

    @property
    def later(self) -> int:
        """How many images were shown after the one that is asked about."""
        return self.asked_s - self.shown_s


@dataclass(frozen=True, slots=True)
class Stream:
    """Images in the order in which they are shown, and the questions in the order of asking."""

    name: str
    pictures: tuple[Picture, ...]
    questions: tuple[StreamQuestion, ...]


def is_decided(shown: Sequence[Picture], place: int, question: PackageQuestion) -> bool:
    """Whether a question in the past tense can only be about one image, or about none.

    Args:
        shown: Everything shown until it is asked.
        place: Of the image that it is about.
        question: With a wording in the past tense.

    Returns:
        True if no other image may show the shape or the colour that the question names. An image
        may show whatever the package's answers about it leave possible.
    """
    word = question.read.shape or question.read.color
    if question.read.form.past is None or word is None:
        return False
    return not any(other.may_show(word) for i, other in enumerate(shown) if i != place)


def draw_memory_stream(
    name: str,
    pictures: Sequence[Picture],
    rng: np.random.Generator,
    later: Sequence[int],
) -> Stream:
    """A stream with planted images that are asked about again and again.

    At each number of images later, every planted image is asked about by what it shows and by when
    it was shown, each with one question that begins with "what" and one answered by yes or no. At
    each of these times the newest image is asked about as well, in the package's words.

    Args:
        name: Of the stream.
        pictures: Of one split.
        rng: Source of everything that is drawn.
        later: Numbers of images between an image and a question about it, each at least 1.

    Raises:
        DatasetError: ``later`` is empty or holds less than 1, or too few images are known.
    """
    if not later or min(later) < 1:
        raise DatasetError(f"expected how many images later to ask, each at least 1; got {later}")
    planted, fillers = _cast(pictures, rng)
    places = FIRST_S + rng.permutation(PLANTED_BEFORE_S - FIRST_S)[: len(planted)]
    length = int(places.max()) + max(later) + 1
    shown = [fillers[int(i)] for i in rng.integers(len(fillers), size=length)]
    for place, picture in zip(places.tolist(), planted, strict=True):
        shown[place] = picture
    questions: list[StreamQuestion] = []
    for place in sorted(places.tolist()):
        for count in sorted(set(later)):
            asked_s = place + count
            questions += _by_content(shown[: asked_s + 1], place, rng)
            questions += _by_time(shown, place, asked_s, rng)
            questions += _newest(shown, asked_s, rng)
    # Two planted images may lead to the same question about the newest image.
    kept = {(q.naming, q.question.number, q.asked_s, q.shown_s): q for q in questions}
    ordered = sorted(kept.values(), key=lambda q: q.asked_s)
    return Stream(name, tuple(shown), tuple(ordered))


def now_streams(
    pictures: Sequence[Picture], rng: np.random.Generator, images_per_stream: int
) -> Iterator[Stream]:
    """Every image of a split once, in random order, each asked all its questions while shown.

    Args:
        pictures: Of one split.
        rng: Source of the order.
        images_per_stream: At least 1; the last stream may be shorter.
    """
    order = rng.permutation(len(pictures)).tolist()
    for number, start in enumerate(range(0, len(order), images_per_stream)):
        shown = tuple(pictures[i] for i in order[start : start + images_per_stream])
        yield Stream(
            f"now-{number:03}",
            shown,
            tuple(
                StreamQuestion(question, question.text, "now", place, place)
                for place, picture in enumerate(shown)
                for question in picture.questions
            ),
        )


def _cast(
    pictures: Sequence[Picture], rng: np.random.Generator
) -> tuple[list[Picture], list[Picture]]:
    """Images to plant, and images that may fill the stream."""
    own_shape, *other_shapes = rng.permutation(SHAPES).tolist()
    colors = rng.permutation(COLORS).tolist()
    own_colors = colors[:NUM_PLANTED_COLORS]
    absent = colors[NUM_PLANTED_COLORS : NUM_PLANTED_COLORS + NUM_ABSENT_COLORS]
    common = colors[NUM_PLANTED_COLORS + NUM_ABSENT_COLORS :]
    wanted = [(own_shape, (own_shape,), common)]
    wanted += [(color, tuple(other_shapes), [color]) for color in own_colors]
    planted = []
    for word, shapes, allowed in wanted:
        fitting = [p for p in pictures if p.kind and p.kind[0] in shapes and p.kind[1] in allowed]
        if not fitting:
            raise DatasetError(f"no image is known to show {shapes} in {allowed}")
        most = max(_num_ways(picture, word, absent) for picture in fitting)
        best = [p for p in fitting if _num_ways(p, word, absent) == most]
        planted.append(_one(rng, best))
    taken = (own_shape, *own_colors, *absent)
    fillers = [p for p in pictures if not any(p.may_show(word) for word in taken)]
    if not fillers:
        raise DatasetError(f"no image is known to show nothing of {', '.join(taken)}")
    return planted, fillers


def _num_ways(picture: Picture, word: str, absent: Sequence[str]) -> int:
    """In how many of three ways the package asks about an image that alone shows a word.

    The ways: what the other attribute is, whether the word is there, whether an absent colour is.
    """
    past = [q.read for q in picture.questions if q.read.form.past is not None]
    named = [read for read in past if word in (read.shape, read.color)]
    return (
        any(read.form.wanted != "yes_no" for read in named)
        + any(read.form.wanted == "yes_no" for read in named)
        + any(read.color in absent for read in past)
    )


def _by_content(
    shown: Sequence[Picture], place: int, rng: np.random.Generator
) -> Iterator[StreamQuestion]:
    """One what-question and one yes-no question, if there are any that only fit this image.

    Of the latter those whose thing was shown and those whose thing was not come equally often.
    """
    found = [q for q in shown[place].questions if is_decided(shown, place, q)]
    groups = [[q for q in found if q.read.form.wanted != "yes_no"]]
    yes_no = [q for q in found if q.read.form.wanted == "yes_no"]
    halves = [[q for q in yes_no if _is_shown(q) == is_shown] for is_shown in (True, False)]
    groups.append(_one(rng, [half for half in halves if half] or [[]]))
    for group in groups:
        if group:
            question = _one(rng, group)
            text = question.read.past_text
            assert text is not None, "is_decided has looked"
            yield StreamQuestion(question, text, "content", place, len(shown) - 1)


def _is_shown(question: PackageQuestion) -> bool:
    """Whether the thing that a yes-no question names is in its image."""
    return (question.answer == "yes") != question.read.form.is_negated


def _by_time(
    shown: Sequence[Picture], place: int, asked_s: int, rng: np.random.Generator
) -> Iterator[StreamQuestion]:
    for question in _one_of_each(shown[place], rng):
        yield StreamQuestion(question, question.read.timed_text(place), "time", place, asked_s)


def _newest(
    shown: Sequence[Picture], asked_s: int, rng: np.random.Generator
) -> Iterator[StreamQuestion]:
    for question in _one_of_each(shown[asked_s], rng):
        yield StreamQuestion(question, question.text, "now", asked_s, asked_s)


def _one_of_each(picture: Picture, rng: np.random.Generator) -> Iterator[PackageQuestion]:
    """One question that begins with "what" and one answered by yes or no, if there are any."""
    for is_yes_no in (False, True):
        group = [q for q in picture.questions if (q.read.form.wanted == "yes_no") == is_yes_no]
        if group:
            yield _one(rng, group)


def _one(rng: np.random.Generator, items: Sequence[T]) -> T:
    return items[int(rng.integers(len(items)))]
