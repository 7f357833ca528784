"""Time expressions placed on the stream: from words to a range of stream seconds.

Ranges are not forced into the stream: a time before it began, or still to come, stays outside, so
that the caller can say that there is no footage. Only what is said loosely ("today", "in the last
hour", "at 90 s") ends where the stream ends. The module does not read questions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Final

from hermes_like.retrieval.clock import StreamClock, format_stream
from hermes_like.retrieval.dates import parse_date
from hermes_like.retrieval.moments import DAY_S, Moment
from hermes_like.retrieval.time_words import Expression

_HOUR_S: Final = 3600.0
#: Half the width of a moment said to the second, and of one said to the hour.
SECOND_MARGIN_S: Final = 5.0
HOUR_MARGIN_S: Final = 300.0
#: What "at the beginning" and "at the end" cover.
EDGE_S: Final = 60.0
#: Local hours of the parts of a day; beyond 24 lies the next day.
_PARTS: Final[dict[str, tuple[float, float]]] = {
    "morning": (5, 12),
    "afternoon": (12, 18),
    "evening": (17, 24),
    "night": (22, 30),
    "last night": (20, 30),
}


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A stretch of stream time that a question speaks of.

    Attributes:
        start_s: Beginning in stream seconds; None: open.
        end_s: End in stream seconds; None: open.
        is_moment: One point was named, not a stretch.
        point_s: That point, where the range around it was cut to the stream and is not even.
        is_placed: False when the stream has no wall clock and the words need one.
        notes: Plain sentences about how the words were read.
    """

    start_s: float | None = None
    end_s: float | None = None
    is_moment: bool = False
    is_placed: bool = True
    notes: tuple[str, ...] = ()
    point_s: float | None = None


def place(expression: Expression, words: str, clock: StreamClock) -> TimeRange:
    """Return the stream time that an expression means.

    Args:
        expression: What was said.
        words: Its words, for notes.
        clock: What is known about time.
    """
    try:
        return _place(expression, words, clock)
    except (OverflowError, ValueError):
        note = f"The time {words!r} lies outside the calendar; the whole past is searched."
        return TimeRange(is_placed=False, notes=(note,))


def _place(said: Expression, words: str, clock: StreamClock) -> TimeRange:
    simple = _relative(said, clock)
    if simple is not None:
        return simple
    is_pure_offset = said.start is not None and said.start.offset_s is not None
    if (said.day or said.part) and not is_pure_offset and not clock.has_wall:
        return _unplaced(words, clock)
    if said.start is None:
        return _day_range(said, words, clock)
    if said.end is not None:
        return _between(said, said.start, said.end, words, clock)
    point, notes, is_wall = _point(said, said.start, words, clock)
    if point is None:
        return TimeRange(is_placed=False, notes=notes)
    if said.form == "since" and said.start.offset_s is not None and not said.is_stream:
        return _last(said.start.offset_s, clock)
    if said.form in ("since", "after"):
        end_s = point if point > clock.now_s else None
        return TimeRange(point, end_s, notes=notes)
    if said.form == "before":
        start_s = point if point <= clock.first_s else None
        return TimeRange(start_s, point, notes=notes)
    return replace(_around(point, said.start, clock, is_wall=is_wall), notes=notes)


def _unplaced(words: str, clock: StreamClock) -> TimeRange:
    why = f"This stream has no wall clock, so {words!r} cannot be placed"
    if clock.has_wall:
        why = f"The time {words!r} was not understood"
    note = f"{why}; the whole past is searched."
    return TimeRange(is_placed=False, notes=(note,))


# -- without a wall clock ----------------------------------------------------------------------


