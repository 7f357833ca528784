"""Calendar dates in words, through a library that is imported when the first date is asked for."""

from __future__ import annotations

from datetime import date, datetime

from hermes_like.retrieval.languages import Language


def parse_date(words: str, language: Language, now: datetime) -> date | None:
    """Return the date that words name, None if they name none.

    Args:
        words: Day and month, perhaps a year, and nothing else; without a year the latest past
            one is meant.
        language: Of the words.
        now: Local time on the clock.
    """
    # Slow to import, and few questions name a date. It comes without types.
    import dateparser  # type: ignore[import-untyped]

    order = "DMY"
    if words[:4].isdecimal():
        order = "YMD"
    elif language == "en" and "." not in words:
        order = "MDY"
    parsed = dateparser.parse(
        words.rstrip("."),
        languages=[language],
        settings={
            "RELATIVE_BASE": now.replace(tzinfo=None),
            "PREFER_DATES_FROM": "past",
            "DATE_ORDER": order,
            "REQUIRE_PARTS": ["day", "month"],
            "PARSERS": ["absolute-time"],
        },
    )
    return parsed.date() if isinstance(parsed, datetime) else None
