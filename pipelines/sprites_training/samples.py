"""One training sample: a video, then as many questions as fit, and where to look for the answers.

A sample is plain numpy; ``batches.py`` pads samples into tensors. With lost tokens there are two
stories, the full one and the one the question can still see; a question is kept only if both give
the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hermes_like.sprites.questions import (
    GROUPS,
    TYPES,
    Group,
    Slots,
    answer,
    draw_question,
    hops,
)
from hermes_like.sprites.stories import (
    draw_look_alike_story,
    draw_palette,
    draw_story,
    one_of,
)
from hermes_like.sprites.tokenizer import (
    ASSISTANT_ID,
    BOS_ID,
    EOS_ID,
    USER_ID,
    VIDEO_ID,
    encode_words,
)
from hermes_like.sprites.world import (
    COLORS,
    DIGITS,
    HELD_OUT_PAIRS,
    SHAPES,
    ZONES,
    Sprite,
    Story,
)
from pipelines.sprites_training.dropping import (
    AFTER_VIDEO,
    NEVER,
    Hardships,
    VideoPlan,
    plan_video,
)
from pipelines.sprites_training.units import Unit, keep_units, token_units, visible_story

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

IGNORED = -100
#: Share of events with two sprites in streams that have many of them.
MANY_PAIRS = 0.6
#: Classes of the running counts; the last one means "that many or more".
COUNT_CLASSES = 9
NO_EVENT_SHAPE = len(SHAPES)
NO_EVENT_COLOR = len(COLORS)

DEFAULT_GROUP_WEIGHTS: dict[Group, float] = {
    "now": 1.5,
    "recall": 4.5,
    "exists": 2.5,
    "order": 2.5,
    "count": 3.0,
}


@dataclass(frozen=True, slots=True)
class SampleRecipe:
    """What samples are made of.

    Attributes:
        hardships: Lost tokens and position gaps.
        question_tokens: Room for questions and answers.
        dialogue_share: Share of samples whose questions see earlier turns.
        newline_share: Share of samples with the vector that ends a video.
        small_palette_share: Share of streams with few shapes and colours.
        look_alike_share: Share of streams full of look-alikes.
        pairs_share: Share of the other streams in which most events show two sprites.
        group_weights: How often questions of each group are drawn.
        type_factors: Factors on the weights of single types.
    """

    hardships: Hardships = field(default_factory=Hardships)
    question_tokens: int = 160
    dialogue_share: float = 0.3
    newline_share: float = 0.8
    small_palette_share: float = 0.2
    look_alike_share: float = 0.15
    pairs_share: float = 0.5
    group_weights: Mapping[Group, float] = field(default_factory=lambda: DEFAULT_GROUP_WEIGHTS)
    type_factors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """Rows of one attention target and, for each, the weight of every token."""

    rows: IntArray
    wanted: FloatArray


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample; every array has one entry per token unless it says otherwise.

    Attributes:
        story: What the video shows.
        ids: Token ids; ``VIDEO_ID`` for video tokens and the newline.
        positions: Rotary positions.
        times: Frame of a video token, -1 for ``<bos>``, ``AFTER_VIDEO`` for the rest.
        evict_times: First time that no longer sees the token.
        dialogues: 0 for video, else which dialogue the token belongs to.
        num_video: Tokens up to the end of the video, ``<bos>`` and newline included.
        has_newline: Whether the last video token is the newline vector.
        frames: ``[video tokens]``, frame of each token between ``<bos>`` and newline.
        places: ``[video tokens]``, place of each of them in its frame.
        answer_rows: ``[answers]``, tokens whose successor is an answer word or ``<eos>``.
        answer_ids: ``[answers]``, those successors.
        answer_questions: ``[answers]``, which question each belongs to.
        question_types: ``[questions]``, indices into ``TYPES``.
        targets: Attention targets by name.
        side: Labels of the side heads on video tokens, ``IGNORED`` where there is none.
    """

    story: Story
    ids: IntArray
    positions: IntArray
    times: IntArray
    evict_times: IntArray
    dialogues: IntArray
    num_video: int
    has_newline: bool
    frames: IntArray
    places: IntArray
    answer_rows: IntArray
    answer_ids: IntArray
    answer_questions: IntArray
    question_types: IntArray
    targets: dict[str, Target]
    side: dict[str, IntArray]


TYPE_NAMES: tuple[str, ...] = tuple(TYPES)


