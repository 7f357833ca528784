"""One model, many streams: fair ingest in shared vision batches, questions before frames.

A worker thread encodes the frames of all streams together and prefills them one stream after the
other. Whoever asks waits for at most one such step. Sessions and their memories know nothing of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from hermes_like.answer import AnswerStream
from hermes_like.config import EngineConfig
from hermes_like.errors import BudgetError, SessionStateError
from hermes_like.models.base import ModelAdapter
from hermes_like.records import Answer, Frame
from hermes_like.session import StreamSession
from hermes_like.turns import Turns, Urgency

logger = logging.getLogger(__name__)

#: Told the kind of a step (``vision``, ``prefill``, ``question``, ``decode``) and its seconds.
OnStep = Callable[[str, float], None]


@dataclass(slots=True, eq=False)
class _Seat:
    """One stream at the table.

    Attributes:
        name: Of the stream.
        session: Its memory.
        weight: Its share of ingest against the others.
        inbox: Frames that wait, masked already.
        served: Frames served divided by the weight, pauses taken out; the least comes next.
        num_frames: Frames served.
        failure: What ended the stream.
    """

    name: str
    session: StreamSession
    weight: float
    inbox: deque[Frame] = field(default_factory=deque)
    served: float = 0.0
    num_frames: int = 0
    failure: Exception | None = None


class Engine:
    """Serves many sessions on one model.

    Args:
        model: Shared by all sessions.
        config: Batch size, bound of the inboxes, sums of caps.
        on_step: Told how long each step took; must be quick.

    Example:
        >>> with Engine(model) as engine:
        ...     engine.add("gate", StreamSession(model, config))
        ...     engine.put("gate", frame)
        ...     print(engine.ask("gate", "what is visible now ?").text)
    """

    def __init__(
        self,
        model: ModelAdapter,
        config: EngineConfig | None = None,
        *,
        on_step: OnStep | None = None,
    ) -> None:
        self.model, self.config = model, config or EngineConfig()
        self._on_step = on_step
        self._turns = Turns(self.config.patience_s)
        self._changed = threading.Condition()
        self._seats: dict[str, _Seat] = {}
        self._busy: set[str] = set()
        #: Start-time fair queueing: ``served`` of the stream whose turn came last.
        self._virtual = 0.0
        self._worker: threading.Thread | None = None
        self._is_stopped = False

    # -- streams ---------------------------------------------------------------------------------

    def add(self, name: str, session: StreamSession, *, weight: float = 1.0) -> None:
        """Give a stream a seat.

        Args:
            name: How it is called here.
            session: On the same model; it stays the caller's, who closes it after :meth:`remove`.
            weight: Share of ingest against the others, where there is not enough for all.

        Raises:
            BudgetError: The caps of all streams together would pass those of the engine.
            SessionStateError: The name is taken, or the session is on another model.
        """
        if not weight > 0:
            raise ValueError(f"weight: expected more than 0, got {weight}")
        if session.model is not self.model:
            raise SessionStateError(f"stream {name!r}: its session is on another model")
        with self._changed:
            if name in self._seats:
                raise SessionStateError(f"stream {name!r} is there already")
            self._require_room(name, session)
            self._seats[name] = _Seat(name, session, weight, served=self._virtual)

    def remove(self, name: str) -> StreamSession:
        """Take a stream away, with frames that still wait, and return its session.

        Raises:
            SessionStateError: There is no such stream.
        """
        with self._changed:
            seat = self._seat(name)
            del self._seats[name]
            seat.inbox.clear()
            self._changed.notify_all()
            self._changed.wait_for(lambda: name not in self._busy)
        return seat.session

    @property
    def names(self) -> tuple[str, ...]:
        """Streams in the order they came."""
        with self._changed:
            return tuple(self._seats)

    def session(self, name: str) -> StreamSession:
        """The session of a stream."""
        with self._changed:
            return self._seat(name).session

    def queue_depth(self, name: str) -> int:
        """Frames of a stream that wait."""
        with self._changed:
            return len(self._seat(name).inbox)

    def failure(self, name: str) -> Exception | None:
        """What ended the ingest of a stream, if anything did."""
        with self._changed:
            return self._seat(name).failure

    def _seat(self, name: str) -> _Seat:
        seat = self._seats.get(name)
        if seat is None:
            known = ", ".join(self._seats) or "none yet"
            raise SessionStateError(f"unknown stream {name!r} (expected one of: {known})")
        return seat

    def _require_room(self, name: str, session: StreamSession) -> None:
        """Hold the sums of promised caps below the caps of the engine."""
        everyone = [*(seat.session for seat in self._seats.values()), session]
        for cap, most in (
            ("device_bytes", self.config.device_bytes),
            ("host_bytes", self.config.host_bytes),
            ("disk_bytes", self.config.disk_bytes),
        ):
            total = sum(_promised(s)[cap] for s in everyone)
            if most is not None and total > most:
                raise BudgetError(
                    f"stream {name!r}: engine.{cap} is {most}, and with it all streams would be "
                    f"promised {total}; give each of them less"
                )

    # -- frames ----------------------------------------------------------------------------------

    def put(self, name: str, frame: Frame, timeout_s: float | None = None) -> bool:
        """Hand over the next frame of a stream; waits while its inbox is full.

        Args:
            name: The stream.
            frame: See :meth:`StreamSession.observe`.
            timeout_s: Longest wait; None: until there is room.

        Returns:
            Whether the frame was taken; not after the timeout, or once the engine has stopped.

        Raises:
            SessionStateError: There is no such stream.
            ValueError: The picture has a wrong shape or number type.
            Exception: What ended the ingest of this stream before.
        """
        with self._changed:
            seat = self._seat(name)
        prepared = seat.session.prepare(frame)

        def can_go() -> bool:
            is_gone = self._seats.get(name) is not seat
            has_room = len(seat.inbox) < self.config.inbox_frames
            return self._is_stopped or is_gone or seat.failure is not None or has_room

        with self._changed:
            is_ready = self._changed.wait_for(can_go, timeout_s)
            if seat.failure is not None:
                raise seat.failure
            if not is_ready or self._is_stopped or self._seats.get(name) is not seat:
                return False
            if not seat.inbox:
                # A stream that paused does not come back with a claim on what it did not use.
                seat.served = max(seat.served, self._virtual)
            seat.inbox.append(prepared)
            self._changed.notify_all()
            return True

    def drain(self, name: str, timeout_s: float | None = None) -> bool:
        """Wait until every frame of a stream is remembered; whether it is."""

        def is_done() -> bool:
            seat = self._seats.get(name)
            return seat is None or seat.failure is not None or self._is_idle(seat)

        with self._changed:
            self._seat(name)
            return self._changed.wait_for(lambda: self._is_stopped or is_done(), timeout_s)

    def _is_idle(self, seat: _Seat) -> bool:
        return not seat.inbox and seat.name not in self._busy

    def _ingest(self) -> None:
        """The worker: batch after batch until stopped."""
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            try:
                self._serve(batch)
            finally:
                with self._changed:
                    self._busy.clear()
                    self._changed.notify_all()

    def _next_batch(self) -> list[tuple[_Seat, Frame]] | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopped or any(s.inbox for s in self._seats.values())
            )
            if self._is_stopped:
                return None
            batch: list[tuple[_Seat, Frame]] = []
            while len(batch) < self.config.batch_frames:
                waiting = [seat for seat in self._seats.values() if seat.inbox]
                if not waiting:
                    break
                seat = min(waiting, key=lambda s: s.served)
                self._virtual = max(self._virtual, seat.served)
                seat.served += 1.0 / seat.weight
                batch.append((seat, seat.inbox.popleft()))
            self._busy = {seat.name for seat, _ in batch}
            self._changed.notify_all()
            return batch

    def _serve(self, batch: list[tuple[_Seat, Frame]]) -> None:
        try:
            with self._step("vision"):
                tokens = self.model.embed_frames([frame.image for _, frame in batch])
        except Exception as error:  # whatever the model raises, the streams must go on
            if len(batch) == 1:
                self._fail(batch[0][0], error)
                return
            # One picture may be at fault, or the batch too large: each on its own tells.
            for one in batch:
                self._serve([one])
            return
        for (seat, frame), of_frame in zip(batch, tokens, strict=True):
            if seat.failure is not None or self._seats.get(seat.name) is not seat:
                continue
            try:
                with self._step("prefill"):
                    seat.session.observe(frame, of_frame)
                seat.num_frames += 1
            except Exception as error:  # one stream's failure must not end the others
                self._fail(seat, error)

    def _fail(self, seat: _Seat, error: Exception) -> None:
        logger.error("stream %s: watching ended: %s", seat.name, error, exc_info=error)
        with self._changed:
            seat.failure = error
            seat.inbox.clear()
            self._changed.notify_all()

    def _step(self, kind: str, urgency: Urgency = Urgency.USUAL) -> _Step:
        return _Step(self._turns, kind, urgency, self._on_step)

    # -- questions -------------------------------------------------------------------------------

    def ask(self, name: str, question: str, **options: Any) -> Answer:
        """Answer a question about one stream; see :meth:`StreamSession.ask`."""
        stream = self.ask_stream(name, question, **options)
        for _ in stream:
            pass
        return stream.answer

    def ask_stream(self, name: str, question: str, **options: Any) -> AnswerStream:
        """Like :meth:`ask`, with the text as it comes.

        The first text goes before all ingest; later tokens and a scan take turns with it.
        """
        told = options.pop("on_progress", None)

        def on_progress(done: int, total: int) -> None:
            if told is not None:
                told(done, total)
            self._turns.give_way()

        session = self.session(name)
        inner = session.ask_stream(question, on_progress=on_progress, **options)
        result: list[Answer] = []
        return AnswerStream(self._pieces(inner, result), result)

    def _pieces(self, inner: AnswerStream, result: list[Answer]) -> Iterator[str]:
        pieces = iter(inner)
        try:
            kind, urgency = "question", Urgency.FIRST_TEXT
            while True:
                with self._step(kind, urgency):
                    piece = next(pieces, None)
                if piece is None:
                    break
                yield piece
                kind, urgency = "decode", Urgency.USUAL
            result.append(inner.answer)
        finally:
            inner.close()

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to ingest. Safe to call twice.

        Raises:
            SessionStateError: The engine was stopped.
        """
        with self._changed:
            if self._is_stopped:
                raise SessionStateError("the engine was stopped; make a new one")
            if self._worker is None:
                self._worker = threading.Thread(
                    target=self._ingest, name="hermes_like engine", daemon=True
                )
                self._worker.start()

    def stop(self) -> None:
        """End ingest after the step in work; frames that wait are given up. Safe to call twice."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            worker = self._worker
        if worker is not None:
            with suppress(RuntimeError):  # called by the worker itself
                worker.join()

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


def _promised(session: StreamSession) -> dict[str, int]:
    """What a stream may take of each medium, by its own caps."""
    store = session.config.store
    return {
        "device_bytes": session.promised_device_bytes,
        "host_bytes": store.host_bytes if store.enabled else 0,
        "disk_bytes": store.disk_bytes if session.has_folder else 0,
    }


class _Step:
    """One turn, timed. The time spent waiting for it does not count."""

    def __init__(self, turns: Turns, kind: str, urgency: Urgency, told: OnStep | None) -> None:
        self._turn = turns.take(urgency)
        self._kind, self._told = kind, told
        self._started_s = 0.0

    def __enter__(self) -> None:
        self._turn.__enter__()
        self._started_s = time.perf_counter()

    def __exit__(self, *exc: Any) -> None:
        spent_s = time.perf_counter() - self._started_s
        self._turn.__exit__(*exc)
        if self._told is not None:
            self._told(self._kind, spent_s)
