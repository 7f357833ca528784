"""Questions that are in a hurry, and questions whose present is later than the newest frame."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
import torch

from hermes_like.pace import FALL, MARGIN, Pace
from hermes_like.records import MissingSpan
from hermes_like.retrieval.queries import search_share
from hermes_like.session import StreamSession
from tests.test_long_term import STAR_S, WALL, copied, frames, small, state
from tests.test_long_term import sprites as sprites
from tests.test_long_term import watched as watched

STAR = "where was the red star ?"
#: What a test says a frame costs, in seconds, so that the speed of the machine does not matter.
FRAME_S = 1000.0


@pytest.fixture
def session(sprites, watched: Path, tmp_path: Path):
    with StreamSession.open(sprites, copied(watched, tmp_path / "m"), small()) as opened:
        yield opened


def slow(session: StreamSession) -> Pace:
    """Let the session believe that frames take very long."""
    pace = session._desk.pace
    for tier in ("host", "disk", "source"):
        pace.note_frames([tier], FRAME_S)
    return pace


# -- how much there is time for --------------------------------------------------------------------


def test_without_hurry_nothing_changes(session) -> None:
    plain = session.ask(STAR, keep_conversation=False)
    hurried = session.ask(STAR, keep_conversation=False, deadline_s=1e6)
    assert (plain.text, plain.status) == ("left", "ok")
    assert (hurried.text, hurried.status, hurried.notes) == (plain.text, "ok", ())
    assert [e.start_s for e in hurried.evidence] == [e.start_s for e in plain.evidence]


@pytest.mark.parametrize("deadline_s", [0.0, -3.0])
def test_no_time_at_all_still_answers_from_what_is_resident(session, deadline_s: float) -> None:
    before = state(session)
    hurried = session.ask(STAR, keep_conversation=False, deadline_s=deadline_s)
    resident = session.ask(STAR, keep_conversation=False, route="now")
    assert hurried.text == resident.text
    assert (hurried.status, hurried.route) == ("partial", "recall")
    assert any("no time" in note for note in hurried.notes)
    assert all(evidence.tier == "device" for evidence in hurried.evidence)
    assert all(map(torch.equal, state(session), before))
    session.memory.check()


@pytest.mark.parametrize("count", [1, 3])
def test_fewer_frames_before_a_missed_deadline(session, count: int) -> None:
    slow(session)
    most = session._desk._consultant.max_frames
    deadline_s = MARGIN * FRAME_S * (count + 0.5)
    answer = session.ask(STAR, keep_conversation=False, deadline_s=deadline_s)
    assert answer.status == "partial"
    told = f"{most - count} of {most} frames that were found were left out"
    assert any(told in note for note in answer.notes), answer.notes
    assert len(answer.missing) == most - count
    assert {span.reason for span in answer.missing} == {"deadline"}
    assert not any(s.start_s < STAR_S[1] and s.end_s > STAR_S[0] for s in answer.missing)
    assert answer.text == "left", "the best frames come first"


def test_what_was_measured_is_used_and_falls_again(session) -> None:
    pace = slow(session)
    session.ask(STAR, keep_conversation=False, deadline_s=1e9)
    assert pace.frame_s("disk") < FRAME_S or pace.frame_s("host") < FRAME_S
    assert 0 < pace.prefill_s < FRAME_S
    assert 0 < pace.search_s < FRAME_S


def test_one_slow_moment_is_forgotten(session) -> None:
    """Where nothing is fetched nothing is measured; the past must come back all the same."""
    pace = slow(session)
    pace.note_search(FRAME_S)
    texts = [session.ask(STAR, keep_conversation=False, deadline_s=60.0) for _ in range(30)]
    assert texts[0].status == "partial"
    assert (texts[-1].text, texts[-1].status) == ("left", "ok")


def test_a_named_time_is_never_answered_from_another(session) -> None:
    """Frames of that time, fewer of them, or none: what is visible now is no answer."""
    question = "what was visible at 12:00:13 ?"
    slow(session)
    one = session.ask(question, keep_conversation=False, deadline_s=1.5 * MARGIN * FRAME_S)
    assert (one.text, one.status) == ("red star", "partial")
    none = session.ask(question, keep_conversation=False, deadline_s=0.5 * MARGIN * FRAME_S)
    assert none.status == "partial"
    assert "not read in time" in none.text
    assert none.evidence == ()
    told = session.ask(question, keep_conversation=False, deadline_s=0.0)
    assert told.text == none.text


def test_a_time_that_is_resident_needs_no_reading(session) -> None:
    slow(session)
    last_s = session.stats().stream_s
    asked = {"route": "time", "since_s": last_s - 1.0, "keep_conversation": False}
    hurried = session.ask("what was visible ?", deadline_s=0.0, **asked)
    assert hurried.text == session.ask("what is visible now ?", keep_conversation=False).text


def test_frames_that_are_not_stored_yet_answer_for_their_time(sprites) -> None:
    with StreamSession(sprites, small()) as opened:
        for frame in list(frames())[:14]:
            opened.observe(frame)
        newest = opened.long_term.timeline.newest
        assert newest.end_frame <= 12, "expected the star in the open segment"
        answer = opened.ask("what was visible ?", since_s=9.0, until_s=14.0)
        assert (answer.text, answer.route) == ("red star", "time")


def test_a_scan_stops_at_the_deadline_of_the_question(session) -> None:
    late = session.ask("was there a red star ?", deadline_s=0.0)
    assert late.status == "partial"
    assert any("time ran out" in note and "0 frames" in note for note in late.notes)
    assert session.ask("was there a red star ?", deadline_s=1e6).text == "yes"


def test_a_deadline_is_a_number(session) -> None:
    with pytest.raises(ValueError, match="deadline_s"):
        session.ask(STAR, deadline_s=math.nan)


def test_the_question_has_come_when_it_was_asked(session) -> None:
    """Time that passes before the first text is read counts."""
    stream = session.ask_stream(STAR, keep_conversation=False, deadline_s=0.05)
    time.sleep(0.06)
    for _ in stream:
        pass
    assert stream.answer.ttft_s >= 0.06
    assert any("no time" in note for note in stream.answer.notes)


# -- running costs ---------------------------------------------------------------------------------


def test_costs_rise_at_once_and_fall_slowly() -> None:
    pace = Pace()
    pace.note_prefill(1.0)
    pace.note_prefill(4.0)
    assert pace.prefill_s == 4.0
    pace.note_prefill(0.0)
    assert pace.prefill_s == 4.0 * (1 - FALL)


def test_costs_that_were_never_measured_are_guessed_high() -> None:
    pace = Pace()
    assert pace.has_time_to_search(0.001)
    assert not pace.has_time_to_search(0.0)
    pace.note_search(2.0)
    assert pace.prefill_s == 2.0
    assert pace.frame_s("disk") == 2.0
    pace.note_frames(["source"], 7.0)
    assert pace.frame_s("disk") == 7.0


def test_a_search_through_few_layers_says_what_all_of_them_take() -> None:
    assert search_share([(1, 0), (0, 1)], 8) == 0.25
    assert search_share([], 8) == 1.0
    pace = Pace(0.25)
    pace.note_search(2.0)
    assert (pace.search_s, pace.prefill_s, pace.frame_s("disk")) == (2.0, 8.0, 8.0)
    pace.note_prefill(3.0)
    assert pace.prefill_s == 3.0


def test_frames_of_several_tiers_share_what_they_took() -> None:
    pace = Pace()
    pace.note_frames(["host"] * 4, 4.0)
    pace.note_frames(["source"], 9.0)
    pace.note_frames(["host", "host", "source"], 22.0)
    assert pace.frame_s("host") == pytest.approx(2.0)
    assert pace.frame_s("source") == pytest.approx(18.0)
    pace.note_frames([], 100.0)
    assert pace.frame_s("disk") == pytest.approx(18.0)


def test_the_most_wanted_frames_fit_first() -> None:
    pace = Pace()
    pace.note_prefill(1.0)
    pace.note_frames(["host"], 1.0)
    pace.note_frames(["source"], 10.0)
    tiers = ["host", "host", "source", "host"]
    fitting = [pace.count_fitting(tiers, MARGIN * left) for left in (0.5, 1.5, 2.5, 3.5, 13.5, 15)]
    assert fitting == [0, 0, 1, 2, 3, 4]


# -- a present of its own --------------------------------------------------------------------------


def test_ago_counts_from_now_when_the_camera_is_silent(session) -> None:
    last_s = session.stats().stream_s
    now_s = last_s + 600.0
    at_star = session.ask(f"what was visible {int(now_s - 13.0)} seconds ago ?", now_s=now_s)
    assert (at_star.text, at_star.route) == ("red star", "time")
    unseen = session.ask("what was visible five minutes ago ?", now_s=now_s)
    assert unseen.status == "no_footage"
    assert "never seen" in unseen.text
    assert session.ask("what was visible five minutes ago ?").status == "no_footage"


def test_a_range_behind_the_last_frame_tells_why_it_was_blind(session) -> None:
    last_s = session.stats().stream_s
    session.note_blind(last_s + 1.0, last_s + 400.0, "the camera was offline")
    blind = session.ask("what was visible five minutes ago ?", now_s=last_s + 600.0)
    assert blind.status == "no_footage"
    assert "the camera was offline" in blind.text
    assert blind.missing[0].reason == "the camera was offline"


def test_an_answer_about_a_stretch_with_a_blind_span_is_partial(sprites) -> None:
    gap = (15.0, 45.0)
    with StreamSession(sprites, small()) as opened:
        for frame in frames(wall=True):
            if not gap[0] <= frame.pts_s < gap[1]:
                opened.observe(frame)
        opened.note_blind(*gap, "the cable was cut")
        for question in ("what was visible ?", "how many stars appeared ?"):
            answer = opened.ask(question, since_s=10.0, until_s=50.0, keep_conversation=False)
            assert answer.status == "partial", question
            reasons = [span for span in answer.missing if span.reason == "the cable was cut"]
            assert reasons
            assert reasons[0].start_s >= gap[0]
            assert reasons[0].end_s <= gap[1]
            assert any("the cable was cut" in note for note in answer.notes), question
        count = opened.ask("how many stars appeared ?", since_s=0.0, until_s=15.0)
        assert (count.text, count.status) == ("1", "ok")


def test_an_old_present_is_told(session) -> None:
    last_s = session.stats().stream_s
    fresh = session.ask("what is visible now ?", now_s=last_s + 2.0)
    assert (fresh.status, fresh.notes) == ("ok", ())
    old = session.ask("what is visible now ?", now_s=last_s + 7200.0)
    assert old.text == fresh.text
    assert "2:00:00" in old.notes[0]
    assert f"{WALL:%Y-%m-%d}" in old.notes[0]
    assert "never seen" in old.notes[0]
    assert old.asked_at_s == last_s + 7200.0
    session.note_blind(last_s, last_s + 9000.0, "the lens was covered.")
    covered = session.ask("what is visible now ?", now_s=last_s + 7200.0)
    assert "the lens was covered" in covered.notes[0]
    assert covered.status == "partial"
    span = MissingSpan(last_s, last_s + 7200.0, "the lens was covered.")
    assert covered.missing == (span,)


def test_an_old_present_is_told_without_a_store_too(sprites) -> None:
    config = small(enabled=False)
    with StreamSession(sprites, config) as opened:
        for frame in list(frames())[:8]:
            opened.observe(frame)
        old = opened.ask("what is visible now ?", now_s=3600.0)
        assert old.notes
        assert old.text == opened.ask("what is visible now ?", keep_conversation=False).text
