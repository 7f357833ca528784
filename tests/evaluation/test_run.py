"""Runs: every question at its time, nothing from the future, nothing twice, nothing mixed."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_like.cli import run as command
from hermes_like.cli.eval_run import Bar
from hermes_like.errors import DatasetError
from hermes_like.evaluation.beside import beside
from hermes_like.evaluation.passes import Selection
from hermes_like.evaluation.prediction_log import PredictionLog
from hermes_like.evaluation.standing import Standing
from hermes_like.presets import load_config
from tests.evaluation.runs import load, read, run_folder, settings


def test_every_question_is_answered_at_its_time(
    made_set: Path, undisturbed: list[dict[str, Any]]
) -> None:
    dataset = load(made_set)
    assert [row["question_id"] for row in undisturbed] == [
        question.question_id for question in dataset.questions
    ]
    for row in undisturbed:
        assert row["error"] is None
        # One frame per second from 0 on: the newest that may be seen is that of the question.
        assert (row["frames_seen"], row["last_frame_s"]) == (row["ask_s"] + 1, row["ask_s"])
        assert row["session"]["asked_at_s"] == row["ask_s"]
        assert (row["edition_sha256"], row["protocol"]) == (dataset.edition.sha256, "stream")
    right = sum(row["parsed"] == "ABCD"[row["gold_index"]] for row in undisturbed)
    assert right >= 10, "the bundled model knows this world"


def test_a_run_goes_on_where_it_was_and_asks_nothing_twice(
    made_set: Path, model: Any, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    out, seen = tmp_path / "p.jsonl", []

    def watch(standing: Standing) -> None:
        seen.append(dataclasses.replace(standing))

    first = run_folder(made_set, out, model=model, selection=Selection(limit=1))
    assert (first.standing.num_done, first.standing.num_videos_done) == (4, 1)
    out.write_bytes(out.read_bytes()[:-40])  # a kill in the middle of the fourth line
    second = run_folder(made_set, out, model=model, watch=watch)
    assert read(out) == undisturbed
    assert (seen[0].num_reused, seen[0].num_done, seen[0].num_questions) == (3, 3, 12)
    assert (seen[-1].num_done, seen[-1].num_videos_done) == (12, 3)
    assert [standing.num_done for standing in seen] == sorted(s.num_done for s in seen)
    assert second.standing.accuracy == seen[-1].accuracy
    before = out.read_bytes()
    third = run_folder(made_set, out, model=model)
    assert (third.standing.num_reused, third.num_frames) == (12, 0)
    assert out.read_bytes() == before


def test_results_of_other_settings_are_not_reused(
    made_set: Path, model: Any, tmp_path: Path
) -> None:
    out = tmp_path / "p.jsonl"
    run_folder(made_set, out, model=model, selection=Selection(limit=1))
    whole = out.read_bytes()
    other = settings(config=load_config("sprites", {"policy.name": "window"}))
    with pytest.raises(DatasetError, match=r"policy.name 'hermes' there, 'window' here"):
        run_folder(made_set, out, model=model, settings=other)
    with pytest.raises(DatasetError, match=r"--route None there, 'now' here"):
        run_folder(made_set, out, model=model, settings=settings(route="now"))
    beside(out).unlink()
    with pytest.raises(DatasetError, match="expected config_hash"):
        run_folder(made_set, out, model=model, settings=other)
    annotations = tmp_path / "other" / "sprites.json"
    shutil.copytree(made_set, annotations.parent)
    annotations.write_text(annotations.read_text() + "\n")
    with pytest.raises(DatasetError, match="expected edition_sha256"):
        run_folder(annotations.parent, out, model=model)
    assert out.read_bytes() == whole
    # Where it is computed and how it is read ahead change nothing that comes out.
    same = load_config("sprites", {"model.device": "cpu", "source.read_ahead_frames": "2"})
    again = run_folder(made_set, out, model=model, settings=settings(config=same))
    assert again.standing.num_reused == 4


def test_the_hash_knows_the_weights(model: Any) -> None:
    from hermes_like.evaluation.worker import identity_of

    known = identity_of(model)
    assert settings().hash_with(known) == settings().hash_with(dict(known))
    for change in ({"weights_digest": "0"}, {"kv_dtype": "bfloat16"}, {"device": "cuda"}):
        assert settings().hash_with(known | change) != settings().hash_with(known)


def test_two_runs_never_write_to_one_file(made_set: Path, model: Any, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    with (
        PredictionLog(out, load(made_set), "other"),
        pytest.raises(DatasetError, match="another run writes to it"),
    ):
        run_folder(made_set, out, model=model)
    assert out.read_bytes() == b""


def test_missing_and_broken_videos_are_listed_and_the_run_goes_on(
    made_set: Path,
    model: Any,
    undisturbed: list[dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, out = tmp_path / "set", tmp_path / "p.jsonl"
    shutil.copytree(made_set, folder)
    videos = folder / "videos"
    content = (videos / "sprites-0.mp4").read_bytes()
    (videos / "sprites-0.mp4").write_bytes(content[: len(content) // 2])
    (videos / "sprites-1.mp4").rename(tmp_path / "elsewhere.mp4")
    report = run_folder(folder, out, model=model)
    cut, gone = report.absent
    assert (cut.video_id, gone.video_id, gone.num_questions) == ("sprites-0", "sprites-1", 4)
    assert "can be read up to" in cut.problem
    rows = {row["question_id"]: row for row in read(out)}
    assert len(rows) == 12
    for before in undisturbed:
        row = rows[before["question_id"]]
        if row["video_id"] == "sprites-2" or row["error"] is None:
            assert row == before, "what was seen in time is what it was"
    errors = {name: row["error"] for name, row in rows.items() if row["error"] is not None}
    assert {name.split("/")[0] for name in errors} == {"sprites-0", "sprites-1"}
    assert errors["sprites-0/3"].startswith("the video is broken: ")
    assert errors["sprites-1/0"] == "the video is missing: videos/sprites-1.mp4"
    # The same failures again are no news.
    before = out.read_bytes()
    arguments = ["eval", "run", "sprites", str(folder), "--out", str(out), "--video", "sprites-1"]
    assert command(arguments) == 3
    assert "videos/sprites-1.mp4: the video is missing (4 questions)" in capsys.readouterr().out
    assert out.read_bytes() == before
    # Once the videos are there, the rest is answered.
    (tmp_path / "elsewhere.mp4").rename(videos / "sprites-1.mp4")
    (videos / "sprites-0.mp4").write_bytes(content)
    assert run_folder(folder, out, model=model).absent == ()
    assert read(out) == undisturbed


def test_selection(made_set: Path) -> None:
    from hermes_like.evaluation.passes import plan_passes

    dataset = load(made_set)
    chosen = plan_passes(dataset, Selection(tasks=("now",), videos=("sprites-2",)))
    assert [q.category for planned in chosen for q in planned.questions] == ["now"]
    assert [p.video.video_id for p in plan_passes(dataset, Selection(limit=2))] == [
        "sprites-0",
        "sprites-1",
    ]
    with pytest.raises(DatasetError, match="unknown task 'nou'; did you mean 'now'"):
        plan_passes(dataset, Selection(tasks=("nou",)))
    with pytest.raises(DatasetError, match="unknown video 'sprites-9'"):
        plan_passes(dataset, Selection(videos=("sprites-9",)))


def test_command(made_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.jsonl"
    arguments = ["eval", "run", "sprites", str(made_set), "--out", str(out), "--limit", "1"]
    assert command([*arguments, "--policy", "window", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["standing"]["num_done"], report["absent"]) == (4, [])
    assert command(["eval", "score", str(out), "--scorer", "strict"]) == 0
    assert "Overall" in capsys.readouterr().out
    assert command([*arguments, "--policy", "hermes"]) == 1
    assert "policy.name 'window' there, 'hermes' here" in capsys.readouterr().err
    assert command([*arguments, "--policy", "window", "--set", "memory.device_tokens=20"]) == 1
    assert "expected at least" in capsys.readouterr().err
    assert command(["eval", "run", "sprites", str(tmp_path), "--out", str(out)]) == 1
    assert "no annotations of sprites" in capsys.readouterr().err


def test_annotations_are_not_replaced(made_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["eval", "make-sprites", str(made_set)]) == 1
    assert "they are not replaced" in capsys.readouterr().err


def test_grid(made_set: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "eval", "grid", "sprites", str(made_set), "--out", str(tmp_path), "--limit", "2",
        "--policies", "hermes,window", "--device-tokens", "256,20", "--routes", "now",
    ]  # fmt: skip
    assert command(arguments) == 4, "20 slots cannot work"
    out = capsys.readouterr().out
    assert "1  hermes-256-int8-now" in out
    assert "1 - 2" in out
    assert "window-20-int8-now: cannot be run: memory.device_tokens: expected at least" in out
    files = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert files == ["hermes-256-int8-now.jsonl", "window-256-int8-now.jsonl"]
    before = {name: (tmp_path / name).read_bytes() for name in files}
    assert command([*arguments[:-4], "--json", "--routes", "now"]) == 0
    found = json.loads(capsys.readouterr().out)
    (pair,) = found["pairs"]
    assert (pair["first"], pair["second"]) == ("hermes-256-int8-now", "window-256-int8-now")
    scores = [outcome["total"]["score"] for outcome in found["outcomes"]]
    assert pair["total"]["difference"] == pytest.approx(scores[0] - scores[1])
    assert before == {name: (tmp_path / name).read_bytes() for name in files}, "nothing is rerun"
    assert command([*arguments, "--codecs", "raww"]) == 2
    assert command([*arguments, "--routes", "never"]) == 2


class _Terminal(io.StringIO):
    """Takes down what a terminal would show."""

    def isatty(self) -> bool:
        return True


def test_progress_shows_questions_videos_accuracy_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with Bar("hermes") as bar:
        bar(Standing(3, 1, 12, 4, 4, 4, 3.0))
        time.sleep(0.15)
        bar(Standing(3, 2, 12, 8, 4, 8, 6.0))
    shown = screen.getvalue()
    assert "hermes:" in shown
    assert "8/12" in shown
    assert "2/3 videos, 75.0 % right" in shown
    assert re.search(r"8/12 \[00:0\d<00:0\d", shown), "what was reused took no time"
