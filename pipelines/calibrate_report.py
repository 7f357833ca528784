"""Tables of ``pipelines/calibrate.py``. This module runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.calibrate_oracle import Ranks
from pipelines.calibrate_search import Choice
from pipelines.calibrate_streams import RECALL_TYPES
from pipelines.reporting import print_table, share, share_text

#: Rank of an event that is not among the hits.
NOT_FOUND = 1 << 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """One held-out question about the past.

    Attributes:
        type: Of the question.
        age: Frames since the event.
        has_company: Whether another sprite shared its frames.
        rank: Hits before the first one that shows the event.
    """

    type: str
    age: int
    has_company: bool
    rank: int


def recall_row(name: str, results: Sequence[Outcome], most: int) -> list[str]:
    """A row of recall at ``most``, by type."""
    return [
        name,
        *(
            share_text(share([o.rank < most for o in results if o.type == type]))
            for type in RECALL_TYPES
        ),
        share_text(share([o.rank < most for o in results])),
    ]


def recall_json(results: Sequence[Outcome]) -> dict[str, Any]:
    """Recall at 1, 8 and 16 by type, for the last line."""
    return {
        type: {str(k): share([o.rank < k for o in results if o.type == type]) for k in (1, 8, 16)}
        for type in RECALL_TYPES
    }


def as_outcomes(by_type: dict[str, list[int]]) -> list[Outcome]:
    """Bare ranks as outcomes."""
    return [Outcome(type, 0, False, rank) for type, ranks in by_type.items() for rank in ranks]


def print_tables(
    choices: Sequence[Choice],
    heads: Sequence[tuple[int, int]],
    results: dict[str, list[Outcome]],
    oracle: Ranks,
    rates: dict[str, dict[str, dict[str, object]]],
    quickness: dict[str, float],
    moved: float,
) -> list[str]:
    """Print everything; returns the tables as Markdown."""
    return [
        _choices(choices, heads),
        *(_recall(results, most) for most in (1, 8, 16)),
        _splits(next(iter(results.values()))),
        *([_oracle(oracle)] if oracle else []),
        _gate(rates),
        print_table(
            "index of random vectors; drift of scores with age",
            ["what", "value"],
            [
                *([name, str(value)] for name, value in quickness.items()),
                ["oldest less newest quarter, deviations", f"{moved:+.2f}"],
            ],
        ),
    ]


def _choices(choices: Sequence[Choice], heads: Sequence[tuple[int, int]]) -> str:
    rows = [
        [
            f"{c.variant.groups} / {c.variant.pooling} / {c.variant.normalisation}",
            " ".join(f"({layer},{head})" for layer, head in (heads[n] for n in c.heads)),
            f"{100 * c.fitness.recall_1:.0f}",
            f"{100 * c.fitness.recall_8:.0f}",
            f"{c.fitness.separation:+.2f}",
        ]
        for c in choices
    ]
    columns = ["vectors per frame / pooling / normalisation", "heads", "@1", "@8", "separation"]
    return print_table("on the streams to choose on, best first", columns, rows)


def _recall(results: dict[str, list[Outcome]], most: int) -> str:
    rows = [recall_row(name, values, most) for name, values in results.items()]
    return print_table(f"held out: recall@{most}, %", ["scorer", *RECALL_TYPES, "all"], rows)


def _splits(results: Sequence[Outcome]) -> str:
    """Recall by age and by company: whether something is found less well."""
    middle = sorted(outcome.age for outcome in results)[len(results) // 2]
    parts = {
        f"younger than {middle} frames": [o for o in results if o.age < middle],
        "older": [o for o in results if o.age >= middle],
        "alone in its frames": [o for o in results if not o.has_company],
        "with another sprite": [o for o in results if o.has_company],
    }
    rows = [recall_row(name, values, 8) for name, values in parts.items()]
    return print_table(
        "held out: recall@8 of the chosen heads, %", ["events", *RECALL_TYPES, "all"], rows
    )


def _oracle(oracle: Ranks) -> str:
    rows = [
        recall_row(f"{name} @{most}", as_outcomes(by_type), most)
        for name, by_type in oracle.items()
        for most in (1, 8)
    ]
    title = "short streams, everything kept on the device: the model's own attention, %"
    return print_table(title, ["scorer", *RECALL_TYPES, "all"], rows)


def _gate(rates: dict[str, dict[str, dict[str, object]]]) -> str:
    rows = [
        [name, share_text(values["now_stays"]), share_text(values["recall_fetches"])]
        for name, values in rates.items()
    ]
    columns = ["streams", "present: stays (goal 95)", "past: fetches (goal 99)"]
    return print_table("the gate, %", columns, rows)
