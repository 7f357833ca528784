"""Numbers, durations and points in time, read from the few words that hold them.

The module is given words that a grammar has already recognised; it knows no sentence and no stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from hermes_like.retrieval.time_grammar import COLON, Grammar
from hermes_like.retrieval.time_tables import TimeTable

DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Moment:
    """One point in time as it was said.

    Attributes:
        offset_s: Seconds, of a duration ("90 s"); None for a time of day.
        day_s: Seconds since midnight; None for a duration, or if no day has such a time ("75:30").
        stream_s: The same read as stream time, if it can be ("14:05" is 14 minutes and 5 seconds).
        unit_s: The smallest unit that was named, in seconds.
        is_doubled: Whether 12 hours more may be meant.
        is_bare: A number alone.
        is_whole: All of a unit is meant ("minute 3").
    """

    offset_s: float | None = None
    day_s: float | None = None
    stream_s: float | None = None
    unit_s: float = 1.0
    is_doubled: bool = False
    is_bare: bool = False
    is_whole: bool = False


def parse_number(text: str, table: TimeTable) -> float:
    """Return the value of digits or a number word."""
    known = table.numbers.get(text.strip())
    return float(text.replace(",", ".")) if known is None else known


def parse_duration(text: str, rules: Grammar) -> tuple[float, float]:
    """Return seconds of a duration and of its smallest unit; a missing number is one."""
    total, smallest = 0.0, DAY_S * 31
    for match in rules.pair.finditer(text):
        unit_s = next((s for pattern, s in rules.units if pattern.fullmatch(match["u"])), 60.0)
        total += unit_s * (1.0 if match["n"] is None else parse_number(match["n"], rules.table))
        smallest = min(smallest, unit_s)
    return total, smallest


def parse_moment(text: str, rules: Grammar) -> Moment:
    """Return the point in time that some words name: "14:05", "9 pm", "minute 3", "90 s", "9"."""
    table = rules.table
    if re.fullmatch(table.noon, text):
        return Moment(day_s=DAY_S / 2, unit_s=3600)
    if re.fullmatch(table.midnight, text):
        return Moment(day_s=0.0, unit_s=3600)
    colon = re.match(COLON, text)
    if colon:
        return _colon(colon[0], text[colon.end() :].strip(), table)
    counted = rules.counted.fullmatch(text)
    if counted:
        unit_s = (1.0, 60.0, 3600.0)[table.counted.index(counted["u"])]
        offset_s = unit_s * int(counted["n"])
        return Moment(offset_s=offset_s, stream_s=offset_s, unit_s=unit_s, is_whole=unit_s > 1)
    hour = rules.hour.fullmatch(text)
    if hour:
        return _hour(hour, table)
    if text.isdecimal():
        day_s = int(text) * 3600.0 if int(text) <= 24 else None
        return Moment(day_s=day_s, unit_s=3600, is_doubled=_may_double(day_s, table), is_bare=True)
    offset_s, unit_s = parse_duration(text, rules)
    return Moment(offset_s=offset_s, stream_s=offset_s, unit_s=unit_s)


def _colon(text: str, suffix: str, table: TimeTable) -> Moment:
    fields = [float(field.replace(",", ".")) for field in text.split(":")]
    has_seconds = len(fields) == 3
    hours, minutes, seconds = fields if has_seconds else (*fields, 0.0)
    day_s: float | None = hours * 3600 + minutes * 60 + seconds
    stream_s: float | None = day_s if has_seconds else hours * 60 + minutes
    if hours > 24 or (day_s is not None and day_s > DAY_S):
        day_s = None
    unit_s = 1.0 if has_seconds else 60.0
    if suffix[:1] in ("a", "p") and re.match(r"[ap]\.?m", suffix):
        return Moment(day_s=_meridian(day_s, suffix), unit_s=unit_s)
    if suffix:
        return Moment(day_s=day_s, unit_s=unit_s)
    is_doubled = _may_double(day_s, table) and not text.startswith("0") and not has_seconds
    return Moment(day_s=day_s, stream_s=stream_s, unit_s=unit_s, is_doubled=is_doubled)


def _hour(match: re.Match[str], table: TimeTable) -> Moment:
    minutes = match["m"] or match["m2"]
    hours = parse_number(match["h"], table)
    day_s: float | None = hours * 3600 + int(minutes or 0) * 60
    day_s = day_s if hours <= 24 and (day_s or 0.0) <= DAY_S else None
    unit_s = 60.0 if minutes else 3600.0
    if match["mer"]:
        return Moment(day_s=_meridian(day_s, match["mer"]), unit_s=unit_s)
    # "2h" may be said of a stream as well; "2 Uhr" and "2 o'clock" may not.
    stream_s = day_s if table.oclock.startswith("h") else None
    is_doubled = _may_double(day_s, table)
    return Moment(day_s=day_s, stream_s=stream_s, unit_s=unit_s, is_doubled=is_doubled)


def _meridian(day_s: float | None, text: str) -> float | None:
    if day_s is None or day_s >= 13 * 3600:
        return day_s
    return day_s % (DAY_S / 2) + (DAY_S / 2 if text.startswith("p") else 0.0)


def _may_double(day_s: float | None, table: TimeTable) -> bool:
    return table.is_doubled and day_s is not None and 3600 <= day_s < 13 * 3600


def lend_unit(first: Moment, text: str, last: Moment, last_text: str, rules: Grammar) -> Moment:
    """Return the first end of a range, with the unit of the second where it is a bare number."""
    if not first.is_bare or last.is_bare or not re.search(r"\d", last_text):
        return first
    if last.offset_s is not None:
        offset_s = int(text) * last.unit_s
        return Moment(offset_s=offset_s, stream_s=offset_s, unit_s=last.unit_s)
    if len(text) > 2:
        return first
    lent = parse_moment(re.sub(r"^\d{1,2}(?::\d\d)?", text, last_text), rules)
    is_late = lent.day_s is not None and last.day_s is not None and lent.day_s > last.day_s
    if is_late and re.search(r"[ap]\.?m", last_text):
        # "from 11 to 1 pm" begins in the morning.
        return replace(lent, day_s=(lent.day_s or 0.0) - DAY_S / 2)
    return lent
