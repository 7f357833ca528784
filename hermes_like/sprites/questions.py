"""Questions about a story and their true answers: 25 types in five groups.

Three pure functions do the work: :func:`pick` draws what a question is about, :func:`answer` gives
the truth (None where the question is ill-posed) and :func:`needle` the events that hold the
evidence. Training, tests and benchmarks share them. The module knows no pixels and no tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from hermes_like.sprites.stories import one_of
from hermes_like.sprites.templates import TEMPLATES, plural
from hermes_like.sprites.world import COLORS, DIGITS, HELD_OUT_PAIRS, SHAPES, Event, Sprite, Story

Group = Literal["now", "recall", "exists", "order", "count"]
#: What a question is about: keys are "shape", "color", "digit", "zone", "shape2", "color2".
Slots = Mapping[str, str]

GROUPS: Final[tuple[Group, ...]] = ("now", "recall", "exists", "order", "count")
#: Type -> (group, weight within the group when questions are drawn).
TYPES: Final[dict[str, tuple[Group, float]]] = {
    "now_what": ("now", 1.5),
    "now_shape": ("now", 0.6),
    "now_color": ("now", 0.6),
    "now_where": ("now", 0.6),
    "now_number": ("now", 1.0),
    "now_color_of": ("now", 0.6),
    "now_shape_at": ("now", 0.7),
    "now_where_of": ("now", 0.5),
    "recall_color": ("recall", 2.0),
    "recall_shape": ("recall", 1.5),
    "recall_number": ("recall", 2.0),
    "recall_number_of_shape": ("recall", 1.0),
    "recall_where": ("recall", 2.0),
    "recall_where_of_shape": ("recall", 1.0),
    "recall_object": ("recall", 2.5),
    "exists_pair": ("exists", 4.0),
    "exists_shape": ("exists", 0.7),
    "exists_color": ("exists", 0.5),
    "order_after": ("order", 4.5),
    "order_before": ("order", 3.0),
    "order_first": ("order", 0.6),
    "order_last": ("order", 0.6),
    "order_which_first": ("order", 1.2),
    "count_shape": ("count", 4.0),
    "count_color": ("count", 3.0),
}
MAX_COUNT: Final = 6
#: Share of recall questions about something never seen; the answer is "nothing".
UNSEEN_SHARE: Final = 0.08
#: Share of the "no" questions whose shape and colour both occurred, but never together.
LOOK_ALIKE_NO_SHARE: Final = 0.75


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its truth.

    Attributes:
        text: Lower-case words, with the question mark.
        answer: One or two words.
        group: One of the five groups.
        type: One of the 25 types.
        slots: What it is about.
        evidence: Indices of the events that hold the answer, in order.
    """

    text: str
    answer: str
    group: Group
    type: str
    slots: Slots
    evidence: tuple[int, ...]


def types_of(group: Group) -> tuple[str, ...]:
    """Return the types of one group."""
    return tuple(name for name, (of, _) in TYPES.items() if of == group)


def render_question(type: str, slots: Slots, paraphrase: int = 0) -> str:
    """Return the words of a question.

    Args:
        type: One of the 25 types.
        slots: What it is about.
        paraphrase: Which of the type's templates, modulo their number.
    """
    templates = TEMPLATES[type]
    words = {**slots}
    if "shape" in slots:
        words["shapes"] = plural(slots["shape"])
    return templates[paraphrase % len(templates)].format(**words)


def draw_question(
    rng: np.random.Generator, story: Story, type: str, *, allow_held_out: bool = False
) -> Question | None:
    """Draw one question of a type; None if the story allows none."""
    slots = pick(story, type, rng, allow_held_out=allow_held_out)
    truth = None if slots is None else answer(story, type, slots)
    if slots is None or truth is None:
        return None
    text = render_question(type, slots, int(rng.integers(len(TEMPLATES[type]))))
    return Question(text, truth, TYPES[type][0], type, slots, needle(story, type, slots))


# -- what a story shows ------------------------------------------------------------------------


def _last(story: Story) -> tuple[Sprite, ...]:
    return story.events[-1].sprites if story.events else ()


def _matches(sprite: Sprite, slots: Slots, suffix: str = "") -> bool:
    shape, color = slots.get("shape" + suffix), slots.get("color" + suffix)
    return (shape is None or sprite.shape == shape) and (color is None or sprite.color == color)


