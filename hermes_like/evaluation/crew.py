"""Shares passes out among workers and takes their predictions, whoever dies on the way.

Knows hands and jobs. Knows neither models nor files.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_like.errors import DatasetError
from hermes_like.evaluation.hands import Hand, HandLostError
from hermes_like.evaluation.passes import Pass
from hermes_like.evaluation.worker import Job

logger = logging.getLogger(__name__)

#: Deaths in a row without a single answer, after which a video is given up; it is what kills then.
MOST_DEATHS = 3


@dataclass(slots=True)
class _Task:
    """A pass that waits or is being worked on.

    Attributes:
        planned: With the questions that are left.
        num_deaths: Workers that died over it since its last answer.
    """

    planned: Pass
    num_deaths: int = 0


class Crew:
    """Workers and the passes they share. Each worker has a thread here that waits for it.

    Args:
        hands: At least one. A single one works in the caller's thread.
        passes: What to do, in this order.
        config_hash: That every worker must have.
        job_of: The message for a pass, with what its conversations need.
        take: Called with every row, one at a time.
        give_up: Called with what is left of a pass that kills its workers, and why.
        on_done: Called with every finished pass and its number of frames.
    """

    def __init__(
        self,
        hands: Sequence[Hand],
        passes: Sequence[Pass],
        config_hash: str,
        *,
        job_of: Callable[[Pass], Job],
        take: Callable[[dict[str, Any]], None],
        give_up: Callable[[Pass, str], None],
        on_done: Callable[[Pass, int], None],
    ) -> None:
        self._hands, self._config_hash = hands, config_hash
        self._job_of, self._take, self._give_up, self._on_done = job_of, take, give_up, on_done
        self._tasks = deque(_Task(planned) for planned in passes)
        self._num_open = len(self._tasks)
        self._changed = threading.Condition()
        self._problem: BaseException | None = None
        self._num_living = len(hands)
        #: Workers that died at work.
        self.num_lost = 0

    def run(self) -> None:
        """Do everything. The first hand has been started.

        Raises:
            HandLostError: All workers are lost and cannot be started again.
            HermesError: A worker cannot work, or what ``take`` raises.
        """
        if len(self._hands) == 1:
            self._serve(self._hands[0], is_started=True)
        else:
            self._run_threads()
        if self._problem is not None:
            raise self._problem

    def _run_threads(self) -> None:
        threads = [
            threading.Thread(
                target=self._serve, args=(hand, place == 0), name=f"evaluation {place}"
            )
            for place, hand in enumerate(self._hands)
        ]
        for thread in threads:
            thread.start()
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over)
        finally:
            # Also when somebody presses Ctrl-C: what is in flight is broken off.
            self._end(None)
            for hand in self._hands:
                hand.stop()
            for thread in threads:
                thread.join()

    @property
    def _is_over(self) -> bool:
        return self._num_open <= 0 or self._problem is not None

    def _end(self, problem: BaseException | None) -> None:
        with self._changed:
            self._num_open = 0
            self._problem = self._problem or problem
            self._changed.notify_all()

    def _serve(self, hand: Hand, is_started: bool) -> None:
        """One worker's thread: pass after pass, a new worker for every one that dies.

        A worker takes a pass only once it has started: it may wait long for room on a cluster.
        """
        try:
            while is_started or self._restart(hand):
                is_started = True
                task = self._next()
                if task is None:
                    return
                try:
                    self._work(hand, task)
                except HandLostError as error:
                    is_started = False
                    self._put_back(task, error)
        except BaseException as error:  # it is raised where the run was called
            self._end(error)
            if isinstance(error, KeyboardInterrupt):
                raise

    def _restart(self, hand: Hand) -> bool:
        """Start a worker; False: it is not wanted any more, or others must do without it.

        Raises:
            HandLostError: It was the last one.
        """
        for _ in range(MOST_DEATHS):
            with self._changed:
                if self._is_over:
                    return False
            try:
                self._start(hand)
                return True
            except HandLostError as error:
                last = error
                logger.warning("a worker does not start: %s", error)
        with self._changed:
            self._num_living -= 1
            if self._num_living or self._is_over:
                return False
        raise last

    def _start(self, hand: Hand) -> None:
        found = hand.start()
        if found != self._config_hash:
            raise DatasetError(
                f"expected workers with settings {self._config_hash[:12]} as the first one has "
                f"them, got {found[:12]}: another model, release or number type"
            )

    def _next(self) -> _Task | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or bool(self._tasks))
            return None if self._is_over else self._tasks.popleft()

    def _work(self, hand: Hand, task: _Task) -> None:
        with self._changed:
            job = self._job_of(task.planned)
        for message in self._until_over(hand.work(job)):
            with self._changed:
                if "row" in message:
                    self._take(message["row"])
                    task.num_deaths = 0
                    task.planned = task.planned.without({message["row"]["question_id"]})
                else:
                    self._close(task, int(message["frames"]))

    def _until_over(self, messages: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for message in messages:
            with self._changed:
                is_over = self._is_over
            if is_over:
                return
            yield message

    def _close(self, task: _Task, num_frames: int) -> None:
        """The lock is held."""
        self._on_done(task.planned, num_frames)
        self._num_open -= 1
        self._changed.notify_all()

    def _put_back(self, task: _Task, error: HandLostError) -> None:
        """What a lost worker was doing is done by the next one that is free."""
        with self._changed:
            if self._is_over:
                return
            self.num_lost += 1
            task.num_deaths += 1
            video_id = task.planned.video.video_id
            logger.warning("%s: %s; it is done again", video_id, error)
            if not task.planned.questions:
                self._close(task, 0)
            elif task.num_deaths >= MOST_DEATHS:
                self._give_up(task.planned, f"{task.num_deaths} workers died over it: {error}")
                self._close(task, 0)
            else:
                self._tasks.appendleft(task)
                self._changed.notify_all()
