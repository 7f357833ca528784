"""``hermes-like watch`` on live sources: lines for machines, a view for people; the examples."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hermes_like.cli import run
from hermes_like.cli.keys import LineEditor
from hermes_like.cli.live import addressed, name_sources
from hermes_like.cli.live_view import TerminalView
from hermes_like.errors import ConfigError
from hermes_like.records import Answer, SessionStats, SourceHealth
from tests.monitor.cameras import BLUE_RING, RED_STAR, SpritesCamera

ROOT = Path(__file__).parent.parent
QUICK = ["--set", "source.sample_fps=5", "--set", "source.stale_s=1"]
WATCH = [sys.executable, "-m", "hermes_like.cli", "watch"]
WAIT_S = 90.0


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "TERM": "xterm", "COLUMNS": "110"}


class Lines:
    """Lines that a process prints, read in a thread so that waiting can end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(json.loads(line))

    def wait_for(self, **fields: Any) -> dict[str, Any]:
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            for line in list(self.lines):
                if all(line.get(name) == value for name, value in fields.items()):
                    return line
            time.sleep(0.05)
        raise AssertionError(f"no line with {fields} among {self.lines}")

    def finish(self) -> None:
        self._thread.join(WAIT_S)


@pytest.fixture
def two_cameras() -> Iterator[list[str]]:
    with SpritesCamera(RED_STAR) as gate, SpritesCamera(BLUE_RING) as yard:
        yield [f"gate={gate.address()}", yard.address()]


def test_machines_get_lines_and_ask_by_lines(
    two_cameras: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    command = [*WATCH, *two_cameras, *QUICK, "--jsonl", "--interval", "0.5"]
    with subprocess.Popen(
        [*command, "--memory", str(tmp_path / "memory")],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        printed = Lines(process)
        printed.wait_for(type="state", stream="gate", text="online")
        printed.wait_for(type="state", stream="cam2", text="online")
        until_s = time.monotonic() + WAIT_S
        while not any(line.get("num_frames", 0) >= 3 for line in printed.lines):
            assert time.monotonic() < until_s, printed.lines
            time.sleep(0.05)
        assert process.stdin is not None
        process.stdin.write("@gate what is visible now ?\nwhat is visible now ?\n@none what ?\n")
        process.stdin.flush()
        assert printed.wait_for(type="answer", stream="gate")["text"] == "red star"
        joint = printed.wait_for(type="answer", stream="gate, cam2")
        assert [part["stream"] for part in joint["parts"]] == ["gate", "cam2"]
        assert "unknown stream 'none'" in printed.wait_for(type="error")["text"]
        status = printed.wait_for(type="status", stream="gate", state="online")
        assert {"fps", "lag_s", "num_dropped", "tiers", "silent_s", "cause"} <= set(status)
        assert set(status["tiers"]) >= {"host", "disk"}
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        printed.finish()
    assert (process.returncode, errors) == (0, "")
    assert sorted(path.name for path in (tmp_path / "memory").iterdir()) == ["cam2", "gate"]


def test_recordings_end_by_themselves_and_piped_questions_are_answered(
    sprites_video: Path, environment: dict[str, str]
) -> None:
    result = subprocess.run(
        [*WATCH, f"clip={sprites_video}", "--interval", "60"],
        cwd=ROOT,
        env=environment,
        input="what color was the star ?\n",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert "clip: the recording has ended" in result.stdout
    assert "Q  what color was the star ?" in result.stdout
    assert "24 frames up to 0:23" in result.stdout


def test_people_get_a_view_and_type_questions(
    two_cameras: list[str], environment: dict[str, str]
) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*WATCH, *two_cameras, *QUICK],
        cwd=ROOT,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        close_fds=True,
    )
    os.close(slave)
    shown = ""

    def wait_for(pattern: str) -> None:
        nonlocal shown
        until_s = time.monotonic() + WAIT_S
        while not re.search(pattern, shown):
            assert time.monotonic() < until_s, shown[-3000:]
            if select.select([master], [], [], 0.1)[0]:
                shown += os.read(master, 65536).decode("utf-8", "replace")

    try:
        wait_for(r"gate[^\n]*online[\s\S]*cam2[^\n]*online")
        wait_for(r"gate[^\n]*[3-9] in 0:")
        os.write(master, b"@gate what is visible niw\x7f\x7fow ?\n")
        wait_for(r"A  gate: .{0,10}red star")
        assert re.search(r"Q  @gate what is visible now \?", shown)
        os.write(master, b"\x04")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_keys_become_lines() -> None:
    editor = LineEditor()
    assert editor.feed("what's abouz\x7ft Köln ?\r".encode()) == ["what's about Köln ?"]
    assert editor.feed(b"gone\x15kept") == []
    assert editor.feed(b"\x1b[A\x1b[3~\x1bOP !\n\n  \nnext\n") == ["kept !", "next"]
    umlaut = "ä".encode()
    assert editor.feed(umlaut[:1]) == []
    assert editor.feed(umlaut[1:] + b"\n") == ["ä"]
    editor.feed(b"x\x04")
    assert not editor.is_ended
    editor.feed(b"\x7f\x04")
    assert editor.is_ended


def test_names_of_sources() -> None:
    address = "http://camera/video?a=b"
    assert name_sources([address, f"gate={address}", "rtsp://u:p=q@host/"]) == {
        "cam1": address,
        "gate": address,
        "cam3": "rtsp://u:p=q@host/",
    }
    with pytest.raises(ConfigError, match="two sources are called 'cam2'"):
        name_sources(["cam2=a.mp4", "b.mp4"])
    assert addressed("@gate,yard  was it ? ") == (["gate", "yard"], "was it ?")
    assert addressed(" was @gate there ?") == (None, "was @gate there ?")


def test_the_view_says_what_is_wrong() -> None:
    from hermes_like.monitor import StreamInfo

    stats = SessionStats("gate", 75.0, 70, 17, 256, 200, 2**20, 2**20, (), 0.0, 0.0, 0.0, 0.0)
    health = SourceHealth("stale", 12.4, 0.0, 0.3, 70, {"handoff": 3}, 1, 2, True, "same picture")
    view = TerminalView(Console(width=120))
    view.show_answer(Answer("red star", "ok", stream="gate", route="now", notes=("Old news.",)))
    view.show_error("no such camera")
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(view.picture([StreamInfo("gate", "http://camera", health, stats, 0)]))
    console.file.close()
    text = console.export_text()
    for part in ("stale 12 s (frozen)", "same picture", "70 in 1:15", "A  gate: red star"):
        assert part in text
    assert "Old news." in text
    assert "!  no such camera" in text


def test_questions_at_times_take_one_source(
    sprites_video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tmp_path / "questions.json"
    questions.write_text("[]")
    assert run(["watch", str(sprites_video), "b.mp4", "--questions", str(questions)]) == 2
    assert "--questions: expected one source, got 2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["monitoring.py", "monitoring_async.py"])
def test_examples_run(
    name: str, sprites_video: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    example = ROOT / "examples" / name
    assert len(example.read_text().splitlines()) <= 45
    result = subprocess.run(
        [sys.executable, str(example), f"clip={sprites_video}"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "clip ended: the recording has ended" in result.stdout
    assert "yes" in result.stdout
    assert (tmp_path / "memory" / "clip").is_dir()


def test_the_monitoring_example_watches_a_camera(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with (
        SpritesCamera(RED_STAR) as camera,
        subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "monitoring.py"), f"gate={camera.address()}"],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert "gate state: online" in process.stdout.readline()
        # SIGINT is ignored by what a shell started in the background.
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
