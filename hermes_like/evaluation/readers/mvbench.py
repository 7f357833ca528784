"""MVBench: twenty tasks of 200 questions on short clips, five of them on a part of the file.

In the ``video`` revision those parts were cut out beforehand; their times must not be applied
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hermes_like.evaluation import fields
from hermes_like.evaluation.build import Builder
from hermes_like.evaluation.readers.folder import (
    FolderReader,
    Shape,
    Source,
    each_row,
    is_list_with,
    tolerant,
)

TASKS = (
    "action_sequence",
    "action_prediction",
    "action_antonym",
    "fine_grained_action",
    "unexpected_action",
    "object_existence",
    "object_interaction",
    "object_shuffle",
    "moving_direction",
    "action_localization",
    "scene_transition",
    "action_count",
    "moving_count",
    "moving_attribute",
    "state_change",
    "fine_grained_pose",
    "character_order",
    "egocentric_navigation",
    "episodic_reasoning",
    "counterfactual_inference",
)


class MVBench(FolderReader):
    """One JSON file per task."""

    title = "MVBench"

    def shapes(self) -> Sequence[Shape]:
        """Files of the twenty tasks."""
        patterns = tuple(f"{task}.json" for task in TASKS)
        return [
            Shape(
                "one file per task", patterns, _read, is_list_with("video", "candidates"), (0, 4000)
            )
        ]


def _read(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        for index, where, row in each_row(source):
            task = source.path.stem
            tolerant(builder, where, partial(_add, builder, task, f"{task}/{index}", row))


def _add(builder: Builder, task: str, question_id: str, row: Mapping[str, Any]) -> None:
    path = str(row["video"])
    start_s, end_s = 0.0, None
    found = builder.listing.find(path)
    is_cut = found is not None and "segment" in found.path.parent.name.casefold()
    if row.get("end") is not None and not is_cut:
        start_s, end_s = fields.seconds(row.get("start") or 0)[0], fields.seconds(row["end"])[0]
    key = path if end_s is None else f"{path}#{start_s:g}-{end_s:g}"
    video = builder.video(f"{task}/{key}", path, start_s=start_s, end_s=end_s, fps=row.get("fps"))
    texts = fields.option_texts(row["candidates"])
    options, gold, index = builder.choice(question_id, texts, row["answer"], "text")
    builder.add(
        question_id,
        video,
        row["question"],
        "choice",
        task,
        end_s,
        options=options,
        gold=gold,
        gold_index=index,
        start_s=start_s,
        raw=row,
    )
