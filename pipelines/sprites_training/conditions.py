"""The conditions under which the bundled model is examined, and how streams and questions come up.

Every condition draws new streams; a question counts once, right only if the whole answer is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hermes_like.sprites.questions import TYPES, Question, answer, draw_question
from hermes_like.sprites.render import STANDARD
from hermes_like.sprites.stories import (
    draw_look_alike_story,
    draw_palette,
    draw_story,
    one_of,
)
from hermes_like.sprites.tokenizer import TOKENS_PER_FRAME
from hermes_like.sprites.world import COLORS, HELD_OUT_PAIRS, SHAPES, Event, Sprite, Story
from pipelines.sprites_training.answering import StockAnswerer
from pipelines.sprites_training.units import keep_units, token_units

#: The newest frames that eviction and gaps leave alone.
RECENT_FRAMES = 4
#: Standard pictures, three quarters of them at a random width and height.
ANY_ASPECT = replace(STANDARD, free_size_rate=0.75)

StoryMaker = Callable[[np.random.Generator, int], Story]
QuestionMaker = Callable[[np.random.Generator, Story, Story], list[Question]]


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to examine the model.

    Attributes:
        name: Shown in tables.
        num_frames: Length of the streams.
        evicted_share: Share of the tokens older than ``RECENT_FRAMES`` that leave the cache.
        gap_positions: Positions skipped before the newest ``RECENT_FRAMES``.
        draw: How a stream is drawn.
        ask: How questions are drawn, from what is still in the cache and from the whole stream.
    """

    name: str
    num_frames: int
    evicted_share: float
    gap_positions: int
    draw: StoryMaker
    ask: QuestionMaker


@dataclass(frozen=True, slots=True)
class Reply:
    """A question with the model's answer."""

    question: Question
    text: str

    @property
    def is_right(self) -> bool:
        """Whether the whole answer is right."""
        return self.text == self.question.answer


def draw_plain(rng: np.random.Generator, num_frames: int) -> Story:
    """Draw a stream as in training, without held-out pairs."""
    return draw_story(rng, num_frames)


def draw_singles(rng: np.random.Generator, num_frames: int) -> Story:
    """Draw a stream that never shows two sprites at once."""
    return draw_story(rng, num_frames, palette=replace(draw_palette(rng), pair_share=0.0))


def draw_held_out(rng: np.random.Generator, num_frames: int) -> Story:
    """Draw a stream in which one event shows a pair that training never showed."""
    story = draw_story(rng, num_frames)
    shape, color = one_of(rng, sorted(HELD_OUT_PAIRS))
    events = list(story.events)
    index = int(rng.integers(len(events)))
    zones = ("left", "right", "top", "bottom", "center")
    digit = int(rng.integers(10)) if rng.random() < 0.5 else None
    sprite = Sprite(shape, color, one_of(rng, zones), digit)  # type: ignore[arg-type]
    events[index] = Event((sprite,), events[index].num_frames)
    return Story(tuple(events))


def draw_look_alikes(rng: np.random.Generator, num_frames: int) -> Story:
    """Draw a stream full of things that share a shape or a colour; see :func:`ask_look_alikes`."""
    kinds = [(s, c) for s in SHAPES for c in COLORS if (s, c) not in HELD_OUT_PAIRS]
    return draw_look_alike_story(
        rng, num_frames, one_of(rng, kinds), is_present=bool(rng.random() < 0.5)
    )


def ask_all(rng: np.random.Generator, visible: Story, story: Story) -> list[Question]:
    """Draw one question of every type, where both stories give the same answer."""
    drawn = [draw_question(rng, visible, type) for type in TYPES]
    return [q for q in drawn if q is not None and answer(story, q.type, q.slots) == q.answer]


