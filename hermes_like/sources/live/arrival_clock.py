"""Stream time of what arrives: tied to the clock on the wall, spaced by the sender's clock.

Stream time runs with the monotonic clock from a moment whose wall time is known, so a step of the
system's clock cannot move it back. Times of the sender only space the pictures of one connection:
they start anywhere, drift, jump, and wrap. This module knows no decoder.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from hermes_like.sources.live.clock import Clock

#: A step back beyond this on the sender's clock is a jump, not pictures out of order.
JUMP_S = 1.0

#: A picture this late is not late: the sender's clock stands still, is slow, or has jumped.
MOST_LAG_S = 10.0

#: The least lag of this long counts as drift between two clocks, and is taken back.
DRIFT_WINDOW_S = 30.0

#: The system's clock is followed forwards beyond this (a machine that slept), at a new connection.
WALL_STEP_S = 1.0

_AFTER_S = 0.001


class ArrivalClock:
    """Gives each picture its stream time; it never goes back.

    Args:
        clock: Tells arrival and wall times.
        start_time: Wall time of stream second 0; None: now.

    Attributes:
        start: Wall time of stream second 0, timezone-aware.
        last_s: Stream time told last.
        num_jumps: How often the sender's clock jumped.
    """

    def __init__(self, clock: Clock, start_time: datetime | None = None) -> None:
        self._clock = clock
        wall = clock.wall()
        self.start = wall if start_time is None else start_time
        self._ahead_s = (wall - self.start).total_seconds() - clock.monotonic()
        self.last_s: float | None = None
        self.num_jumps = 0
        self._floor_s = 0.0
        self._offset_s: float | None = None
        self._last_media_s = 0.0
        self._least_lag_s = math.inf
        self._window_s = 0.0
        self._not_before(0.0)

    def start_after(self, newest_s: float) -> None:
        """Let the first picture come after ``newest_s``, the newest time of a resumed memory."""
        self._not_before(newest_s + _AFTER_S)

    def join(self) -> None:
        """Begin a connection: its sender's clock is unknown."""
        self._offset_s = None
        wall_s = (self._clock.wall() - self.start).total_seconds()
        step_s = wall_s - self._now_s(self._clock.monotonic())
        if step_s > WALL_STEP_S:
            self._ahead_s += step_s

    def tell(self, media_s: float | None, arrived_s: float, age_s: float = 0.0) -> float:
        """Return the stream time of a picture.

        Args:
            media_s: Time on the sender's clock; None or not finite: it has none.
            arrived_s: When it came, on the monotonic clock.
            age_s: How long before that it was taken.
        """
        now_s = self._now_s(arrived_s) - max(age_s, 0.0)
        if media_s is not None and math.isfinite(media_s):
            now_s = self._spaced(media_s, now_s)
        self.last_s = max(now_s, self._floor_s if self.last_s is None else self.last_s)
        return self.last_s

    def wall_time(self, pts_s: float) -> datetime:
        """Wall time of a stream time."""
        return self.start + timedelta(seconds=pts_s)

    def _now_s(self, monotonic_s: float) -> float:
        return self._ahead_s + monotonic_s

    def _not_before(self, floor_s: float) -> None:
        self._floor_s = max(self._floor_s, floor_s)
        self._ahead_s += max(self._floor_s - self._now_s(self._clock.monotonic()), 0.0)

    def _spaced(self, media_s: float, now_s: float) -> float:
        """Stream time by the sender's clock: never ahead of the arrival, as little behind as is."""
        offset_s = self._offset_s
        lag_s = 0.0 if offset_s is None else now_s - (media_s + offset_s)
        has_jumped = offset_s is not None and (
            media_s < self._last_media_s - JUMP_S or not -JUMP_S <= lag_s <= MOST_LAG_S
        )
        self.num_jumps += has_jumped
        self._last_media_s = media_s
        if offset_s is None or has_jumped or lag_s < 0:
            offset_s = now_s - media_s
            self._least_lag_s, self._window_s = 0.0, now_s
        elif now_s - self._window_s >= DRIFT_WINDOW_S:
            offset_s += min(self._least_lag_s, lag_s)
            self._least_lag_s, self._window_s = math.inf, now_s
        else:
            self._least_lag_s = min(self._least_lag_s, lag_s)
        self._offset_s = offset_s
        return media_s + offset_s
