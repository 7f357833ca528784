"""Time expressions: what they say, where they lie, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from hermes_like.retrieval.clock import StreamClock
from hermes_like.retrieval.languages import fold, language_of, normalise
from hermes_like.retrieval.time_ranges import TimeRange, place
from hermes_like.retrieval.time_words import find_expression

BERLIN = ZoneInfo("Europe/Berlin")
#: A stream from Sunday 10 May 2026, 06:00, to Wednesday 13 May, 15:30.
BEGIN, NOW = datetime(2026, 5, 10, 6, tzinfo=BERLIN), datetime(2026, 5, 13, 15, 30, tzinfo=BERLIN)
WALL = StreamClock((NOW - BEGIN).total_seconds(), 0.0, BEGIN)
#: Twenty minutes without a wall clock.
PLAIN = StreamClock(1200.0)


def ranged(question: str, clock: StreamClock) -> TimeRange:
    text = normalise(question)
    said = find_expression(fold(text), language_of(text))
    assert said is not None, f"no time in {question!r}"
    return place(said, question, clock)


def wall_ends(question: str) -> tuple[str | None, str | None]:
    """Both ends as day and time."""
    found = ranged(question, WALL)
    assert found.is_placed, found
    ends = [None if s is None else WALL.to_wall(s) for s in (found.start_s, found.end_s)]
    first, last = (None if end is None else f"{end:%d %H:%M:%S}" for end in ends)
    return first, last


@pytest.mark.parametrize(
    ("question", "start_s", "end_s"),
    [
        ("What was there at 90 s?", 85, 95),
        ("what was there at 1h 2m 3s", 3718, 3728),
        ("What happened 10 minutes into the video?", 570, 630),
        ("What was visible at 01:02:03 of the stream?", 3718, 3728),
        ("At 1:30 of the video, what was there?", 85, 95),
        ("What was there in minute 3?", 180, 240),
        ("What came in the first minute?", 0, 60),
        ("What was there at the beginning?", 0, 60),
        ("What was there between 2:00 and 3:00?", 120, 180),
        ("What came from 10 to 20 s?", 10, 20),
        ("What came between 1 minute and 90 seconds?", 60, 90),
        ("What was visible 10 minutes ago?", 570, 630),
        ("What was visible half an hour ago?", -780, -420),
        ("Who came in the last five minutes?", 900, 1200),
        ("What came after 90 seconds?", 90, None),
        ("What came before 90 seconds?", None, 90),
        ("Was war vor zehn Minuten zu sehen?", 570, 630),
        ("Was war vor einer Viertelstunde zu sehen?", 210, 390),
        ("Was war in den letzten fünf Minuten los?", 900, 1200),
        ("Wer war in der ersten Minute da?", 0, 60),
        ("Was war zwischen 2:00 und 3:00 zu sehen?", 120, 180),
        ("Was ist seit 5 Minuten zu sehen?", 900, 1200),
        ("Was war bei Sekunde 90?", 85, 95),
        ("Was war vor einer halben Stunde?", -780, -420),
        ("Qu'y avait-il il y a un quart d'heure ?", 210, 390),
        ("Qu'y avait-il il y a une demi-heure ?", -780, -420),
        ("¿Qué había hace media hora?", -780, -420),
        ("¿Qué había hace 10 minutos?", 570, 630),
        ("¿Qué pasó en los últimos 5 minutos?", 900, 1200),
        ("¿Qué había en el minuto 3?", 180, 240),
        ("¿Qué había en el primer minuto?", 0, 60),
        ("¿Qué pasó entre las 2:00 y las 3:00?", 120, 180),
        ("Qu'y avait-il il y a 10 minutes ?", 570, 630),
        ("Qui est entré pendant les 5 dernières minutes ?", 900, 1200),
        ("Qu'y avait-il à la minute 3 ?", 180, 240),
        ("Qu'y avait-il dans la première minute ?", 0, 60),
    ],
)
def test_stream_times(question: str, start_s: float | None, end_s: float | None) -> None:
    found = ranged(question, PLAIN)
    assert (found.start_s, found.end_s) == (start_s, end_s)


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        ("What was there at 14:05?", "13 14:05:00", "13 14:06:00"),
        ("What was there at 14:05:30?", "13 14:05:25", "13 14:05:35"),
        ("What was there yesterday at 9 pm?", "12 20:55:00", "12 21:05:00"),
        ("Who came on Monday?", "11 00:00:00", "12 00:00:00"),
        ("Who came today?", "13 00:00:00", "13 15:30:00"),
        ("Who came last Wednesday?", "06 00:00:00", "07 00:00:00"),
        ("Who came on Wednesday?", "13 00:00:00", "13 15:30:00"),
        ("Who was there yesterday morning?", "12 05:00:00", "12 12:00:00"),
        ("Who was there last night?", "12 20:00:00", "13 06:00:00"),
        ("Who was there last night at 2?", "13 01:55:00", "13 02:05:00"),
        ("What happened between 2 and 3 pm?", "13 14:00:00", "13 15:00:00"),
        ("What happened from 11 to 1 pm?", "13 11:00:00", "13 13:00:00"),
        ("What happened from 11 to noon yesterday?", "12 11:00:00", "12 12:00:00"),
        ("What happened between 23:00 and 1:00?", "12 23:00:00", "13 01:00:00"),
        ("What happened 2 days ago?", "11 00:00:00", "12 00:00:00"),
        ("What happened 2 days ago at 9 pm?", "11 20:55:00", "11 21:05:00"),
        ("What happened on May 12 at 10:00?", "12 10:00:00", "12 10:01:00"),
        ("What happened on 2026-05-12 at 10:00?", "12 10:00:00", "12 10:01:00"),
        ("What happened since yesterday?", "12 00:00:00", None),
        ("What happened before 14:05?", None, "13 14:05:00"),
        ("Was war gestern um 9 Uhr?", "12 08:55:00", "12 09:05:00"),
        ("Was war am Montag um 14 Uhr zu sehen?", "11 13:55:00", "11 14:05:00"),
        ("Was war vorgestern um 21 Uhr 30?", "11 21:30:00", "11 21:31:00"),
        ("Was war zwischen 14 und 15 Uhr?", "13 14:00:00", "13 15:00:00"),
        ("Wer kam gestern um 9 Uhr abends?", "12 20:55:00", "12 21:05:00"),
        ("Was war am 12. Mai um 10 Uhr?", "12 09:55:00", "12 10:05:00"),
        ("Was war am 12.5. um 10 Uhr?", "12 09:55:00", "12 10:05:00"),
        ("Was war am Montag Morgen?", "11 05:00:00", "11 12:00:00"),
        ("Was war am Morgen?", "13 05:00:00", "13 12:00:00"),
        ("Was war gestern Abend?", "12 17:00:00", "13 00:00:00"),
        ("Was war vor 14 Uhr?", None, "13 14:00:00"),
        ("Was war nach 14 Uhr?", "13 14:00:00", None),
        ("¿Qué pasó antes de las 14:05?", None, "13 14:05:00"),
        ("¿Quién vino ayer por la mañana?", "12 05:00:00", "12 12:00:00"),
        ("Que s'est-il passé après 14h ?", "13 14:00:00", None),
        ("Que s'est-il passé depuis hier ?", "12 00:00:00", None),
        ("¿Qué había ayer a las 21:00?", "12 21:00:00", "12 21:01:00"),
        ("¿Qué había ayer a las 9 de la noche?", "12 20:55:00", "12 21:05:00"),
        ("¿Quién vino el lunes a las 9?", "11 08:55:00", "11 09:05:00"),
        ("¿Quién vino el 12 de mayo?", "12 00:00:00", "13 00:00:00"),
        ("Qu'y avait-il hier à 9 h ?", "12 08:55:00", "12 09:05:00"),
        ("Qui est venu hier soir à 21h30 ?", "12 21:30:00", "12 21:31:00"),
        ("Qui est venu lundi dernier à 14h ?", "11 13:55:00", "11 14:05:00"),
        ("Qui est venu le 12 mai à 10h ?", "12 09:55:00", "12 10:05:00"),
    ],
)
def test_wall_times(question: str, start: str | None, end: str | None) -> None:
    assert wall_ends(question) == (start, end)


def test_a_bare_hour_is_the_latest_past_one_inside_the_stream() -> None:
    # At 15:30, 9 in the morning is nearer than 9 in the evening of the day before.
    assert wall_ends("What was there at 9?") == ("13 08:55:00", "13 09:05:00")
    assert wall_ends("What was there at 4?") == ("13 03:55:00", "13 04:05:00")
    # Where the stream saw only the evening, the evening is meant.
    evening = datetime(2026, 5, 12, 20, tzinfo=BERLIN)
    clock = StreamClock((NOW - evening).total_seconds() - 8 * 3600, 0.0, evening)
    found = ranged("What was there yesterday at 9?", clock)
    assert (found.start_s, found.end_s) == (3300, 3900)


def test_a_clock_time_that_was_not_seen_is_read_as_stream_time() -> None:
    begin = datetime(2026, 5, 13, 14, tzinfo=BERLIN)
    clock = StreamClock(1800.0, 0.0, begin)
    found = ranged("What was there at 1:30?", clock)
    assert (found.start_s, found.end_s) == (85, 95)
    assert "0:01:30" in found.notes[0]
    # The time of day comes first where both fit.
    assert ranged("What was there at 14:05?", clock).start_s == 300
    assert ranged("What was there at 14:05 of the stream?", clock).start_s == 840


def test_without_a_wall_clock_only_what_fits_is_placed() -> None:
    found = ranged("What was there at 14:05?", PLAIN)
    assert (found.start_s, found.end_s) == (840, 850)
    assert "wall clock" in found.notes[0]
    for question in (
        "What was there at 23:05?",
        "What was there yesterday at 9 pm?",
        "Who came today?",
    ):
        found = ranged(question, PLAIN)
        assert not found.is_placed
        assert "no wall clock" in found.notes[0]
        assert (found.start_s, found.end_s) == (None, None)
    # Written as this stream's own time is written: it lies outside.
    assert ranged("What was there at 01:02:03?", PLAIN).start_s == 3718


@pytest.mark.parametrize(
    "question",
    [
        "What will be there tomorrow?",
        "Was ist morgen um 9 Uhr?",
        "¿Qué hay mañana?",
        "Que se passe-t-il demain ?",
        "What is there in 10 minutes?",
    ],
)
def test_the_future_lies_outside(question: str) -> None:
    found = ranged(question, WALL)
    assert found.start_s is not None
    assert found.start_s >= WALL.now_s


def test_the_time_before_the_stream_lies_outside() -> None:
    for question in (
        "What was there on Saturday?",
        "What was there on May 3 at 10:00?",
        "What was there 5 days ago?",
    ):
        found = ranged(question, WALL)
        assert found.end_s is not None
        assert found.end_s <= WALL.first_s
    assert ranged("What was there before 05:00 on Sunday?", WALL).start_s == -3600
    assert ranged("What was there an hour ago?", PLAIN).end_s == -3600 + 1200 + 360


def test_loose_times_end_where_the_stream_ends() -> None:
    found = ranged("Who came in the last hour?", PLAIN)
    assert (found.start_s, found.end_s) == (0, 1200)
    assert "0:20:00" in found.notes[0]
    assert ranged("What was there at 2 s?", PLAIN).start_s == 0
    assert ranged("What was there at 1199 s?", PLAIN).end_s == 1200


@pytest.mark.parametrize(
    "question",
    [
        "What may the cat be looking at?",
        "Who sat in the center second row?",
        "Is the second door open?",
        "What is on the march poster?",
        "How many times did 3 people pass in may?",
        "May 3 people enter the room?",
        "What came after 5 ?",
        "which object carried number 9 ?",
        "what had the number 7 ?",
        "Who was at table 9?",
        "Are there 5 tables at 3 windows?",
        "What happened in the first row?",
        "When did you last see the sun?",
        "What was at the end of the street?",
        "What stood at the beginning of the queue?",
        "Was steht vor dem Haus?",
        "Wer war der zweite Mann vor 3 Autos?",
        "Was war das dritte Objekt?",
        "¿Quién está en la segunda mesa?",
        "¿Hay 3 perros en el parque?",
        "Il y a 3 chiens dans le jardin ?",
        "Où est la seconde porte ?",
        "Wer kam um eins vor uns?",
        "Was the score 3:2 or 16:9?",
        "How many people are between 2 and 3 cars?",
        "",
        "?!",
    ],
)  # fmt: skip
def test_everyday_words_are_no_times(question: str) -> None:
    text = normalise(question)
    for clock_language in {language_of(text), "en"}:
        assert find_expression(fold(text), clock_language) is None  # type: ignore[arg-type]


def test_the_day_that_is_25_hours_long() -> None:
    """Half past two comes twice on 25 October 2026 in Berlin; the latest past one is meant."""
    begin = datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    # At 02:12, once the clock has gone back, half past two has come only once.
    ends = {hour: StreamClock(hour * 3600.0, 0.0, begin) for hour in (15.2, 24.0)}
    wall = ends[15.2].to_wall(15.2 * 3600)
    assert wall is not None
    assert wall.astimezone(UTC) == datetime(2026, 10, 25, 1, 12, tzinfo=UTC)
    once = ranged("Was war um 2:30 Uhr?", ends[15.2])
    again = ranged("Was war um 2:30 Uhr?", ends[24.0])
    assert once.start_s == 14.5 * 3600
    assert again.start_s == 15.5 * 3600
    day = ranged("Was war gestern?", StreamClock(40 * 3600.0, 0.0, begin))
    assert (day.start_s, day.end_s) == (12 * 3600, 37 * 3600)


def test_full_width_digits_and_capitals() -> None:
    found = ranged("WHAT WAS THERE ＡＴ ９０ Ｓ？", PLAIN)
    assert (found.start_s, found.end_s) == (85, 95)
    assert ranged("What was there at ١:٣٠ of the video?", PLAIN).start_s == 85


def test_folding_keeps_the_length() -> None:
    text = "Straße İstanbul ﬁ ½ Où ¿Qué? — ’ １"
    assert len(fold(text)) == len(text)
    assert fold("Où — ’") == "ou - '"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Was there a war?", "en"),
        ("Was war das?", "de"),
        ("¿Qué es?", "es"),
        ("Qui est là ?", "fr"),
        ("14:05", "en"),
    ],
)
def test_languages(text: str, language: str) -> None:
    assert language_of(text) == language
