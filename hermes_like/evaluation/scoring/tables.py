"""Which rows the table of each dataset has, in which order, and how its total is averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hermes_like.evaluation.readers import mlvu, mvbench, ovobench, streamingbench

Mean = Literal["micro", "macro"]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a table.

    Attributes:
        title: Heading.
        keys: Rows in the order of the paper; empty: every one that occurs.
        tag: Which class of the questions names the row; empty: ``category``.
        mean: How the paper averages its rows.
    """

    title: str
    keys: tuple[str, ...] = ()
    tag: str = ""
    mean: Mean = "micro"


@dataclass(frozen=True, slots=True)
class Layout:
    """A table.

    Attributes:
        sections: In order.
        total_name: As the paper calls it.
        total: Over all questions; over the rows of the first section; or the unweighted mean of
            the means of all sections.
    """

    sections: tuple[Section, ...]
    total_name: str = "Overall"
    total: Literal["micro", "macro", "sections"] = "micro"


_TASKS = Section("By task")
_STREAMING = {
    "real": "Real-Time Visual Understanding",
    "omni": "Omni-Source Understanding",
    "contextual": "Contextual Understanding",
}
_OVO = {
    "realtime": "Real-Time Visual Perception",
    "backward": "Backward Tracing",
    "forward": "Forward Active Responding",
}
_CHOICE_TASKS = mlvu.TASKS[:7]

#: By family; see ``official.family``.
LAYOUTS: Mapping[str, Layout] = {
    "streamingbench": Layout(
        tuple(Section(_STREAMING[name], keys) for name, keys in streamingbench.GROUPS.items())
    ),
    "ovobench": Layout(
        tuple(Section(_OVO[name], keys, mean="macro") for name, keys in ovobench.GROUPS.items()),
        total_name="Overall Avg.",
        total="sections",
    ),
    "odvbench": Layout((Section("By subtask"), Section("By task", tag="task"))),
    "videomme": Layout(
        (
            Section("By duration", ("short", "medium", "long"), "duration"),
            Section("By domain", tag="domain"),
            Section("By sub-category", tag="sub_category"),
            _TASKS,
        )
    ),
    "mlvu": Layout(
        (
            Section("Multiple choice", _CHOICE_TASKS, mean="macro"),
            Section("Generation", mlvu.TASKS[7:], mean="macro"),
        ),
        total_name="M-Avg",
        total="macro",
    ),
    "longvideobench": Layout(
        (
            Section("By duration", ("15", "60", "600", "3600"), "duration_group"),
            Section("By question category"),
            Section("By level", tag="level"),
        )
    ),
    "cgbench": Layout((Section("By sub-category"), Section("By domain", tag="domain"))),
    "mvbench": Layout((Section("By task", mvbench.TASKS, mean="macro"),), "Avg", "macro"),
    "egoschema": Layout((Section("By set", ("subset", "full set")),)),
    "rvs": Layout((Section("By answer", tag="answer"),)),
    "activitynet": Layout((Section("By type"),)),
}


def layout_of(family: str) -> Layout:
    """The table of a family; by category where none is known."""
    return LAYOUTS.get(family, Layout((_TASKS,)))
