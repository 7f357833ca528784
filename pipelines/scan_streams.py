"""Streams of an hour in which things appear a known number of times, for counting and listing.

Targets are a shape, a colour, or a pair of both; the rest of the stream shares what they leave.
This module knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hermes_like.sprites.stories import Kind, Palette, draw_story, one_of, some_of
from hermes_like.sprites.templates import TEMPLATES, plural
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

#: True counts of a stream's targets, one each.
COUNTS = tuple(range(11))
NUM_SHAPES, NUM_COLORS = 4, 3
#: Least frames between two planted events.
APART_FRAMES = 8
PAIR_TEMPLATES = tuple(
    text.replace("{shapes}", "{color} {shapes}") for text in TEMPLATES["count_shape"]
)

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Target:
    """Something to be counted.

    Attributes:
        kind: ``shape``, ``color`` or ``pair``.
        question: How often it appeared, in words.
        spans: Half-open ranges of frames of its events, in order.
    """

    kind: str
    question: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class CountedStream:
    """A story and what is to be counted in it."""

    story: Story
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    kind: str
    question: str
    kinds: tuple[Kind, ...]
    count: int


def draw_counted_stream(seed: int, index: int, num_frames: int) -> CountedStream:
    """Draw stream ``index`` with one target for every count of ``COUNTS``.

    Args:
        seed: Of the whole experiment.
        index: Of the stream.
        num_frames: Length of the stream.

    Raises:
        ValueError: The planted events do not fit.
    """
    rng = np.random.default_rng([seed, index])
    wanted, palette = _draw_targets(rng)
    plan = [number for number, target in enumerate(wanted) for _ in range(target.count)]
    plan = [plan[i] for i in rng.permutation(len(plan))]
    lengths = [int(rng.integers(2, 5)) for _ in plan]
    gaps = _draw_gaps(rng, num_frames - sum(lengths), len(plan) + 1)
    events: list[Event] = []
    spans: dict[int, list[Span]] = {number: [] for number in range(len(wanted))}
    frame = 0
    for number, length, gap in zip([*plan, None], [*lengths, 0], gaps, strict=True):
        events += draw_story(rng, gap, min_event_frames=2, palette=palette).events
        frame += gap
        if number is None:
            break
        shape, color = one_of(rng, wanted[number].kinds)
        digit = one_of(rng, DIGITS) if rng.random() < palette.digit_share else None
        events.append(Event((Sprite(shape, color, one_of(rng, ZONES), digit),), length))
        spans[number].append((frame, frame + length))
        frame += length
    targets = tuple(
        Target(target.kind, target.question, tuple(spans[number]))
        for number, target in enumerate(wanted)
    )
    return CountedStream(Story(tuple(events)), targets)


def _draw_gaps(rng: np.random.Generator, frames: int, count: int) -> list[int]:
    """Split frames into random gaps of at least ``APART_FRAMES``."""
    free = frames - APART_FRAMES * count
    if free < 0:
        raise ValueError(f"expected at least {APART_FRAMES * count} frames of filler, got {frames}")
    cuts = np.sort(rng.integers(0, free + 1, count - 1))
    parts = np.diff(np.concatenate([[0], cuts, [free]]))
    return [int(part) + APART_FRAMES for part in parts]


def _draw_targets(rng: np.random.Generator) -> tuple[list[_Wanted], Palette]:
    """Who is counted, and who fills the stream."""
    shapes, colors = some_of(rng, SHAPES, len(SHAPES)), some_of(rng, COLORS, len(COLORS))
    common = [
        (shape, color)
        for shape in shapes[NUM_SHAPES:]
        for color in colors[NUM_COLORS:]
        if (shape, color) not in HELD_OUT_PAIRS
    ]
    counts = iter(int(count) for count in rng.permutation(COUNTS))
    wanted = []
    for shape in shapes[:NUM_SHAPES]:
        kinds = [(shape, c) for c in colors[NUM_COLORS:] if (shape, c) not in HELD_OUT_PAIRS]
        text = one_of(rng, TEMPLATES["count_shape"]).format(shapes=plural(shape))
        wanted.append(_Wanted("shape", text, tuple(kinds), next(counts)))
    for color in colors[:NUM_COLORS]:
        kinds = [(s, color) for s in shapes[NUM_SHAPES:] if (s, color) not in HELD_OUT_PAIRS]
        text = one_of(rng, TEMPLATES["count_color"]).format(color=color)
        wanted.append(_Wanted("color", text, tuple(kinds), next(counts)))
    pairs = some_of(rng, common, len(COUNTS) - NUM_SHAPES - NUM_COLORS)
    for shape, color in pairs:
        text = one_of(rng, PAIR_TEMPLATES).format(shapes=plural(shape), color=color)
        wanted.append(_Wanted("pair", text, ((shape, color),), next(counts)))
    filler = tuple(kind for kind in common if kind not in pairs)
    return wanted, Palette(filler, DIGITS, digit_share=0.5, pair_share=0.1)