def _hits(story: Story, slots: Slots, suffix: str = "") -> list[tuple[int, Sprite]]:
    """Every (event index, sprite) that has the shape and the colour of the slots."""
    return [
        (index, sprite)
        for index, event in enumerate(story.events)
        for sprite in event.sprites
        if _matches(sprite, slots, suffix)
    ]


def _digit_hits(story: Story, digit: str) -> list[tuple[int, Sprite]]:
    return [
        (index, sprite)
        for index, event in enumerate(story.events)
        for sprite in event.sprites
        if str(sprite.digit) == digit
    ]


def _shown(story: Story) -> list[tuple[int, Event]]:
    """Events that show something, with their indices."""
    return [(index, event) for index, event in enumerate(story.events) if event.sprites]


def _digit_word(sprite: Sprite) -> str:
    return "none" if sprite.digit is None else str(sprite.digit)


def _object_words(sprite: Sprite) -> str:
    return f"{sprite.color} {sprite.shape}"


def _agreed(words: Iterable[str]) -> str | None:
    """The one word all agree on, "nothing" for no words at all, None if they differ."""
    distinct = set(words)
    if not distinct:
        return "nothing"
    return distinct.pop() if len(distinct) == 1 else None


def _neighbour(story: Story, slots: Slots, step: int) -> tuple[int, int | None] | None:
    """Anchor event and the next shown event in one direction; None if either is ambiguous."""
    hits = _hits(story, slots)
    if len(hits) != 1 or len(story.events[hits[0][0]].sprites) != 1:
        return None
    index = hits[0][0] + step
    while 0 <= index < len(story.events) and not story.events[index].sprites:
        index += step
    if not 0 <= index < len(story.events):
        return hits[0][0], None
    return (hits[0][0], index) if len(story.events[index].sprites) == 1 else None


# -- answers -----------------------------------------------------------------------------------


def _answer_now(story: Story, type: str, slots: Slots) -> str | None:
    sprites = _last(story)
    if type == "now_color_of":
        return _agreed(s.color for s in sprites if s.shape == slots["shape"])
    if type == "now_where_of":
        return _agreed(s.zone for s in sprites if s.shape == slots["shape"])
    if type == "now_shape_at":
        return _agreed(s.shape for s in sprites if s.zone == slots["zone"])
    if len(sprites) > 1:
        return None
    if not sprites:
        return "nothing"
    sprite = sprites[0]
    return {
        "now_what": _object_words(sprite),
        "now_shape": sprite.shape,
        "now_color": sprite.color,
        "now_where": sprite.zone,
        "now_number": _digit_word(sprite),
    }[type]


def _answer_recall(story: Story, type: str, slots: Slots) -> str | None:
    if type == "recall_object":
        return _agreed(_object_words(s) for _, s in _digit_hits(story, slots["digit"]))
    sprites = [sprite for _, sprite in _hits(story, slots)]
    if type == "recall_color":
        return _agreed(sprite.color for sprite in sprites)
    if type == "recall_shape":
        return _agreed(sprite.shape for sprite in sprites)
    if type.startswith("recall_number"):
        return _agreed(_digit_word(sprite) for sprite in sprites)
    return _agreed(sprite.zone for sprite in sprites)


def _answer_order(story: Story, type: str, slots: Slots) -> str | None:
    if type in ("order_after", "order_before"):
        found = _neighbour(story, slots, 1 if type == "order_after" else -1)
        if found is None:
            return None
        target = found[1]
        return "nothing" if target is None else _object_words(story.events[target].sprites[0])
    if type in ("order_first", "order_last"):
        shown = _shown(story)
        if not shown:
            return "nothing"
        sprites = shown[0 if type == "order_first" else -1][1].sprites
        return _object_words(sprites[0]) if len(sprites) == 1 else None
    first, second = _hits(story, slots), _hits(story, slots, "2")
    if len(first) != 1 or len(second) != 1 or first[0][0] == second[0][0]:
        return None
    return "yes" if first[0][0] < second[0][0] else "no"


