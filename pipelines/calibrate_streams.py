"""Streams with planted events for calibration, and the questions that should find them.

This module knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hermes_like.sprites.questions import render_question
from hermes_like.sprites.render import PAIR_ZONES
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

NUM_PLANTED = 4
#: The first ones share no shape and no colour with anything else; the others share both, with
#: many frames each, so that only the pair of them tells.
NUM_UNIQUE = 2
#: What can be asked about an event of which only the pair and the number are its own.
PAIR_TYPES = ("recall_number", "recall_where", "recall_object", "exists_pair")
#: Share of planted events with a second, common sprite beside the planted one.
COMPANY_SHARE = 0.3
RECALL_TYPES = ("recall_color", "recall_number", "recall_where", "recall_object", "exists_pair")
NOW_TYPES = ("now_what", "now_shape", "now_color", "now_where", "now_number")
#: Frames that a planted event must be past before it is asked about.
MIN_AGE_FRAMES = 24
#: Times in a stream at which questions are asked, evenly spread.
NUM_MOMENTS = 8


@dataclass(frozen=True, slots=True)
class Planted:
    """An event whose pair of shape and colour, and whose number, occur nowhere else in its stream.

    Attributes:
        sprite: What makes it findable.
        start_frame: First frame.
        end_frame: First frame after it.
        has_company: Whether a common sprite shares its frames.
        is_unique: Whether shape and colour are its own, each on its own.
    """

    sprite: Sprite
    start_frame: int
    end_frame: int
    has_company: bool
    is_unique: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """One question.

    Attributes:
        frame: Frames seen when it is asked.
        text: In words.
        type: One of ``RECALL_TYPES`` or ``NOW_TYPES``.
        planted: What it is about; None for the present.
    """

    frame: int
    text: str
    type: str
    planted: Planted | None


@dataclass(frozen=True, slots=True)
class PlantedStream:
    """A story and its questions in order."""

    story: Story
    asked: tuple[Asked, ...]


def draw_planted_stream(seed: int, index: int, num_frames: int) -> PlantedStream:
    """Draw stream ``index``: one planted event somewhere in each of equal parts of the stream.

    Args:
        seed: Of the whole experiment.
        index: Of the stream.
        num_frames: Length of the stream, at least 64.
    """
    rng = np.random.default_rng([seed, index])
    sprites, palette = _identities(rng)
    part_frames = num_frames // NUM_PLANTED
    events: list[Event] = []
    planted: list[Planted] = []
    for number, sprite in enumerate(sprites):
        length = int(rng.integers(2, 5))
        before = int(rng.integers(2, part_frames - length - 2))
        shown = (sprite,)
        if rng.random() < COMPANY_SHARE:
            shown = _with_company(rng, sprite, palette)
        start = number * part_frames + before
        planted.append(
            Planted(shown[0], start, start + length, len(shown) > 1, number < NUM_UNIQUE)
        )
        after = part_frames - before - length
        events += draw_story(rng, before, min_event_frames=2, palette=palette).events
        events.append(Event(shown, length))
        events += draw_story(rng, after, min_event_frames=2, palette=palette).events
    moments = [
        part_frames * NUM_PLANTED * (number + 1) // NUM_MOMENTS - int(rng.integers(4))
        for number in range(NUM_MOMENTS)
    ]
    return PlantedStream(Story(tuple(events)), tuple(_questions(rng, moments, planted)))


def _questions(
    rng: np.random.Generator, moments: Sequence[int], planted: Sequence[Planted]
) -> Iterator[Asked]:
    """At each moment all recall types about each event that is past, and the present."""
    for frame in moments:
        for event in planted:
            if event.end_frame + MIN_AGE_FRAMES <= frame:
                sprite = event.sprite
                slots = {"shape": sprite.shape, "color": sprite.color, "digit": str(sprite.digit)}
                for type in RECALL_TYPES if event.is_unique else PAIR_TYPES:
                    yield Asked(frame, _words(rng, type, slots), type, event)
        for type in NOW_TYPES:
            yield Asked(frame, _words(rng, type, {}), type, None)


def _words(rng: np.random.Generator, type: str, slots: dict[str, str]) -> str:
    return render_question(type, slots, int(rng.integers(len(TEMPLATES[type]))))


def _identities(rng: np.random.Generator) -> tuple[list[Sprite], Palette]:
    """Sprites that share no shape, colour or number, and a palette without what is their own."""
    while True:
        shapes, colors = some_of(rng, SHAPES, NUM_PLANTED), some_of(rng, COLORS, NUM_PLANTED)
        if not HELD_OUT_PAIRS.intersection(zip(shapes, colors, strict=True)):
            break
    digits = some_of(rng, DIGITS, NUM_PLANTED)
    sprites = [
        Sprite(shape, color, one_of(rng, ZONES), digit)
        for shape, color, digit in zip(shapes, colors, digits, strict=True)
    ]
    taken = {*HELD_OUT_PAIRS, *zip(shapes, colors, strict=True)}
    kinds = tuple(
        (shape, color)
        for shape in SHAPES
        for color in COLORS
        if shape not in shapes[:NUM_UNIQUE]
        and color not in colors[:NUM_UNIQUE]
        and (shape, color) not in taken
    )
    others = tuple(digit for digit in DIGITS if digit not in digits)
    return sprites, Palette(kinds, others, digit_share=0.5, pair_share=0.1)


def _with_company(
    rng: np.random.Generator, sprite: Sprite, palette: Palette
) -> tuple[Sprite, Sprite]:
    """The sprite and a common one, in zones that do not collide."""
    zones = some_of(rng, one_of(rng, PAIR_ZONES), 2)
    shape, color = one_of(rng, palette.kinds)
    digit = one_of(rng, palette.digits) if rng.random() < palette.digit_share else None
    return replace(sprite, zone=zones[0]), Sprite(shape, color, zones[1], digit)
