"""CG-Bench: long videos, up to eight options, with the intervals that hold the clue."""

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


class CGBench(FolderReader):
    """The full file, the hard one, or the mini one."""

    title = "CG-Bench"

    def shapes(self) -> Sequence[Shape]:
        """Mini first: it is what streaming projects report."""
        accepts = is_list_with("qid", "video_uid")
        return [
            Shape("mini", ("cgbench_mini.json",), _read, accepts, (1118, 3000)),
            Shape("full", ("cgbench.json",), _read, accepts),
            Shape("hard", ("cgbench_hard.json",), _read, accepts),
        ]


def _read(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        for _, where, row in each_row(source):
            tolerant(builder, where, partial(_add, builder, row))


def _add(builder: Builder, row: Mapping[str, Any]) -> None:
    question_id, name = str(row["qid"]), str(row["video_uid"])
    texts = fields.option_texts(row["choices"])
    has_letter = row.get("right_answer") is not None
    answer = row["right_answer"] if has_letter else row.get("answer")
    encoding = "letter" if has_letter else "text"
    options, gold, index = builder.choice(question_id, texts, answer, encoding)
    builder.add(
        question_id,
        builder.video(name, Reference(name), duration_s=row.get("duration")),
        row["question"],
        "choice",
        str(row.get("sub_category", "all")),
        None,
        options=options,
        gold=gold,
        gold_index=index,
        evidence=fields.spans(row.get("clue_intervals")),
        tags={"domain": str(row["domain"])} if "domain" in row else {},
        raw=row,
    )
