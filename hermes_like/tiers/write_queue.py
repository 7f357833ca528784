"""One thread that carries out writes in order and tries again while the medium has failed.

Knows neither tiers nor caps. A write that fails with a ``StorageError`` is repeated after a pause
that doubles each time, and after a few times lets the others go first; any other error ends that
write alone.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hermes_like.errors import StorageError, TierFullError
from hermes_like.tiers.base import KeyframeRecord, SegmentRecord

logger = logging.getLogger(__name__)

#: Failures in a row after which the next job is tried, lest one job hold up all others for ever.
TURN = 4


@dataclass(slots=True, eq=False)
class WriteJob:
    """Something to be written.

    Attributes:
        payload: A segment or the pictures of one.
        num_bytes: What it takes in RAM while it waits.
        is_cancelled: Nobody wants it any more.
    """

    payload: SegmentRecord | KeyframeRecord
    num_bytes: int
    is_cancelled: bool = False

    @property
    def segment_id(self) -> int:
        """Whose it is."""
        return self.payload.head.segment_id


class WriteQueue:
    """Jobs in order, and the thread that carries them out; it starts with the first job.

    Args:
        write: Carries out a job in the thread, without the lock. ``StorageError`` means try again,
            ``TierFullError`` and every other error mean that this job is given up.
        done: Called in the thread with the lock held when a job has left the queue, with the error
            that ended it or None.
        after: Called in the thread without the lock, after each attempt.
        changed: The lock; notified whenever a job leaves or an attempt fails.
        first_pause_s: Before the first repetition.
        longest_pause_s: Bound of the doubled pauses.
    """

    def __init__(
        self,
        write: Callable[[WriteJob], None],
        done: Callable[[WriteJob, Exception | None], None],
        after: Callable[[], None],
        changed: threading.Condition,
        first_pause_s: float = 0.1,
        longest_pause_s: float = 30.0,
    ) -> None:
        self._write, self._done, self._after, self._changed = write, done, after, changed
        self._first_pause_s, self._longest_pause_s = first_pause_s, longest_pause_s
        self._jobs: deque[WriteJob] = deque()
        self._current: WriteJob | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = self._is_hurried = False
        #: Attempts that failed in a row, and over all.
        self.failures_in_a_row = self.num_failures = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the jobs, the one being written included."""
        with self._changed:
            return sum(job.num_bytes for job in self.jobs())

    def __len__(self) -> int:
        return len(self.jobs())

    def add(self, job: WriteJob) -> None:
        """Put a job at the end. The caller holds the lock."""
        self._jobs.append(job)
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="hermes-like-writer", daemon=True
            )
            self._thread.start()

    def pictures_of(self, segment_id: int) -> KeyframeRecord | None:
        """Pictures that wait. The caller holds the lock."""
        for job in self.jobs():
            if job.segment_id == segment_id and isinstance(job.payload, KeyframeRecord):
                return job.payload
        return None

    def cancel(self, segment_ids: Collection[int]) -> None:
        """Take jobs out, and wait for one of them that is being written. The lock is held."""
        for job in [job for job in self.jobs() if job.segment_id in segment_ids]:
            job.is_cancelled = True
            if job is not self._current:
                self._jobs.remove(job)
                self._done(job, None)
        self._changed.notify_all()
        self._changed.wait_for(
            lambda: self._current is None or self._current.segment_id not in segment_ids
        )

    def drain(self, timeout_s: float | None) -> bool:
        """Wait until all is written or an attempt fails; whether all is written."""
        with self._changed:
            failures = self.num_failures
            self._is_hurried = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: not self.jobs() or self.num_failures > failures, timeout_s
            )
            return not self.jobs()

    def close(self, timeout_s: float) -> list[WriteJob]:
        """End the thread after its current job, without the lock; returns what was not written.

        Args:
            timeout_s: Longest wait for a medium that hangs; its thread is left to itself then.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._changed:
            left = self.jobs()
            self._jobs.clear()
            return left

    def jobs(self) -> list[WriteJob]:
        """What waits, the job being written first. The caller holds the lock."""
        current = [] if self._current is None else [self._current]
        return [*current, *self._jobs]

    def _run(self) -> None:
        while (job := self._next()) is not None:
            error: Exception | None = None
            try:
                self._write(job)
            except Exception as caught:  # whatever a tier does, the next job is written
                error = caught
            with self._changed:
                self._settle(job, error)
            self._after()
            del job, error  # neither may live on while this waits: the segment may be erased

    def _next(self) -> WriteJob | None:
        with self._changed:
            if self.failures_in_a_row:
                doubled = self._first_pause_s * 2 ** min(self.failures_in_a_row - 1, 20)
                pause_s = min(doubled, self._longest_pause_s)
                self._changed.wait_for(lambda: self._is_closed or self._is_hurried, pause_s)
            self._changed.wait_for(lambda: self._is_closed or bool(self._jobs))
            self._is_hurried = False
            if self._is_closed:
                return None
            self._current = self._jobs.popleft()
            return self._current

    def _settle(self, job: WriteJob, error: Exception | None) -> None:
        self._current = None
        is_transient = isinstance(error, StorageError) and not isinstance(error, TierFullError)
        if error is not None:
            is_bug = not isinstance(error, StorageError)
            trace = error if is_bug else None
            logger.warning("segment %d: not written: %s", job.segment_id, error, exc_info=trace)
        if is_transient:
            self.failures_in_a_row += 1
            self.num_failures += 1
        else:
            self.failures_in_a_row = 0
        if is_transient and not job.is_cancelled:
            is_turn = self.failures_in_a_row % TURN == 0
            (self._jobs.append if is_turn else self._jobs.appendleft)(job)
        else:
            self._done(job, error)
        self._changed.notify_all()
