"""StreamingBench: JSON of its GitHub repository and CSV of its Hugging Face copy.

The two disagree in task names, times and counts; results say which one was read. Sound is not
used: what the omni group asks about sound is asked all the same, and said so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any, ClassVar

from hermes_like.evaluation import fields
from hermes_like.evaluation.build import Builder
from hermes_like.evaluation.listing import Reference
from hermes_like.evaluation.readers.folder import (
    FolderReader,
    Shape,
    Source,
    is_list_with,
    tolerant,
)

#: Both vocabularies to the abbreviations of the paper.
TASKS: Mapping[str, str] = {
    "object perception": "OP",
    "object recognition": "OP",
    "causal reasoning": "CR",
    "clips summarization": "CS",
    "clips summarize": "CS",
    "attribute perception": "ATP",
    "attribute recognition": "ATP",
    "event understanding": "EU",
    "text-rich understanding": "TR",
    "prospective reasoning": "PR",
    "spatial understanding": "SU",
    "action perception": "ACP",
    "action recognition": "ACP",
    "counting": "CT",
    "emotion recognition": "ER",
    "scene understanding": "SCU",
    "source discrimination": "SD",
    "multimodal alignment": "MA",
    "anomaly context understanding": "ACU",
    "misleading context understanding": "MCU",
    "sequential question answering": "SQA",
    "proactive output": "PO",
}
#: Groups of the paper, tasks in the order of its columns.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "real": ("OP", "CR", "CS", "ATP", "EU", "TR", "PR", "SU", "ACP", "CT"),
    "omni": ("ER", "SCU", "SD", "MA"),
    "contextual": ("ACU", "MCU", "SQA", "PO"),
}
#: Last part of a flattened file name to the folder that its archive unpacks to.
_FOLDERS = {
    "real": "Real-Time Visual Understanding",
    "sqa": "Sequential Question Answering",
    "proactive": "Proactive Output",
}
#: The main table of the paper shows this much of the past; the whole past is an ablation of it.
CONTEXT_S = 60
#: The official loop gives up this long after the true moment.
PATIENCE_S = 4

_SAMPLE = re.compile(r"(sample_\d+)(?:_(.*))?")
_ROW_ID = re.compile(r"(.*?)_?(sample_\d+)_(\d+)")
_JSON, _STREAM, _CSV = "GitHub JSON", "GitHub JSON, one entry per video", "Hugging Face CSV"


class StreamingBench(FolderReader):
    """All groups that are there."""

    title = "StreamingBench"
    categories = TASKS
    #: Tasks to keep; empty: all.
    tasks: ClassVar[tuple[str, ...]] = ()
    #: Names of the files, without what the editions add.
    parts: ClassVar[tuple[str, ...]] = ("real", "omni", "sqa", "proactive")
    tables: ClassVar[tuple[str, ...]] = (
        "Real_Time_Visual_Understanding",
        "Omni_Source_Understanding",
        "Sequential_Question_Answering",
        "Contextual_Understanding",
        "Proactive_Output",
    )
    usual: ClassVar[tuple[int, int] | None] = (899, 4500)

    def shapes(self) -> Sequence[Shape]:
        """Both editions; the files per video and the second proactive set are editions apart."""
        read = partial(_read, tasks=self.tasks)
        plain = tuple(f"questions_{part}.json" for part in self.parts)
        stream = tuple(f"questions_{part}_stream.json" for part in self.parts)
        tables = tuple(f"{name}.csv" for name in self.tables)
        shapes = [
            Shape(_JSON, plain, read, _is_edition, self.usual),
            Shape(_STREAM, stream, read, _is_edition),
            Shape(_CSV, tables, read, _is_edition, self.usual),
        ]
        if "proactive" in self.parts:
            second = ("questions_proactive_50.json", "Proactive_Output_50.csv")
            shapes.append(Shape("second proactive set", second, read, _is_edition))
        return shapes


class Real(StreamingBench):
    """Real-time visual understanding."""

    title = "StreamingBench, real-time"
    tasks = GROUPS["real"]
    parts = ("real",)
    tables = ("Real_Time_Visual_Understanding",)
    usual = (499, 2500)


class Omni(StreamingBench):
    """Omni-source understanding, asked without sound."""

    title = "StreamingBench, omni-source (without sound)"
    tasks = GROUPS["omni"]
    parts = ("omni",)
    tables = ("Omni_Source_Understanding",)
    usual = (200, 1000)


class Contextual(StreamingBench):
    """The paper's contextual group; two of its tasks lie in the omni files of the JSON edition."""

    title = "StreamingBench, contextual"
    tasks = GROUPS["contextual"]
    parts = ("omni", "sqa", "proactive")
    tables = (
        "Contextual_Understanding",
        "Omni_Source_Understanding",
        "Sequential_Question_Answering",
        "Proactive_Output",
    )
    usual = (200, 1000)


class SQA(StreamingBench):
    """Questions that build on those before them."""

    title = "StreamingBench, sequential questions"
    tasks = ("SQA",)
    parts = ("sqa",)
    tables = ("Sequential_Question_Answering",)
    usual = (50, 250)


