"""The questions of easy-VQA: what each asks, and how it is asked when its image is past.

The package knows 8 questions that begin with "what" and 8 that are answered by yes or no, the
latter about a shape or about a colour. A past image is named either by what it shows ("what color
was the triangle?") or by when it was shown ("... shown at 12:34?"). Knows words only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from hermes_like.errors import DatasetError

SHAPES: Final = ("circle", "rectangle", "triangle")
COLORS: Final = ("red", "green", "blue", "black", "gray", "teal", "brown", "yellow")
YES_NO: Final = ("yes", "no")

#: What a question wants to know.
Wanted = Literal["shape", "color", "yes_no"]


@dataclass(frozen=True, slots=True)
class Form:
    """One way of asking.

    Attributes:
        present: About the image that is shown; ``{shape}``, ``{color}`` or ``{thing}`` is named.
        past: About a past image that is known by what is named; None: nothing is named.
        timed: About the image that was shown at ``{time}``.
        wanted: What it asks for.
        is_negated: Whether yes means that the thing is not there.
    """

    present: str
    past: str | None
    timed: str
    wanted: Wanted
    is_negated: bool = False


FORMS: Final = (
    Form(
        "what color is the {shape}?",
        "what color was the {shape}?",
        "what color was the {shape} shown at {time}?",
        "color",
    ),
    Form(
        "what is the color of the {shape}?",
        "what was the color of the {shape}?",
        "what was the color of the {shape} shown at {time}?",
        "color",
    ),
    Form(
        "what is the {color} shape?",
        "what was the {color} shape?",
        "what was the {color} shape shown at {time}?",
        "shape",
    ),
    Form("what color is the shape?", None, "what color was the shape shown at {time}?", "color"),
    Form(
        "what is the color of the shape?",
        None,
        "what was the color of the shape shown at {time}?",
        "color",
    ),
    Form(
        "what shape does the image contain?",
        None,
        "what shape did the image shown at {time} contain?",
        "shape",
    ),
    Form(
        "what shape is in the image?", None, "what shape was in the image shown at {time}?", "shape"
    ),
    Form("what shape is present?", None, "what shape was present at {time}?", "shape"),
    Form(
        "does the image contain a {thing}?",
        "did the images contain a {thing}?",
        "did the image shown at {time} contain a {thing}?",
        "yes_no",
    ),
    Form(
        "does the image not contain a {thing}?",
        "did the images not contain a {thing}?",
        "did the image shown at {time} not contain a {thing}?",
        "yes_no",
        is_negated=True,
    ),
    Form(
        "is a {thing} present?",
        "was a {thing} present?",
        "was a {thing} present at {time}?",
        "yes_no",
    ),
    Form(
        "is no {thing} present?",
        "was no {thing} present?",
        "was no {thing} present at {time}?",
        "yes_no",
        is_negated=True,
    ),
    Form(
        "is there a {thing} in the image?",
        "was there a {thing} in the images?",
        "was there a {thing} in the image shown at {time}?",
        "yes_no",
    ),
    Form("is there a {thing}?", "was there a {thing}?", "was there a {thing} at {time}?", "yes_no"),
    Form(
        "is there not a {thing} in the image?",
        "was there not a {thing} in the images?",
        "was there not a {thing} in the image shown at {time}?",
        "yes_no",
        is_negated=True,
    ),
    Form(
        "is there not a {thing}?",
        "was there not a {thing}?",
        "was there not a {thing} at {time}?",
        "yes_no",
        is_negated=True,
    ),
)


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """A question of the package, understood.

    Attributes:
        form: How it is asked.
        shape: The shape that it names; None: none.
        color: The colour that it names; None: none.
    """

    form: Form
    shape: str | None = None
    color: str | None = None

    @property
    def present_text(self) -> str:
        """As the package asks about the image that is shown."""
        return self._filled(self.form.present)

    @property
    def past_text(self) -> str | None:
        """In the past tense, the image known by what is named; None: nothing is named."""
        return None if self.form.past is None else self._filled(self.form.past)

    def timed_text(self, at_s: int) -> str:
        """In the past tense, the image known by when it was shown.

        Args:
            at_s: Stream time in whole seconds.
        """
        return self._filled(self.form.timed).replace("{time}", clock_text(at_s))

    @property
    def timeless_text(self) -> str:
        """What is left of :meth:`timed_text` without its time."""
        return without_time(self._filled(self.form.timed).replace("{time}", clock_text(0)))

    def is_about(self, shape: str, color: str) -> bool:
        """Whether an image shows what the question names."""
        return self.shape in (None, shape) and self.color in (None, color)

    def answer(self, shape: str, color: str) -> str:
        """The true answer for an image that shows this."""
        if self.form.wanted == "shape":
            return shape
        if self.form.wanted == "color":
            return color
        return "yes" if self.is_about(shape, color) != self.form.is_negated else "no"

    def _filled(self, text: str) -> str:
        thing = self.shape if self.color is None else f"{self.color} shape"
        for name, word in (("shape", self.shape), ("color", self.color), ("thing", thing)):
            text = text.replace(f"{{{name}}}", word or "")
        return text


@cache
def read_question(text: str) -> ReadQuestion:
    """Understand a question of the package.

    Raises:
        DatasetError: It is asked in no way that is known.
    """
    for pattern, form in _patterns():
        match = pattern.fullmatch(text.strip())
        if match is not None:
            named = match.groupdict()
            return ReadQuestion(form, named.get("shape"), named.get("color"))
    raise DatasetError(f"expected a question of the package easy-vqa, got {text!r}")


def clock_text(at_s: int) -> str:
    """Stream time as the questions write it: ``mm:ss``, from an hour on ``h:mm:ss``."""
    hours, rest = divmod(at_s, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def without_time(text: str) -> str:
    """A question without the time that names its image."""
    return re.sub(r"\s*(?:\bshown\b)?\s*\bat \d+(?::\d\d)+", "", text)


def in_present(text: str) -> str:
    """A question about a past image as it is asked while only that image is shown."""
    words = [
        _PRESENT.get(word, word) for word in without_time(text).lower().split() if word != "shown"
    ]
    return re.sub(r"\bshown\b\s*", "", " ".join(words)).replace(" ?", "?")


_PRESENT: Final = {"was": "is", "were": "is", "did": "does", "images": "image"}


@cache
def _patterns() -> list[tuple[re.Pattern[str], Form]]:
    shape, color = f"(?P<shape>{'|'.join(SHAPES)})", f"(?P<color>{'|'.join(COLORS)})"
    found = []
    for form in FORMS:
        # A thing is a shape or a colour; the two are tried one after the other.
        for thing in (shape, f"{color} shape") if "{thing}" in form.present else ("",):
            text = re.escape(form.present)
            for name, words in (("shape", shape), ("color", color), ("thing", thing)):
                text = text.replace(rf"\{{{name}\}}", words)
            found.append((re.compile(text), form))
    return found
