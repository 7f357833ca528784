"""The JSON that most streaming projects convert their sets to, first used by ReKV.

One list, one element per video with its ``conversations``. Ten datasets circulate in it, so every
reader falls back to it. Knows nothing of the dataset behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from hermes_like.errors import DatasetError
from hermes_like.evaluation import fields
from hermes_like.evaluation.build import Builder, yes_no
from hermes_like.evaluation.readers.folder import (
    FolderReader,
    Shape,
    Source,
    each_row,
    is_list_with,
    tolerant,
)

EDITION = "ReKV-style JSON"
#: Fields of an element that later become classes of a table.
_TAGS = ("domain", "sub_category", "duration_group", "subtask")


class ReKV(FolderReader):
    """Any set in this shape; the name of the file is the edition's."""

    title = "ReKV-style JSON"

    def shapes(self) -> Sequence[Shape]:
        """None of its own: the conversion that every reader knows."""
        return ()


def conversion(
    *patterns: str,
    edition: str = EDITION,
    usual: tuple[int, int] | None = None,
    categories: Mapping[str, str] | None = None,
) -> Shape:
    """The shape, for one dataset.

    Args:
        patterns: Names of the file; none: every JSON file that has the shape.
        edition: What to call it.
        usual: Videos and questions of a complete copy.
        categories: ``question_type`` in small letters to the row of the table, where they differ.
    """
    read = partial(_read, categories=categories or {})
    accepts = is_list_with("conversations")
    return Shape(edition, patterns or ("*.json",), read, accepts, usual, by_name=bool(patterns))


def _read(sources: Sequence[Source], builder: Builder, *, categories: Mapping[str, str]) -> None:
    if len(sources) > 1:
        names = ", ".join(source.name for source in sources)
        raise DatasetError(f"several files in ReKV's shape ({names}): name the one to read")
    (source,) = sources
    counts: Counter[str] = Counter()
    for index, where, row in each_row(source):
        name = str(row.get("video_id", row.get("video_path", index)))
        reference = str(row.get("video_path") or name)
        video = builder.video(
            name,
            *dict.fromkeys((reference, name)),
            start_s=fields.seconds(row.get("clip_start_time") or 0)[0],
            end_s=_end_s(row),
            duration_s=row.get("duration"),
            # Arrays and folders of pictures hold one picture per second in this family.
            fps=None if PurePosixPath(reference).suffix.lower() == ".mp4" else 1.0,
        )
        for entry in row["conversations"]:
            number = counts[video]
            counts[video] += 1
            add = partial(_add, builder, video, f"{video}/{number}", row, entry, categories)
            tolerant(builder, f"{where}/{number}", add)


def _add(
    builder: Builder,
    video: str,
    question_id: str,
    row: Mapping[str, Any],
    entry: Mapping[str, Any],
    categories: Mapping[str, str],
) -> None:
    options, gold, index = _answer(builder, question_id, entry)
    kind = str(entry.get("question_type", entry.get("task", row.get("task", "all"))))
    is_yes_no = not options and yes_no(gold) is not None
    builder.add(
        question_id,
        video,
        entry["question"],
        "choice" if options else "open",
        categories.get(kind.casefold(), kind),
        builder.ask_s(question_id, entry.get("end_time")),
        options=options,
        gold=gold,
        gold_index=index,
        evidence=fields.spans(entry.get("temporal_windows")),
        tags={name: str(row[name]) for name in _TAGS if name in row}
        | ({} if options else {"answer": "yes/no" if is_yes_no else "free"}),
        raw=entry,
    )


def _answer(
    builder: Builder, where: str, entry: Mapping[str, Any]
) -> tuple[tuple[str, ...], str | None, int | None]:
    answer = entry.get("answer")
    if not entry.get("choices"):
        return (), None if answer is None else str(answer), None
    return builder.choice(where, fields.option_texts(entry["choices"]), answer, "text")


def _end_s(row: Mapping[str, Any]) -> float | None:
    end = row.get("clip_end_time")
    return None if end is None else fields.seconds(end)[0]
