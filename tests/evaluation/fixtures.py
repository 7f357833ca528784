"""Fixtures in the true shape with made-up values, and small files that pass for videos."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

from hermes_like.evaluation import Dataset, load_dataset
from hermes_like.evaluation.predictions import Prediction, prediction_of

DATA = Path(__file__).parent.parent / "data" / "evaluation"

#: Dataset, fixture, edition that must be recognised, number of videos, number of questions.
EDITIONS = [
    ("activitynet-qa", "activitynet", "pair of files", 1, 2),
    ("cgbench", "cgbench", "mini", 1, 1),
    ("easyvqa", "easyvqa", "easy-VQA streams", 1, 3),
    ("egoschema", "egoschema", "GitHub", 2, 2),
    ("egoschema", "egoschema_table", "table, subset", 1, 1),
    ("longvideobench", "longvideobench", "validation, JSON", 1, 1),
    ("longvideobench", "longvideobench_test", "test, JSON", 1, 1),
    ("mlvu", "mlvu", "dev, one file per task", 4, 4),
    ("mlvu", "mlvu_rekv", "ReKV edition, dev", 1, 1),
    ("msvd-qa", "msvd_original", "original", 1, 2),
    ("msvd-qa", "msvd_pair", "pair of files", 1, 1),
    ("mvbench", "mvbench", "one file per task", 4, 4),
    ("odvbench", "odvbench", "ODVbench.json", 3, 3),
    ("ovobench", "ovobench", "ovo_bench_new.json", 5, 9),
    ("ovobench-backward", "ovobench", "ovo_bench_new.json", 1, 1),
    ("ovobench-forward", "ovobench", "ovo_bench_new.json", 3, 6),
    ("ovobench-realtime", "ovobench", "ovo_bench_new.json", 2, 2),
    ("qaego4d", "qaego4d_closed", "closed", 1, 1),
    ("qaego4d", "qaego4d_mc", "multiple choice", 1, 1),
    ("qaego4d", "qaego4d_original", "original, open", 1, 1),
    ("rekv", "rekv", "ReKV-style JSON", 2, 3),
    ("rvs-ego", "rvs_original", "VStream-QA, cut clips", 1, 2),
    ("rvs-ego", "rvs_rekv", "ReKV edition", 1, 3),
    ("rvs-movie", "rvs_original", "VStream-QA, cut clips", 1, 2),
    ("rvs-movie", "rvs_rekv", "ReKV edition", 1, 1),
    ("sprites", "sprites", "sprites, scripted", 1, 3),
    ("streamingbench", "streamingbench_csv", "Hugging Face CSV", 4, 5),
    ("streamingbench", "streamingbench_json", "GitHub JSON", 7, 14),
    ("streamingbench-contextual", "streamingbench_csv", "Hugging Face CSV", 3, 3),
    ("streamingbench-contextual", "streamingbench_json", "GitHub JSON", 3, 5),
    ("streamingbench-omni", "streamingbench_json", "GitHub JSON", 2, 4),
    ("streamingbench-proactive", "streamingbench_csv", "Hugging Face CSV", 1, 1),
    ("streamingbench-proactive", "streamingbench_json", "GitHub JSON", 1, 2),
    ("streamingbench-real", "streamingbench_csv", "Hugging Face CSV", 1, 2),
    ("streamingbench-real", "streamingbench_json", "GitHub JSON", 2, 5),
    ("streamingbench-sqa", "streamingbench_json", "GitHub JSON", 1, 2),
    ("svbench-dialogue", "svbench", "English", 1, 3),
    ("svbench-streaming", "svbench", "English", 1, 2),
    ("videomme", "videomme", "exported table", 2, 3),
]


def load(name: str, fixture: str, **options: Any) -> Dataset:
    """Read a fixture where it lies."""
    return load_dataset(name, DATA / fixture, **options)


def copy_of(fixture: str, folder: Path) -> Path:
    """A fixture of one's own, to be changed."""
    return Path(shutil.copytree(DATA / fixture, folder / fixture))


def rewrite(path: Path, change: Any) -> None:
    """Change a JSON file: ``change(content)`` gives the new content, or changes it in place."""
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(content) or content), encoding="utf-8")


def write_mp4(path: Path, duration_s: float = 600.0) -> Path:
    """Boxes of an mp4 with a length and no picture: enough for what opens no decoder."""
    header = b"\0" * 12 + struct.pack(">II", 1000, round(duration_s * 1000)) + b"\0" * 80
    index = _box(b"moov", _box(b"mvhd", header))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_box(b"ftyp", b"isom\0\0\2\0isom") + index + _box(b"mdat", b"\1" * 64))
    return path


def predictions(dataset: Dataset, **replies: str | None) -> list[Prediction]:
    """One prediction per question; the reply is the letter of the true option unless given.

    ``replies`` are by position: ``_0="B"`` for the first question.
    """
    rows = []
    for question in dataset.questions:
        letter = "?" if question.gold_index is None else "ABCDEFGH"[question.gold_index]
        right = letter if question.options else question.gold
        reply = replies.get(f"_{question.position}", right)
        seen_s = 0.0 if question.ask_s is None else question.ask_s
        rows.append(prediction_of(dataset, question, "config", reply=reply, last_frame_s=seen_s))
    return rows


def write_lines(path: Path, rows: list[Prediction]) -> Path:
    """A file of predictions."""
    path.write_text("".join(row.line() + "\n" for row in rows), encoding="utf-8")
    return path


def _box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + kind + content