def draw_training_story(rng: np.random.Generator, num_frames: int, recipe: SampleRecipe) -> Story:
    """Draw a stream: plain, of few kinds, or full of look-alikes."""
    luck = rng.random()
    if luck < recipe.look_alike_share:
        kinds = [(s, c) for s in SHAPES for c in COLORS if (s, c) not in HELD_OUT_PAIRS]
        return draw_look_alike_story(
            rng, num_frames, one_of(rng, kinds), is_present=bool(rng.random() < 0.5)
        )
    is_small = luck < recipe.look_alike_share + recipe.small_palette_share
    palette = draw_palette(rng, small=is_small)
    if rng.random() < recipe.pairs_share:
        palette = replace(palette, pair_share=MANY_PAIRS)
    return draw_story(rng, num_frames, palette=palette)


def build_sample(
    rng: np.random.Generator,
    num_frames: int,
    recipe: SampleRecipe,
    *,
    story: Story | None = None,
) -> Sample:
    """Draw a stream of ``num_frames`` frames with its losses, gaps, questions and targets."""
    story = story or draw_training_story(rng, num_frames, recipe)
    plan = plan_video(rng, np.array(story.frame_events()), recipe.hardships)
    view = _StoryView.of(story, plan)
    has_newline = bool(rng.random() < recipe.newline_share)
    builder = SequenceBuilder(plan, has_newline)
    asked = _ask(rng, story, view.visible, recipe, builder)
    targets = _question_targets(view, asked, builder.length)
    targets.update(_video_targets(rng, view, builder.length))
    return Sample(
        story=story,
        ids=np.array(builder.ids),
        positions=np.array(builder.positions),
        times=np.array(builder.times),
        evict_times=np.array(builder.evict_times),
        dialogues=np.array(builder.dialogues),
        num_video=builder.num_video,
        has_newline=has_newline,
        frames=plan.frames,
        places=plan.places,
        answer_rows=np.array([row for turn in asked for row in turn.rows], dtype=np.int64),
        answer_ids=np.array([word for turn in asked for word in turn.words], dtype=np.int64),
        answer_questions=np.array(
            [number for number, turn in enumerate(asked) for _ in turn.rows], dtype=np.int64
        ),
        question_types=np.array([TYPE_NAMES.index(turn.type) for turn in asked], dtype=np.int64),
        targets=targets,
        side={
            **_side_labels(view, builder.length),
            **_reply_labels(view.visible, asked, builder.length),
        },
    )


# -- what the question can see -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoryView:
    """The stream as the sequence holds it, and as the question sees it.

    Attributes:
        held: Events that have a token in the sequence, with the sprites that have one.
        visible: Events and sprites that have a token the question can see.
        held_index: Index in ``held`` of each event in ``visible``.
        units: Sprites of ``held``, event by event; an empty event is one unit.
        token_units: ``[video tokens]``, index in ``units`` of what each token carries.
        plan: What happened to the tokens.
    """

    held: Story
    visible: Story
    held_index: tuple[int, ...]
    units: tuple[Unit, ...]
    token_units: IntArray
    plan: VideoPlan

    @classmethod
    def of(cls, story: Story, plan: VideoPlan) -> _StoryView:
        carried = token_units(story, plan.frames, plan.places)
        held, units, numbers = keep_units(carried)
        visible, survivors = visible_story(units, sorted(set(numbers[plan.survives].tolist())))
        return cls(held, visible, survivors, units, numbers, plan)

    @property
    def unit_events(self) -> IntArray:
        """``[units]``, index in ``held`` of each unit's event."""
        return np.array([unit.event for unit in self.units])

    def units_of(self, event: int, facts: Slots) -> list[int]:
        """Units of a held event that have the facts; all of them if none has."""
        members = [index for index, unit in enumerate(self.units) if unit.event == event]
        named = [
            index
            for index in members
            if (sprite := self.units[index].sprite) is not None and _has(sprite, facts)
        ]
        return named or members


# -- tokens ------------------------------------------------------------------------------------