def _relative(said: Expression, clock: StreamClock) -> TimeRange | None:
    """Forms that need no time of day."""
    duration_s, now_s, first_s = said.duration_s, clock.now_s, clock.first_s
    if said.form == "last":
        return _last(duration_s, clock)
    if said.form == "first":
        return TimeRange(first_s, max(first_s, min(first_s + duration_s, now_s)))
    if said.form == "begin":
        return TimeRange(first_s, max(first_s, min(first_s + EDGE_S, now_s)))
    if said.form == "end":
        return TimeRange(max(first_s, now_s - EDGE_S), now_s)
    if said.form in ("ago", "later") and not (said.day and clock.has_wall):
        sign = -1.0 if said.form == "ago" else 1.0
        margin_s = _margin(duration_s, said.unit_s)
        return _window(now_s + sign * duration_s, margin_s, clock)
    return None


def _last(duration_s: float, clock: StreamClock) -> TimeRange:
    start_s, now_s = clock.now_s - duration_s, max(clock.first_s, clock.now_s)
    if start_s >= clock.first_s:
        return TimeRange(start_s, now_s)
    length = format_stream(now_s - clock.first_s)
    note = f"The stream is only {length} long; all of it is meant."
    return TimeRange(clock.first_s, now_s, notes=(note,))


def _margin(distance_s: float, unit_s: float) -> float:
    """Half the width of "10 minutes ago": a tenth of the distance, at most half the unit."""
    return max(SECOND_MARGIN_S, min(unit_s / 2, distance_s / 10))


def _window(point_s: float, margin_s: float, clock: StreamClock) -> TimeRange:
    """A point with a margin that does not reach from outside the stream into it, or out of it."""
    start_s, end_s = point_s - margin_s, point_s + margin_s
    if clock.holds(point_s):
        start_s, end_s = max(start_s, clock.first_s), min(end_s, clock.now_s)
        return TimeRange(start_s, end_s, is_moment=True, point_s=point_s)
    if point_s > clock.now_s:
        start_s = max(start_s, clock.now_s)
    else:
        end_s = min(end_s, clock.first_s)
    return TimeRange(start_s, end_s, is_moment=True)


def _whole(start_s: float, end_s: float, clock: StreamClock) -> TimeRange:
    """All of a unit, cut to the stream where it overlaps it."""
    if start_s <= clock.now_s and end_s > clock.first_s:
        start_s, end_s = max(start_s, clock.first_s), min(end_s, clock.now_s)
    return TimeRange(start_s, end_s, is_moment=True)


def _around(point_s: float, moment: Moment, clock: StreamClock, *, is_wall: bool) -> TimeRange:
    if moment.is_whole or (is_wall and moment.unit_s == 60):
        return _whole(point_s, point_s + moment.unit_s, clock)
    if moment.offset_s is not None:
        return _window(point_s, _margin(moment.offset_s, moment.unit_s), clock)
    margin_s = HOUR_MARGIN_S if moment.unit_s >= _HOUR_S else SECOND_MARGIN_S
    return _window(point_s, margin_s, clock)


# -- with a wall clock -------------------------------------------------------------------------


def _point(
    said: Expression, moment: Moment, words: str, clock: StreamClock
) -> tuple[float | None, tuple[str, ...], bool]:
    """Stream time of a moment, notes, and whether it was read as a time of day."""
    if moment.offset_s is not None:
        return moment.offset_s, (), False
    stream_s = moment.stream_s
    if said.is_stream and stream_s is not None:
        return stream_s, (), False
    wall_s = _wall_point(said, moment, clock) if clock.has_wall else None
    if wall_s is not None and (said.day or said.part or clock.holds(wall_s)):
        return wall_s, (), True
    if stream_s is not None and clock.holds(stream_s):
        why = "That time of day was not seen" if clock.has_wall else "There is no wall clock"
        note = f"{why}; {words!r} was read as stream time {format_stream(stream_s)}."
        return stream_s, (note,), False
    if wall_s is not None:
        return wall_s, (), True
    # Said to the second, or beyond any day, it is written like stream time: it lies outside.
    if stream_s is not None and (moment.day_s is None or moment.unit_s == 1):
        return stream_s, (), False
    return None, _unplaced(words, clock).notes, False


