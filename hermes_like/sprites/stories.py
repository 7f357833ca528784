"""Drawing scripted streams: which sprites appear when, and how often they come back.

Everything here is a pure function of a random generator. The module knows neither pixels
(``render.py``) nor words (``questions.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from hermes_like.sprites.render import PAIR_ZONES
from hermes_like.sprites.world import (
    COLORS,
    DIGITS,
    HELD_OUT_PAIRS,
    SHAPES,
    ZONES,
    Color,
    Event,
    Shape,
    Sprite,
    Story,
)

T = TypeVar("T")
Kind = tuple[Shape, Color]

EMPTY_SHARE = 0.2
#: Share of events with two sprites, in the streams that have such events at all.
PAIR_SHARE = 0.2
PAIR_STREAM_SHARE = 0.6
MAX_EVENT_FRAMES = 4
#: In a look-alike stream, share of events that have the shape or the colour asked about.
LOOK_ALIKE_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Palette:
    """What one stream may show.

    Attributes:
        kinds: Allowed (shape, colour) pairs.
        digits: Allowed numbers.
        digit_share: Probability that a sprite carries a number.
        pair_share: Probability that an event shows two sprites.
    """

    kinds: tuple[Kind, ...]
    digits: tuple[int, ...]
    digit_share: float
    pair_share: float


@dataclass(frozen=True, slots=True)
class NeedleStory:
    """A long stream with one event that looks like nothing else in it.

    Attributes:
        story: The stream.
        event_index: Where the event is in ``story.events``.
        sprite: Its only sprite; its shape, its colour and its number occur nowhere else.
        age_frames: Frames that follow the event's last frame.
    """

    story: Story
    event_index: int
    sprite: Sprite
    age_frames: int


def one_of(rng: np.random.Generator, items: Sequence[T]) -> T:
    """Return one of the items, each equally likely."""
    return items[int(rng.integers(len(items)))]


def some_of(rng: np.random.Generator, items: Sequence[T], count: int) -> tuple[T, ...]:
    """Return ``count`` different items in random order."""
    return tuple(items[int(i)] for i in rng.permutation(len(items))[:count])


def draw_palette(
    rng: np.random.Generator, *, allow_held_out: bool = False, small: bool = False
) -> Palette:
    """Draw the shapes, colours and shares of one stream.

    Args:
        rng: Source of randomness.
        allow_held_out: Whether pairs that training never shows may occur.
        small: Few shapes and colours, so that things come back often.
    """
    num_shapes = int(rng.integers(2, 4) if small else rng.integers(3, len(SHAPES) + 1))
    num_colors = int(rng.integers(2, 4) if small else rng.integers(3, len(COLORS) + 1))
    shapes, colors = some_of(rng, SHAPES, num_shapes), some_of(rng, COLORS, num_colors)
    kinds = tuple(
        (shape, color)
        for shape in shapes
        for color in colors
        if allow_held_out or (shape, color) not in HELD_OUT_PAIRS
    )
    has_pairs = rng.random() < PAIR_STREAM_SHARE
    return Palette(kinds, DIGITS, float(rng.random()) * 0.9, PAIR_SHARE if has_pairs else 0.0)


def draw_event_lengths(
    rng: np.random.Generator, num_frames: int, *, min_event_frames: int, max_event_frames: int
) -> list[int]:
    """Split a stream into event lengths, all within the bounds if ``num_frames`` allows it."""
    lengths: list[int] = []
    left = num_frames
    while left > 0:
        length = min(left, int(rng.integers(min_event_frames, max_event_frames + 1)))
        if 0 < left - length < min_event_frames:
            length = left
        lengths.append(length)
        left -= length
    return lengths


def draw_sprites(
    rng: np.random.Generator, palette: Palette, avoid: frozenset[Kind]
) -> tuple[Sprite, ...]:
    """Draw the one or two sprites of an event; none if the palette has nothing but ``avoid``.

    Args:
        rng: Source of randomness.
        palette: What the stream may show.
        avoid: (shape, colour) pairs of the neighbouring event, which must not come again.
    """
    kinds = [kind for kind in palette.kinds if kind not in avoid]
    if not kinds:
        return ()
    shape, color = one_of(rng, kinds)
    first = Sprite(shape, color, one_of(rng, ZONES), _draw_digit(rng, palette))
    if rng.random() >= palette.pair_share:
        return (first,)
    others = [kind for kind in kinds if kind[0] != shape and kind[1] != color]
    if not others:
        return (first,)
    zones = some_of(rng, one_of(rng, PAIR_ZONES), 2)
    first = Sprite(shape, color, zones[0], first.digit)
    shape, color = one_of(rng, others)
    return (first, Sprite(shape, color, zones[1], _draw_digit(rng, palette)))


def draw_story(
    rng: np.random.Generator,
    num_frames: int,
    *,
    min_event_frames: int = 1,
    max_event_frames: int | None = None,
    empty_share: float = EMPTY_SHARE,
    allow_held_out: bool = False,
    palette: Palette | None = None,
) -> Story:
    """Draw a stream.

    The same shape and colour never come in two neighbouring events (an empty one between them
    does not count), so "how many appeared" is well defined.

    Args:
        rng: Source of randomness.
        num_frames: Length in sampled frames.
        min_event_frames: Shortest event; use 2 in long streams, where one misread frame in
            thousands would otherwise look like an event.
        max_event_frames: Longest event; None draws 1 to 4 for the stream.
        empty_share: Probability of an empty event after one that shows something.
        allow_held_out: Whether pairs that training never shows may occur.
        palette: What the stream may show; None draws one.
    """
    palette = palette or draw_palette(rng, allow_held_out=allow_held_out)
    if max_event_frames is None:
        max_event_frames = int(rng.integers(1, MAX_EVENT_FRAMES + 1))
    lengths = draw_event_lengths(
        rng,
        num_frames,
        min_event_frames=min_event_frames,
        max_event_frames=max(min_event_frames, max_event_frames),
    )
    return Story(_fill_events(rng, lengths, palette, empty_share))


def draw_look_alike_story(
    rng: np.random.Generator,
    num_frames: int,
    kind: Kind,
    *,
    is_present: bool,
    min_event_frames: int = 1,
) -> Story:
    """Draw a stream full of things that share the shape or the colour of ``kind``, but not both.

    Args:
        rng: Source of randomness.
        num_frames: Length in sampled frames.
        kind: The (shape, colour) to be asked about.
        is_present: Whether one event really shows ``kind``.
        min_event_frames: Shortest event.
    """
    base = draw_palette(rng)
    shape, color = kind
    alike = [(s, c) for s in SHAPES for c in COLORS if (s == shape) != (c == color)]
    alike = [pair for pair in alike if pair not in HELD_OUT_PAIRS]
    others = [pair for pair in base.kinds if pair[0] != shape and pair[1] != color]
    num_alike = round(len(others) * LOOK_ALIKE_SHARE / (1 - LOOK_ALIKE_SHARE)) + 2
    repeated = tuple(one_of(rng, alike) for _ in range(num_alike))
    palette = Palette((*others, *repeated), base.digits, base.digit_share, base.pair_share)
    story = draw_story(rng, num_frames, min_event_frames=min_event_frames, palette=palette)
    if not is_present:
        return story
    index = int(rng.integers(len(story.events)))
    sprite = Sprite(shape, color, one_of(rng, ZONES), _draw_digit(rng, palette))
    return _with_event(story, index, sprite)


def draw_needle_story(
    rng: np.random.Generator,
    num_frames: int,
    age_frames: int,
    *,
    num_event_frames: int = 2,
    min_event_frames: int = 2,
) -> NeedleStory:
    """Draw a long stream with one event whose shape, colour and number occur nowhere else.

    Args:
        rng: Source of randomness.
        num_frames: Length of the whole stream in sampled frames.
        age_frames: Frames after the event; 0 puts it at the very end.
        num_event_frames: Length of the event.
        min_event_frames: Shortest filler event.

    Raises:
        ValueError: If the event does not fit before ``age_frames`` frames.
    """
    before_frames = num_frames - num_event_frames - age_frames
    if before_frames < 0 or age_frames < 0:
        raise ValueError(
            f"an event of {num_event_frames} frames at age {age_frames} does not fit into "
            f"{num_frames} frames"
        )
    pairs = [(s, c) for s in SHAPES for c in COLORS if (s, c) not in HELD_OUT_PAIRS]
    shape, color = one_of(rng, pairs)
    digit = one_of(rng, DIGITS)
    palette = Palette(
        tuple(pair for pair in pairs if pair[0] != shape and pair[1] != color),
        tuple(number for number in DIGITS if number != digit),
        digit_share=0.5,
        pair_share=0.1,
    )
    parts = [
        draw_story(rng, count, min_event_frames=min_event_frames, palette=palette).events
        for count in (before_frames, age_frames)
    ]
    sprite = Sprite(shape, color, one_of(rng, ZONES), digit)
    needle = Event((sprite,), num_event_frames)
    story = Story((*parts[0], needle, *parts[1]))
    return NeedleStory(story, len(parts[0]), sprite, age_frames)


def _draw_digit(rng: np.random.Generator, palette: Palette) -> int | None:
    return one_of(rng, palette.digits) if rng.random() < palette.digit_share else None


def _kinds(sprites: Sequence[Sprite]) -> frozenset[Kind]:
    return frozenset((sprite.shape, sprite.color) for sprite in sprites)


def _fill_events(
    rng: np.random.Generator, lengths: Sequence[int], palette: Palette, empty_share: float
) -> tuple[Event, ...]:
    events: list[Event] = []
    previous: frozenset[Kind] = frozenset()
    was_empty = False
    for length in lengths:
        was_empty = not was_empty and bool(rng.random() < empty_share)
        sprites = () if was_empty else draw_sprites(rng, palette, previous)
        previous = _kinds(sprites) if sprites else previous
        events.append(Event(sprites, length))
    return tuple(events)


def _with_event(story: Story, index: int, sprite: Sprite) -> Story:
    events = list(story.events)
    events[index] = Event((sprite,), events[index].num_frames)
    return Story(tuple(events))
