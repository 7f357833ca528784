"""OVO-Bench: backward tracing, real-time perception, and forward responding polled in time.

The text of an answer disagrees with the place of the option in three rows of ten; the place
counts. Forward items are asked again at every test point; each point is a question of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

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

#: Groups of the paper, tasks in the order of its columns.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "realtime": ("OCR", "ACR", "ATR", "STU", "FPD", "OJR"),
    "backward": ("EPM", "ASI", "HLD"),
    "forward": ("REC", "SSR", "CRR"),
}


class OVOBench(FolderReader):
    """All three groups."""

    title = "OVO-Bench"
    tasks: ClassVar[tuple[str, ...]] = tuple(task for group in GROUPS.values() for task in group)
    usual: ClassVar[tuple[int, int] | None] = (644, 3035)

    def shapes(self) -> Sequence[Shape]:
        """The new file of GitHub and the older one of Hugging Face have the same rows."""
        read = partial(_read, tasks=self.tasks)
        accepts = is_list_with("task", "video")
        new = Shape("ovo_bench_new.json", ("ovo_bench_new.json",), read, accepts, self.usual)
        return [new, Shape("ovo_bench.json (older)", ("ovo_bench.json",), read, accepts)]


class Backward(OVOBench):
    """Backward tracing."""

    title = "OVO-Bench, backward tracing"
    tasks = GROUPS["backward"]
    usual = None


class RealTime(OVOBench):
    """Real-time visual perception."""

    title = "OVO-Bench, real-time perception"
    tasks = GROUPS["realtime"]
    usual = None


class Forward(OVOBench):
    """Forward active responding."""

    title = "OVO-Bench, forward responding"
    tasks = GROUPS["forward"]
    usual = None


def _read(sources: Sequence[Source], builder: Builder, *, tasks: tuple[str, ...]) -> None:
    for source in sources:
        for _, where, row in each_row(source):
            if row.get("task") not in tasks:
                continue
            if row["task"] in GROUPS["forward"]:
                for point, test in enumerate(row.get("test_info", ())):
                    add = partial(_add_point, builder, row, point, test)
                    tolerant(builder, f"{where}/{point}", add)
            else:
                tolerant(builder, where, partial(_add_choice, builder, row))
    builder.remarks.append("cut at the time asked; the official cut is at the next whole second")


def _video(builder: Builder, row: Mapping[str, Any]) -> str:
    # Base names repeat between sources, so the last folder must agree as well.
    path = str(row["video"])
    return builder.video(path, Reference(path, num_parts=min(2, path.count("/") + 1)))


def _add_choice(builder: Builder, row: Mapping[str, Any]) -> None:
    question_id = str(row["id"])
    texts = fields.option_texts(row["options"])
    options, gold, index = builder.choice(question_id, texts, row["gt"], "index")
    builder.add(
        question_id,
        _video(builder, row),
        row["question"],
        "choice",
        row["task"],
        builder.ask_s(question_id, row["realtime"]),
        options=options,
        gold=gold,
        gold_index=index,
        raw=row,
    )


def _add_point(
    builder: Builder, row: Mapping[str, Any], point: int, test: Mapping[str, Any]
) -> None:
    task, question_id = row["task"], f"{row['id']}/{point}"
    if task == "REC":
        text, gold = str(row["activity"]), str(int(test["count"]))
    else:
        text = str(test["step"] if task == "SSR" else row["question"])
        gold = "yes" if int(test["type"]) else "no"
    builder.add(
        question_id,
        _video(builder, row),
        text,
        "count" if task == "REC" else "yes_no",
        task,
        builder.ask_s(question_id, test["realtime"]),
        gold=gold,
        item_id=str(row["id"]),
        raw={**test, **{key: row[key] for key in ("activity", "tutorial") if key in row}},
    )
