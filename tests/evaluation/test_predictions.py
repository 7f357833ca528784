"""The format of predictions, and how a file of them survives killed runs and mixed hands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from hermes_like.evaluation import DatasetError
from hermes_like.evaluation.prediction_log import PredictionLog
from hermes_like.evaluation.predictions import (
    Poll,
    Prediction,
    prediction_of,
    read_predictions,
)
from tests.evaluation.fixtures import load, predictions, write_lines

OVO = load("ovobench", "ovobench")


def test_a_line_holds_everything_and_comes_back(tmp_path: Path) -> None:
    question = OVO.questions[0]
    row = prediction_of(
        OVO,
        question,
        "config",
        reply="B\nbecause é ...",
        frames_seen=63,
        last_frame_s=63.0,
        polls=(Poll(at_s=63.5, reply="no"),),
        ttft_s=0.2,
        session={"route": "now", "evidence": [[1.0, 2.0]]},
    )
    assert (row.options, row.gold_index, row.ask_s) == (question.options, 1, 63.5)
    assert "\n" not in row.line()
    assert read_predictions(write_lines(tmp_path / "p.jsonl", [row])).rows == (row,)
    assert json.loads(row.line())["version"] == 1


def test_unknown_fields_and_versions_are_refused() -> None:
    row = json.loads(predictions(OVO)[0].line())
    for change in ({"version": 2}, {"colour": "red"}, {"edition_sha256": "x"}, {"ask_s": -1}):
        with pytest.raises(ValidationError):
            Prediction.model_validate(row | change)


def test_rows_come_in_the_order_of_the_annotations_from_any_shards(tmp_path: Path) -> None:
    rows = predictions(OVO)
    first = write_lines(tmp_path / "0.jsonl", rows[5:])
    second = write_lines(tmp_path / "1.jsonl", rows[4::-1])
    found = read_predictions(first, second)
    assert list(found.rows) == rows
    assert (found.dataset, found.config_hash) == ("ovobench", "config")


def test_wherever_the_last_line_is_torn_only_that_line_is_lost(tmp_path: Path) -> None:
    rows = predictions(OVO)[:3]
    path = write_lines(tmp_path / "p.jsonl", rows)
    whole = path.read_bytes()
    begin = whole.rfind(b"\n", 0, -1) + 1
    for end in (*range(begin + 1, len(whole) - 1, 17), len(whole) - 2):
        path.write_bytes(whole[:end])
        found = read_predictions(path)
        assert (found.rows, found.num_torn) == (tuple(rows[:2]), 1)
    path.write_bytes(whole[:-1])
    assert read_predictions(path).rows == tuple(rows), "only the line end is missing"


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", predictions(OVO))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1][:40] + b"\n", *lines[2:]]))
    with pytest.raises(DatasetError, match=r"p\.jsonl:2: expected a prediction"):
        read_predictions(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset", "mlvu"),
        ("edition_sha256", "0" * 64),
        ("config_hash", "other"),
        ("protocol", "offline"),
    ],
)
def test_mixed_results_are_refused(field: str, value: str, tmp_path: Path) -> None:
    rows = predictions(OVO)
    mixed = [*rows[:2], rows[2].model_copy(update={field: value})]
    path = write_lines(tmp_path / "p.jsonl", mixed)
    with pytest.raises(DatasetError, match=rf"p\.jsonl:3: expected {field} .* got '{value}'"):
        read_predictions(path)
    log = write_lines(tmp_path / "log.jsonl", mixed[2:])
    with pytest.raises(DatasetError, match=f"expected {field}"):
        PredictionLog(log, OVO, "config")


def test_a_question_answered_twice_is_refused_and_an_error_is_not_an_answer(
    tmp_path: Path,
) -> None:
    row = predictions(OVO)[0]
    path = write_lines(tmp_path / "p.jsonl", [row, row])
    with pytest.raises(DatasetError, match=r"'41' is answered in .*p\.jsonl:1 already"):
        read_predictions(path)
    failed = row.model_copy(update={"reply": None, "error": "broken video"})
    assert read_predictions(write_lines(path, [failed, row])).rows == (row,)
    assert read_predictions(write_lines(path, [failed, failed])).rows == (failed,)
    with pytest.raises(DatasetError, match="already"):
        read_predictions(write_lines(path, [row, failed]))


def test_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("\n\n")
    with pytest.raises(DatasetError, match="expected predictions, got none"):
        read_predictions(tmp_path / "p.jsonl")
    with pytest.raises(DatasetError, match=r"absent\.jsonl: expected predictions"):
        read_predictions(tmp_path / "absent.jsonl")


def test_a_frame_from_the_future_makes_a_result_worthless(tmp_path: Path) -> None:
    row = predictions(OVO)[0]
    path = tmp_path / "p.jsonl"
    late = row.model_copy(update={"last_frame_s": 63.6})
    with pytest.raises(DatasetError, match=r"asked at 63\.5 s and a frame of 63\.6 s had"):
        read_predictions(write_lines(path, [late]))
    polled = late.model_copy(update={"polls": (Poll(at_s=64.0, reply="no"),)})
    assert read_predictions(write_lines(path, [polled])).rows == (polled,)
    whole = late.model_copy(update={"ask_s": None})
    assert read_predictions(write_lines(path, [whole])).rows == (whole,)


def test_log_resumes_after_a_torn_line(tmp_path: Path) -> None:
    rows = predictions(OVO)
    path = tmp_path / "deep" / "p.jsonl"
    with PredictionLog(path, OVO, "config") as log:
        log.append(rows[0])
        log.append(rows[1].model_copy(update={"reply": None, "error": "stalled"}))
    with path.open("ab") as file:
        file.write(rows[2].line().encode()[:50])
    with PredictionLog(path, OVO, "config") as log:
        assert log.done == {rows[0].question_id}
        assert log.failed == {rows[1].question_id}
        log.append(rows[1])
        log.append(rows[2])
        with pytest.raises(DatasetError, match="answered already"):
            log.append(rows[2])
        with pytest.raises(DatasetError, match="expected config_hash 'config'"):
            log.append(rows[3].model_copy(update={"config_hash": "other"}))
    assert read_predictions(path).rows == tuple(rows[:3])


_APPEND_FOR_EVER = """
import sys
from pathlib import Path
from tests.evaluation.fixtures import load, predictions
from hermes_like.evaluation.prediction_log import PredictionLog
dataset = load("ovobench", "ovobench")
row = predictions(dataset)[0]
with PredictionLog(Path(sys.argv[1]), dataset, "config") as log:
    print("ready", flush=True)
    for number in range(10**9):
        log.append(row.model_copy(update={"question_id": str(number), "position": number}))
"""


def test_killing_a_run_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    run = subprocess.Popen(
        [sys.executable, "-c", _APPEND_FOR_EVER, str(path)], stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    with run.stdout:
        assert run.stdout.readline() == b"ready\n"
        while not path.exists() or path.stat().st_size < 20_000:
            assert run.poll() is None
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    rows = read_predictions(path).rows
    assert len(rows) >= 20
    assert [row.question_id for row in rows] == [str(number) for number in range(len(rows))]
    with PredictionLog(path, OVO, "config") as log:
        assert len(log.done) == len(rows)