def ask_held_out(rng: np.random.Generator, visible: Story, story: Story) -> list[Question]:
    """Draw questions that name a held-out pair or must be answered with one."""
    found = []
    for question in (
        draw_question(rng, visible, type, allow_held_out=True) for type in TYPES for _ in range(4)
    ):
        if question is None or answer(story, question.type, question.slots) != question.answer:
            continue
        words = {*question.slots.values(), *question.answer.split()}
        if any(shape in words and color in words for shape, color in HELD_OUT_PAIRS):
            found.append(question)
    return list({(question.type, question.text): question for question in found}.values())


def ask_look_alikes(rng: np.random.Generator, visible: Story, story: Story) -> list[Question]:
    """Draw questions about pairs in streams full of their look-alikes."""
    types = ("exists_pair", "exists_pair", "recall_number", "recall_where")
    drawn = [draw_question(rng, visible, type) for type in types]
    return [q for q in drawn if q is not None and answer(story, q.type, q.slots) == q.answer]


def standard_conditions() -> list[Condition]:
    """Return the conditions of the model card."""
    full = [
        Condition(f"full cache, {n} frames", n, 0.0, 0, draw_plain, ask_all) for n in (8, 16, 32)
    ]
    singles = [
        Condition(f"one sprite at a time, {n} frames", n, 0.0, 0, draw_singles, ask_all)
        for n in (8, 16, 32)
    ]
    lossy = [
        Condition(f"half of the old tokens evicted, {n} frames", n, 0.5, 0, draw_plain, ask_all)
        for n in (16, 32)
    ]
    gaps = [
        Condition(f"gap of 1,500 positions, {n} frames", n, 0.0, 1_500, draw_plain, ask_all)
        for n in (16, 32)
    ]
    apart = [
        Condition("held-out pairs, 16 frames", 16, 0.0, 0, draw_held_out, ask_held_out),
        Condition("look-alikes, 16 frames", 16, 0.0, 0, draw_look_alikes, ask_look_alikes),
        Condition("look-alikes, 32 frames", 32, 0.0, 0, draw_look_alikes, ask_look_alikes),
    ]
    longer = [Condition("full cache, 64 frames", 64, 0.0, 0, draw_plain, ask_all)]
    return [*full, *singles, *lossy, *gaps, *apart, *longer]


def examine(answerer: StockAnswerer, condition: Condition, rng: np.random.Generator) -> list[Reply]:
    """Draw one stream of a condition, show it, and ask about it."""
    story = condition.draw(rng, condition.num_frames)
    kept = _kept_slots(rng, condition)
    visible = _visible_story(story, kept)
    questions = condition.ask(rng, visible, story)
    if not questions:
        return []
    features = answerer.see(story, rng, ANY_ASPECT)
    cache, positions = answerer.remember(features, _frame_positions(condition))
    texts = answerer.answer(
        cache, int(positions[-1]) + 1, [question.text for question in questions], kept
    )
    return [Reply(question, text) for question, text in zip(questions, texts, strict=True)]


def _kept_slots(rng: np.random.Generator, condition: Condition) -> npt.NDArray[np.int64]:
    """Slots that stay: ``<bos>``, newline, the newest frames, and a share of the older tokens."""
    num_tokens = TOKENS_PER_FRAME * condition.num_frames
    num_old = max(0, num_tokens - TOKENS_PER_FRAME * RECENT_FRAMES)
    evicted = rng.permutation(num_old)[: round(num_old * condition.evicted_share)]
    is_kept = np.ones(num_tokens + 2, dtype=bool)
    is_kept[evicted + 1] = False
    return np.flatnonzero(is_kept)


def _visible_story(story: Story, kept: npt.NDArray[np.int64]) -> Story:
    """The events and sprites of which at least one token stays."""
    tokens = kept[1:-1] - 1
    carried = token_units(story, tokens // TOKENS_PER_FRAME, tokens % TOKENS_PER_FRAME)
    return keep_units(carried)[0]


def _frame_positions(condition: Condition) -> list[int] | None:
    if not condition.gap_positions:
        return None
    first_recent = condition.num_frames - RECENT_FRAMES
    return [
        1 + TOKENS_PER_FRAME * frame + (condition.gap_positions if frame >= first_recent else 0)
        for frame in range(condition.num_frames)
    ]
