"""LongVideoBench: questions that point at a scene; true answers of the test split are hidden."""

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


class LongVideoBench(FolderReader):
    """Validation before test."""

    title = "LongVideoBench"

    def shapes(self) -> Sequence[Shape]:
        """JSON and Parquet of either split."""
        accepts = is_list_with("question", "video_id")
        return [
            Shape("validation, JSON", ("lvb_val.json",), _read, accepts, (0, 1337)),
            Shape("validation, Parquet", ("validation-*.parquet",), _read, accepts, (0, 1337)),
            Shape("test, JSON", ("lvb_test_wo_gt.json",), _read, accepts),
            Shape("test, Parquet", ("test-*.parquet",), _read, accepts),
        ]


def _read(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        for _, where, row in each_row(source):
            tolerant(builder, where, partial(_add, builder, row))
    builder.remarks.append("subtitles are not shown; published rows may interleave them")


def _add(builder: Builder, row: Mapping[str, Any]) -> None:
    question_id = str(row["id"])
    has_list = row.get("candidates") is not None
    texts = fields.option_texts(row["candidates"]) if has_list else fields.option_columns(row)
    options, gold, index = builder.choice(question_id, texts, row.get("correct_choice"), "index")
    path = str(row.get("video_path") or row["video_id"])
    builder.add(
        question_id,
        builder.video(str(row["video_id"]), path, duration_s=row.get("duration")),
        row["question"],
        "choice",
        str(row["question_category"]),
        None,
        options=options,
        gold=gold,
        gold_index=index,
        tags={
            name: str(row[name])
            for name in ("duration_group", "level", "topic_category")
            if name in row
        },
        raw=row,
    )
