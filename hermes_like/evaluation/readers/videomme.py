"""Video-MME: three questions about each whole video, by length, domain and task."""

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


class VideoMME(FolderReader):
    """The table of the Hugging Face copy, as Parquet or exported."""

    title = "Video-MME"

    def shapes(self) -> Sequence[Shape]:
        """Parquet as published; JSON lines, JSON or CSV as people export it."""
        accepts = is_list_with("videoID", "question_id", "options")
        patterns = ("videomme/test-*.parquet", "test-*.parquet")
        exports = ("video*mme*.jsonl", "video*mme*.json", "video*mme*.csv", "test*.jsonl")
        return [
            Shape("Parquet", patterns, _read, accepts, (900, 2700)),
            Shape("exported table", exports, _read, accepts, (900, 2700)),
        ]


def _read(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        for _, where, row in each_row(source):
            tolerant(builder, where, partial(_add, builder, row))


def _add(builder: Builder, row: Mapping[str, Any]) -> None:
    question_id, name = str(row["question_id"]), str(row["videoID"])
    texts = fields.option_texts(row["options"])
    options, gold, index = builder.choice(question_id, texts, row["answer"], "letter")
    builder.add(
        question_id,
        builder.video(name, name),
        row["question"],
        "choice",
        str(row["task_type"]),
        None,
        options=options,
        gold=gold,
        gold_index=index,
        tags={name: str(row[name]) for name in ("duration", "domain", "sub_category")},
        raw=row,
    )
