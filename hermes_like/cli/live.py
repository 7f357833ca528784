"""``hermes-like watch`` for live sources: cameras watched side by side, asked while they run.

What is common to the terminal view and to lines for machines: names, questions, the loop.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import typer

from hermes_like.cli.output import answer_json, clock, print_answer
from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError, HermesError
from hermes_like.records import Answer

if TYPE_CHECKING:
    from hermes_like.monitor import Monitor, MonitorEvent, StreamInfo

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,63})=(.+)", re.DOTALL)
_ADDRESSED = re.compile(r"@([\w,-]+)\s+(.+)", re.DOTALL)


class View(Protocol):
    """Shows what happens, and gives what the user asks."""

    def run(self, monitor: Monitor, ask: Callable[[str], None]) -> None:
        """Show and read until everything has ended or the user leaves."""

    def show_event(self, event: MonitorEvent) -> None:
        """Something happened."""

    def show_answer(self, answer: Answer) -> None:
        """A question was answered."""

    def show_error(self, text: str) -> None:
        """A question could not be answered."""


def watch_live(
    sources: Sequence[str],
    config: HermesConfig,
    memory: Path | None,
    key: bytes | None,
    *,
    as_json: bool,
    interval_s: float,
) -> None:
    """Watch sources until they end, or until Ctrl-C or SIGTERM.

    Args:
        sources: Each ``SOURCE`` or ``NAME=SOURCE``.
        config: Of every stream, and of the engine.
        memory: Folder with a memory for each; None: in RAM.
        key: Of encrypted memories.
        as_json: One JSON object per line, for machines.
        interval_s: Seconds between two lines about each stream, where there is no terminal.
    """
    from hermes_like.monitor import Monitor

    named = name_sources(sources)
    with _stoppable(), Monitor(config.model.name, memory, config=config, key=key) as monitor:
        view = _view(as_json, interval_s)
        monitor.on_event(view.show_event)
        for name, source in named.items():
            monitor.add_stream(name, source)
        asker = Asker(monitor, view)
        try:
            view.run(monitor, asker.ask)
            asker.finish()
        except KeyboardInterrupt:
            asker.leave()


def _view(as_json: bool, interval_s: float) -> View:
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return LineView(as_json, interval_s)
    from hermes_like.cli.live_view import TerminalView

    return TerminalView()


def name_sources(sources: Sequence[str]) -> dict[str, str]:
    """Names of streams; those without one become ``cam1``, ``cam2`` and so on.

    Raises:
        ConfigError: Two have the same name.
    """
    named: dict[str, str] = {}
    for number, text in enumerate(sources, start=1):
        match = _NAMED.fullmatch(text)
        name, source = match.groups() if match is not None else (f"cam{number}", text)
        if name in named:
            raise ConfigError(f"two sources are called {name!r}")
        named[name] = source
    return named


def addressed(text: str) -> tuple[list[str] | None, str]:
    """Streams and question of ``@gate,yard was there a ring ?``; None: all streams."""
    match = _ADDRESSED.fullmatch(text.strip())
    if match is None:
        return None, text.strip()
    return match.group(1).split(","), match.group(2).strip()


class Asker:
    """Asks in a thread of its own, one question after the other, so that the view goes on."""

    def __init__(self, monitor: Monitor, view: View) -> None:
        self._monitor, self._view = monitor, view
        self._waiting: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="questions", daemon=True)
        self._thread.start()

    def ask(self, text: str) -> None:
        """Put a question into the queue."""
        self._waiting.put(text)

    def finish(self) -> None:
        """Answer what waits, then end."""
        self._waiting.put(None)
        self._thread.join()

    def leave(self) -> None:
        """End without the questions that wait."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting.put(None)

    def _run(self) -> None:
        while (text := self._waiting.get()) is not None:
            names, question = addressed(text)
            try:
                self._view.show_answer(self._monitor.ask(question, stream=names))
            except (HermesError, ValueError, RuntimeError) as error:
                self._view.show_error(str(error))


class LineView:
    """Lines on stdout, questions as lines on stdin: for pipes and machines.

    Args:
        as_json: One JSON object per line, each with a ``type``.
        interval_s: Seconds between two lines about each stream.
    """

    def __init__(self, as_json: bool, interval_s: float) -> None:
        self.as_json, self.interval_s = as_json, interval_s
        self._lock = threading.Lock()

    def run(self, monitor: Monitor, ask: Callable[[str], None]) -> None:
        """See :class:`View`. An end of stdin ends nothing; live sources run until a signal."""
        reader = threading.Thread(target=self._read, args=(ask,), name="stdin", daemon=True)
        reader.start()
        while not monitor.join(self.interval_s):
            self._show_status(monitor)
        self._show_status(monitor)
        # Who pipes questions in gets them answered, also those about a recording that is over.
        reader.join()

    @staticmethod
    def _read(ask: Callable[[str], None]) -> None:
        for line in sys.stdin:
            if line.strip():
                ask(line)

    def _show_status(self, monitor: Monitor) -> None:
        for info in monitor.streams():
            if self.as_json:
                self._say(json.dumps({"type": "status", "time": _now(), **status(info)}))
            else:
                self._say(f"{info.name}: {status_text(info)}")

    def show_event(self, event: MonitorEvent) -> None:
        """See :class:`View`."""
        if event.kind == "answer":
            return
        if self.as_json:
            fields: dict[str, Any] = {
                "type": event.kind,
                "time": event.time.isoformat(),
                "stream": event.stream,
                "text": event.text,
            }
            if event.health is not None:
                fields["health"] = dataclasses.asdict(event.health)
            if event.span_s is not None:
                fields["start_s"], fields["end_s"] = event.span_s
            self._say(json.dumps(fields))
        else:
            self._say(f"{event.stream}: {event.text}")

    def show_answer(self, answer: Answer) -> None:
        """See :class:`View`."""
        if self.as_json:
            self._say(json.dumps({"type": "answer", **json.loads(answer_json(answer))}))
            return
        with self._lock:
            print_answer(answer, as_json=False)

    def show_error(self, text: str) -> None:
        """See :class:`View`."""
        self._say(json.dumps({"type": "error", "text": text}) if self.as_json else f"! {text}")

    def _say(self, line: str) -> None:
        with self._lock:
            typer.echo(line)
            sys.stdout.flush()


def status(info: StreamInfo) -> dict[str, Any]:
    """A stream as plain values."""
    health = info.health
    return {
        "stream": info.name,
        "source": info.source,
        "state": health.state,
        "silent_s": health.silent_s,
        "fps": round(health.fps, 3),
        "lag_s": round(health.lag_s, 3),
        "num_frames": info.stats.num_frames,
        "num_dropped": dict(health.num_dropped),
        "num_decode_errors": health.num_decode_errors,
        "num_reconnects": health.num_reconnects,
        "cause": info.failure or health.cause,
        "queue_depth": info.queue_depth,
        "stream_s": info.stats.stream_s,
        "device_bytes": info.stats.device_bytes,
        "tiers": {tier: list(values) for tier, values in info.stats.tiers.items()},
    }


def status_text(info: StreamInfo) -> str:
    """The same in one line."""
    health = info.health
    silent = "" if health.silent_s is None else f", last frame {health.silent_s:.1f} s ago"
    cause = info.failure or health.cause
    return (
        f"{health.state}{silent}, {health.fps:.1f} frames per second, lag {health.lag_s:.1f} s, "
        f"{info.stats.num_frames} frames up to {clock(info.stats.stream_s)}"
        + (f" ({cause})" if cause else "")
    )


def _now() -> str:
    return datetime.now(UTC).isoformat()


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
