"""Which sprite a token carries, and which story the tokens that are left can tell."""

from __future__ import annotations

import numpy as np

from hermes_like.sprites.world import Event, Sprite, Story
from pipelines.sprites_training.dropping import Hardships
from pipelines.sprites_training.samples import SampleRecipe, build_sample
from pipelines.sprites_training.units import Unit, keep_units, token_units, visible_story

STAR = Sprite("star", "red", "left", 3)
MOON = Sprite("moon", "blue", "top")
RING = Sprite("ring", "green", "center", 1)
#: Two frames of a pair (given against the order of zones), an empty one, a lone ring.
STORY = Story((Event((MOON, STAR), 2), Event((), 1), Event((RING,), 1)))


def _tokens(*kept: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    frames, places = zip(*kept, strict=True)
    return np.array(frames), np.array(places)


def test_tokens_of_a_pair_carry_one_sprite_each() -> None:
    frames, places = np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)
    carried = token_units(STORY, frames, places)
    held, units, numbers = keep_units(carried)
    assert units == (Unit(0, STAR), Unit(0, MOON), Unit(1, None), Unit(2, RING))
    assert numbers.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert [set(event.sprites) for event in held.events] == [{STAR, MOON}, set(), {RING}]


def test_a_sprite_without_tokens_is_out_of_the_story() -> None:
    held, units, numbers = keep_units(token_units(STORY, *_tokens((0, 2), (1, 3), (3, 0))))
    assert held == Story((Event((MOON,), 2), Event((RING,), 1)))
    assert numbers.tolist() == [0, 0, 1]
    assert visible_story(units, [1]) == (Story((Event((RING,), 1),)), (1,))


def test_equal_events_with_nothing_left_between_become_one() -> None:
    story = Story((Event((RING,), 1), Event((STAR,), 1), Event((RING,), 1)))
    held, units, numbers = keep_units(token_units(story, *_tokens((0, 0), (2, 1))))
    assert [event.sprites for event in held.events] == [(RING,)]
    assert units == (Unit(0, RING),)
    assert numbers.tolist() == [0, 0]


def test_questions_about_one_of_two_look_at_its_own_tokens() -> None:
    recipe = SampleRecipe(hardships=Hardships(drop_share=0.0, gap_share=0.0))
    story = Story((Event((RING,), 1), Event((MOON, STAR), 2)))
    rng = np.random.default_rng(0)
    star, moon = {5, 6, 9, 10}, {7, 8, 11, 12}
    seen = set()
    for _ in range(20):
        sample = build_sample(rng, 3, recipe, story=story)
        for row in sample.targets["first"].wanted:
            seen.add(tuple(np.flatnonzero(row).tolist()))
    assert tuple(sorted(star)) in seen
    assert tuple(sorted(moon)) in seen
    starts = np.flatnonzero(sample.side["start"] == 1).tolist()
    assert starts == [1, 5, 7]
