"""Predictions in the formats of others: submission files, and results of other harnesses."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from hermes_like.errors import ConfigError, DatasetError
from hermes_like.evaluation.fields import letter_of
from hermes_like.evaluation.predictions import Prediction, Predictions
from hermes_like.evaluation.scoring import letters
from hermes_like.registry import unknown_name


def export(predictions: Predictions, form: str) -> str:
    """Content of a file in another format.

    Args:
        predictions: What to hand in.
        form: ``egoschema``: for its validation server; ``svbench``: for its judge;
            ``vlmevalkit``: table to be scored with ``--mode eval``; ``lmms-eval``: samples.

    Raises:
        ConfigError: Unknown format.
        DatasetError: The format is for another dataset.
    """
    if form not in FORMS:
        raise ConfigError(unknown_name("format", form, sorted(FORMS)))
    if form in ("egoschema", "svbench") and not predictions.dataset.startswith(form):
        raise DatasetError(f"expected predictions for {form}, got {predictions.dataset}")
    return FORMS[form](predictions)


def _egoschema(predictions: Predictions) -> str:
    """Whole numbers, every question, no further keys; what was not understood becomes 0."""
    chosen = {
        row.question_id: letters.strict(row.reply, row.options) or 0 for row in predictions.rows
    }
    return json.dumps(chosen) + "\n"


def _svbench(predictions: Predictions) -> str:
    """Per video a list of conversations, each with questions, true answers and answers."""
    videos: dict[str, dict[str, dict[str, list[str]]]] = defaultdict(dict)
    for row in predictions.rows:
        empty: dict[str, list[str]] = {"questions": [], "gt_answers": [], "answers": []}
        chain = videos[row.video_id].setdefault(row.item_id, empty)
        chain["questions"].append(row.question)
        chain["gt_answers"].append(row.gold or "")
        chain["answers"].append(row.reply or "")
    content = {video: list(chains.values()) for video, chains in videos.items()}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _vlmevalkit(predictions: Predictions) -> str:
    file = io.StringIO()
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    writer.writerow(["index", "video", "question", "prediction", "answer", "category"])
    for row in predictions.rows:
        reply = row.reply or ""
        told = (row.position, row.video_id, row.question, reply, _gold(row), row.category)
        writer.writerow(told)
    return file.getvalue()


def _lmms_eval(predictions: Predictions) -> str:
    lines = []
    for row in predictions.rows:
        reply = row.reply or ""
        line: dict[str, Any] = {
            "doc_id": row.position,
            "target": _gold(row),
            "input": row.question,
            "resps": [[reply]],
            "filtered_resps": [reply],
            "doc_hash": row.question_id,
        }
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)


def _gold(row: Prediction) -> str:
    """The letter where there are options, else the words."""
    return row.gold or "" if row.gold_index is None else letter_of(row.gold_index)


FORMS: Mapping[str, Callable[[Predictions], str]] = {
    "egoschema": _egoschema,
    "svbench": _svbench,
    "vlmevalkit": _vlmevalkit,
    "lmms-eval": _lmms_eval,
}
