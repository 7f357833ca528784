"""Streams of hours with a few dozen events that can be asked about at every age.

A handful of (shape, colour) pairs are kept for planted events, each shown once; some of these have
a shape, a colour and a number that nothing else has. Everything else shares shapes and colours with
them, and further pairs never occur: look-alikes that must be denied. All needles lie near the
beginning, so that one pass through the stream measures all ages. This module knows no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from hermes_like.sprites.questions import answer, render_question
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
from pipelines.needles import BETWEEN_FRAMES, LEAD_FRAMES, NOW_TYPES, Moment, Needle, Query

#: Needles of which shape, colour and number are their own.
NUM_UNIQUE = 2
#: Pairs of each common shape that fill the stream, and that never occur.
FILLER_PAIRS, ABSENT_PAIRS = 2, 1
#: Wordings of each question about a pair.
WORDINGS = 2
#: Types that need a shape, a colour or a number of the needle's own.
UNIQUE_TYPES = (
    "recall_color",
    "recall_shape",
    "recall_number_of_shape",
    "recall_where_of_shape",
    "recall_object",
)
PAIR_TYPES = ("recall_number", "recall_where")

Kind = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LongStream:
    """A story, its needles in order, and the moments of asking in order."""

    story: Story
    needles: tuple[Needle, ...]
    moments: tuple[Moment, ...]


@dataclass(frozen=True, slots=True)
class Cast:
    """Who may appear in a stream.

    Attributes:
        unique: Sprites of which nothing is shared.
        paired: Sprites of which the pair of shape and colour is not shared.
        palette: Of everything else.
        absent: Pairs that never occur though their shape and colour do.
    """

    unique: tuple[Sprite, ...]
    paired: tuple[Sprite, ...]
    palette: Palette
    absent: tuple[Kind, ...]


def draw_cast(rng: np.random.Generator) -> Cast:
    """Deal shapes, colours and numbers out to needles, filler and what never occurs."""
    while True:
        shapes, colors = some_of(rng, SHAPES, len(SHAPES)), some_of(rng, COLORS, len(COLORS))
        kinds = list(zip(shapes[:NUM_UNIQUE], colors[:NUM_UNIQUE], strict=True))
        if not HELD_OUT_PAIRS.intersection(kinds):
            break
    digits = some_of(rng, DIGITS, len(DIGITS))
    unique = tuple(
        Sprite(shape, color, one_of(rng, ZONES), digit)
        for (shape, color), digit in zip(kinds, digits, strict=False)
    )
    common = digits[NUM_UNIQUE:]
    filler: list[Kind] = []
    paired: list[Sprite] = []
    absent: list[Kind] = []
    for shape in shapes[NUM_UNIQUE:]:
        free = [c for c in colors[NUM_UNIQUE:] if (shape, c) not in HELD_OUT_PAIRS]
        free = list(some_of(rng, free, len(free)))
        filler += [(shape, color) for color in free[:FILLER_PAIRS]]
        absent += [(shape, color) for color in free[FILLER_PAIRS : FILLER_PAIRS + ABSENT_PAIRS]]
        paired += [
            Sprite(shape, color, one_of(rng, ZONES), one_of(rng, common))
            for color in free[FILLER_PAIRS + ABSENT_PAIRS :]
        ]
    palette = Palette(tuple(filler), common, digit_share=0.5, pair_share=0.1)  # type: ignore[arg-type]
    return Cast(unique, some_of(rng, paired, len(paired)), palette, tuple(absent))


def draw_long_stream(seed: int, index: int, ages: Sequence[int], num_needles: int) -> LongStream:
    """Draw stream ``index``: long enough for every needle to reach every age.

    Args:
        seed: Of the whole experiment.
        index: Of the stream.
        ages: In frames, ascending.
        num_needles: At most so many needles; those with nothing shared come first.
    """
    rng = np.random.default_rng([seed, index])
    cast = draw_cast(rng)
    sprites = [*cast.unique, *cast.paired][:num_needles]
    events: list[Event] = []
    needles: list[Needle] = []
    seen = 0
    for number, sprite in enumerate(some_of(rng, sprites, len(sprites))):
        before = LEAD_FRAMES if number == 0 else BETWEEN_FRAMES + int(rng.integers(4))
        events += draw_story(rng, before, min_event_frames=2, palette=cast.palette).events
        length = int(rng.integers(2, 5))
        events.append(Event((sprite,), length))
        start = seen + before
        seen = start + length
        needles.append(Needle(sprite, start, seen, _look_alikes(rng, sprite, cast)))
    events += draw_story(rng, max(ages), min_event_frames=2, palette=cast.palette).events
    story = Story(tuple(events))
    ends = list(accumulate(event.num_frames for event in events))
    places = sorted(
        ((needle.end_frame + age, age, needle) for needle in needles for age in ages),
        key=lambda place: place[:2],
    )
    moments = tuple(
        Moment(frame, age, needle, tuple(_queries(rng, _shown(events, ends, frame), needle, cast)))
        for frame, age, needle in places
    )
    return LongStream(story, tuple(needles), moments)


def is_unique(sprite: Sprite, cast: Cast) -> bool:
    """Whether shape, colour and number are the sprite's own."""
    return sprite in cast.unique


