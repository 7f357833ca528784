"""Drawn streams keep the rules that make questions well-posed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hermes_like.sprites.render import PAIR_ZONES
from hermes_like.sprites.stories import draw_look_alike_story, draw_needle_story, draw_story
from hermes_like.sprites.world import HELD_OUT_PAIRS, Story


def _kinds(story: Story) -> list[set[tuple[str, str]]]:
    return [{(s.shape, s.color) for s in event.sprites} for event in story.events]


@pytest.mark.parametrize("seed", range(30))
def test_a_story_keeps_the_rules(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_frames = int(rng.integers(1, 60))
    story = draw_story(rng, num_frames)
    assert story.num_frames == num_frames
    shown = [kinds for kinds in _kinds(story) if kinds]
    assert all(not a & b for a, b in pairwise(shown))
    for event in story.events:
        assert not HELD_OUT_PAIRS & {(s.shape, s.color) for s in event.sprites}
        if len(event.sprites) == 2:
            first, second = event.sprites
            assert first.shape != second.shape
            assert first.color != second.color
            zones = (first.zone, second.zone)
            assert zones in PAIR_ZONES or zones[::-1] in PAIR_ZONES


@pytest.mark.parametrize("seed", range(10))
def test_long_streams_have_no_short_events(seed: int) -> None:
    story = draw_story(np.random.default_rng(seed), 301, min_event_frames=2)
    assert story.num_frames == 301
    assert min(event.num_frames for event in story.events) >= 2


def test_held_out_pairs_occur_only_on_request() -> None:
    rng = np.random.default_rng(0)
    seen = [
        kind
        for _ in range(50)
        for kinds in _kinds(draw_story(rng, 40, allow_held_out=True))
        for kind in kinds
    ]
    assert HELD_OUT_PAIRS & set(seen)


@pytest.mark.parametrize("age_frames", [0, 7, 100])
def test_a_needle_looks_like_nothing_else(age_frames: int) -> None:
    needle = draw_needle_story(np.random.default_rng(age_frames), 160, age_frames)
    story, sprite = needle.story, needle.sprite
    assert story.num_frames == 160
    assert story.events[needle.event_index].sprites == (sprite,)
    end = story.start_frame(needle.event_index) + story.events[needle.event_index].num_frames
    assert story.num_frames - end == age_frames
    others = [
        other
        for index, event in enumerate(story.events)
        for other in event.sprites
        if index != needle.event_index
    ]
    assert all(other.shape != sprite.shape and other.color != sprite.color for other in others)
    assert all(other.digit != sprite.digit for other in others)


def test_a_needle_must_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        draw_needle_story(np.random.default_rng(0), 10, 9)


@pytest.mark.parametrize("is_present", [True, False])
def test_look_alikes_share_one_attribute(is_present: bool) -> None:
    rng = np.random.default_rng(3)
    alike = 0
    for _ in range(20):
        story = draw_look_alike_story(rng, 24, ("star", "red"), is_present=is_present)
        kinds = [kind for kinds in _kinds(story) for kind in kinds]
        assert (("star", "red") in kinds) == is_present
        alike += sum((shape == "star") != (color == "red") for shape, color in kinds)
    assert alike > 60
