"""The command line: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_like import __version__
from hermes_like.cli import run
from hermes_like.cli.output import clock, size
from hermes_like.errors import BudgetError, ModelError, SourceStalledError

SMALL = "--set", "memory.device_tokens=190"


def lines(text: str) -> list[dict[str, object]]:
    """JSON objects, one per line."""
    return [json.loads(line) for line in text.splitlines()]


def test_ask_answers_every_question_with_evidence(
    sprites_video: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = ["what is visible now ?", "what color was the star ?"]
    assert run(["ask", str(sprites_video), *questions, "--json"]) == 0
    answers = lines(capsys.readouterr().out)
    assert [answer["question"] for answer in answers] == questions
    assert answers[0]["text"] == "blue ring"
    assert answers[0]["asked_at_s"] == 23.0
    assert answers[0]["evidence"]
    assert {"status", "missing", "route", "ttft_s", "tpot_s", "num_tokens"} <= set(answers[0])


def test_ask_prints_for_people(sprites_video: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ask", str(sprites_video), "what is visible now ?", "where is my zebra ?"]
    assert run([*arguments, "--start-time", "2026-05-01T14:00:00+02:00"]) == 0
    out = capsys.readouterr().out
    assert "A  blue ring" in out
    assert "0:23" in out
    assert "on 2026-05-01 14:00:" in out
    assert "A  This model does not know 'my', 'zebra'." in out


def test_watch_answers_at_the_time_of_the_question(
    sprites_video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "what is visible now ?"
    entries = [{"at_s": at_s, "question": text} for at_s in (30, 5.5, 20)]
    answers = []
    for name, content in (
        ("questions.yaml", json.dumps(entries)),
        ("questions.jsonl", "\n".join(json.dumps(entry) for entry in entries)),
    ):
        path = tmp_path / name
        path.write_text(content)
        assert run(["watch", str(sprites_video), "--questions", str(path), "--json"]) == 0
        captured = capsys.readouterr()
        assert "the stream ended at 0:23" in captured.err
        answers.append([(a["asked_at_s"], a["text"]) for a in lines(captured.out)])
    assert answers[0] == answers[1] == [(5.0, "red star"), (20.0, "blue ring"), (23.0, "blue ring")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("- {at: 3, question: what}", "expected keys: at_s, question"),
        ("- {at_s: -3, question: what}", "question 1: at_s"),
        ("- {at_s: soon, question: what}", "got 'soon'"),
        ("question: what", "expected a list of questions, got dict"),
        ("- {", "not readable as questions"),
    ],
)
def test_watch_names_what_is_wrong_with_a_question(
    sprites_video: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    message: str,
) -> None:
    path = tmp_path / "questions.yaml"
    path.write_text(content)
    assert run(["watch", str(sprites_video), "--questions", str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert message in error


def test_show_memory_prints_a_table_and_draws_a_picture(
    sprites_video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    png = tmp_path / "memory.png"
    assert run(["memory", "show", str(sprites_video), "--png", str(png), *SMALL]) == 0
    out = capsys.readouterr().out
    assert "memory of sprites.mp4" in out
    assert "24 frames, 6 segments, 0:23 of video" in out
    assert "(device_tokens 190)" in out
    assert "equals slots x shapes" in out
    assert png.read_bytes().startswith(b"\x89PNG")


def test_show_memory_as_json(sprites_video: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "show", str(sprites_video), "--policy", "full", "--json"]) == 0
    (stats,) = lines(capsys.readouterr().out)
    assert stats["num_frames"] == 24
    assert stats["device_tokens"] is None
    assert stats["device_bytes"] == stats["expected_bytes"]


def test_config_prints_what_would_be_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_LIKE__ANSWER__SEED", "77")
    assert run(["config", "--preset", "window", "--set", "memory.device_tokens=300"]) == 0
    out = capsys.readouterr().out
    for part in ("name: window", "device_tokens: 300", "seed: 77"):
        assert part in out
    assert run(["config", "--list"]) == 0
    assert "sprites" in capsys.readouterr().out.splitlines()


def test_doctor_fits_one_screen_and_finds_nothing_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out = run(["doctor"]), capsys.readouterr().out
    assert code == 0, f"{out}\nAfter a change of the weights: make checksums"
    assert len(out.splitlines()) <= 45
    for part in ("python", "torch", "transformers", "sprites model", "easyvqa model", "presets"):
        assert part in out


def test_doctor_fails_when_something_needed_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_like.cli.doctor.WEIGHTS_FOLDER", tmp_path)
    assert run(["doctor", "--json"]) == 1
    missing = [line for line in lines(capsys.readouterr().out) if line["state"] == "missing"]
    assert [line["name"] for line in missing] == ["sprites model"]


def test_a_model_with_a_preset_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_like.cli.options import build_config

    config = build_config(model="random:llava-onevision-0.5b")
    assert config.model.name == "random:llava-onevision-0.5b"
    assert config.memory.segment_frames == 16
    assert build_config(model="sprites").memory.segment_frames == 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ask"], 2, ""),
        (["ask", "{video}"], 2, "Missing argument"),
        (["asj", "x"], 2, "No such command"),
        (["ask", "{video}", "what ?", "--fast"], 2, "No such option"),
        (["ask", "{video}", "what ?", "--set", "memory"], 2, "expected KEY=VALUE, got 'memory'"),
        (["ask", "{video}", "what ?", "--set", "memory.tokens=1"], 2, "unknown key"),
        (["ask", "{video}", "what ?", "--preset", "sprits"], 2, "did you mean 'sprites'"),
        (["ask", "{video}", "what ?", "--policy", "hermse"], 2, "did you mean 'hermes'"),
        (["ask", "{video}", "what ?", "--sample-fps", "-1"], 2, "greater than 0, got -1"),
        (["ask", "{video}", "what ?", "--model", "random:nano"], 2, "unknown random shape"),
        (["ask", "no/such/video.mp4", "what ?"], 3, "no/such/video.mp4"),
        (["ask", "{text}", "what ?"], 3, "notes.mp4"),
        (["ask", "{video}", "what ?", "--model", "no/such/model"], 1, "no usable model"),
        (["ask", "{video}", "what ?", "--set", "memory.device_tokens=16"], 1, "device_tokens"),
        (["watch", "{video}", "--questions", "none.yaml"], 2, "does not exist"),
    ],
)
def test_exit_codes_and_one_plain_message(
    sprites_video: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    text = tmp_path / "notes.mp4"
    text.write_text("not a video")
    words = [word.format(video=sprites_video, text=text) for word in arguments]
    assert run(words) == code
    captured = capfd.readouterr()
    shown = " ".join((captured.err + captured.out).replace("│", " ").split())
    assert message in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("error", [ModelError, BudgetError, SourceStalledError])
def test_debug_shows_the_traceback(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("something")

    monkeypatch.setattr("hermes_like.cli.options.load_config", fail)
    assert run(["config"]) == (3 if error is SourceStalledError else 1)
    with pytest.raises(error, match="something"):
        run(["--debug", "config"])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"hermes-like {__version__}"


def test_module_and_process_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hermes_like.cli", "ask", "none.mp4", "what ?"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert result.returncode == 3
    assert result.stderr.startswith("hermes-like: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (59.96, "1:00"),
        (83, "1:23"),
        (83.5, "1:23.5"),
        (3723, "1:02:03"),
        (-83, "-1:23"),
    ],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_size() -> None:
    sizes = [size(number) for number in (5, 2048, 5 << 20, 3 << 30)]
    assert sizes == ["5 B", "2.0 KiB", "5.0 MiB", "3.0 GiB"]
