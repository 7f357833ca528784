"""Cameras by name, questions over one or several of them, and what happens to them as events.

The only place that knows sources, sessions and the engine together.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hermes_like.answer import AnswerStream
from hermes_like.config import HermesConfig
from hermes_like.engine import Engine
from hermes_like.errors import ConfigError, SessionStateError
from hermes_like.metrics import Metrics
from hermes_like.metrics_readings import StoreCounts, StreamReading
from hermes_like.models import ModelAdapter, load_model
from hermes_like.monitor.events import Dispatcher, MonitorEvent, OnEvent
from hermes_like.monitor.joint import joint_answer
from hermes_like.monitor.watcher import Watcher
from hermes_like.presets import load_config, preset_names, preset_of_model, with_settings
from hermes_like.records import Answer, Route, SessionStats, SourceHealth
from hermes_like.session import StreamSession
from hermes_like.sources import FrameSource, open_source
from hermes_like.sources.address import redacted
from hermes_like.tiers.destroy import destroy_memory

#: A moment: on the clock (with a zone), that long ago, or seconds of stream time.
Moment = datetime | timedelta | float

#: Seconds between two looks at the states of all sources.
TICK_S = 0.5
#: Seconds between two looks for what is older than it may be, also of cameras that are silent.
HOUSE_S = 30.0
#: Longest wait for each part that has to end.
_STOP_S = 2.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One stream as it is now.

    Attributes:
        name: Of the stream.
        source: What is watched, without credentials.
        health: How the source is doing.
        stats: What is remembered.
        queue_depth: Frames that wait for the model.
        failure: What ended the ingest, in words; empty if nothing did.
    """

    name: str
    source: str
    health: SourceHealth
    stats: SessionStats
    queue_depth: int
    failure: str = ""


@dataclass(slots=True, eq=False)
class _Watched:
    source: str
    watcher: Watcher