def _wall_point(said: Expression, moment: Moment, clock: StreamClock) -> float | None:
    """Stream time of a time of day: on its day, or the latest past one, best inside the stream."""
    if moment.day_s is None:
        return None
    options = _readings(moment, said.part)
    day = _date_of(said, clock)
    if day is not None:
        is_small_hour = said.part in ("night", "last night") and options[0] < 6 * _HOUR_S
        day += timedelta(days=int(is_small_hour))
        times = [clock.day_to_stream(day, option) for option in options]
        return next((t for t in times if clock.holds(t)), times[0])
    times = [_latest(option, clock) for option in options]
    return max((t for t in times if clock.holds(t)), default=max(times))


def _readings(moment: Moment, part: str | None) -> list[float]:
    """Seconds of the day that a moment may mean: "at 9" is 9 or 21 hours."""
    day_s = moment.day_s or 0.0
    is_night = part in ("night", "last night")
    if part in ("afternoon", "evening") or (is_night and day_s >= 6 * _HOUR_S):
        return [day_s + DAY_S / 2 if day_s < DAY_S / 2 else day_s]
    if part is None and moment.is_doubled:
        return [day_s, (day_s + DAY_S / 2) % DAY_S]
    return [day_s]


def _latest(second_of_day: float, clock: StreamClock) -> float:
    """Stream time of the latest past moment with this time of day."""
    today = clock.local_now().date()
    time_s = clock.day_to_stream(today, second_of_day)
    if time_s > clock.now_s:
        time_s = clock.day_to_stream(today - timedelta(days=1), second_of_day)
    return time_s


def _between(
    said: Expression, first: Moment, last: Moment, words: str, clock: StreamClock
) -> TimeRange:
    start_s, notes, is_wall = _point(said, first, words, clock)
    if start_s is None:
        return TimeRange(is_placed=False, notes=notes)
    if not is_wall:
        end_s = last.stream_s
        if end_s is None:
            return _unplaced(words, clock)
        return TimeRange(min(start_s, end_s), max(start_s, end_s), notes=notes)
    if last.day_s is None:
        end_s = start_s if last.offset_s is None else last.offset_s
        return TimeRange(min(start_s, end_s), max(start_s, end_s), notes=notes)
    # The end is the first moment with its time of day after the start.
    start = clock.to_wall(start_s)
    assert start is not None
    day = start.date() - timedelta(days=1)
    ends = [
        clock.day_to_stream(day + timedelta(days=days), option)
        for option in _readings(last, said.part)
        for days in range(4)
    ]
    return TimeRange(start_s, min(end for end in ends if end > start_s), notes=notes)


def _day_range(said: Expression, words: str, clock: StreamClock) -> TimeRange:
    """A whole day, or a part of one."""
    day = _date_of(said, clock)
    hours = _PARTS.get(said.part or "", (0.0, 24.0))
    if day is None and (said.day is not None or said.part is None):
        return _unplaced(words, clock)
    if day is None:
        day = clock.local_now().date()
        if clock.day_to_stream(day, hours[0] * _HOUR_S) > clock.now_s:
            day -= timedelta(days=1)
    start_s = clock.day_to_stream(day, hours[0] * _HOUR_S)
    end_s = clock.day_to_stream(day, hours[1] * _HOUR_S)
    if said.form == "since":
        return TimeRange(start_s, start_s if start_s > clock.now_s else None)
    return TimeRange(start_s, min(end_s, clock.now_s) if start_s < clock.now_s else end_s)


def _date_of(said: Expression, clock: StreamClock) -> date | None:
    """Local date of the day that was said; None if none was, or it was not understood."""
    day, today = said.day, clock.local_now().date()
    if said.part == "last night" and (day is None or day.shift in (0, -1)):
        return today - timedelta(days=1)
    if day is None:
        return None
    if day.shift is not None:
        return today + timedelta(days=day.shift)
    if day.weekday is not None:
        back = (today.weekday() - day.weekday) % 7
        return today - timedelta(days=7 if day.is_previous and back == 0 else back)
    return parse_date(day.date_words or "", said.language, clock.local_now())