class SequenceBuilder:
    """Grows the token lists of one sample."""

    def __init__(self, plan: VideoPlan, has_newline: bool) -> None:
        shift = 1 + plan.bos_gap
        self.ids = [BOS_ID] + [VIDEO_ID] * len(plan.frames)
        self.positions = [0, *(plan.positions + shift).tolist()]
        self.times = [-1, *plan.frames.tolist()]
        self.evict_times = [NEVER, *plan.evict_times.tolist()]
        if has_newline:
            self.ids.append(VIDEO_ID)
            self.positions.append(self.positions[-1] + 1)
            self.times.append(AFTER_VIDEO)
            self.evict_times.append(NEVER)
        self.num_video = len(self.ids)
        self.dialogues = [0] * self.num_video
        self.first_position = self.positions[-1] + 1 + plan.question_gap
        self.next_position = self.first_position
        self.dialogue = 0

    @property
    def length(self) -> int:
        return len(self.ids)

    def start_dialogue(self) -> None:
        self.dialogue += 1
        self.next_position = self.first_position

    def add(self, ids: Sequence[int]) -> int:
        """Append question tokens; returns the index of the first."""
        start = len(self.ids)
        count = len(ids)
        self.ids.extend(ids)
        self.positions.extend(range(self.next_position, self.next_position + count))
        self.times.extend([AFTER_VIDEO] * count)
        self.evict_times.extend([NEVER] * count)
        self.dialogues.extend([self.dialogue] * count)
        self.next_position += count
        return start


@dataclass(frozen=True, slots=True)
class _Turn:
    """One question in the sequence: its answer rows, slot words and evidence."""

    type: str
    rows: list[int]
    words: list[int]
    slot_tokens: list[int]
    first: tuple[int, ...]
    second: tuple[int, ...]
    slots: Slots


def _ask(
    rng: np.random.Generator,
    story: Story,
    visible: Story,
    recipe: SampleRecipe,
    builder: SequenceBuilder,
) -> list[_Turn]:
    limit = builder.length + recipe.question_tokens
    is_multi_turn = rng.random() < recipe.dialogue_share
    weights = _type_weights(recipe)
    turns: list[_Turn] = []
    for _ in range(recipe.question_tokens):
        type = TYPE_NAMES[int(np.searchsorted(weights, rng.random() * weights[-1]))]
        question = draw_question(rng, visible, type)
        if question is None or answer(story, type, question.slots) != question.answer:
            continue
        words = encode_words(question.text)
        words = words[:-1] if rng.random() < 0.2 else words
        replies = [*encode_words(question.answer), EOS_ID]
        if builder.length + len(words) + len(replies) + 2 > limit:
            break
        if not is_multi_turn or not turns or rng.random() < 0.25:
            builder.start_dialogue()
        start = builder.add([USER_ID, *words, ASSISTANT_ID, *replies])
        slot_ids = {word for slot in question.slots.values() for word in _slot_ids(slot)}
        first_row = start + 1 + len(words)
        first, second = hops(visible, type, question.slots)
        turns.append(
            _Turn(
                type,
                list(range(first_row, first_row + len(replies))),
                replies,
                [start + 1 + i for i, word in enumerate(words) if word in slot_ids],
                first,
                second,
                question.slots,
            )
        )
    return turns


def _slot_ids(slot: str) -> list[int]:
    """Ids of a slot word: a shape may stand in the question as its plural."""
    if slot in SHAPES:
        return encode_words(f"{slot} {slot}{'es' if slot.endswith('s') else 's'}")
    return encode_words(slot)


def _type_weights(recipe: SampleRecipe) -> npt.NDArray[np.float64]:
    totals = {group: sum(w for g, w in TYPES.values() if g == group) for group in GROUPS}
    return np.cumsum(
        [
            recipe.group_weights[group] * w / totals[group] * recipe.type_factors.get(type, 1.0)
            for type, (group, w) in TYPES.items()
        ]
    )


# -- attention targets -------------------------------------------------------------------------


def _wanted_units(view: _StoryView, unit_sets: Sequence[Sequence[int]], length: int) -> FloatArray:
    """Weight 1 on every token of the given units; on ``<bos>`` if there are none."""
    member = np.zeros((len(unit_sets), len(view.units) + 2), dtype=np.float32)
    for row, units in enumerate(unit_sets):
        member[row, list(units) if len(units) else [-2]] = 1.0
    column = np.full(length, len(view.units) + 1)
    column[0] = len(view.units)
    column[1 : 1 + len(view.token_units)] = view.token_units
    wanted: FloatArray = member[:, column]
    return wanted


def _start_tokens(view: _StoryView) -> IntArray:
    """Index in the sequence of the first token of each unit."""
    _, first = np.unique(view.token_units, return_index=True)
    starts: IntArray = first + 1
    return starts


def _hop_units(view: _StoryView, events: Sequence[int], facts: Slots) -> list[int]:
    """Units behind visible events: those with the facts, where an event shows two sprites."""
    return [unit for event in events for unit in view.units_of(view.held_index[event], facts)]