def _look_alikes(rng: np.random.Generator, sprite: Sprite, cast: Cast) -> tuple[Kind, Kind]:
    """A pair with the sprite's shape and one with its colour, neither of which ever occurs."""
    if is_unique(sprite, cast):
        shape, color = one_of(rng, cast.palette.kinds)
        return (sprite.shape, color), (shape, sprite.color)
    same_shape = [kind for kind in cast.absent if kind[0] == sprite.shape]
    others = [kind for kind in cast.absent if kind[0] != sprite.shape]
    same_color = [kind for kind in others if kind[1] == sprite.color]
    return one_of(rng, same_shape), one_of(rng, same_color or others)


def _shown(events: Sequence[Event], ends: Sequence[int], frame: int) -> Story:
    """What the newest of ``frame`` frames shows, as a story of one event."""
    return Story((events[int(np.searchsorted(ends, frame, side="left"))],))


def _queries(rng: np.random.Generator, now: Story, needle: Needle, cast: Cast) -> Iterator[Query]:
    """About the needle, about its look-alikes, and about the present."""
    sprite = needle.sprite
    pair = {"shape": sprite.shape, "color": sprite.color}
    truths = {
        "recall_number": str(sprite.digit),
        "recall_number_of_shape": str(sprite.digit),
        "recall_where": sprite.zone,
        "recall_where_of_shape": sprite.zone,
        "recall_color": sprite.color,
        "recall_shape": sprite.shape,
        "recall_object": f"{sprite.color} {sprite.shape}",
    }
    slots = {**pair, "digit": str(sprite.digit)}
    asked: list[tuple[str, dict[str, str], str]] = []
    for type in PAIR_TYPES:
        asked += [(type, pair, truths[type])] * WORDINGS
    if is_unique(sprite, cast):
        asked += [(type, slots, truths[type]) for type in UNIQUE_TYPES]
    shape, color = one_of(rng, needle.look_alikes)
    asked.append(("exists_pair", pair, "yes"))
    asked.append(("exists_pair", {"shape": shape, "color": color}, "no"))
    for type in NOW_TYPES:
        truth = answer(now, type, {})
        if truth is not None:
            asked.append((type, {}, truth))
    wordings: dict[str, list[int]] = {}
    for type, about, truth in asked:
        if not wordings.get(type):
            wordings[type] = list(some_of(rng, range(len(TEMPLATES[type])), len(TEMPLATES[type])))
        yield Query(render_question(type, about, wordings[type].pop()), truth, type)
