"""One question on its way: a thread of its own carries the answer, whoever watches it may leave.

The framework of a page may stop reading an answer without a word; the thread ends all the same,
so that nothing of the memory stays pinned. Knows no page.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hermes_like.answer import AnswerStream
from hermes_like.errors import HermesError
from hermes_like.records import Answer, Route

logger = logging.getLogger(__name__)

#: New text is passed on at most this often.
PACE_S = 0.08

#: Starts an answer; told how far a scan is.
Start = Callable[[Callable[[int, int], None]], AnswerStream]


class _StoppedError(Exception):
    """Raised inside a scan whose answer nobody wants any more."""


@dataclass(slots=True)
class Exchange:
    """A question and what has been answered so far.

    Attributes:
        question: As it was asked.
        forced: The route that was asked for; None: chosen by the words.
        text: What has come.
        answer: The finished answer.
        pictures: JPEG bytes beside ``answer.evidence``, empty where there is no picture.
        truth: The true answer, where a script knows it.
        shown: Spans of stream time that hold the truth.
        scanned: Frames that a scan has asked about, and how many there are.
        error: What went wrong, in one sentence.
        state: ``running``, ``done``, ``stopped`` or ``failed``.
    """

    question: str
    forced: Route | None = None
    text: str = ""
    answer: Answer | None = None
    pictures: tuple[bytes, ...] = ()
    truth: str | None = None
    shown: tuple[tuple[float, float], ...] = ()
    scanned: tuple[int, int] | None = None
    error: str = ""
    state: str = "running"


@dataclass(slots=True, eq=False)
class Asking:
    """The thread behind one exchange.

    Args:
        exchange: Written here, read by anybody.
        start: Starts the answer.
        finish: Called with the finished answer, before it is shown.
    """

    exchange: Exchange
    start: Start
    finish: Callable[[Answer], None]
    _changed: queue.Queue[bool] = field(default_factory=lambda: queue.Queue(1), init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def begin(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="answer", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """End the answer after the token in work; whether it has ended."""
        self._stopping.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    @property
    def is_running(self) -> bool:
        """Whether the answer is still on its way."""
        return self._thread is not None and self._thread.is_alive()

    def updates(self) -> Iterator[Exchange]:
        """The exchange after every change, until it is over."""
        while self.exchange.state == "running":
            try:
                self._changed.get(timeout=1.0)
            except queue.Empty:
                continue
            yield self.exchange
            time.sleep(PACE_S)
        yield self.exchange

    def _tell(self) -> None:
        try:
            self._changed.put_nowait(True)
        except queue.Full:  # it is known already that there is something new
            return

    def _run(self) -> None:
        exchange = self.exchange
        try:
            exchange.state = self._answer()
        except _StoppedError:
            exchange.state = "stopped"
        except (HermesError, ValueError) as error:
            exchange.error, exchange.state = str(error), "failed"
        except Exception as error:  # shown to the visitor; the others go on
            logger.exception("answering failed")
            exchange.error, exchange.state = f"{type(error).__name__}: {error}", "failed"
        finally:
            self._tell()

    def _answer(self) -> str:
        def on_progress(done: int, total: int) -> None:
            self.exchange.scanned = (done, total)
            self._tell()
            if self._stopping.is_set():
                raise _StoppedError

        with self.start(on_progress) as stream:
            for piece in stream:
                if self._stopping.is_set():
                    return "stopped"
                self.exchange.text += piece
                self._tell()
            answer = stream.answer
        self.finish(answer)
        self.exchange.text, self.exchange.answer = answer.text, answer
        return "done"
