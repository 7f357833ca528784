"""The time words of a language compiled into patterns. All of them read folded text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from hermes_like.retrieval.languages import Language
from hermes_like.retrieval.time_tables import TABLES, TimeTable

Form = Literal[
    "ago", "last", "first", "begin", "end", "between", "since", "before", "after", "later", "at",
    "day",
]  # fmt: skip
#: Forms in the order in which they are tried: "vor 10 Minuten" is no "vor 10".
FORMS: Final[tuple[Form, ...]] = (
    "ago", "last", "first", "begin", "end", "between", "since", "before", "after", "later", "at",
)  # fmt: skip

NUMBER: Final = r"\d{1,6}(?:[.,]\d{1,3})?"
COLON: Final = r"\d{1,3}:[0-5]\d(?::[0-5]\d(?:[.,]\d{1,3})?)?"
MERIDIAN: Final = r"[ap]\.?m\b\.?"
_START: Final = r"(?<![\w:])(?<!\d[.,-])"
_STOP: Final = r"(?![\w:])(?![.,]\d)"
#: What may follow a number that stands alone, or a day of a month: "at 9?", not "at 9 tables".
_PHRASE_END: Final = (
    r"(?= ?(?:$|[?!,;)]|\.(?!\d))"
    r"| (?:at|on|in the|yesterday|today|tonight|this|last|around|between|from|did|was|were"
    r"|um|gegen|am|gestern|heute|vorgestern|zwischen|von|war|a las|a la|de la|ayer|hoy|por la"
    r"|entre|hier|du|le|ce|aujourd'hui|vers)(?!\w)| a \d)"
)


@dataclass(frozen=True, slots=True)
class Grammar:
    """Compiled patterns of one language.

    Attributes:
        table: What they were made from.
        forms: Pattern per form, with groups ``d1``, ... for durations, ``n1``, ... for
            their numbers and ``a1``, ``b1``, ... for moments.
        lone: A time that needs no preposition: at the very beginning, or with seconds.
        clock: Any time of day.
        pair: Number and unit, groups ``n`` and ``u``.
        units: Unit to seconds, for whole matches.
        hour: "9 pm", "9 Uhr 30", groups ``h``, ``m``, ``m2`` and ``mer``.
        counted: "minute 3", groups ``u`` and ``n``.
        marker: Says that what came just before is stream time.
        days, weekdays, parts, date: Days and parts of days.
    """

    table: TimeTable
    forms: dict[Form, re.Pattern[str]]
    lone: re.Pattern[str]
    clock: re.Pattern[str]
    pair: re.Pattern[str]
    units: tuple[tuple[re.Pattern[str], float], ...]
    hour: re.Pattern[str]
    counted: re.Pattern[str]
    marker: re.Pattern[str]
    days: tuple[tuple[re.Pattern[str], int], ...]
    weekdays: tuple[re.Pattern[str], ...]
    parts: tuple[tuple[re.Pattern[str], str], ...]
    date: re.Pattern[str]


@cache
def grammar(language: Language) -> Grammar:
    """Return the compiled patterns of one language."""
    table = TABLES[language]
    # A number word ends where a word ends ("eins" is no "ein s"), but for "un quart d'heure".
    words = "|".join(
        re.escape(word) + ("(?![a-z])" if word[-1].isalpha() else "")
        for word in sorted(table.numbers, key=len, reverse=True)
    )
    unit = "|".join(f"(?:{pattern})" for pattern in table.units)
    number = rf"(?:{NUMBER}|\b(?:{words}))"
    clock = _clock(table, words)
    counted = rf"(?:{'|'.join(table.counted)}) \d{{1,6}}"
    duration = _duration(number, unit)
    named = rf"(?:{clock}|{counted}|{duration})"
    return Grammar(
        table=table,
        forms={
            form: _form(getattr(table, form), form, named, duration, number, unit) for form in FORMS
        },
        lone=re.compile(rf"\A(?P<a1>{clock}){_STOP}|{_START}(?P<a2>\d{{1,3}}:\d\d:\d\d){_STOP}"),
        clock=re.compile(rf"{_START}(?P<a1>{clock}){_STOP}"),
        pair=re.compile(rf"(?P<n>{number})? ?-?(?P<u>{unit}|m)(?![a-z])"),
        units=tuple((re.compile(pattern), float(s)) for pattern, s in table.units.items()),
        hour=re.compile(
            rf"(?P<h>\d{{1,2}}|{words})(?:[.:](?P<m>[0-5]\d))? ?"
            rf"(?:(?P<mer>{MERIDIAN})|(?:{table.oclock})(?: ?(?P<m2>[0-5]\d))?)"
        ),
        counted=re.compile(rf"(?P<u>{'|'.join(table.counted)}) (?P<n>\d{{1,6}})"),
        marker=re.compile(rf",? ?(?:{table.marker})(?!\w)"),
        days=tuple((_word(pattern), shift) for pattern, shift in table.days.items()),
        weekdays=tuple(
            _word(table.weekday.replace("{day}", f"(?:{name})s?")) for name in table.weekdays
        ),
        parts=tuple((_word(pattern), part) for pattern, part in table.parts.items()),
        date=_date(table),
    )


def _word(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{pattern})(?!\w)")


def _clock(table: TimeTable, words: str) -> str:
    """Times of day that name themselves: with a colon, a meridian, "Uhr" or "noon"."""
    oclock = rf"(?:{table.oclock})(?![a-z])"
    return (
        rf"(?:{COLON}(?: ?(?:{MERIDIAN}|{oclock}))?"
        rf"|\d{{1,2}}(?:[.:][0-5]\d)? ?(?:{MERIDIAN}|{oclock}(?: ?[0-5]\d(?!\d))?)"
        rf"(?! ?(?:\d{{1,2}} ?)?(?:m|min[a-z]*|s|se[cgk][a-z]*)(?![a-z]))"
        rf"|\b(?:{words}) {oclock}"
        rf"|(?:{table.noon}|{table.midnight})(?![a-z]))"
    )


def _duration(number: str, unit: str) -> str:
    """ "90 s", "an hour", "1h 2m 3s": a lone "m" is no minute."""
    first = rf"{number} ?-?(?:(?:{unit})(?![a-z])|[hm](?= ?\d+ ?[ms]))"
    more = rf"(?:,? ?(?:and |und |y |et )?{number} ?(?:{unit}|m)(?![a-z]))"
    return rf"{first}{more}{{0,2}}"


def _form(
    template: str, form: Form, named: str, duration: str, number: str, unit: str
) -> re.Pattern[str]:
    # A bare number takes its unit from the other end of a range ("from 10 to 20 s"), or is the
    # hour after "at". It is no time after "after": "what came after 5?".
    moment = named
    if form == "between":
        moment = rf"(?:{named}|\d{{1,6}})"
    elif form == "at":
        moment = rf"(?:{named}|\d{{1,2}}{_PHRASE_END})"
    span = rf"(?:{duration}|(?:{unit})(?![a-z]))"
    texts = {"dur": duration, "span": span, "n": number, "a": moment, "b": moment}
    groups = {"dur": "d", "span": "d", "n": "n", "a": "a", "b": "b"}
    seen: dict[str, int] = {}

    def fill(match: re.Match[str]) -> str:
        name = groups[match[1]]
        seen[name] = seen.get(name, 0) + 1
        return f"(?P<{name}{seen[name]}>{texts[match[1]]})"

    filled = re.sub(r"\{(dur|span|n|a|b)\}", fill, template)
    return re.compile(rf"{_START}(?:{filled}){_STOP}")


def _date(table: TimeTable) -> re.Pattern[str]:
    """Calendar dates, in numbers or with the name of a month and a day."""
    month = "|".join(table.months)
    year = r"(?:,?(?: de| del)? \d{4})?"
    written = (
        r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d{2})"
        r"|\d{1,2}\.(?:0?[1-9]|1[0-2])\.(?!\d)"
        rf"|\d{{1,2}}(?:st|nd|rd|th|er|\.)?(?: of| de)? (?:{month}){year}{_PHRASE_END}"
        rf"|(?:{month})\.? \d{{1,2}}(?:st|nd|rd|th)?{year}{_PHRASE_END}"
    )
    return re.compile(rf"{_START}(?:(?:on|am|el|le) )?(?:the )?(?P<date>{written})(?![\w:])")
