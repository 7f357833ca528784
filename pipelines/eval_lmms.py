"""Answer one task of lmms-eval with the bundled model, lmms-eval in an environment of its own.

    make test-lmms
    python -m pipelines.eval_lmms --python .venv-lmms/bin/python

Makes a small sprites dataset and a task of it, lets lmms-eval ask through its plug-in, and compares
every reply with a run of our own on the same questions. The last line is JSON; exit status 1 if
anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hermes_like.evaluation import load_dataset
from hermes_like.evaluation.predictions import read_predictions
from hermes_like.evaluation.run import Place, run
from hermes_like.evaluation.scripted import make_sprites
from hermes_like.evaluation.settings import RunSettings, patient
from hermes_like.presets import load_config
from pipelines.reporting import bundled_model, print_header, print_json

TASK = "hermes_like_sprites"

_TASK_FILE = """\
task: {task}
dataset_path: json
dataset_kwargs:
  data_files: {rows}
test_split: train
output_type: generate_until
doc_to_visual: !function utils.visual
doc_to_text: question
doc_to_target: answer
process_results: !function utils.results
generation_kwargs:
  max_new_tokens: 16
metric_list:
  - metric: right
    aggregation: mean
    higher_is_better: true
metadata:
  - version: 0.0
"""

_TASK_CODE = '''\
"""The task's own functions."""


def visual(doc):
    return [doc["video"]]


def results(doc, replies):
    return {"right": float(replies[0].strip() == doc["answer"])}
'''


def write_task(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write a task of lmms-eval that is read from a file of rows."""
    folder.mkdir(parents=True)
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    text = _TASK_FILE.format(task=TASK, rows=data)
    (folder / f"{TASK}.yaml").write_text(text, encoding="utf-8")
    (folder / "utils.py").write_text(_TASK_CODE, encoding="utf-8")


def ask_through_harness(python: Path, folder: Path, command: str) -> dict[str, str]:
    """Run the task and return the replies by question."""
    out = folder / "out"
    arguments = f"command={command},model=sprites,time_field=at_s"
    line = [
        str(python), "-m", "lmms_eval", "--model", "hermes_like", "--model_args", arguments,
        "--tasks", TASK, "--include_path", str(folder / "task"), "--batch_size", "1",
        "--log_samples", "--output_path", str(out),
    ]  # fmt: skip
    subprocess.run(
        line,
        check=True,
        cwd=folder,
        env=os.environ | {"HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hub")},
    )
    samples = next(out.rglob(f"*samples_{TASK}.jsonl"), None)
    if samples is None:  # it ends with status 0 whatever happens
        raise SystemExit("lmms-eval wrote no replies; its messages are above")
    found = {}
    for line in samples.read_text(encoding="utf-8").splitlines():
        sample = json.loads(line)
        reply = sample["filtered_resps"]
        while isinstance(reply, list):
            reply = reply[0]
        found[str(sample["doc_id"])] = str(reply)
    return found


def main(argv: list[str] | None = None) -> int:
    """Ask both ways and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", type=Path, required=True, help="of lmms-eval's environment")
    parser.add_argument("--videos", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--questions", type=int, default=5)
    args = parser.parse_args(argv)
    where = print_header("lmms-eval through the plug-in", {"model": bundled_model()})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_sprites(
            folder / "set",
            num_videos=args.videos,
            seconds=args.seconds,
            num_questions=args.questions,
        )
        dataset = load_dataset("sprites", folder / "set")
        rows = [
            {
                "video": str(dataset.videos[question.video_id].path),
                "question": question.text,
                "answer": question.gold,
                "at_s": question.ask_s,
            }
            for question in dataset.questions
        ]
        write_task(folder / "task", rows)
        command = str(Path(sys.executable).with_name("hermes-like"))
        theirs = ask_through_harness(args.python.absolute(), folder, command)
        settings = RunSettings(config=patient(load_config("sprites")))
        out = folder / "own.jsonl"
        run(dataset, Place(folder / "set"), settings, out)
        own = {str(row.position): row.reply for row in read_predictions(out).rows}
    differing = sorted(key for key in own if theirs.get(key) != own[key])
    for key in differing:
        print(f"question {key}: {own[key]!r} by our own run, {theirs.get(key)!r} by lmms-eval")
    right = sum(theirs.get(str(n)) == row["answer"] for n, row in enumerate(rows))
    result = {"questions": len(rows), "right": right, "differing": len(differing)}
    print_json({**result, "environment": where})
    return 1 if differing or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
