"""What a live source counts about itself. Knows states and numbers, neither threads nor sockets."""

from __future__ import annotations

import threading
from collections import deque

from hermes_like.records import SourceHealth, SourceState
from hermes_like.sources.live.connection import Connection

#: Seconds over which the rate of arrivals is measured.
RATE_WINDOW_S = 10.0

_MAX_TIMES = 4096


class HealthBook:
    """Counts what happens, from one thread, and tells how things stand, to any.

    Args:
        stale_s: Silence after which a connected source is stale, in seconds.
    """

    def __init__(self, stale_s: float) -> None:
        self._stale_s = stale_s
        self._lock = threading.Lock()
        self._times: deque[float] = deque(maxlen=_MAX_TIMES)
        self._since_s = 0.0
        self._last_s: float | None = None
        self._has_failed = False
        self._is_connected = False
        self._is_disabled = False
        self._is_frozen = False
        self._num_frames = self._num_connections = 0
        self._num_frozen = self._num_unconverted = 0
        self._num_damaged = self._num_decode_errors = 0
        self._connection: Connection | None = None
        self._lag_s = 0.0
        self._cause = ""

    def begin(self, connection: Connection) -> None:
        """A connection is being made."""
        with self._lock:
            self._connection = connection

    def arrived(self, now_s: float) -> bool:
        """A picture came; whether it is the first of its connection."""
        with self._lock:
            is_first = not self._is_connected
            if is_first:
                self._is_connected = True
                self._num_connections += 1
                self._since_s = now_s
                self._times.clear()
            self._num_frames += 1
            self._last_s = now_s
            self._times.append(now_s)
            return is_first

    def looked(self, is_frozen: bool) -> None:
        """A picture was looked at: is it frozen?"""
        with self._lock:
            self._is_frozen = is_frozen
            self._num_frozen += is_frozen

    def unconverted(self) -> None:
        """A picture could not be converted."""
        with self._lock:
            self._num_unconverted += 1

    def handed_over(self, lag_s: float) -> None:
        """A frame was taken, so long after its arrival."""
        with self._lock:
            self._lag_s = lag_s

    def end(self, cause: str | None) -> None:
        """The connection is over; None: because it was meant to be."""
        with self._lock:
            if self._connection is not None:
                self._num_damaged += self._connection.num_damaged
                self._num_decode_errors += self._connection.num_decode_errors
                self._connection = None
            self._is_connected = False
            if cause is not None:
                self._has_failed = True
                self._cause = cause

    def disable(self, is_disabled: bool) -> None:
        """The source is paused, or goes on."""
        with self._lock:
            self._is_disabled = is_disabled

    def tell(self, now_s: float, num_handoff: int) -> SourceHealth:
        """How things stand.

        Args:
            now_s: The time on the monotonic clock.
            num_handoff: Frames dropped because the consumer was slow.
        """
        with self._lock:
            current = self._connection
            num_damaged = self._num_damaged + (current.num_damaged if current else 0)
            num_errors = self._num_decode_errors + (current.num_decode_errors if current else 0)
            dropped = {
                "handoff": num_handoff,
                "damaged": num_damaged + self._num_unconverted,
                "frozen": self._num_frozen,
            }
            silent_s = None if self._last_s is None else max(now_s - self._last_s, 0.0)
            return SourceHealth(
                state=self._state(silent_s),
                silent_s=silent_s,
                fps=self._fps(now_s),
                lag_s=self._lag_s,
                num_frames=self._num_frames,
                num_dropped=dropped,
                num_decode_errors=num_errors + self._num_unconverted,
                num_reconnects=max(self._num_connections - 1, 0),
                is_frozen=self._is_frozen,
                cause=self._cause,
            )

    def _state(self, silent_s: float | None) -> SourceState:
        if self._is_disabled:
            return "disabled"
        if not self._is_connected:
            return "offline" if self._has_failed or silent_s is not None else "connecting"
        is_silent = silent_s is None or silent_s > self._stale_s
        return "stale" if is_silent or self._is_frozen else "online"

    def _fps(self, now_s: float) -> float:
        while self._times and self._times[0] <= now_s - RATE_WINDOW_S:
            self._times.popleft()
        return len(self._times) / min(max(now_s - self._since_s, 1.0), RATE_WINDOW_S)
