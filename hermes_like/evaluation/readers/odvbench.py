"""ODV-Bench: driving scenes; ``end`` is how much may be seen, as most questions ask what follows.

Two editions differ in the coordinates inside the questions; the hash of the file tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hermes_like.evaluation import fields
from hermes_like.evaluation.build import Builder
from hermes_like.evaluation.listing import Reference
from hermes_like.evaluation.readers.folder import (
    FolderReader,
    Shape,
    Source,
    each_row,
    is_list_with,
    tolerant,
)

#: Parts as three files carry them, where they were split.
_PARTS = (
    "targeting_single_static_objects_v4*.json",
    "targeting_single_dynamic_objects_v4*.json",
    "targeting_multi_object_interaction_scenarios_or_events_v4*.json",
)


class ODVBench(FolderReader):
    """The whole file, or its three parts."""

    title = "ODV-Bench"

    def shapes(self) -> Sequence[Shape]:
        """One file, or one per task."""
        accepts = is_list_with("question", "candidates", "video")
        return [
            Shape("ODVbench.json", ("ODVbench.json",), _read, accepts, (1190, 6348)),
            Shape("one file per task", _PARTS, _read, accepts, (1190, 6348)),
        ]


def _read(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        # Rows carry no identifier: their place in their file is it.
        prefix = "" if len(sources) == 1 else f"{source.path.stem}/"
        for index, where, row in each_row(source):
            tolerant(builder, where, partial(_add, builder, f"{prefix}{index}", row))


def _add(builder: Builder, question_id: str, row: Mapping[str, Any]) -> None:
    path = str(row["video"])
    video = builder.video(
        path, Reference(path, num_parts=min(2, path.count("/") + 1)), fps=row.get("fps")
    )
    texts = fields.option_texts(row["candidates"])
    options, gold, index = builder.choice(question_id, texts, row["answer"], "text")
    builder.add(
        question_id,
        video,
        row["question"],
        "choice",
        str(row["subtask"]),
        builder.ask_s(question_id, row["end"]),
        options=options,
        gold=gold,
        gold_index=index,
        tags={"task": str(row["task"])},
        raw=row,
    )
