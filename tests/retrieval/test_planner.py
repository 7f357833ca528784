"""Which route a question takes, what is cut out of it, and when there is no footage."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_like.config import RetrievalConfig
from hermes_like.errors import ConfigError
from hermes_like.records import MissingSpan, Route
from hermes_like.retrieval.clock import StreamClock, format_stream
from hermes_like.retrieval.coverage import coverage, no_footage_text
from hermes_like.retrieval.planner import Plan, plan_question
from hermes_like.sprites.templates import TEMPLATES

BERLIN = ZoneInfo("Europe/Berlin")
BEGIN, NOW = datetime(2026, 5, 10, 6, tzinfo=BERLIN), datetime(2026, 5, 13, 15, 30, tzinfo=BERLIN)
WALL = StreamClock((NOW - BEGIN).total_seconds(), 0.0, BEGIN)
PLAIN = StreamClock(1200.0)
CONFIG = RetrievalConfig()
#: Route and kind of scan of each group of the bundled model's questions.
GROUPS: dict[str, tuple[Route, str | None]] = {
    "now": ("now", None),
    "recall": ("recall", None),
    "order": ("recall", None),
    "exists": ("scan", "exists"),
    "count": ("scan", "count"),
}
SLOTS = {
    "shape": "star", "shapes": "stars", "color": "red", "digit": "4", "zone": "left",
    "shape2": "ring", "color2": "blue",
}  # fmt: skip
SPRITES = [(name, text.format(**SLOTS)) for name, texts in TEMPLATES.items() for text in texts]


def plan(question: str, clock: StreamClock = PLAIN, **options: float | Route) -> Plan:
    return plan_question(question, clock=clock, config=CONFIG, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "question"), SPRITES)
@pytest.mark.parametrize("clock", [PLAIN, WALL], ids=["plain", "wall"])
def test_the_bundled_models_questions(name: str, question: str, clock: StreamClock) -> None:
    found = plan(question, clock)
    assert (found.route, found.scan_kind) == GROUPS[name.split("_")[0]]
    assert found.text == question
    assert (found.has_range, found.notes) == (False, ())
    assert found.edge == {"order_first": "start", "order_last": "end"}.get(name)


@pytest.mark.parametrize(
    ("route", "question"),
    [
        ("now", "What is the man doing right now?"),
        ("now", "Is there a dog in the garden?"),
        ("now", "How many people are in the room?"),
        ("now", "Is the second door open?"),
        ("now", "What's on the table at the moment?"),
        ("now", "List all the objects visible now"),
        ("now", "What time is it?"),
        ("recall", "What color was the car?"),
        ("recall", "What happened after the man left?"),
        ("recall", "Who sat in the center second row?"),
        ("recall", "What may the cat be looking at?"),
        ("recall", "Did you see what the man carried?"),
        ("scan count", "How many times did the bell ring?"),
        ("scan count", "How many cars have passed until now?"),
        ("scan count", "How often did the dog bark yesterday?"),
        ("scan when", "When did the postman come?"),
        ("scan when", "When did you last see the red car?"),
        ("scan when", "At what time did the light go out?"),
        ("scan list", "List all vehicles that passed."),
        ("scan list", "Show me every time the light was on"),
        ("scan exists", "Was there ever a fire?"),
        ("scan exists", "Has anyone entered the room?"),
        ("scan exists", "Did a dog bark in the last minute?"),
        ("time", "What was visible 10 minutes ago?"),
        ("time", "How many people were there at 14:05?"),
        ("time", "Was there a star at 90 s?"),
        ("time", "What did he say yesterday at 9 pm?"),
        ("now", "Was ist jetzt zu sehen?"),
        ("now", "Was steht vor dem Haus?"),
        ("now", "Ist jemand da?"),
        ("now", "Hat der Mann einen gelben Hut?"),
        ("now", "Wie viele Leute sind im Raum?"),
        ("recall", "Welche Farbe hatte das Auto?"),
        ("recall", "Was ist passiert?"),
        ("recall", "Was war vor dem Haus?"),
        ("scan exists", "Ist jemand gekommen?"),
        ("scan exists", "Hat jemand geklingelt?"),
        ("scan exists", "Gab es einen Hund?"),
        ("scan count", "Wie viele Autos sind vorbeigefahren?"),
        ("scan count", "Wie oft hat es geklingelt?"),
        ("scan when", "Wann kam der Postbote?"),
        ("scan list", "Liste alle Autos auf"),
        ("time", "Was war vor zehn Minuten zu sehen?"),
        ("time", "Wer war gestern um 9 Uhr da?"),
        ("now", "¿Qué se ve ahora?"),
        ("now", "¿Hay un perro en el jardín?"),
        ("recall", "¿De qué color era el coche?"),
        ("recall", "¿Qué pasó?"),
        ("scan count", "¿Cuántas personas pasaron?"),
        ("scan when", "¿Cuándo llegó el cartero?"),
        ("scan exists", "¿Hubo un incendio?"),
        ("scan exists", "¿Has visto un gato?"),
        ("time", "¿Qué había hace 10 minutos?"),
        ("time", "¿Quién estaba ayer a las 21:00?"),
        ("now", "Que voit-on maintenant ?"),
        ("now", "Y a-t-il un chien dans le jardin ?"),
        ("now", "Où est la seconde porte ?"),
        ("recall", "De quelle couleur était la voiture ?"),
        ("recall", "Que s'est-il passé ?"),
        ("scan count", "Combien de voitures sont passées ?"),
        ("scan when", "Quand le facteur est-il arrivé ?"),
        ("scan exists", "Y a-t-il eu un incendie ?"),
        ("scan exists", "As-tu vu un chat ?"),
        ("time", "Qu'est-ce qu'il y avait il y a 10 minutes ?"),
        ("time", "Qui était là hier à 9 h ?"),
    ],
)
def test_everyday_questions(route: str, question: str) -> None:
    found = plan(question, WALL)
    assert f"{found.route} {found.scan_kind or ''}".strip() == route
    assert found.asks_when == route.endswith("when")
    assert found.reason.startswith(found.route)
    assert found.question == question
    if found.route == "now":
        assert not found.has_range


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("what color was the star at 90 s ?", "what color was the star ?"),
        ("At 1:30 of the video, what was there?", "what was there?"),
        ("What was visible, at 90 s, on the left?", "What was visible, on the left?"),
        ("What was visible yesterday at 9 pm?", "What was visible?"),
        ("how many stars appeared in the last minute ?", "how many stars appeared ?"),
        ("Was war gestern um 9 Uhr zu sehen?", "Was war zu sehen?"),
        ("¿Qué había hace 10 minutos?", "¿Qué había?"),
        ("Qu'y avait-il il y a 10 minutes ?", "Qu'y avait-il ?"),
        ("yesterday?", "yesterday?"),
        ("What was at 9?", "What was?"),
    ],
)
def test_the_time_is_cut_out(question: str, text: str) -> None:
    found = plan(question, WALL)
    assert (found.text, found.question) == (text, question)


def test_a_scan_keeps_its_range_and_a_moment_is_looked_at() -> None:
    scan = plan("how many stars appeared in the last minute ?")
    assert (scan.route, scan.start_s, scan.end_s) == ("scan", 1140, 1200)
    moment = plan("how many stars were there at 90 s ?")
    assert (moment.route, moment.start_s, moment.end_s) == ("time", 85, 95)
    assert moment.is_moment
    assert moment.scan_kind is None
    assert plan("when was the star last seen ?").edge == "end"


def test_a_time_that_cannot_be_placed_is_told() -> None:
    found = plan("What was visible yesterday at 9 pm?")
    assert (found.route, found.has_range) == ("recall", False)
    assert found.text == "What was visible?"
    assert found.notes == (
        "This stream has no wall clock, so 'yesterday at 9 pm' cannot be placed; "
        "the whole past is searched.",
    )
    # It is not answered from the present either.
    assert plan("What is visible yesterday?").route == "recall"
    # An hour alone is no time where no clock can tell it.
    assert plan("What was at 9?").text == "What was at 9?"
    assert plan("What happened 999999 days ago?", WALL).route == "recall"


def test_a_route_can_be_given() -> None:
    present = plan("What was visible at 90 s?", route="now")
    assert (present.route, present.has_range) == ("now", False)
    assert "'at 90 s' is left out" in present.notes[0]
    assert plan("What is visible now?", route="scan").scan_kind == "list"
    assert plan("Was there a star?", route="scan").scan_kind == "exists"
    assert "No time was named" in plan("What was there?", route="time").notes[0]
    by_config = plan_question(
        "what is visible now ?", clock=PLAIN, config=RetrievalConfig(route="recall")
    )
    assert by_config.route == "recall"
    both = plan_question(
        "what is visible now ?", clock=PLAIN, config=RetrievalConfig(route="recall"), route="now"
    )
    assert both.route == "now"


def test_limits_narrow_the_range() -> None:
    assert plan("What color was the star?", since_s=10.0).route == "time"
    assert plan("What is visible?", until_s=100.0).route == "time"
    found = plan("How many stars appeared in the last 10 minutes?", since_s=900.0)
    assert (found.route, found.start_s, found.end_s) == ("scan", 900, 1200)
    apart = plan("What was there at 90 s?", since_s=900.0, until_s=910.0)
    assert (apart.start_s, apart.end_s) == (900, 910)
    assert "outside the given limits" in apart.notes[0]
    forced = plan("What is visible now?", since_s=900.0, route="now")
    assert not forced.has_range
    with pytest.raises(ConfigError, match="until_s"):
        plan("What?", since_s=10.0, until_s=9.0)
    with pytest.raises(ConfigError, match="since_s"):
        plan("What?", since_s=float("nan"))


# -- robustness --------------------------------------------------------------------------------

_WORDS = (
    "the was is now vor seit hace il y a ago between entre zwischen und and y et from to at um las "
    "10 9 14:05 99:99 1:2:3 minutes stunden h s pm uhr yesterday gestern ayer hier monday lundi "
    "night morgen mañana may 3 mai 31 2026-02-30 31.2. first last letzten when wann how many ever "
    ". , ? ' - 999999999 days noon midi . of the stream minute half an before after 24:00 0 am"
)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.text(max_size=200), st.lists(st.sampled_from(_WORDS.split()), max_size=14).map(" ".join)
    ),
    st.sampled_from([PLAIN, WALL, StreamClock(0.0), StreamClock(5.0, 10.0)]),
)
def test_no_text_raises(question: str, clock: StreamClock) -> None:
    found = plan(question, clock)
    assert found.question == question
    if found.start_s is not None and found.end_s is not None:
        assert found.start_s <= found.end_s
    if found.route == "now":
        assert not found.has_range
    assert (found.scan_kind is not None) == (found.route == "scan")
    coverage([(clock.first_s, clock.now_s)], [], found.start_s, found.end_s, now_s=clock.now_s)


#: Words that general date finders take for times, among words around them.
_NO_TIMES = (
    "may march sat sun mon mar dec fri second third center first last before after now the what "
    "was is who in on at to for a an of from between and until since next left one day's ten "
    "der die das war ist vor nach bis mai mar eins hier von um am seit letzte erste und "
    "el la los que hay es fue mar dom desde hasta entre once segunda en y a de "
    "le les qui est a il y avait mars mai mer sept de dix premiere avant apres depuis et ou ?"
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(_NO_TIMES.split()), max_size=10).map(" ".join))
def test_without_digits_or_time_words_there_is_no_time(question: str) -> None:
    found = plan(question, WALL)
    units = re.search(r"\b(last|first|one|a|an|ten) second\b|\bhier\b", question)
    assert not found.has_range or units


@pytest.mark.parametrize(
    "part",
    [
        "1 ",
        "vor 1 ",
        "at 1 ",
        "from 1 to ",
        "hat ge",
        ", ",
        "a",
        "ß",
        "１:",
        "what was the thing that ",
    ],
)
def test_a_very_long_question_is_read_at_both_ends(part: str) -> None:
    filler = (part * 10_000)[:9_990]
    question = filler.strip() + " at 90 s?"
    plan(question, PLAIN)
    took_s = []
    for _ in range(3):
        begin = time.process_time()
        found = plan(question, PLAIN)
        took_s.append(time.process_time() - begin)
    assert statistics.median(took_s) < 0.05
    if part.startswith("what"):
        assert (found.route, found.start_s, found.end_s) == ("time", 85, 95)
        assert found.text == filler.strip() + "?"


def test_planning_loads_neither_torch_nor_the_date_library() -> None:
    code = (
        "import sys\n"
        "from hermes_like.config import RetrievalConfig\n"
        "from hermes_like.retrieval.planner import StreamClock, plan_question\n"
        "plan_question('what was there yesterday at 9 pm ?', clock=StreamClock(9.0),"
        " config=RetrievalConfig())\n"
        "assert not {'torch', 'dateparser'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- no footage --------------------------------------------------------------------------------


def test_coverage() -> None:
    lost = [MissingSpan(20.0, 30.0, "erased"), MissingSpan(25.0, 40.0, "checksum")]
    footage = [(50.0, 100.0), (0.0, 20.0), (35.0, 50.0)]
    assert coverage(footage, lost, 0, 15).extent == "fully"
    assert coverage(footage, lost, 60, None).extent == "fully"
    assert coverage(footage, lost, 20, 20).extent == "fully"
    part = coverage(footage, lost, 10, 120, now_s=110)
    assert part.extent == "partly"
    assert part.missing == (
        MissingSpan(20, 30, "erased"),
        MissingSpan(30, 35, "checksum"),
        MissingSpan(100, 110, "never seen"),
        MissingSpan(110, 120, "not yet"),
    )
    none = coverage(footage, lost, 21, 29)
    assert (none.extent, none.missing) == ("none", (MissingSpan(21, 29, "erased"),))
    assert coverage(footage, lost, -9, -3).missing == (MissingSpan(-9, -3, "never seen"),)
    assert coverage(footage, lost, 150, 160).missing == (MissingSpan(150, 160, "not yet"),)
    assert coverage(footage, lost, 22, 22).missing == (MissingSpan(22, 22, "erased"),)


def test_short_holes_without_a_reason_do_not_count() -> None:
    footage = [(0.0, 10.0), (10.9, 20.0)]
    assert coverage(footage, [], 5, 15).extent == "fully"
    assert coverage(footage, [], 5, 15, gap_s=0.5).extent == "partly"
    assert coverage(footage, [MissingSpan(10.0, 10.9, "erased")], 5, 15).extent == "partly"
    # A range that lies in the hole altogether has nothing to rest on.
    assert coverage(footage, [], 10.2, 10.7).extent == "none"


def test_an_empty_memory_has_no_footage() -> None:
    assert coverage([], [], None, None).extent == "none"
    assert no_footage_text((), PLAIN) == "There is no footage yet."
    assert coverage([], [], 0, 10, now_s=0).missing == (MissingSpan(0, 10, "not yet"),)


_SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda s: (float(s[0]), float(sum(s)))),
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(_SPANS, _SPANS, st.integers(-5, 50), st.integers(1, 30))
def test_coverage_agrees_with_counting_seconds(
    footage: list[tuple[float, float]], gone: list[tuple[float, float]], start: int, length: int
) -> None:
    """Second by second: either there is footage, or exactly one missing span holds it."""
    lost = [MissingSpan(a, b, "lost") for a, b in gone]
    found = coverage(footage, lost, start, start + length, now_s=45, gap_s=0)
    seen = 0
    for second in range(start, start + length):
        middle = second + 0.5
        has_footage = any(a < middle < b for a, b in footage)
        reasons = [m.reason for m in found.missing if m.start_s < middle < m.end_s]
        is_lost = any(a < middle < b for a, b in gone)
        expected = "lost" if is_lost else "never seen" if middle < 45 else "not yet"
        assert reasons == ([] if has_footage else [expected])
        seen += has_footage
    extent = "fully" if seen == length else "partly" if seen else "none"
    assert found.extent == extent


def test_many_erased_segments_are_no_burden() -> None:
    lost = [MissingSpan(i * 32.0, i * 32.0 + 16, "erased") for i in range(5_000)]
    footage = [(i * 32.0 + 16, i * 32.0 + 32) for i in range(5_000)]
    begin = time.process_time()
    assert len(coverage(footage, lost, None, None).missing) == 5_000
    assert time.process_time() - begin < 2


def test_the_wording_of_no_footage() -> None:
    def text(span: MissingSpan, clock: StreamClock = PLAIN) -> str:
        return no_footage_text((span,), clock)

    assert text(MissingSpan(60, 3723.4, "erased")) == (
        "There is no footage between 0:01:00 and 1:02:03: it was erased."
    )
    assert text(MissingSpan(60, 60, "lost")) == "There is no footage at 0:01:00: it was lost."
    assert text(MissingSpan(1300, 1400, "not yet")).endswith("that time has not come yet.")
    assert text(MissingSpan(10, 20, "never seen")).endswith("that time was never seen.")
    assert text(MissingSpan(-20, -10, "never seen")) == (
        "There is no footage between -0:00:20 and -0:00:10: that is before the stream began."
    )
    assert text(MissingSpan(10, 20, "checksum")).endswith(": checksum.")
    assert text(MissingSpan(60, 120, "erased"), WALL) == (
        "There is no footage between 0:01:00 (2026-05-10 06:01:00) and 0:02:00 (06:02:00): "
        "it was erased."
    )
    # Before the stream there is no stream time to tell.
    assert text(MissingSpan(-3600, -3540, "never seen"), WALL) == (
        "There is no footage between 2026-05-10 05:00:00 and 05:01:00: "
        "that is before the stream began."
    )


@pytest.mark.parametrize(
    ("question", "ending"),
    [
        ("What was there on Saturday at 9 am?", "that is before the stream began."),
        ("What is there tomorrow?", "that time has not come yet."),
        ("What was there yesterday at 9 pm?", "it was erased."),
        ("What was there after 23:00 tomorrow?", "that time has not come yet."),
        ("What was there before 05:00 on Sunday?", "that is before the stream began."),
    ],
)
def test_from_a_question_to_no_footage(question: str, ending: str) -> None:
    found = plan(question, WALL)
    hole = MissingSpan(60 * 3600.0, 66 * 3600.0, "erased")
    footage = [(0.0, hole.start_s), (hole.end_s, WALL.now_s)]
    result = coverage(footage, [hole], found.start_s, found.end_s, now_s=WALL.now_s)
    assert result.extent == "none"
    assert no_footage_text(result.missing, WALL).endswith(ending)


# -- the clock ---------------------------------------------------------------------------------


def test_the_clock_counts_real_seconds_over_a_change_of_time() -> None:
    begin = datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    clock = StreamClock(24 * 3600.0, 0.0, begin)
    wall = clock.to_wall(24 * 3600.0)
    assert wall is not None
    assert (wall.hour, wall.utcoffset()) == (11, timedelta(hours=1))
    assert clock.to_stream(wall) == 24 * 3600.0
    assert clock.to_stream(datetime(2026, 10, 25, 11, tzinfo=UTC)) == 25 * 3600.0


def test_a_clock_without_wall_time() -> None:
    assert not PLAIN.has_wall
    assert PLAIN.to_wall(5.0) is None
    for call in (lambda: PLAIN.to_stream(NOW), PLAIN.local_now):
        with pytest.raises(ConfigError, match="no wall clock"):
            call()
    with pytest.raises(ConfigError, match="naive"):
        StreamClock(1.0, 0.0, datetime(2026, 5, 10))
    with pytest.raises(ConfigError, match="finite"):
        StreamClock(float("inf"))
    assert WALL.to_wall(1e15) is None
    assert [format_stream(s) for s in (0, 59.9, 3723.4, 360000, -90)] == [
        "0:00:00", "0:00:59", "1:02:03", "100:00:00", "-0:01:30",
    ]  # fmt: skip
