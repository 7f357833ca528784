"""ActivityNet-QA and MSVD-QA: short open answers; questions in one file, answers in another.

MSVD-QA also circulates as one file whose video numbers lead to file names by a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from hermes_like.errors import DatasetError
from hermes_like.evaluation.build import Builder, yes_no
from hermes_like.evaluation.readers.folder import (
    FolderReader,
    Shape,
    Source,
    is_list_with,
    tolerant,
)

_MAP = "youtube_mapping.txt"
_IS_PAIR = is_list_with("question_id")
#: Numbers that ActivityNet-QA gives its types.
TYPES = (
    "motion",
    "spatial relationship",
    "temporal relationship",
    "yes/no",
    "color",
    "object",
    "location",
    "number",
    "other",
)


class ActivityNetQA(FolderReader):
    """The published pair of files, or one table."""

    title = "ActivityNet-QA"
    categories: ClassVar[Mapping[str, str]] = {str(i): name for i, name in enumerate(TYPES)}
    usual: ClassVar[tuple[int, int]] = (800, 8000)

    def shapes(self) -> Sequence[Shape]:
        """Pairs before tables."""
        tables = ("test-*.parquet", "test*.jsonl", "*activitynet*.json")
        accepts = is_list_with("video_name", "question", "answer")
        return [
            Shape(
                "pair of files", ("test_q.json", "test_a.json"), _read_pair, _IS_PAIR, self.usual
            ),
            Shape("one table", tables, _read_table, accepts, self.usual),
        ]


class MSVDQA(FolderReader):
    """The pair of files of the repacked copy, or the original rows with their mapping."""

    title = "MSVD-QA"

    def shapes(self) -> Sequence[Shape]:
        """Pair, then original."""
        accepts = is_list_with("video_id", "question", "answer")
        return [
            Shape(
                "pair of files", ("test_q.json", "test_a.json"), _read_pair, _IS_PAIR, (520, 13157)
            ),
            Shape("original", ("test_qa.json",), _read_original, accepts, (520, 13157)),
        ]


def _read_pair(sources: Sequence[Source], builder: Builder) -> None:
    answers: dict[str, Mapping[str, Any]] = {}
    for source in sources:
        for row in source.rows:
            if "answer" in row and "question" not in row:
                answers[str(row["question_id"])] = row
    if not answers:
        builder.remarks.append("no test_a.json: every true answer is hidden")
    for source in sources:
        for index, row in enumerate(source.rows):
            if "question" in row:
                answer = answers.get(str(row["question_id"]), {})
                add = partial(_add, builder, {**row, **answer})
                tolerant(builder, f"{source.name}#{index}", add)


def _read_table(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        for index, row in enumerate(source.rows):
            tolerant(builder, f"{source.name}#{index}", partial(_add, builder, row))


def _read_original(sources: Sequence[Source], builder: Builder) -> None:
    names = _mapping(sources[0], builder)
    for source in sources:
        for index, row in enumerate(source.rows):
            number = f"vid{row.get('video_id')}"
            known = {"question_id": str(row.get("id", index)), "video_name": number}
            add = partial(_add, builder, {**row, **known}, names.get(number))
            tolerant(builder, f"{source.name}#{index}", add)


def _mapping(source: Source, builder: Builder) -> dict[str, str]:
    """Number of a video to the name of its file, from the list beside the questions."""
    path = next(
        (p for p in (source.path.parent, builder.listing.root) if (p / _MAP).exists()), None
    )
    if path is None:
        builder.remarks.append(f"no {_MAP}: videos are looked for by their numbers")
        return {}
    try:
        lines = (path / _MAP).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path / _MAP}: expected a readable list: {error}") from error
    pairs = [line.split() for line in lines if len(line.split()) == 2]
    return {number: name for name, number in pairs}


def _add(builder: Builder, row: Mapping[str, Any], file_name: str | None = None) -> None:
    name = str(row["video_name"])
    references = [file_name] if file_name else [name, f"v_{name}"]
    answer = None if row.get("answer") is None else str(row["answer"])
    builder.add(
        str(row["question_id"]),
        builder.video(name, *references),
        row["question"],
        "open",
        _category(row),
        None,
        gold=answer,
        tags={"answer": "free" if yes_no(answer) is None else "yes/no"},
        raw=row,
    )


def _category(row: Mapping[str, Any]) -> str:
    kind = row.get("type")
    if kind is None:
        return "all"
    text = str(kind)
    return TYPES[int(text)] if text.isdigit() and int(text) < len(TYPES) else text