def answer(story: Story, type: str, slots: Slots) -> str | None:
    """Return the true answer, or None where the question is ill-posed.

    Args:
        story: The stream up to now.
        type: One of the 25 types.
        slots: What the question is about.
    """
    group = TYPES[type][0]
    if group == "now":
        return _answer_now(story, type, slots)
    if group == "recall":
        return _answer_recall(story, type, slots)
    if group == "order":
        return _answer_order(story, type, slots)
    count = len(_hits(story, slots))
    if group == "exists":
        return "yes" if count else "no"
    return str(count) if count <= MAX_COUNT else None


# -- evidence ----------------------------------------------------------------------------------


def hops(story: Story, type: str, slots: Slots) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the events to look at first and second, as attention targets for training.

    Empty means that nothing matches. For "after" and "before" the hops are anchor and target, for
    "did A come before B" they are A and B, for counts all matching events and the last of them,
    else both hops are the evidence.
    """
    group = TYPES[type][0]
    if group == "now":
        now = (len(story.events) - 1,) if story.events else ()
        return now, now
    if type in ("order_after", "order_before"):
        found = _neighbour(story, slots, 1 if type == "order_after" else -1)
        if found is None:
            return (), ()
        return (found[0],), (() if found[1] is None else (found[1],))
    if type in ("order_first", "order_last"):
        shown = _shown(story)
        end = () if not shown else (shown[0 if type == "order_first" else -1][0],)
        return end, end
    if type == "order_which_first":
        pairs = _hits(story, slots), _hits(story, slots, "2")
        return tuple(index for index, _ in pairs[0]), tuple(index for index, _ in pairs[1])
    found_hits = (
        _digit_hits(story, slots["digit"]) if type == "recall_object" else _hits(story, slots)
    )
    events = tuple(dict.fromkeys(index for index, _ in found_hits))
    return events, (events[-1:] if group == "count" else events)


def needle(story: Story, type: str, slots: Slots) -> tuple[int, ...]:
    """Return the indices of the events that hold the evidence, in order; empty if none does."""
    first, second = hops(story, type, slots)
    return tuple(sorted({*first, *second}))


# -- drawing what to ask about -----------------------------------------------------------------


def pick(
    story: Story, type: str, rng: np.random.Generator, *, allow_held_out: bool = False
) -> Slots | None:
    """Draw what a question of this type is about; None if the story allows none.

    The drawn slots may still be ill-posed; ask :func:`answer`.

    Args:
        story: The stream up to now.
        type: One of the 25 types.
        rng: Source of randomness.
        allow_held_out: Whether unseen things may be pairs that training never shows.
    """
    group = TYPES[type][0]
    if group == "now":
        return _pick_now(story, type, rng)
    if group == "recall":
        return _pick_recall(story, type, rng, allow_held_out)
    if group == "exists":
        return _pick_exists(story, type, rng, allow_held_out)
    if group == "order":
        return _pick_order(story, type, rng)
    return _pick_count(story, type, rng)


def _pick_now(story: Story, type: str, rng: np.random.Generator) -> Slots | None:
    if type not in ("now_color_of", "now_where_of", "now_shape_at"):
        return {}
    sprites = _last(story)
    if len(sprites) < 2:
        return None
    sprite = one_of(rng, sprites)
    return {"zone": sprite.zone} if type == "now_shape_at" else {"shape": sprite.shape}


def _pick_recall(
    story: Story, type: str, rng: np.random.Generator, allow_held_out: bool
) -> Slots | None:
    if rng.random() < UNSEEN_SHARE:
        return _unseen(story, type, rng, allow_held_out)
    sprites = [sprite for event in story.events for sprite in event.sprites]
    if not sprites:
        return None
    candidates = [_recall_slots(type, sprite) for sprite in sprites]
    posed = [slots for slots in candidates if slots and answer(story, type, slots) is not None]
    return one_of(rng, posed) if posed else None


def _recall_slots(type: str, sprite: Sprite) -> Slots | None:
    if type == "recall_object":
        return None if sprite.digit is None else {"digit": str(sprite.digit)}
    if type == "recall_shape":
        return {"color": sprite.color}
    if type in ("recall_number", "recall_where"):
        return {"shape": sprite.shape, "color": sprite.color}
    return {"shape": sprite.shape}


def _unseen(
    story: Story, type: str, rng: np.random.Generator, allow_held_out: bool
) -> Slots | None:
    if type in ("recall_number", "recall_where"):
        return _absent_kind(story, rng, allow_held_out)
    sprites = [sprite for event in story.events for sprite in event.sprites]
    if type == "recall_object":
        digits = [d for d in DIGITS if all(sprite.digit != d for sprite in sprites)]
        return {"digit": str(one_of(rng, digits))} if digits else None
    if type == "recall_shape":
        colors = [c for c in COLORS if all(sprite.color != c for sprite in sprites)]
        return {"color": one_of(rng, colors)} if colors else None
    shapes = [s for s in SHAPES if all(sprite.shape != s for sprite in sprites)]
    return {"shape": one_of(rng, shapes)} if shapes else None


def _absent_kind(story: Story, rng: np.random.Generator, allow_held_out: bool) -> Slots | None:
    """A shape and colour never seen together; often each was seen, the more often the likelier."""
    shapes: dict[str, int] = defaultdict(int)
    colors: dict[str, int] = defaultdict(int)
    seen = set()
    for event in story.events:
        for sprite in event.sprites:
            shapes[sprite.shape] += 1
            colors[sprite.color] += 1
            seen.add((sprite.shape, sprite.color))
    absent = [
        (shape, color)
        for shape in SHAPES
        for color in COLORS
        if (shape, color) not in seen and (allow_held_out or (shape, color) not in HELD_OUT_PAIRS)
    ]
    alike = [kind for kind in absent if kind[0] in shapes and kind[1] in colors]
    if alike and rng.random() < LOOK_ALIKE_NO_SHARE:
        weights = np.array([shapes[shape] * colors[color] for shape, color in alike], dtype=float)
        kind = alike[int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum()))]
    elif absent:
        kind = one_of(rng, absent)
    else:
        return None
    return {"shape": kind[0], "color": kind[1]}


def _pick_exists(
    story: Story, type: str, rng: np.random.Generator, allow_held_out: bool
) -> Slots | None:
    sprites = [sprite for event in story.events for sprite in event.sprites]
    if rng.random() < 0.5:
        if type == "exists_pair":
            return _absent_kind(story, rng, allow_held_out)
        is_shape = type == "exists_shape"
        return _unseen(story, "recall_color" if is_shape else "recall_shape", rng, allow_held_out)
    if not sprites:
        return None
    sprite = one_of(rng, sprites)
    if type == "exists_pair":
        return {"shape": sprite.shape, "color": sprite.color}
    return {"shape": sprite.shape} if type == "exists_shape" else {"color": sprite.color}


def _pick_order(story: Story, type: str, rng: np.random.Generator) -> Slots | None:
    if type in ("order_first", "order_last"):
        return {} if any(event.sprites for event in story.events) else None
    times: dict[tuple[str, str], int] = defaultdict(int)
    for event in story.events:
        for sprite in event.sprites:
            times[sprite.shape, sprite.color] += 1
    once = [kind for kind, count in times.items() if count == 1]
    if type == "order_which_first":
        if len(once) < 2:
            return None
        order = rng.permutation(len(once))[:2]
        first, second = once[int(order[0])], once[int(order[1])]
        return {"shape": first[0], "color": first[1], "shape2": second[0], "color2": second[1]}
    candidates: Sequence[Slots] = [{"shape": shape, "color": color} for shape, color in once]
    posed = [slots for slots in candidates if answer(story, type, slots) is not None]
    return one_of(rng, posed) if posed else None


def _pick_count(story: Story, type: str, rng: np.random.Generator) -> Slots | None:
    """Draw a count first and then something that has it, so that counts come out nearly even."""
    by_count: dict[int, list[str]] = defaultdict(list)
    names: Sequence[str] = SHAPES if type == "count_shape" else COLORS
    totals: dict[str, int] = dict.fromkeys(names, 0)
    for event in story.events:
        for sprite in event.sprites:
            totals[sprite.shape if type == "count_shape" else sprite.color] += 1
    for name, count in totals.items():
        if count <= MAX_COUNT:
            by_count[count].append(name)
    if not by_count:
        return None
    name = one_of(rng, by_count[one_of(rng, sorted(by_count))])
    return {"shape": name} if type == "count_shape" else {"color": name}
