"""The scripted world of the bundled model: what can be on a picture, and when.

A *story* is a list of events; an event shows the same sprites for some frames. This module knows
neither pixels (``render.py``) nor words (``questions.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Shape = Literal[
    "circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart", "arrow", "moon"
]
Color = Literal["red", "orange", "yellow", "green", "cyan", "blue", "purple", "white"]
Zone = Literal["left", "right", "top", "bottom", "center"]

SHAPES: tuple[Shape, ...] = (
    "circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart", "arrow", "moon",
)  # fmt: skip
COLORS: tuple[Color, ...] = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "white")
ZONES: tuple[Zone, ...] = ("left", "right", "top", "bottom", "center")
DIGITS: tuple[int, ...] = tuple(range(10))

#: Shape-colour pairs that no training frame and no training story ever shows; the evaluation
#: reports them apart, as the honest test of "red" and "star" being learnt separately.
HELD_OUT_PAIRS: frozenset[tuple[Shape, Color]] = frozenset(
    {("star", "cyan"), ("ring", "red"), ("heart", "yellow"), ("arrow", "purple")}
)


@dataclass(frozen=True, slots=True)
class Sprite:
    """One coloured shape in one zone of the picture, with a digit on it or none."""

    shape: Shape
    color: Color
    zone: Zone
    digit: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """The same zero, one or two sprites shown for ``num_frames`` sampled frames in a row."""

    sprites: tuple[Sprite, ...]
    num_frames: int


@dataclass(frozen=True, slots=True)
class Story:
    """A whole stream: events one after the other; a gap is an empty event."""

    events: tuple[Event, ...]

    @property
    def num_frames(self) -> int:
        """Length of the stream in sampled frames."""
        return sum(event.num_frames for event in self.events)

    def frame_events(self) -> list[int]:
        """Index of the event each frame belongs to, ``num_frames`` entries."""
        return [i for i, event in enumerate(self.events) for _ in range(event.num_frames)]

    def frames(self) -> Iterator[tuple[Sprite, ...]]:
        """The sprites of each frame in order."""
        for event in self.events:
            for _ in range(event.num_frames):
                yield event.sprites

    def start_frame(self, event_index: int) -> int:
        """Index of the first frame of an event."""
        return sum(event.num_frames for event in self.events[:event_index])
