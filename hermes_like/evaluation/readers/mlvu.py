"""MLVU: nine tasks on videos of up to nine hours; seven are multiple choice.

The dev set is one file per task; the test set, and copies repacked for other harnesses, are one
table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hermes_like.evaluation import fields
from hermes_like.evaluation.build import Builder
from hermes_like.evaluation.listing import Reference
from hermes_like.evaluation.readers.folder import FolderReader, Shape, Source, each_row, tolerant
from hermes_like.evaluation.readers.rekv import conversion

#: Tasks as their columns are headed, in order; the last two are generated text.
TASKS = ("TR", "AR", "NQA", "ER", "PQA", "AO", "AC", "SSC", "VS")
#: ``question_type`` of a row, the stem of a file or another copy's name, to the column.
_TASKS: Mapping[str, str] = {
    "topic_reasoning": "TR",
    "anomaly_reco": "AR",
    "findneedle": "NQA",
    "needle": "NQA",
    "needleqa": "NQA",
    "ego": "ER",
    "plotqa": "PQA",
    "order": "AO",
    "count": "AC",
    "subplot": "SSC",
    "sub_scene": "SSC",
    "summary": "VS",
}
_FILES = (
    "1_plotQA.json",
    "2_needle.json",
    "3_ego.json",
    "4_count.json",
    "5_order.json",
    "6_anomaly_reco.json",
    "7_topic_reasoning.json",
    "8_sub_scene.json",
    "9_summary.json",
)


class MLVU(FolderReader):
    """Dev by task files, test by its table, and the multiple-choice conversion."""

    title = "MLVU"
    categories = _TASKS

    def shapes(self) -> Sequence[Shape]:
        """Task files before tables before the conversion."""
        tables = ("*mlvu*test*.json", "test-*.parquet", "*mlvu*.parquet", "test_*.json")
        return [
            Shape("dev, one file per task", _FILES, _read, _is_table, (0, 2593)),
            Shape("one table", tables, _read, _is_table),
            conversion(
                "dev_debug_mc.json",
                edition="ReKV edition, dev",
                usual=(1242, 2172),
                categories=_TASKS,
            ),
        ]


def _is_table(content: Any) -> bool:
    if not isinstance(content, list) or not content or not isinstance(content[0], dict):
        return False
    return "question" in content[0] and bool({"video", "video_name"} & set(content[0]))


def _read(sources: Sequence[Source], builder: Builder) -> None:
    for source in sources:
        for index, where, row in each_row(source):
            question_id = str(row.get("question_id") or f"{source.path.stem}/{index}")
            tolerant(builder, where, partial(_add, builder, source, question_id, row))


def _add(builder: Builder, source: Source, question_id: str, row: Mapping[str, Any]) -> None:
    kind = str(row.get("question_type") or row.get("task_type") or source.path.stem)
    task = _TASKS.get(kind.casefold(), kind)
    path = str(row.get("video") or row["video_name"])
    within = source.path.stem if source.path.name in _FILES else ""
    key = f"{within}/{path}" if within else path
    video = builder.video(key, Reference(path, within=within), path, duration_s=row.get("duration"))
    text, texts = row["question"], fields.option_texts(row.get("candidates") or [])
    if not texts and isinstance(text, str):
        text, texts = fields.inline_options(text)
    answer = row.get("answer")
    if not texts:
        gold = None if answer is None else str(answer)
        builder.add(question_id, video, text, "open", task, None, gold=gold, raw=row)
        return
    encoding = "letter" if len(str(answer)) == 1 and str(answer).isupper() else "text"
    options, gold, index = builder.choice(question_id, texts, answer, encoding)
    builder.add(
        question_id,
        video,
        text,
        "choice",
        task,
        None,
        options=options,
        gold=gold,
        gold_index=index,
        raw=row,
    )
