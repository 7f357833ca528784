"""Long sprites streams with a few events that look like nothing else, and what to ask about them.

Every needle is asked about again and again while the stream goes on, so that one pass through one
stream measures all ages: asking does not change what is remembered. This module knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hermes_like.sprites.questions import TYPES, answer, render_question, types_of
from hermes_like.sprites.stories import Palette, draw_story, one_of, some_of
from hermes_like.sprites.templates import TEMPLATES
from hermes_like.sprites.world import (
    COLORS,
    DIGITS,
    HELD_OUT_PAIRS,
    SHAPES,
    ZONES,
    Event,
    Sprite,
    Story,
)

#: Frames before the first needle, and between one needle and the next.
LEAD_FRAMES = 32
BETWEEN_FRAMES = 24
NUM_NEEDLES = 4
NOW_TYPES = ("now_what", "now_where", "now_number")


@dataclass(frozen=True, slots=True)
class Needle:
    """An event whose shape, colour and number occur nowhere else in its stream.

    Attributes:
        sprite: Its only sprite.
        start_frame: First frame.
        end_frame: First frame after it.
        look_alikes: Two (shape, colour) pairs that never occur: its shape, and its colour, in
            other company.
    """

    sprite: Sprite
    start_frame: int
    end_frame: int
    look_alikes: tuple[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Query:
    """One question of known truth.

    Attributes:
        text: In words.
        truth: The right answer.
        type: One of the types of ``sprites/questions.py``.
    """

    text: str
    truth: str
    type: str


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of the stream at which one needle has a certain age.

    Attributes:
        frame: Frames seen so far.
        age: Frames since the needle's last.
        needle: Which needle.
        queries: What is asked, about the needle and about the present.
    """

    frame: int
    age: int
    needle: Needle
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class NeedleStream:
    """A story, its needles, and the moments of asking in order."""

    story: Story
    moments: tuple[Moment, ...]


def draw_stream(seed: int, index: int, ages: Sequence[int]) -> NeedleStream:
    """Draw stream ``index``: long enough for every needle to reach every age.

    Args:
        seed: Of the whole experiment.
        index: Of the stream.
        ages: In frames, ascending.
    """
    rng = np.random.default_rng([seed, index])
    sprites, palette = _draw_identities(rng)
    events: list[Event] = []
    needles: list[Needle] = []
    for number, sprite in enumerate(sprites):
        before = LEAD_FRAMES if number == 0 else BETWEEN_FRAMES + int(rng.integers(4))
        events += draw_story(rng, before, min_event_frames=2, palette=palette).events
        start = sum(event.num_frames for event in events)
        events.append(Event((sprite,), int(rng.integers(2, 5))))
        shape, color = one_of(rng, palette.kinds)
        needles.append(
            Needle(
                sprite,
                start,
                start + events[-1].num_frames,
                ((sprite.shape, color), (shape, sprite.color)),
            )
        )
    events += draw_story(rng, max(ages), min_event_frames=2, palette=palette).events
    story = Story(tuple(events))
    places = sorted(
        ((needle.end_frame + age, age, needle) for needle in needles for age in ages),
        key=lambda place: place[:2],
    )
    moments = [
        Moment(frame, age, needle, tuple(_queries(rng, story_until(story, frame), needle)))
        for frame, age, needle in places
    ]
    return NeedleStream(story, tuple(moments))


def _draw_identities(rng: np.random.Generator) -> tuple[list[Sprite], Palette]:
    """Needles that share no shape, colour or number, and a palette without any of these."""
    while True:
        shapes, colors = some_of(rng, SHAPES, NUM_NEEDLES), some_of(rng, COLORS, NUM_NEEDLES)
        kinds = list(zip(shapes, colors, strict=True))
        if not HELD_OUT_PAIRS.intersection(kinds):
            break
    digits = some_of(rng, DIGITS, NUM_NEEDLES)
    sprites = [
        Sprite(shape, color, one_of(rng, ZONES), digit)
        for (shape, color), digit in zip(kinds, digits, strict=True)
    ]
    fillers = tuple(
        (shape, color)
        for shape in SHAPES
        for color in COLORS
        if shape not in shapes and color not in colors and (shape, color) not in HELD_OUT_PAIRS
    )
    others = tuple(digit for digit in DIGITS if digit not in digits)
    return sprites, Palette(fillers, others, digit_share=0.5, pair_share=0.1)


def story_until(story: Story, num_frames: int) -> Story:
    """The first frames of a story, as a story."""
    events: list[Event] = []
    left = num_frames
    for event in story.events:
        if left <= 0:
            break
        events.append(Event(event.sprites, min(left, event.num_frames)))
        left -= event.num_frames
    return Story(tuple(events))


def _queries(rng: np.random.Generator, story: Story, needle: Needle) -> Iterator[Query]:
    """All recall types, "was there" for the needle and for its look-alikes, and the present."""
    sprite = needle.sprite
    slots = {"shape": sprite.shape, "color": sprite.color, "digit": str(sprite.digit)}
    asked = [(type, _slots_of(type, slots)) for type in types_of("recall")]
    asked += [("exists_pair", _slots_of("exists_pair", slots))] * 2
    asked += [
        ("exists_pair", {"shape": shape, "color": color}) for shape, color in needle.look_alikes
    ]
    asked += [(type, {}) for type in NOW_TYPES]
    for type, about in asked:
        truth = answer(story, type, about)
        if truth is not None:
            text = render_question(type, about, int(rng.integers(len(TEMPLATES[type]))))
            yield Query(text, truth, type)


def _slots_of(type: str, slots: dict[str, str]) -> dict[str, str]:
    """What a type's templates name; a recall question never names what it asks for."""
    template = TEMPLATES[type][0]
    return {key: value for key, value in slots.items() if "{" + key in template}


def group_of(query: Query) -> str:
    """``now``, ``recall``, ``exists_yes`` or ``exists_no``."""
    group = TYPES[query.type][0]
    return f"exists_{query.truth}" if group == "exists" else group
