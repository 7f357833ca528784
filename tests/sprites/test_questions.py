"""Answers against a brute-force reading of the frames, one by one."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from hermes_like.sprites.questions import (
    GROUPS,
    TYPES,
    Slots,
    answer,
    draw_question,
    needle,
    pick,
    render_question,
    types_of,
)
from hermes_like.sprites.stories import draw_palette, draw_story
from hermes_like.sprites.templates import TEMPLATES
from hermes_like.sprites.tokenizer import encode_words
from hermes_like.sprites.world import Event, Sprite, Story

#: What one frame shows: (shape, colour, zone, digit word) of each sprite.
Seen = list[tuple[str, str, str, str]]


def _runs(story: Story) -> list[Seen]:
    """Runs of equal frames; the rules of stories make each run one event."""
    frames = [
        [(s.shape, s.color, s.zone, "none" if s.digit is None else str(s.digit)) for s in sprites]
        for sprites in story.frames()
    ]
    return [run for run, _ in groupby(frames)]


def _oracle(story: Story, type: str, slots: Slots) -> str | None:
    """The answer by exhaustive search over frames, written without the library's helpers."""
    runs = _runs(story)
    now = runs[-1]
    if type.startswith("now"):
        column = {"now_shape": 0, "now_color": 1, "now_where": 2, "now_number": 3}
        if type == "now_color_of":
            return ([s[1] for s in now if s[0] == slots["shape"]] or ["nothing"])[0]
        if type == "now_where_of":
            return ([s[2] for s in now if s[0] == slots["shape"]] or ["nothing"])[0]
        if type == "now_shape_at":
            return ([s[0] for s in now if s[2] == slots["zone"]] or ["nothing"])[0]
        if len(now) != 1:
            return "nothing" if not now else None
        return f"{now[0][1]} {now[0][0]}" if type == "now_what" else now[0][column[type]]
    fits = [
        (time, sprite)
        for time, run in enumerate(runs)
        for sprite in run
        if slots.get("shape") in (None, sprite[0])
        and slots.get("color") in (None, sprite[1])
        and slots.get("digit") in (None, sprite[3])
    ]
    if type.startswith("count"):
        return str(len(fits)) if len(fits) < 7 else None
    if type.startswith("exists"):
        return "yes" if fits else "no"
    if type.startswith("recall"):
        words = {
            "recall_color": lambda s: s[1],
            "recall_shape": lambda s: s[0],
            "recall_number": lambda s: s[3],
            "recall_number_of_shape": lambda s: s[3],
            "recall_where": lambda s: s[2],
            "recall_where_of_shape": lambda s: s[2],
            "recall_object": lambda s: f"{s[1]} {s[0]}",
        }
        found = {words[type](sprite) for _, sprite in fits}
        return None if len(found) > 1 else (found or {"nothing"}).pop()
    shown = [(time, run) for time, run in enumerate(runs) if run]
    if type in ("order_first", "order_last"):
        if not shown:
            return "nothing"
        run = shown[0 if type == "order_first" else -1][1]
        return f"{run[0][1]} {run[0][0]}" if len(run) == 1 else None
    if type == "order_which_first":
        pair = [
            [t for t, run in enumerate(runs) for s in run if s[:2] == kind]
            for kind in ((slots["shape"], slots["color"]), (slots["shape2"], slots["color2"]))
        ]
        if any(len(times) != 1 for times in pair) or pair[0] == pair[1]:
            return None
        return "yes" if pair[0] < pair[1] else "no"
    if len(fits) != 1 or len(runs[fits[0][0]]) != 1:
        return None
    if type == "order_after":
        later = [run for time, run in shown if time > fits[0][0]]
        beside = later[0] if later else None
    else:
        sooner = [run for time, run in shown if time < fits[0][0]]
        beside = sooner[-1] if sooner else None
    if beside is None:
        return "nothing"
    return f"{beside[0][1]} {beside[0][0]}" if len(beside) == 1 else None


@pytest.mark.parametrize("type", list(TYPES))
def test_answers_agree_with_brute_force(type: str) -> None:
    rng = np.random.default_rng(len(type))
    posed = 0
    for index in range(150):
        palette = draw_palette(rng, small=index % 3 == 0)
        story = draw_story(rng, int(rng.integers(1, 30)), palette=palette)
        slots = pick(story, type, rng)
        if slots is None:
            continue
        truth = answer(story, type, slots)
        assert truth == _oracle(story, type, slots)
        posed += truth is not None
    assert posed > 5


@pytest.mark.parametrize("type", [t for t in TYPES if not t.startswith(("now", "order_first"))])
def test_the_needle_alone_holds_the_answer(type: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(80):
        story = draw_story(rng, 20)
        question = draw_question(rng, story, type)
        if question is None:
            continue
        assert question.evidence == needle(story, type, question.slots)
        kept = tuple(
            event if index in question.evidence else Event((), event.num_frames)
            for index, event in enumerate(story.events)
        )
        assert answer(Story(kept), type, question.slots) == question.answer


def test_every_wording_uses_known_words_and_all_groups_have_types() -> None:
    names = ("shape", "color", "digit", "zone", "shape2", "color2")
    slots = dict(zip(names, ("cross", "red", "3", "left", "star", "blue"), strict=True))
    for type, templates in TEMPLATES.items():
        for paraphrase in range(len(templates)):
            text = render_question(type, slots, paraphrase)
            assert len(encode_words(text)) == len(text.split())
    assert sorted(TEMPLATES) == sorted(TYPES)
    assert sum(len(types_of(group)) for group in GROUPS) == 25


def test_ill_posed_questions_have_no_answer() -> None:
    two = Story(
        (
            Event((Sprite("star", "red", "left"),), 2),
            Event((Sprite("star", "blue", "left"),), 2),
        )
    )
    assert answer(two, "recall_color", {"shape": "star"}) is None
    assert answer(two, "recall_where_of_shape", {"shape": "star"}) == "left"
    assert answer(two, "recall_color", {"shape": "moon"}) == "nothing"
    assert answer(two, "count_shape", {"shape": "star"}) == "2"


def test_exists_questions_are_balanced() -> None:
    rng = np.random.default_rng(8)
    replies = [
        question.answer
        for _ in range(400)
        if (question := draw_question(rng, draw_story(rng, 16), "exists_pair")) is not None
    ]
    assert 0.4 < replies.count("yes") / len(replies) < 0.6
