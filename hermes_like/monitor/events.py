"""What a monitor tells: state changes, answers, holes in the footage. Knows no camera.

Receivers run in a thread of their own, so that a slow one delays neither frames nor answers.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from hermes_like.records import Answer, SourceHealth

logger = logging.getLogger(__name__)

EventKind = Literal["state", "answer", "gap", "failure", "ended"]
#: Events that may wait for a receiver; what comes then is dropped and counted.
MAX_WAITING = 1024


@dataclass(frozen=True, slots=True)
class MonitorEvent:
    """Something that happened.

    Attributes:
        kind: ``state`` (of a camera), ``answer``, ``gap`` (nothing could be seen for a while),
            ``failure`` (watching a stream ended for a reason), ``ended`` (a recording is over).
        stream: Name of the stream.
        text: In one sentence.
        time: On the clock, with a zone.
        health: Of the source, with ``state``.
        answer: With ``answer``.
        span_s: Stream times of a ``gap``.
    """

    kind: EventKind
    stream: str
    text: str
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    health: SourceHealth | None = None
    answer: Answer | None = None
    span_s: tuple[float, float] | None = None


OnEvent = Callable[[MonitorEvent], None]


class Dispatcher:
    """Hands events to receivers, in order, in its own thread.

    A receiver that raises is logged and goes on getting events.
    """

    def __init__(self) -> None:
        self._receivers: list[OnEvent] = []
        self._waiting: queue.Queue[MonitorEvent | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self.num_dropped = 0

    def add(self, receiver: OnEvent) -> Callable[[], None]:
        """Let a receiver know of events from now on; returns what takes it away again."""
        self._receivers = [*self._receivers, receiver]

        def remove() -> None:
            self._receivers = [other for other in self._receivers if other is not receiver]

        return remove

    def tell(self, event: MonitorEvent) -> None:
        """Pass an event on; never waits."""
        logger.info(
            "%s: %s", event.stream, event.text, extra={"stream": event.stream, "event": event.kind}
        )
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self.num_dropped += 1

    def start(self) -> None:
        """Begin to hand over."""
        self._thread = threading.Thread(target=self._run, name="hermes_like events", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Hand over what waits, then end; a receiver that hangs is left behind after a while."""
        if self._thread is None:
            return
        with suppress(queue.Full):
            self._waiting.put(None, timeout=timeout_s)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            for receiver in self._receivers:
                try:
                    receiver(event)
                except Exception:  # the receiver's own failure, whatever it is
                    logger.exception("a receiver of events failed")