def _hop_facts(turn: _Turn) -> tuple[Slots, Slots]:
    """What the sprite of the first and of the second hop must have, from the question's slots."""
    named = {name: word for name, word in turn.slots.items() if not name.endswith("2")}
    if turn.type == "order_which_first":
        return named, {"shape": turn.slots["shape2"], "color": turn.slots["color2"]}
    return named, {} if turn.type in ("order_after", "order_before") else named


def _question_targets(view: _StoryView, asked: Sequence[_Turn], length: int) -> dict[str, Target]:
    """Rows that predict an answer word: the slot words, then the evidence."""
    rows: list[int] = []
    slot_words: list[list[int]] = []
    firsts: list[list[int]] = []
    seconds: list[list[int]] = []
    count_rows: list[int] = []
    count_units: list[list[int]] = []
    for turn in asked:
        facts = _hop_facts(turn)
        first = _hop_units(view, turn.first, facts[0])
        second = _hop_units(view, turn.second, facts[1])
        for row in turn.rows[:-1]:
            rows.append(row)
            slot_words.append(turn.slot_tokens)
            firsts.append(first)
            seconds.append(second)
        if TYPES[turn.type][0] == "count":
            count_rows.append(turn.rows[0])
            count_units.append(first)
    slots = np.zeros((len(rows), length), dtype=np.float32)
    for index, tokens in enumerate(slot_words):
        slots[index, tokens] = 1.0
    visible = _visible_starts(view)
    counts = np.zeros((len(count_rows), length), dtype=np.float32)
    counts[:, 0] = 1.0
    for index, units in enumerate(count_units):
        counts[index, [visible[unit] for unit in units if unit in visible]] = 1.0
    row_array = np.array(rows, dtype=np.int64)
    return {
        "slots": Target(row_array, slots),
        "first": Target(row_array, _wanted_units(view, firsts, length)),
        "second": Target(row_array, _wanted_units(view, seconds, length)),
        "count": Target(np.array(count_rows, dtype=np.int64), counts),
    }


def _visible_starts(view: _StoryView) -> dict[int, int]:
    """First token of each unit, for those units whose first token the question can see."""
    starts = _start_tokens(view)
    return {
        unit: int(start) for unit, start in enumerate(starts) if view.plan.survives[int(start) - 1]
    }


def _video_targets(rng: np.random.Generator, view: _StoryView, length: int) -> dict[str, Target]:
    """One token per frame that shows something: the previous event, and earlier ones alike."""
    frames = view.plan.frames
    order = rng.permutation(len(frames))
    _, chosen = np.unique(frames[order], return_index=True)
    tokens = order[chosen]
    shows = np.array([unit.sprite is not None for unit in view.units])
    tokens = np.sort(tokens[shows[view.token_units[tokens]]])
    row_units = view.token_units[tokens]
    events = view.unit_events
    previous = _previous_shown(view.held)
    earlier = [
        [] if previous[event] is None else np.flatnonzero(events == previous[event]).tolist()
        for event in events[row_units].tolist()
    ]
    rows = tokens + 1
    before = np.zeros((len(rows), length), dtype=np.float32)
    before[np.arange(len(rows)), _tokens_before(view.token_units)[tokens] + 1] = 1.0
    alike_shape, alike_color = _alike(view.units)
    starts = _start_tokens(view)

    def running(alike: npt.NDArray[np.bool_]) -> Target:
        wanted = np.zeros((len(rows), length), dtype=np.float32)
        wanted[:, 0] = 1.0
        wanted[:, starts] = alike[row_units]
        return Target(rows, wanted)

    return {
        "before": Target(rows, before),
        "previous": Target(rows, _wanted_units(view, earlier, length)),
        "same_shape": running(alike_shape),
        "same_color": running(alike_color),
    }


def _tokens_before(token_units: IntArray) -> IntArray:
    """For each token the latest earlier one of its unit, else simply the one before it; -1: none.

    What stands there tells whether a sprite just came into the picture.
    """
    before = np.arange(len(token_units)) - 1
    last: dict[int, int] = {}
    for token, unit in enumerate(token_units.tolist()):
        before[token] = last.get(unit, before[token])
        last[unit] = token
    return before


def _previous_shown(story: Story) -> list[int | None]:
    previous: list[int | None] = []
    last: int | None = None
    for index, event in enumerate(story.events):
        previous.append(last)
        last = index if event.sprites else last
    return previous