class Proactive(StreamingBench):
    """The model has to say when the moment has come."""

    title = "StreamingBench, proactive output"
    tasks = ("PO",)
    parts = ("proactive",)
    tables = ("Proactive_Output",)
    usual = (50, 250)


def _is_edition(content: Any) -> bool:
    """Entries with questions, lists of such entries, or rows of a table."""
    first = content[0] if isinstance(content, list) and content else None
    entries = first if isinstance(first, list) else content
    return any(is_list_with(name)(entries) for name in ("questions", "task_type"))


def _read(sources: Sequence[Source], builder: Builder, *, tasks: tuple[str, ...]) -> None:
    numbers: Counter[str] = Counter()
    seen: dict[tuple[str, str], str] = {}
    for source in sources:
        is_table = source.path.suffix.lower() == ".csv"
        for where, entry, row in _table_rows(source) if is_table else _json_rows(source):
            name = str(row.get("task_type", "")).strip()
            task = TASKS.get(name.casefold(), name)
            if is_table:
                # Two tables of this edition may hold the same row; repeats within one are kept.
                key = (str(row.get("question_id")), str(row.get("question")))
                if seen.setdefault(key, source.name) != source.name:
                    builder.note("duplicate", where, f"{key[0]} stands in two tables; left out")
                    continue
            if not tasks or task in tasks:
                locate = _locate_row if is_table else _locate_entry
                tolerant(builder, where, partial(_add, builder, entry, row, task, locate, numbers))
    if not tasks or set(tasks) & set(GROUPS["omni"]):
        builder.remarks.append("omni-source questions are asked without sound")
    builder.remarks.append(
        f"the paper's main table shows the {CONTEXT_S} s before a question, not the whole past"
    )


def _json_rows(source: Source) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Questions with their entries; sequential questions lie one list deeper."""
    content = source.content if isinstance(source.content, list) else []
    entries = [entry for item in content for entry in (item if isinstance(item, list) else [item])]
    for index, entry in enumerate(entries):
        for number, row in enumerate(entry.get("questions", ())):
            yield f"{source.name}#{index}/{number}", entry, row


def _table_rows(source: Source) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for index, row in enumerate(source.rows):
        yield f"{source.name}#{index}", row, row


def _locate_entry(entry: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """Sample, category and number of a question from the path of the video."""
    stem = PurePosixPath(str(entry["video_path"])).stem
    match = _SAMPLE.fullmatch(stem)
    if match is None:
        raise ValueError(f"expected sample_N_<category>.mp4, got {entry['video_path']!r}")
    return match.group(1), match.group(2) or "", None


def _locate_row(row: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """The same from the identifier of a row."""
    match = _ROW_ID.fullmatch(str(row["question_id"]).strip())
    if match is None:
        raise ValueError(f"expected <category>_sample_N_M, got {row['question_id']!r}")
    folder = match.group(1)
    short = {long: short for short, long in _FOLDERS.items()}
    return match.group(2), short.get(folder, folder.replace(" ", "_")), match.group(3)


def _add(
    builder: Builder,
    entry: Mapping[str, Any],
    row: Mapping[str, Any],
    task: str,
    locate: Callable[[Mapping[str, Any]], tuple[str, str, str | None]],
    numbers: Counter[str],
) -> None:
    sample, category, number = locate(entry)
    flat = f"{sample}_{category}" if category else sample
    folder = _FOLDERS.get(category, category)
    video = builder.video(
        flat, f"{flat}.mp4", Reference(f"{sample}/video.mp4", num_parts=2, within=folder)
    )
    numbers[video] += 1
    question_id = f"{video}/{number or numbers[video]}"
    ask_s = builder.ask_s(question_id, row["time_stamp"])
    assert ask_s is not None  # a missing stamp has raised
    if "ground_truth_time_stamp" in row:
        _add_proactive(builder, video, question_id, row, ask_s)
        return
    texts = fields.option_texts(row["options"])
    options, gold, index = builder.choice(question_id, texts, row["answer"], "letter")
    is_sequence = task == "SQA"
    builder.add(
        question_id,
        video,
        row["question"],
        "choice",
        task,
        ask_s,
        options=options,
        gold=gold,
        gold_index=index,
        start_s=max(0.0, int(ask_s) - CONTEXT_S),
        conversation="gold_history" if is_sequence else "independent",
        thread=video if is_sequence else None,
        tags={
            name: str(value)
            for name in ("frames_required", "temporal_clue_type", "required_ability")
            if (value := row.get(name))
        },
        raw=row,
    )


def _add_proactive(
    builder: Builder, video: str, question_id: str, row: Mapping[str, Any], ask_s: float
) -> None:
    gold_s = builder.ask_s(question_id, row["ground_truth_time_stamp"])
    assert gold_s is not None
    if gold_s <= ask_s:
        builder.note("stamp", question_id, f"its moment, {gold_s:g} s, is not after it is asked")
    last = int(gold_s - ask_s) + PATIENCE_S
    builder.add(
        question_id,
        video,
        row["question"],
        "proactive",
        "PO",
        ask_s,
        gold=str(row["ground_truth_output"]).strip(),
        start_s=ask_s,
        poll_s=tuple(ask_s + second for second in range(1, max(last, 1) + 1)),
        gold_s=gold_s,
        raw=row,
    )
