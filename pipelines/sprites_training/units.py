"""What each video token carries: one sprite of one event, or an empty event.

Where a frame shows two sprites, its tokens share them out (``code.TOKEN_ROLES``), so losing tokens
may lose one sprite and leave the other. This module turns a story and the tokens that are left into
the story that can still be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hermes_like.sprites.world import Event, Sprite, Story
from pipelines.sprites_training.code import TOKEN_ROLES, role_sprites

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Unit:
    """One sprite of one event; None for an event that shows nothing."""

    event: int
    sprite: Sprite | None


@dataclass(frozen=True, slots=True)
class CarriedUnits:
    """What some tokens carry.

    Attributes:
        story: The stream they come from.
        units: ``[tokens]`` one per token; ``event`` counts in ``story``.
    """

    story: Story
    units: tuple[Unit, ...]


def token_units(story: Story, frames: IntArray, places: IntArray) -> CarriedUnits:
    """Return what each token carries.

    Args:
        story: The stream.
        frames: ``[tokens]``, frame of each token.
        places: ``[tokens]``, its place in the frame.
    """
    frame_events = story.frame_events()
    roles = [role_sprites(event.sprites) for event in story.events]
    units = []
    for frame, place in zip(frames.tolist(), places.tolist(), strict=True):
        event = frame_events[frame]
        units.append(Unit(event, roles[event][TOKEN_ROLES[place]]))
    return CarriedUnits(story, tuple(units))


def keep_units(carried: CarriedUnits) -> tuple[Story, tuple[Unit, ...], IntArray]:
    """Return the story that some tokens tell.

    Two equal events with nothing left between them become one.

    Returns:
        The story; its units in the order of their first tokens, ``event`` counting in that story;
        and ``[tokens]``, the index among those units of what each token carries.
    """
    sprites: dict[int, list[Sprite]] = {}
    for unit in carried.units:
        shown = sprites.setdefault(unit.event, [])
        if unit.sprite is not None and unit.sprite not in shown:
            shown.append(unit.sprite)
    events: list[Event] = []
    place_of: dict[int, int] = {}
    for index, shown in sprites.items():
        ordered = tuple(s for s in role_sprites(carried.story.events[index].sprites) if s in shown)
        event = Event(tuple(dict.fromkeys(ordered)), carried.story.events[index].num_frames)  # type: ignore[arg-type]
        if not events or events[-1].sprites != event.sprites:
            events.append(event)
        place_of[index] = len(events) - 1
    merged = [Unit(place_of[unit.event], unit.sprite) for unit in carried.units]
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(merged))}
    return Story(tuple(events)), tuple(numbers), np.array([numbers[unit] for unit in merged])


def visible_story(units: Sequence[Unit], survivors: Sequence[int]) -> tuple[Story, tuple[int, ...]]:
    """Return the story of some units only, and which event each of its events was before."""
    sprites: dict[int, list[Sprite]] = {}
    for number in survivors:
        shown = sprites.setdefault(units[number].event, [])
        sprite = units[number].sprite
        if sprite is not None:
            shown.append(sprite)
    order = sorted(sprites)
    return Story(tuple(Event(tuple(sprites[event]), 1) for event in order)), tuple(order)
