"""Who carries out passes: this process, or processes of their own that may die at any time.

Knows how to start a worker and to talk to it. Knows neither which passes there are nor what becomes
of the messages.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hermes_like.errors import HermesError
from hermes_like.evaluation.base import Dataset
from hermes_like.evaluation.worker import Job, Setup, Worker

if TYPE_CHECKING:
    from hermes_like.models.base import ModelAdapter

_END_S = 10.0


class HandLostError(HermesError):
    """A worker died; what it was doing can be done by another one."""


class WorkerFailedError(HermesError):
    """A worker cannot work here at all: its model or its annotations cannot be used."""


class Hand(ABC):
    """One worker. Used by one thread; only :meth:`stop` may come from another."""

    @abstractmethod
    def start(self) -> str:
        """Start, or start again after it was lost; returns its hash of the settings.

        Raises:
            HandLostError: It died while it started.
            HermesError: It cannot work.
        """

    @abstractmethod
    def work(self, job: Job) -> Iterator[dict[str, Any]]:
        """Carry out a pass; see :meth:`Worker.work`.

        Raises:
            HandLostError: The worker died. Messages before that count.
        """

    @abstractmethod
    def stop(self) -> None:
        """Break off whatever it is doing; it is of no use any more. Safe to call twice."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; called last."""


class LocalHand(Hand):
    """This process.

    Args:
        setup: What to run.
        dataset: Read already.
        model: Loaded already; None: it is loaded at the start.
    """

    def __init__(self, setup: Setup, dataset: Dataset, model: ModelAdapter | None = None) -> None:
        self._setup, self._dataset, self._model = setup, dataset, model
        self._worker: Worker | None = None

    def start(self) -> str:
        """Load the model."""
        self._worker = Worker(self._setup, self._dataset, self._model)
        return self._worker.config_hash

    def work(self, job: Job) -> Iterator[dict[str, Any]]:
        """See :meth:`Hand.work`; this one is never lost."""
        assert self._worker is not None, "started first"
        return self._worker.work(job)

    def stop(self) -> None:
        """Nothing can break it off but an exception."""

    def close(self) -> None:
        """Let go of the model."""
        self._worker = None


class ProcessHand(Hand):
    """A process of its own, started by name and not by forking.

    Args:
        setup: What to run.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._is_stopped = False

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return None if self._process is None else self._process.pid

    def start(self) -> str:
        """Start the process and wait until its model is loaded."""
        with self._lock:
            if self._is_stopped:
                raise HandLostError("the run is ending")
            self._reap()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hermes_like.evaluation.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
        self._send(self._setup.model_dump_json())
        for message in self._messages():
            return str(message["ready"])
        raise self._lost()

    def work(self, job: Job) -> Iterator[dict[str, Any]]:
        """See :meth:`Hand.work`."""
        self._send(job.model_dump_json())
        for message in self._messages():
            yield message
            if "done" in message:
                return
        raise self._lost()

    def stop(self) -> None:
        """Kill the process; whoever reads from it sees its end."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Kill the process and let go of its pipes."""
        self.stop()
        self._reap()

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # A broken pipe shows at once as the end of the replies.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _messages(self) -> Iterator[dict[str, Any]]:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # cut off by its death
            message: dict[str, Any] = json.loads(line)
            if "failed" in message:
                raise WorkerFailedError(message["failed"])
            yield message

    def _lost(self) -> HandLostError:
        assert self._process is not None
        status = self._process.wait()
        why = f"signal {-status}" if status < 0 else f"exit status {status}"
        return HandLostError(f"worker {self._setup.place} died ({why})")

    def _reap(self) -> None:
        process = self._process
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
