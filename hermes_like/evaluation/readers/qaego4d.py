"""QAEgo4D: where is it, where was it, with the span in which it can be seen.

Three editions: multiple choice in ReKV's shape, closed questions with wrong answers beside, and
the original open annotations, whose spans count frames at 30 per second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hermes_like.evaluation.build import Builder
from hermes_like.evaluation.readers.folder import (
    FolderReader,
    Shape,
    Source,
    each_row,
    is_list_with,
    tolerant,
)
from hermes_like.evaluation.readers.rekv import conversion

FPS = 30


class QAEgo4D(FolderReader):
    """Multiple choice first, since published streaming results use it."""

    title = "QAEgo4D"

    def shapes(self) -> Sequence[Shape]:
        """The three editions."""
        closed = ("QaEgo4D_test_close.json",)
        original = ("annotations.test.json", "QaEgo4D_test.json")
        return [
            conversion("test_mc.json", edition="multiple choice", usual=(148, 500)),
            Shape("closed", closed, _read, is_list_with("question", "wrong_answers")),
            Shape("original, open", original, _read, is_list_with("question", "video_id")),
        ]


def _read(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        for index, where, row in each_row(source):
            tolerant(builder, where, partial(_add, builder, index, row))


def _add(builder: Builder, index: int, row: Mapping[str, Any]) -> None:
    question_id = str(row.get("sample_id", index))
    name = str(row["video_id"])
    options: tuple[str, ...] = ()
    gold, place = None if row.get("answer") is None else str(row["answer"]), None
    if row.get("wrong_answers"):
        # The true one would always be first; sorted, its place says nothing.
        texts = sorted([str(row["answer"]), *map(str, row["wrong_answers"])])
        options, gold, place = builder.choice(question_id, texts, row["answer"], "text")
    first, last = row.get("moment_start_frame"), row.get("moment_end_frame")
    builder.add(
        question_id,
        builder.video(name, name),
        row["question"],
        "choice" if options else "open",
        "all",
        None,
        options=options,
        gold=gold,
        gold_index=place,
        evidence=() if first is None or last is None else ((first / FPS, last / FPS),),
        raw=row,
    )
