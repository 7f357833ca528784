"""Stream seconds, times on the clock, and how both are written in an answer.

The module knows no questions. Daylight saving is respected: differences are taken in UTC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from hermes_like.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StreamClock:
    """What is known about time at the moment of a question.

    Attributes:
        now_s: Stream time of the newest frame, in seconds.
        first_s: Stream time of the first frame that was ever seen, in seconds.
        wall_at_zero: Time on the clock of stream second 0 (timezone-aware), None if unknown.

    Raises:
        ConfigError: ``wall_at_zero`` has no time zone, or a time is not finite.
    """

    now_s: float
    first_s: float = 0.0
    wall_at_zero: datetime | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.now_s) and math.isfinite(self.first_s)):
            raise ConfigError(f"expected finite stream times, got {self.first_s} to {self.now_s}")
        if self.wall_at_zero is not None and self.wall_at_zero.utcoffset() is None:
            raise ConfigError("wall_at_zero: expected a time with a zone, got a naive one")

    @property
    def has_wall(self) -> bool:
        """Whether stream times can be told as times on the clock."""
        return self.wall_at_zero is not None

    def holds(self, stream_s: float) -> bool:
        """Whether a stream time lies between the first and the newest frame."""
        return self.first_s <= stream_s <= self.now_s

    def to_wall(self, stream_s: float) -> datetime | None:
        """Time on the clock of a stream time; None without a clock or outside the calendar."""
        if self.wall_at_zero is None:
            return None
        try:
            moved = self.wall_at_zero.astimezone(UTC) + timedelta(seconds=stream_s)
            return moved.astimezone(self.wall_at_zero.tzinfo)
        except (OverflowError, ValueError):
            return None

    def to_stream(self, wall: datetime) -> float:
        """Stream seconds of a timezone-aware time on the clock.

        Raises:
            ConfigError: The stream has no wall clock.
        """
        if self.wall_at_zero is None:
            raise ConfigError("this stream has no wall clock: give its start time")
        return (wall.astimezone(UTC) - self.wall_at_zero.astimezone(UTC)).total_seconds()

    def local_now(self) -> datetime:
        """Time on the clock of the newest frame.

        Raises:
            ConfigError: The stream has no wall clock, or it runs past the calendar.
        """
        now = self.to_wall(self.now_s)
        if now is None:
            raise ConfigError("this stream has no wall clock: give its start time")
        return now

    def day_to_stream(self, day: date, second_of_day: float = 0.0) -> float:
        """Stream seconds of a local date and a time of day; of a doubled hour the latest past one.

        Raises:
            ConfigError: The stream has no wall clock.
        """
        if self.wall_at_zero is None:
            raise ConfigError("this stream has no wall clock: give its start time")
        shift, second = divmod(second_of_day, 86400.0)
        naive = datetime.combine(day + timedelta(days=int(shift)), time.min)
        naive += timedelta(seconds=second)
        local = naive.replace(tzinfo=self.wall_at_zero.tzinfo)
        first, again = self.to_stream(local), self.to_stream(local.replace(fold=1))
        return again if first < again <= self.now_s else first


def format_stream(stream_s: float) -> str:
    """Stream time as ``h:mm:ss``: 3723.4 -> "1:02:03"."""
    sign, whole = ("-" if stream_s < 0 else ""), int(abs(stream_s))
    return f"{sign}{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def format_range(start_s: float, end_s: float, clock: StreamClock) -> tuple[str, str]:
    """Both ends of a range in words: stream time, and time on the clock where it is known.

    Before the stream began there is no stream time to show if the clock is known.
    """
    ends = [format_stream(start_s), format_stream(end_s)]
    walls = [clock.to_wall(start_s), clock.to_wall(end_s)]
    if walls[0] is None or walls[1] is None:
        return ends[0], ends[1]
    is_same_day = walls[0].date() == walls[1].date()
    told = [
        f"{walls[0]:%Y-%m-%d %H:%M:%S}",
        f"{walls[1]:%H:%M:%S}" if is_same_day else f"{walls[1]:%Y-%m-%d %H:%M:%S}",
    ]
    if end_s <= min(0.0, clock.first_s):
        return told[0], told[1]
    return f"{ends[0]} ({told[0]})", f"{ends[1]} ({told[1]})"
