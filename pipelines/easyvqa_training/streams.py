"""Training streams: which pictures are shown, and questions whose answers they decide.

A stream is drawn from a few shapes and colours; some pictures are planted whose shape or colour is
otherwise not shown. Questions are the package's own, in its words about the newest picture and in
the past tense about earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hermes_like.easyvqa.questions import COLORS, FORMS, SHAPES, Form, ReadQuestion
from hermes_like.sprites.stories import one_of, some_of
from pipelines.easyvqa_training.words import encode

Kind = tuple[str, str]

#: Share of questions about the newest picture; of those that name nothing, how many in the words
#: that remain of a question whose time was cut out ("what shape was in the image?").
NOW_SHARE, TIMELESS_SHARE = 0.45, 0.2
#: What yes-no questions about the newest picture name: what it shows, what was shown before, or
#: anything.
NAMED_SHARES = (0.4, 0.45, 0.15)
#: Of the others, how many are answered by yes or no.
YES_NO_SHARE = 0.5
MAX_PLANTED = 3


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """One question about a stream.

    Attributes:
        group: ``now``, ``what`` or ``yes_no``.
        text: In words.
        answer: One word.
        named: Words of the text that name a shape or a colour.
        evidence: Frames that decide the answer; none if nothing fits.
    """

    group: str
    text: str
    answer: str
    named: tuple[str, ...]
    evidence: tuple[int, ...]


def draw_kinds(rng: np.random.Generator, num_frames: int) -> list[Kind]:
    """Draw what each frame of a stream shows."""
    shapes = some_of(rng, SHAPES, int(rng.choice([1, 2, 3], p=[0.15, 0.5, 0.35])))
    colors = some_of(rng, COLORS, int(rng.integers(2, len(COLORS) + 1)))
    kinds = [(one_of(rng, shapes), one_of(rng, colors)) for _ in range(num_frames)]
    for _ in range(int(rng.integers(MAX_PLANTED + 1))):
        free_shapes = [s for s in SHAPES if all(s != shape for shape, _ in kinds)]
        free_colors = [c for c in COLORS if all(c != color for _, color in kinds)]
        wants_shape = bool(free_shapes) and rng.random() < 0.5
        if not wants_shape and not free_colors:
            break
        shape = one_of(rng, free_shapes if wants_shape else shapes)
        color = one_of(rng, free_colors if free_colors and rng.random() < 0.7 else colors)
        if not wants_shape and color not in free_colors:
            color = one_of(rng, free_colors)
        kinds[int(rng.integers(num_frames))] = (shape, color)
    return kinds


def draw_questions(
    rng: np.random.Generator, kinds: Sequence[Kind], seen: Sequence[int]
) -> Iterator[AskedQuestion]:
    """Draw questions without end that the frames still seen answer as the whole stream does.

    Args:
        rng: Source of randomness.
        kinds: What each frame shows.
        seen: Frames of which a token is left; the newest is among them.
    """
    present, past = list(FORMS), [form for form in FORMS if form.past is not None]
    past_what = [form for form in past if form.wanted != "yes_no"]
    past_yes_no = [form for form in past if form.wanted == "yes_no"]
    while True:
        luck = rng.random()
        if luck < NOW_SHARE:
            yield _about_newest(rng, kinds, one_of(rng, present))
            continue
        is_yes_no = rng.random() < YES_NO_SHARE
        form = one_of(rng, past_yes_no if is_yes_no else past_what)
        asked = _about_past(rng, kinds, seen, form)
        if asked is not None:
            yield asked


def _about_newest(rng: np.random.Generator, kinds: Sequence[Kind], form: Form) -> AskedQuestion:
    shape, color = kinds[-1]
    if form.wanted == "yes_no":
        earlier = kinds[int(rng.integers(len(kinds)))]
        anything = one_of(rng, SHAPES), one_of(rng, COLORS)
        choices = (kinds[-1], earlier, anything)
        named_shape, named_color = choices[int(rng.choice(3, p=NAMED_SHARES))]
        is_shape = rng.random() < 0.5
        read = ReadQuestion(
            form, named_shape if is_shape else None, None if is_shape else named_color
        )
    else:
        read = ReadQuestion(
            form,
            shape if "{shape}" in form.present else None,
            color if "{color}" in form.present else None,
        )
    text = read.present_text
    if form.past is None and rng.random() < TIMELESS_SHARE:
        text = read.timeless_text
    return AskedQuestion("now", text, read.answer(shape, color), _named(read), (len(kinds) - 1,))


def _about_past(
    rng: np.random.Generator, kinds: Sequence[Kind], seen: Sequence[int], form: Form
) -> AskedQuestion | None:
    """A question about some frame, or, by yes or no, about something that was never shown."""
    whole, left = list(kinds), [kinds[frame] for frame in seen]
    shape, color = _rare(rng, left)
    if form.wanted != "yes_no":
        read = ReadQuestion(
            form,
            shape if "{shape}" in form.present else None,
            color if "{color}" in form.present else None,
        )
        answers = {read.answer(*kind) for kind in whole if read.is_about(*kind)}
        if len(answers) != 1:
            return None
        answer = answers.pop()
    else:
        is_shape = rng.random() < 0.4
        if rng.random() < 0.5:
            absent = [
                word
                for place, words in enumerate((SHAPES, COLORS))
                if (place == 0) == is_shape
                for word in words
                if all(word != kind[place] for kind in whole)
            ]
            if not absent:
                return None
            shape = color = one_of(rng, absent)
        read = ReadQuestion(form, shape if is_shape else None, None if is_shape else color)
        is_there = any(read.is_about(*kind) for kind in left)
        if is_there != any(read.is_about(*kind) for kind in whole):
            return None
        answer = "yes" if is_there != form.is_negated else "no"
    evidence = tuple(frame for frame in seen if read.is_about(*kinds[frame]))
    group = "yes_no" if form.wanted == "yes_no" else "what"
    text = read.past_text
    assert text is not None
    return AskedQuestion(group, text, answer, _named(read), evidence)


def _rare(rng: np.random.Generator, kinds: Sequence[Kind]) -> Kind:
    """A kind that is shown; one that is shown once as likely as one that is shown often."""
    found = sorted(set(kinds))
    return found[int(rng.integers(len(found)))]


def _named(read: ReadQuestion) -> tuple[str, ...]:
    return tuple(word for word in (read.shape, read.color) if word is not None)


def question_ids(asked: AskedQuestion, *, has_mark: bool) -> list[int]:
    """Token ids of a question, with or without its question mark."""
    ids = encode(asked.text)
    return ids if has_mark else ids[:-1]
