"""Runs and workers that are killed: nothing lost, nothing double, the same predictions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hermes_like.errors import DatasetError
from hermes_like.evaluation.hands import (
    Hand,
    HandLostError,
    LocalHand,
    ProcessHand,
    WorkerFailedError,
)
from hermes_like.evaluation.worker import Job, Setup
from tests.evaluation.runs import load, read, run_folder, settings

#: A process that starts on a loaded machine may take its time.
PATIENCE_S = 120.0


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _wait_for_lines(path: Path, count: int, run: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while _lines(path) < count and run.poll() is None:
        assert time.monotonic() < until, "no progress"
        time.sleep(0.002)


def test_a_run_that_is_killed_again_and_again(
    made_set: Path, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "p.jsonl"
    command = [
        sys.executable, "-m", "hermes_like.cli", "eval", "run", "sprites", str(made_set),
        "--out", str(out),
    ]  # fmt: skip
    num_kills = 0
    for count in (1, 6, 99):
        before = _lines(out)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
            _wait_for_lines(out, count, run)
            if run.poll() is None:
                os.kill(run.pid, signal.SIGKILL)
            assert run.stderr is not None
            told = run.stderr.read()
        assert run.returncode in (0, -signal.SIGKILL), told.decode()
        num_kills += run.returncode != 0
        assert _lines(out) >= min(count, before), "no line is ever lost"
    assert num_kills >= 1
    assert read(out) == undisturbed


class _Killed(ProcessHand):
    """Dies of a real signal after its first answer."""

    num_kills = 0

    def work(self, job: Job) -> Iterator[dict[str, Any]]:
        for message in super().work(job):
            yield message
            if "row" in message and not _Killed.num_kills:
                _Killed.num_kills += 1
                assert self.pid is not None
                os.kill(self.pid, signal.SIGKILL)


def test_a_worker_that_is_killed_in_mid_run(
    made_set: Path, model: Any, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    def hands(setup: Setup, count: int) -> Sequence[Hand]:
        return [_Killed(setup), LocalHand(setup, load(made_set), model)]

    _Killed.num_kills = 0
    report = run_folder(made_set, tmp_path / "p.jsonl", num_workers=2, hands=hands)
    assert (_Killed.num_kills, report.num_lost) == (1, 1)
    assert read(tmp_path / "p.jsonl") == undisturbed


class _Scripted(Hand):
    """A worker that answers from a finished run and dies as it is told."""

    def __init__(self, rows: dict[str, Any], config_hash: str, deadly: str = "") -> None:
        self._rows, self._hash, self._deadly = rows, config_hash, deadly
        self.num_starts = 0

    def start(self) -> str:
        self.num_starts += 1
        return self._hash

    def work(self, job: Job) -> Iterator[dict[str, Any]]:
        for name in job.question_ids:
            if name == self._deadly:
                raise HandLostError("worker died (signal 11)")
            yield {"row": self._rows[name]}
        yield {"done": 0.0, "frames": 1}

    def stop(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held."""


def test_a_video_that_kills_its_workers_is_given_up(
    made_set: Path, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = {row["question_id"]: row for row in undisturbed}
    config_hash = undisturbed[0]["config_hash"]
    workers = [_Scripted(rows, config_hash, "sprites-1/2") for _ in range(2)]
    out = tmp_path / "p.jsonl"
    report = run_folder(made_set, out, num_workers=2, hands=lambda setup, count: workers)
    refused = dict(report.refused)
    assert set(refused) == {"sprites-1/2", "sprites-1/3"}
    assert refused["sprites-1/2"] == "3 workers died over it: worker died (signal 11)"
    # Each of the three deaths was one of a started worker; whether a fourth begins is a race.
    assert sum(worker.num_starts for worker in workers) >= 3
    assert [row for row in read(out) if row["error"] is None] == [
        row for row in undisturbed if row["question_id"] not in refused
    ]


class _Lost(_Scripted):
    """Works once and never starts again."""

    def start(self) -> str:
        if self.num_starts:
            raise HandLostError("no room")
        return super().start()


def test_others_do_without_a_worker_that_does_not_come_back(
    made_set: Path, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = {row["question_id"]: row for row in undisturbed}
    config_hash = undisturbed[0]["config_hash"]
    out = tmp_path / "p.jsonl"
    workers = [_Lost(rows, config_hash, "sprites-0/1"), _Scripted(rows, config_hash)]
    report = run_folder(made_set, out, num_workers=2, hands=lambda setup, count: workers)
    assert read(out) == undisturbed
    assert report.num_lost <= 1
    alone = [_Lost(rows, config_hash, "sprites-0/1")]
    out.unlink()
    with pytest.raises(HandLostError, match="no room"):
        run_folder(made_set, out, hands=lambda setup, count: alone)
    assert [row["question_id"] for row in read(out)] == ["sprites-0/0"], "what came before stays"


def test_workers_that_are_not_the_same_are_refused(
    made_set: Path, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    rows = {row["question_id"]: row for row in undisturbed}
    workers = [_Scripted(rows, undisturbed[0]["config_hash"]), _Scripted(rows, "f" * 32)]
    has_started = threading.Event()
    start = workers[1].start

    def told() -> str:
        has_started.set()
        return start()

    def late(job: Job) -> Iterator[dict[str, Any]]:
        assert has_started.wait(PATIENCE_S), "not done before the other one has started"
        time.sleep(0.2)
        yield from _Scripted.work(workers[0], job)

    workers[1].start, workers[0].work = told, late  # type: ignore[method-assign]
    with pytest.raises(DatasetError, match="expected workers with settings"):
        run_folder(made_set, tmp_path / "p.jsonl", num_workers=2, hands=lambda s, c: workers)


def test_a_worker_that_cannot_work_says_why(made_set: Path) -> None:
    setup = Setup(
        dataset="sprites",
        folder=made_set,
        edition_sha256="0" * 64,
        settings=settings(),
    )
    hand = ProcessHand(setup)
    try:
        with pytest.raises(WorkerFailedError, match="expected annotations 000000000000"):
            hand.start()
    finally:
        hand.close()
    with pytest.raises(HandLostError, match="ending"):
        hand.start()
