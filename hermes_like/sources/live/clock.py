"""The clocks of a live source, replaceable so that days pass in minutes in a soak run."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta


class Clock:
    """The clocks of the system. A subclass may tell another time; all three must agree."""

    def monotonic(self) -> float:
        """Seconds on a clock that is never set."""
        return time.monotonic()

    def wall(self) -> datetime:
        """The time of day, timezone-aware; it may be set at any moment."""
        return datetime.now(UTC)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait for an event, at most ``timeout_s`` seconds of this clock; whether it is set."""
        return event.wait(timeout_s)


class ScaledClock(Clock):
    """A clock that runs faster than the system's.

    Args:
        factor: Seconds of this clock in one second.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self._origin_s = time.monotonic()
        self._wall = datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds on a clock that is never set."""
        return self._origin_s + (time.monotonic() - self._origin_s) * self.factor

    def wall(self) -> datetime:
        """The time of day, timezone-aware."""
        return self._wall + timedelta(seconds=self.monotonic() - self._origin_s)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait for an event, at most ``timeout_s`` seconds of this clock; whether it is set."""
        return event.wait(timeout_s / self.factor)
