"""EgoSchema: five options about three minutes; true answers are public for 500 of 5,031 only."""

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
    is_list_with,
    tolerant,
)


class EgoSchema(FolderReader):
    """Questions of GitHub with the public answers beside them, or tables of Hugging Face."""

    title = "EgoSchema"

    def shapes(self) -> Sequence[Shape]:
        """GitHub's files before the tables."""
        is_table = is_list_with("question_idx", "option")
        github = ("questions.json", "subset_answers.json")
        subset = ("Subset/test-*.parquet", "*subset*.parquet", "*subset*.jsonl")
        full = ("MC/test-*.parquet", "*egoschema*.jsonl", "*egoschema*.parquet")
        return [
            Shape("GitHub", github, _read_github, _is_github, (5031, 5031)),
            Shape("table, subset", subset, _read_table, is_table, (500, 500)),
            Shape("table, all", full, _read_table, is_table, (5031, 5031)),
        ]


def _is_github(content: Any) -> bool:
    return isinstance(content, dict) or is_list_with("q_uid")(content)


def _read_github(sources: Sequence[Source], builder: Builder) -> None:
    answers: dict[str, Any] = {}
    for source in sources:
        if isinstance(source.content, dict):
            answers |= source.content
    for source in sources:
        if isinstance(source.content, dict):
            continue
        for index, row in enumerate(source.rows):
            add = partial(_add_github, builder, row, answers)
            tolerant(builder, f"{source.name}#{index}", add)
    if not answers:
        builder.remarks.append("no subset_answers.json: every true answer is hidden")


def _add_github(builder: Builder, row: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
    uid = str(row["q_uid"])
    _add(builder, uid, uid, row["question"], fields.option_columns(row), answers.get(uid), row)


def _read_table(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        for index, row in enumerate(source.rows):
            tolerant(builder, f"{source.name}#{index}", partial(_add_row, builder, row))


def _add_row(builder: Builder, row: Mapping[str, Any]) -> None:
    answer = row.get("answer")
    answer = None if answer in (None, "") else answer
    texts = fields.option_texts(row["option"])
    uid = str(row["question_idx"])
    _add(builder, uid, str(row["video_idx"]), row["question"], texts, answer, row)


def _add(
    builder: Builder,
    uid: str,
    name: str,
    text: Any,
    texts: Sequence[str],
    answer: Any,
    row: Mapping[str, Any],
) -> None:
    options, gold, index = builder.choice(uid, texts, answer, "index")
    builder.add(
        uid,
        builder.video(name, name),
        text,
        "choice",
        "full set" if answer is None else "subset",
        None,
        options=options,
        gold=gold,
        gold_index=index,
        raw=row,
    )