def _alike(units: Sequence[Unit]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """``[unit, earlier or same unit]``: do they share a shape; do they share a colour?"""
    shape = np.zeros((len(units), len(SHAPES)), dtype=np.float32)
    color = np.zeros((len(units), len(COLORS)), dtype=np.float32)
    for index, unit in enumerate(units):
        if unit.sprite is not None:
            shape[index, SHAPES.index(unit.sprite.shape)] = 1.0
            color[index, COLORS.index(unit.sprite.color)] = 1.0
    return np.tril(shape @ shape.T) > 0, np.tril(color @ color.T) > 0


# -- side heads --------------------------------------------------------------------------------


def _side_labels(view: _StoryView, length: int) -> dict[str, IntArray]:
    """Labels per token: start of an event; what came before; running counts; how many so far."""
    events = view.held.events
    previous = _previous_shown(view.held)
    alike_shape, alike_color = _alike(view.units)
    ordinals = np.cumsum([bool(event.sprites) for event in events])
    by_unit = np.full((len(view.units), 6), IGNORED)
    for index, unit in enumerate(view.units):
        if unit.sprite is None:
            continue
        before = previous[unit.event]
        if before is None:
            by_unit[index, :2] = NO_EVENT_SHAPE, NO_EVENT_COLOR
        elif len(events[before].sprites) == 1:
            sprite = events[before].sprites[0]
            by_unit[index, :2] = SHAPES.index(sprite.shape), COLORS.index(sprite.color)
        by_unit[index, 2] = min(int(alike_shape[index].sum()), COUNT_CLASSES - 1)
        by_unit[index, 3] = min(int(alike_color[index].sum()), COUNT_CLASSES - 1)
        by_unit[index, 4] = min(int(4 * np.log2(ordinals[unit.event])), ORDINAL_CLASSES - 1)
        by_unit[index, 5] = _digit_class(unit.sprite)
    names = (
        "previous_shape", "previous_color", "shape_count", "color_count", "ordinal", "own_digit",
    )  # fmt: skip
    labels = {
        name: _per_token(by_unit[view.token_units, column], length)
        for column, name in enumerate(names)
    }
    is_start = np.zeros(len(view.token_units), dtype=np.int64)
    is_start[_start_tokens(view) - 1] = 1
    return {**labels, "start": _per_token(is_start, length)}


def _reply_labels(visible: Story, asked: Sequence[_Turn], length: int) -> dict[str, IntArray]:
    """Labels of the rows that predict an answer word: all about the one sprite that was found."""
    names = ("found_shape", "found_color", "found_zone", "found_digit")
    labels = np.full((len(names), length), IGNORED)
    for turn in asked:
        sprites = [s for event in turn.second for s in visible.events[event].sprites]
        if len(sprites) > 1 and TYPES[turn.type][0] != "order":
            sprites = [sprite for sprite in sprites if _has(sprite, turn.slots)]
        if len(sprites) != 1:
            continue
        sprite = sprites[0]
        values = (SHAPES.index(sprite.shape), COLORS.index(sprite.color))
        values = (*values, ZONES.index(sprite.zone), _digit_class(sprite))
        labels[:, turn.rows[:-1]] = np.array(values)[:, None]
    return dict(zip(names, labels, strict=True))


def _has(sprite: Sprite, slots: Slots) -> bool:
    """Whether a sprite has everything that a question names."""
    facts = {
        "shape": sprite.shape,
        "color": sprite.color,
        "zone": sprite.zone,
        "digit": str(sprite.digit),
    }
    return all(facts[name] == word for name, word in slots.items())


def _digit_class(sprite: Sprite) -> int:
    return len(DIGITS) if sprite.digit is None else sprite.digit


ORDINAL_CLASSES = 24
#: Side head -> (layer whose input it reads, classes).
SIDE_HEADS: dict[str, tuple[int, int]] = {
    "start": (2, 2),
    "previous_shape": (3, NO_EVENT_SHAPE + 1),
    "previous_color": (3, NO_EVENT_COLOR + 1),
    "ordinal": (4, ORDINAL_CLASSES),
    "shape_count": (4, COUNT_CLASSES),
    "color_count": (4, COUNT_CLASSES),
    "own_digit": (4, len(DIGITS) + 1),
    "found_shape": (7, len(SHAPES)),
    "found_color": (7, len(COLORS)),
    "found_zone": (7, len(ZONES)),
    "found_digit": (7, len(DIGITS) + 1),
}


def _per_token(values: IntArray, length: int) -> IntArray:
    labels = np.full(length, IGNORED)
    labels[1 : 1 + len(values)] = values
    return labels
