"""Time expressions in a question: which words they are and what they say, not yet placed.

An own small grammar for four languages. General date finders read "may", "sat" or "second" as
dates and "um 9 Uhr" as nine hours ago, so nothing here is a time without a number or a time word,
and only calendar dates are left to a library (``dates.py``). The module knows no stream.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hermes_like.retrieval.languages import Language
from hermes_like.retrieval.moments import (
    DAY_S,
    Moment,
    lend_unit,
    parse_duration,
    parse_moment,
    parse_number,
)
from hermes_like.retrieval.time_grammar import FORMS, Form, Grammar, grammar


@dataclass(frozen=True, slots=True)
class Day:
    """A day as it was said: exactly one of the first three is given.

    Attributes:
        shift: Distance from today in days.
        weekday: 0 for Monday.
        date_words: A calendar date in the words of the question, folded.
        is_previous: "last Monday": never today.
    """

    shift: int | None = None
    weekday: int | None = None
    date_words: str | None = None
    is_previous: bool = False


@dataclass(frozen=True, slots=True)
class Expression:
    """What a question says about time.

    Attributes:
        form: How it is said; ``day`` when there is only a day or a part of one.
        cuts: Places of its words in the question, in order, apart.
        language: Whose grammar it is.
        duration_s: Of "ago", "last", "first" and "later".
        unit_s: Smallest unit of that duration, in seconds.
        start: First or only moment.
        end: Second moment of "between".
        day: Which day.
        part: ``morning``, ``afternoon``, ``evening``, ``night`` or ``last night``.
        is_stream: Said to be stream time ("of the video").
    """

    form: Form
    cuts: tuple[tuple[int, int], ...]
    language: Language
    duration_s: float = 0.0
    unit_s: float = 1.0
    start: Moment | None = None
    end: Moment | None = None
    day: Day | None = None
    part: str | None = None
    is_stream: bool = False


def find_expression(
    folded: str, language: Language, *, allows_future: bool = True
) -> Expression | None:
    """Return the first time expression of a question, None if it has none.

    Args:
        folded: The question, normalised and folded.
        language: Its language.
        allows_future: Whether "in 10 minutes" may be one; false for questions about the past.
    """
    rules = grammar(language)
    found = _find_form(folded, rules, language, allows_future)
    cuts = list(found.cuts) if found else []
    day, day_cut = _find_day(folded, rules, cuts)
    if day_cut:
        cuts.append(day_cut)
    part, part_cut = _find_part(folded, rules, cuts)
    if part_cut:
        cuts.append(part_cut)
    if found is None and (day or part):
        # Beside a day, a time needs no preposition: "2026-05-12 14:05".
        match = _first(rules.clock, folded, cuts)
        found = _from_match("at", match, rules, language) if match else None
        if match:
            cuts.append(match.span())
    if found is None:
        if day is None and part is None:
            return None
        found = Expression("day", (), language)
        since = rf"(?:{rules.table.since_word}) (?:el )?\Z"
        before = re.search(since, folded[: min(cut[0] for cut in cuts)][-16:])
        if before:
            found = replace(found, form="since")
            start = min(cut[0] for cut in cuts) - len(before[0])
            cuts.append((start, start + len(before[0])))
    is_loose = found.start is not None and found.start.is_bare and found.form == "between"
    if is_loose and found.end is not None and found.end.is_bare and day is None and part is None:
        return None
    kept_day = day or found.day
    return replace(found, cuts=tuple(sorted(cuts)), day=kept_day, part=part)


def _find_form(
    folded: str, rules: Grammar, language: Language, allows_future: bool
) -> Expression | None:
    days_ago: Expression | None = None
    for form in FORMS:
        if form == "later" and not allows_future:
            continue
        match = rules.forms[form].search(folded)
        if match is None:
            continue
        found = _from_match(form, match, rules, language)
        if form == "ago" and found.unit_s == DAY_S:
            # "3 days ago" is a day, and a time of day may stand beside it.
            shift = Day(shift=-round(found.duration_s / DAY_S))
            days_ago = replace(found, day=shift)
            continue
        if days_ago is None:
            return found
        if form == "at":
            return replace(found, day=days_ago.day, cuts=(*days_ago.cuts, *found.cuts))
    if days_ago is not None:
        return days_ago
    match = rules.lone.search(folded)
    return _from_match("at", match, rules, language) if match else None


def _from_match(form: Form, match: re.Match[str], rules: Grammar, language: Language) -> Expression:
    groups = match.groupdict()
    start, end = match.span()
    marker = rules.marker.match(match.string, end)
    found = Expression(
        form, ((start, marker.end() if marker else end),), language, is_stream=marker is not None
    )
    spans = [text for name, text in groups.items() if name[0] == "d" and text]
    numbers = [text for name, text in groups.items() if name[0] == "n" and text]
    if spans:
        seconds, unit_s = parse_duration(spans[0], rules)
        seconds *= parse_number(numbers[0], rules.table) if numbers else 1.0
        found = replace(found, duration_s=seconds, unit_s=unit_s)
    moments = [text for name, text in groups.items() if name[0] == "a" and text]
    ends = [text for name, text in groups.items() if name[0] == "b" and text]
    if ends:
        first, last = parse_moment(moments[0], rules), parse_moment(ends[0], rules)
        found = replace(found, start=lend_unit(first, moments[0], last, ends[0], rules), end=last)
    elif moments:
        found = replace(found, start=parse_moment(moments[0], rules))
    return found


def _find_day(
    folded: str, rules: Grammar, taken: Sequence[tuple[int, int]]
) -> tuple[Day | None, tuple[int, int] | None]:
    date = _first(rules.date, folded, taken)
    if date:
        return Day(date_words=date["date"]), date.span()
    for pattern, shift in rules.days:
        match = _first(pattern, folded, taken)
        if match:
            return Day(shift=shift), match.span()
    for number, pattern in enumerate(rules.weekdays):
        match = _first(pattern, folded, taken)
        if match:
            is_previous = re.search(rules.table.previous, match[0]) is not None
            return Day(weekday=number, is_previous=is_previous), match.span()
    return None, None


def _find_part(
    folded: str, rules: Grammar, taken: Sequence[tuple[int, int]]
) -> tuple[str | None, tuple[int, int] | None]:
    for pattern, part in rules.parts:
        match = _first(pattern, folded, taken)
        if match:
            return part, match.span()
    return None, None


def _first(
    pattern: re.Pattern[str], folded: str, taken: Sequence[tuple[int, int]]
) -> re.Match[str] | None:
    """First match that overlaps nothing taken."""
    for match in pattern.finditer(folded):
        if all(match.end() <= start or match.start() >= end for start, end in taken):
            return match
    return None
