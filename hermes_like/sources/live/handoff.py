"""Frames on their way from the thread that reads to whoever iterates: few, and the newest.

This module knows neither connections nor clocks.
"""

from __future__ import annotations

import threading
from collections import deque

from hermes_like.records import Frame


class Handoff:
    """A bounded queue that gives way at its old end.

    Args:
        max_frames: Bound; 1 hands over the newest frame.
        waits: Whether the reader waits for room instead; for what does not run away.
    """

    def __init__(self, max_frames: int, waits: bool = False) -> None:
        self._max_frames = max_frames
        self._waits = waits
        self._frames: deque[tuple[Frame, float]] = deque()
        self._changed = threading.Condition()
        self._is_over = False
        self._error: BaseException | None = None
        self._num_dropped = 0

    @property
    def num_dropped(self) -> int:
        """Frames that nobody took in time."""
        return self._num_dropped

    def put(self, frame: Frame, arrived_s: float) -> None:
        """Add a frame; the oldest gives way, or the reader waits."""
        with self._changed:
            if self._waits:
                self._changed.wait_for(lambda: self._is_over or self._has_room())
            elif not self._has_room():
                self._frames.popleft()
                self._num_dropped += 1
            if self._is_over:
                self._num_dropped += 1
                return
            self._frames.append((frame, arrived_s))
            self._changed.notify_all()

    def take(self) -> tuple[Frame, float] | None:
        """Wait for a frame; return it and when it arrived, or None at the end.

        Raises:
            BaseException: What ended the reader, once, after the frames before it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or bool(self._frames))
            if self._frames:
                self._changed.notify_all()
                return self._frames.popleft()
            error, self._error = self._error, None
        if error is not None:
            raise error
        return None

    def finish(self, error: BaseException | None = None) -> None:
        """Say that no more comes, and why."""
        with self._changed:
            if not self._is_over:
                self._is_over, self._error = True, error
            self._changed.notify_all()

    def stop(self) -> None:
        """Say that no more is wanted: both sides go on at once, what is left counts as dropped."""
        with self._changed:
            self._is_over = True
            self._error = None
            self._num_dropped += len(self._frames)
            self._frames.clear()
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return len(self._frames) < self._max_frames