class Monitor:
    """Watches many streams with one model and answers questions about them.

    Args:
        model: Name for :func:`~hermes_like.models.load_model`, or a loaded model.
        memory: Folder that gets a memory for each stream; None: in RAM, until the end.
        config: Of every stream, unless it brings its own; a preset's name, a configuration, or
            None: the preset of the model.
        on_event: Called with every :class:`MonitorEvent`, in a thread of its own.
        key: 32 bytes; then the memories are encrypted.

    Raises:
        ModelError: The model cannot be loaded.
        ConfigError: The configuration cannot work.

    Example:
        >>> with Monitor(model="sprites", memory="memory") as monitor:
        ...     monitor.add_stream("gate", "rtsp://192.0.2.7/live")
        ...     print(monitor.ask("was there a red star ?", stream="gate").text)
    """

    def __init__(
        self,
        model: str | ModelAdapter = "sprites",
        memory: Path | str | None = None,
        *,
        config: HermesConfig | str | None = None,
        on_event: OnEvent | None = None,
        key: bytes | None = None,
    ) -> None:
        self.config = _config_of(model, config)
        self.model = load_model(self.config.model) if isinstance(model, str) else model
        self.memory = None if memory is None else Path(memory)
        self.metrics = Metrics(self._readings)
        self._key = key
        self._engine = Engine(
            self.model, self.config.engine, on_step=self.metrics.observe_inference
        )
        self._events = Dispatcher()
        if on_event is not None:
            self._events.add(on_event)
        self._lock = threading.RLock()
        self._streams: dict[str, _Watched] = {}
        self._is_started = False
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="hermes_like ticker", daemon=True)

    # -- streams ---------------------------------------------------------------------------------

    def add_stream(
        self,
        name: str,
        source: str | Path | Callable[[HermesConfig], FrameSource],
        *,
        weight: float = 1.0,
        config: HermesConfig | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Watch a stream from now on. A memory of this name is gone on with.

        Args:
            name: Letters, digits, ``_`` and ``-``; also the name of its folder.
            source: Address, path, or anything else :func:`~hermes_like.sources.open_source` takes;
                or what opens a source, given the configuration.
            weight: Share of ingest against the others, where there is not enough for all.
            config: Of this stream; None: the monitor's.
            settings: Dotted keys that differ, such as ``{"store.retention_s": 7 * 86400}``.

        Raises:
            ConfigError: The name or a setting cannot be used.
            BudgetError: The stream does not fit beside the others.
            StorageError: Its memory cannot be opened.
            SessionStateError: The name is taken, or the monitor has stopped.
        """
        _require_name(name)
        own = with_settings(config or self.config, settings or {})
        with self._lock:
            self._require_alive()
            if name in self._streams:
                raise SessionStateError(f"stream {name!r} is there already")
            session = self._open_session(name, own)
            try:
                self._engine.add(name, session, weight=weight)
            except BaseException:
                session.close(save=False)
                raise
            opener, shown = _opener(source)
            watcher = Watcher(name, opener, self._engine, own, self._tell)
            self._streams[name] = _Watched(shown, watcher)
            if self._is_started:
                watcher.start()

    def _open_session(self, name: str, config: HermesConfig) -> StreamSession:
        if self.memory is None or not config.store.enabled or not config.store.disk_bytes:
            return StreamSession(self.model, config, name=name)
        return StreamSession.open(self.model, self.memory / name, config, name=name, key=self._key)

    def remove_stream(self, name: str, *, forget: bool = False) -> None:
        """Stop watching a stream.

        Args:
            name: Of the stream.
            forget: Whether its memory goes too, everywhere; else it stays on disk.

        Raises:
            SessionStateError: There is no such stream.
            StorageError: Something of the memory could not be removed.
        """
        with self._lock:
            watched = self._watched(name)
            del self._streams[name]
        self._let_go(name, watched)
        if forget:
            self.forget_stream(name)

    def _let_go(self, name: str, watched: _Watched) -> None:
        watched.watcher.stop()
        watched.watcher.join(_STOP_S)
        watched.watcher.close_hole()
        self._engine.remove(name).close()

    def forget_stream(self, name: str) -> None:
        """Remove the memory of a stream from the disk; of one that is watched, see above.

        Raises:
            ConfigError: The name cannot be one of a stream.
            SessionStateError: The stream is being watched.
            StorageError: Something of it could not be removed.
        """
        _require_name(name)
        if name in self._streams:
            raise SessionStateError(f"stream {name!r} is being watched: remove_stream first")
        if self.memory is not None and (self.memory / name).exists():
            destroy_memory(self.memory / name)

    def erase(
        self, since: Moment | None = None, until: Moment | None = None, *, stream: str | None = None
    ) -> dict[str, tuple[float, float]]:
        """Make a span unreadable everywhere, in one stream or in all of them.

        Args:
            since: Beginning; None: everything up to ``until``.
            until: End; None: up to now.
            stream: Which one; None: all.

        Returns:
            What was erased of each stream, in stream seconds; whole segments go. Streams that had
            not begun by then are left out.

        Raises:
            StorageError: A medium failed, and what it holds may still be there.
        """
        erased = {}
        for name in self._names(stream):
            session = self._engine.session(name)
            start_s = 0.0 if since is None else max(0.0, self._stream_s(name, since))
            end_s = self._present_s(name) + 1.0 if until is None else self._stream_s(name, until)
            if end_s > start_s:
                erased[name] = session.erase(start_s, end_s)
        return erased

    def set_enabled(self, name: str, is_enabled: bool) -> None:
        """Pause a live stream, or go on with it.

        Raises:
            SourceError: It is a recording.
        """
        self._watched(name).watcher.set_enabled(is_enabled)

    def streams(self) -> tuple[StreamInfo, ...]:
        """All streams as they are now, in the order they came."""
        with self._lock:
            streams = list(self._streams.items())
        return tuple(self._info(name, watched) for name, watched in streams)

    def _info(self, name: str, watched: _Watched) -> StreamInfo:
        failure = self._engine.failure(name)
        return StreamInfo(
            name=name,
            source=watched.source,
            health=watched.watcher.health(),
            stats=watched.watcher.session.stats(),
            queue_depth=self._engine.queue_depth(name),
            failure="" if failure is None else str(failure),
        )

    def _watched(self, name: str) -> _Watched:
        watched = self._streams.get(name)
        if watched is None:
            known = ", ".join(self._streams) or "none yet"
            raise SessionStateError(f"unknown stream {name!r} (expected one of: {known})")
        return watched

    def _names(self, stream: str | Sequence[str] | None) -> list[str]:
        with self._lock:
            if stream is None:
                names = list(self._streams)
            else:
                names = [stream] if isinstance(stream, str) else list(stream)
            for name in names:
                self._watched(name)
        if not names:
            raise SessionStateError("there is no stream to ask: add_stream first")
        return names

    # -- asking ----------------------------------------------------------------------------------

    def ask(
        self,
        question: str,
        *,
        stream: str | Sequence[str] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        route: Route | None = None,
        deadline_s: float | None = None,
        **overrides: Any,
    ) -> Answer:
        """Answer a question about one stream or several; the answer names them.

        Args:
            question: In words.
            stream: Name or names; None: all streams.
            since: Look at nothing before this.
            until: Look at nothing after this.
            route: Where to look, whatever the words say.
            deadline_s: Seconds until the last of the streams has answered, or begun to.
            overrides: Fields of :class:`~hermes_like.config.AnswerConfig`.

        Returns:
            The answer of one stream; of several a joint one, with theirs as ``parts``.

        Raises:
            SessionStateError: Unknown stream, or the monitor has stopped.
            ConfigError: ``since`` or ``until`` is on the clock and a stream knows none.
        """
        started_s = time.monotonic()
        names = self._names(stream)
        answers = []
        for place, name in enumerate(names):
            left_s = None
            if deadline_s is not None:
                spent_s = time.monotonic() - started_s
                left_s = max(0.0, deadline_s - spent_s) / (len(names) - place)
            pieces = self.ask_stream(
                question,
                stream=name,
                since=since,
                until=until,
                route=route,
                deadline_s=left_s,
                **overrides,
            )
            for _ in pieces:
                pass
            answers.append(pieces.answer)
        return answers[0] if len(answers) == 1 else joint_answer(question, answers)

    def ask_stream(
        self,
        question: str,
        *,
        stream: str,
        since: Moment | None = None,
        until: Moment | None = None,
        route: Route | None = None,
        deadline_s: float | None = None,
        **overrides: Any,
    ) -> AnswerStream:
        """Like :meth:`ask` about one stream, with the text as it comes."""
        self._require_alive()
        watcher = self._watched(stream).watcher
        inner = self._engine.ask_stream(
            stream,
            question,
            route=route,
            since_s=None if since is None else self._stream_s(stream, since),
            until_s=None if until is None else self._stream_s(stream, until),
            now_s=watcher.now_s(),
            deadline_s=deadline_s,
            **overrides,
        )
        result: list[Answer] = []

        def pieces() -> Iterator[str]:
            try:
                yield from inner
            except Exception as error:
                self.metrics.count_failure(stream, error)
                raise
            finally:
                inner.close()
            answer = inner.answer
            result.append(answer)
            self.metrics.count_answer(answer)
            self._tell(MonitorEvent("answer", stream, answer.text, answer=answer))

        return AnswerStream(pieces(), result)

    def _present_s(self, name: str) -> float:
        watcher = self._watched(name).watcher
        now_s = watcher.now_s()
        return watcher.session.clock().now_s if now_s is None else now_s

    def _stream_s(self, name: str, moment: Moment) -> float:
        if isinstance(moment, timedelta):
            return self._present_s(name) - moment.total_seconds()
        if isinstance(moment, datetime):
            if moment.tzinfo is None:
                raise ConfigError(f"expected a time with a zone, got {moment.isoformat()}")
            return self._watched(name).watcher.session.clock().to_stream(moment)
        return float(moment)

    # -- life ------------------------------------------------------------------------------------

    def on_event(self, receiver: OnEvent) -> Callable[[], None]:
        """Let a receiver know of every event; returns what takes it away again."""
        return self._events.add(receiver)

    def start(self) -> None:
        """Begin to watch. Safe to call twice.

        Raises:
            SessionStateError: The monitor was stopped.
        """
        with self._lock:
            self._require_alive()
            if self._is_started:
                return
            self._is_started = True
            self._events.start()
            self._engine.start()
            self._ticker.start()
            for watched in self._streams.values():
                watched.watcher.start()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until every recording has ended, or the monitor is stopped; whether it is so."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                watchers = [watched.watcher for watched in self._streams.values()]
            if self._stopping.is_set() or all(watcher.is_over for watcher in watchers):
                return True
            left_s = TICK_S if until_s is None else min(TICK_S, until_s - time.monotonic())
            if left_s <= 0:
                return False
            self._stopping.wait(left_s)

    def stop(self) -> None:
        """Let go of every source, save every memory, end every thread. Safe to call twice."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._stopping.set()
            streams, self._streams = dict(self._streams), {}
        for watched in streams.values():
            watched.watcher.stop()
        for name, watched in streams.items():
            self._let_go(name, watched)
        self._engine.stop()
        if self._ticker.ident is not None:
            self._ticker.join(_STOP_S)
        self._events.stop(_STOP_S)

    def _tick(self) -> None:
        house_s = time.monotonic() + HOUSE_S
        while not self._stopping.wait(TICK_S):
            with self._lock:
                watchers = [watched.watcher for watched in self._streams.values()]
            for watcher in watchers:
                watcher.tick()
            if time.monotonic() >= house_s:
                house_s = time.monotonic() + HOUSE_S
                for watcher in watchers:
                    watcher.keep_house()

    def _tell(self, event: MonitorEvent) -> None:
        if event.health is not None:
            self.metrics.count_state(event.stream, event.health.state)
        self._events.tell(event)

    def _readings(self) -> list[StreamReading]:
        with self._lock:
            streams = list(self._streams.items())
        return [self._reading(name, watched) for name, watched in streams]

    def _reading(self, name: str, watched: _Watched) -> StreamReading:
        info, session = self._info(name, watched), watched.watcher.session
        store = None
        if session.long_term is not None:
            chain = session.long_term.chain.stats()
            store = StoreCounts(
                hits={tier: stats.hits for tier, stats in chain.tiers.items()},
                misses=chain.misses,
                num_evicted=chain.evicted,
                num_dropped_writes=chain.dropped_writes,
                num_failed_writes=chain.failed_writes,
            )
        return StreamReading(
            name,
            info.health,
            info.queue_depth,
            info.stats,
            store,
            session.promised_device_bytes,
        )

    def _require_alive(self) -> None:
        if self._stopping.is_set():
            raise SessionStateError("the monitor was stopped; make a new one")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _require_name(name: str) -> None:
    """Refuse what must not become a folder below that of the memories."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"stream name: expected up to 64 letters, digits, '_' and '-', got {name!r}"
        )


def _config_of(model: str | ModelAdapter, config: HermesConfig | str | None) -> HermesConfig:
    name = model if isinstance(model, str) else model.name
    if isinstance(config, HermesConfig):
        found = config
    elif config is not None or name in preset_names():
        found = load_config(config or name)
    else:
        found = load_config(preset_of_model(name))
    if not isinstance(model, str):
        return found
    return found.model_copy(update={"model": found.model.model_copy(update={"name": name})})


def _opener(
    source: str | Path | Callable[[HermesConfig], FrameSource],
) -> tuple[Callable[[HermesConfig], FrameSource], str]:
    """What opens a source, and how it is shown."""
    if callable(source):
        return source, getattr(source, "__name__", type(source).__name__)
    reference = str(source)
    return (lambda config: open_source(reference, config.source)), redacted(reference)
