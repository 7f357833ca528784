"""Frames that were found are asked alone: what does not show the thing is left out, or outvoted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from hermes_like.alone import AloneAsker, by_frame
from hermes_like.config import RetrievalConfig
from hermes_like.long_term import Fetched
from hermes_like.session import StreamSession
from hermes_like.sprites.world import Event, Sprite, Story
from hermes_like.verify import Verdict, Verifier, moments_of
from tests.test_long_term import filler, frames, small, state
from tests.test_long_term import sprites as sprites

#: A red star on the left in two frames, another on the right in three, a blue one in between.
LEFT, RIGHT = Sprite("star", "red", "left", 7), Sprite("star", "red", "right", 7)
BLUE = Sprite("star", "blue", "top", 3)
STORY = Story((
    *filler(4, 1), Event((LEFT,), 2), *filler(3, 2), Event((BLUE,), 2), *filler(3, 4),
    Event((RIGHT,), 3), *filler(20, 5),
))  # fmt: skip
LEFT_FRAMES, BLUE_FRAMES, RIGHT_FRAMES = (8, 9), (16, 17), (24, 25, 26)
QUESTION, CHECK = "where was the red star ?", "was there a red star ?"


@pytest.fixture(scope="module")
def session(sprites) -> Iterator[StreamSession]:
    with StreamSession(sprites, small()) as opened:
        for frame in frames(STORY):
            opened.observe(frame)
        yield opened


def verify(session: StreamSession, found: Sequence[int], most: int = 16) -> Verdict:
    """Check frames that were found, the best first."""
    verifier = Verifier(session.memory, session.long_term, RetrievalConfig())
    verifier.max_frames = most
    places = [(session.long_term.timeline.segment_of(f).segment_id, f) for f in found]
    wanted: dict[int, list[int]] = {}
    for segment_id, frame in places:
        wanted.setdefault(segment_id, []).append(frame)
    fetched = session.long_term.fetch(wanted, 10.0)
    prompt, check = (session.model.question_ids(q, is_first=True) for q in (QUESTION, CHECK))
    with session._fork() as (cache, _):
        return verifier.verify(prompt, check, places, fetched, cache, 10.0)


def kept(verdict: Verdict) -> set[int]:
    records = set(verdict.kept.records)
    ids = verdict.kept.tokens[0].ids
    assert set((ids // 4).tolist()) == records, "tokens and records tell the same frames"
    assert bool((ids[1:] > ids[:-1]).all()), "in the order of time"
    return records


def test_look_alikes_are_left_out_and_told(session) -> None:
    verdict = verify(session, [BLUE_FRAMES[0], LEFT_FRAMES[0], 30, 2])
    assert kept(verdict) == {LEFT_FRAMES[0]}
    assert verdict.notes == ("3 of 4 moments that were found do not show it and were left out.",)
    assert verdict.asked <= 16


def test_different_answers_are_decided_by_weight(session) -> None:
    both = [LEFT_FRAMES[0], RIGHT_FRAMES[0]]
    left = verify(session, both)
    assert kept(left) == {LEFT_FRAMES[0]}
    assert any("'right'" in note and "outvoted" in note for note in left.notes)
    right = verify(session, both[::-1])
    assert kept(right) == {RIGHT_FRAMES[0]}
    more = verify(session, [LEFT_FRAMES[0], *RIGHT_FRAMES])
    assert kept(more) == set(RIGHT_FRAMES), "three frames outweigh one that ranks higher"


def test_nothing_to_decide_leaves_everything(session) -> None:
    one = verify(session, list(LEFT_FRAMES))
    assert (kept(one), one.asked, one.notes) == (set(LEFT_FRAMES), 0, ())
    none = verify(session, [2, 30, BLUE_FRAMES[0]])
    assert kept(none) == {2, 30, BLUE_FRAMES[0]}
    assert none.notes == ()


def test_the_cost_is_bounded(session) -> None:
    found = [LEFT_FRAMES[0], RIGHT_FRAMES[0], BLUE_FRAMES[0], 2, 30, 34]
    for most in (0, 1, 2, 4, 16):
        assert verify(session, found, most).asked <= most
    assert kept(verify(session, found, 0)) == set(found)


def test_a_lone_misread_frame_loses_to_one_with_a_neighbour(session) -> None:
    """A frame of another place that was encoded under the number of a lone one says yes alone."""
    places = (30, RIGHT_FRAMES[0])
    timeline, per_frame = session.long_term.timeline, session.memory.tokens_per_frame
    fetched = session.long_term.fetch(
        {timeline.segment_of(f).segment_id: [f] for f in (LEFT_FRAMES[0], RIGHT_FRAMES[0])}, 10.0
    )
    for layer in fetched.tokens:
        moved = layer.ids // per_frame == LEFT_FRAMES[0]
        layer.ids[moved] += (30 - LEFT_FRAMES[0]) * per_frame
    order = torch.argsort(fetched.tokens[0].ids)
    tokens = [
        type(layer)(layer.raw_keys[:, order], layer.values[:, order], layer.ids[order])
        for layer in fetched.tokens
    ]
    records = {30: fetched.records[LEFT_FRAMES[0]], places[1]: fetched.records[places[1]]}
    misread = Fetched(tokens, records, dict.fromkeys(places, "host"))
    verifier = Verifier(session.memory, session.long_term, RetrievalConfig())
    verifier.max_frames = 16
    prompt, check = (session.model.question_ids(q, is_first=True) for q in (QUESTION, CHECK))
    ranked = [(timeline.segment_of(frame).segment_id, frame) for frame in places]
    with session._fork() as (cache, _):
        verdict = verifier.verify(prompt, check, ranked, misread, cache, 10.0)
    assert set(verdict.kept.records) == {RIGHT_FRAMES[0]}


def test_asked_through_a_session_it_changes_nothing_remembered(sprites, session) -> None:
    consultant = session._desk._consultant
    assert consultant._verifier.max_frames == 0, "off unless asked for"
    before = state(session)
    plain = session.ask(QUESTION, keep_conversation=False)
    consultant._verifier.max_frames = 16
    try:
        checked = session.ask(QUESTION, keep_conversation=False)
        assert checked.text in ("left", "right")
        assert any("outvoted" in note or "left out" in note for note in checked.notes)
        assert "verify" in checked.parts_s
        assert "verify" not in plain.parts_s
        order = session.ask("what came after the blue star ?", keep_conversation=False)
        assert "verify" not in order.parts_s, "neighbours are wanted although they do not show it"
    finally:
        consultant._verifier.max_frames = 0
    assert all(map(torch.equal, state(session), before))
    session.memory.check()


def test_moments_are_frames_without_wide_gaps() -> None:
    assert moments_of([9, 1, 3, 30, 6, 31]) == [[1, 3], [6], [9], [30, 31]]
    assert moments_of([]) == []


# -- asking about frames alone ---------------------------------------------------------------------


def test_one_pass_over_many_frames_says_what_single_passes_say(session) -> None:
    """Also with frames of different lengths, as thinning leaves them."""
    numbers = list(range(40))
    by_segment: dict[int, list[int]] = {}
    for frame in numbers:
        segment = session.long_term.timeline.segment_of(frame)
        by_segment.setdefault(segment.segment_id, []).append(frame)
    fetched = session.long_term.fetch(by_segment, 10.0)
    split = list(by_frame(fetched.tokens, numbers, session.memory.tokens_per_frame).values())
    for number in (3, 8, 25):
        split[number] = [
            type(t)(t.raw_keys[:, 1:], t.values[:, 1:], t.ids[1:]) for t in split[number]
        ]
    prompt = session.model.question_ids(CHECK, is_first=True)
    with session._fork() as (cache, _):
        before = state(session)
        single = AloneAsker(session.memory, cache, prompt, 1).first_words(split)
        asker = AloneAsker(session.memory, cache, prompt, 16)
        assert asker.first_words(split) == single
        assert cache.peak_slots <= session.memory.budget.device_tokens
    assert {text.strip() for text in single} == {"yes", "no"}
    assert [n for n, text in zip(numbers, single, strict=True) if text.strip() == "yes"] == [
        *LEFT_FRAMES,
        *RIGHT_FRAMES,
    ]
    assert all(map(torch.equal, state(session), before))


@pytest.mark.parametrize("question", ["how many stars appeared ?", "was there a blue star ?"])
def test_how_many_are_asked_at_a_time_changes_nothing(session, question: str) -> None:
    found = []
    text = session.model.scan_question(question)
    for batch in (1, 2, 5, 16):
        session._desk.scanner.config = RetrievalConfig(scan_sure_frames=10, scan_batch=batch)
        with session._fork() as (cache, table):
            result = session._desk.scanner.scan(text, cache, table)
        found.append([(e.first_frame, e.last_frame, e.tier) for e in result.events])
        assert result.is_complete
    session._desk.scanner.config = session.config.retrieval
    assert found[0]
    assert all(events == found[0] for events in found)


def test_frames_are_told_apart(session) -> None:
    rng = np.random.default_rng(3)
    numbers = sorted(rng.choice(40, 6, replace=False).tolist())
    by_segment: dict[int, list[int]] = {}
    for frame in numbers:
        segment = session.long_term.timeline.segment_of(frame)
        by_segment.setdefault(segment.segment_id, []).append(frame)
    fetched = session.long_term.fetch(by_segment, 10.0)
    split = by_frame(fetched.tokens, numbers[::-1], session.memory.tokens_per_frame)
    assert list(split) == numbers[::-1]
    for frame, layers in split.items():
        for layer, everything in zip(layers, fetched.tokens, strict=True):
            assert set((layer.ids // 4).tolist()) == {frame}
            place = torch.isin(everything.ids, layer.ids)
            assert torch.equal(layer.raw_keys, everything.raw_keys[:, place])


def test_a_scan_may_tell_events_that_follow_each_other_apart(sprites) -> None:
    """Off by default: on a moving picture every frame looks unlike the one before."""
    other = Sprite("star", "red", "left", 2)
    story = Story((
        *filler(3, 1), Event((LEFT,), 3), Event((RIGHT,), 2), Event((other,), 2), *filler(4, 2),
        Event((LEFT,), 2), *filler(3, 3),
    ))  # fmt: skip
    counts = {}
    with StreamSession(sprites, small()) as opened:
        for frame in frames(story):
            opened.observe(frame)
        for split in (None, 0.95):
            opened._desk.scanner.config = RetrievalConfig(scan_sure_frames=10, scan_split=split)
            answer = opened.ask("how many red stars appeared ?")
            counts[split] = (answer.text, [(e.start_s, e.end_s) for e in answer.evidence])
    assert counts[None] == ("2", [(6.0, 13.0), (21.0, 23.0)])
    assert counts[0.95] == ("4", [(6.0, 9.0), (9.0, 11.0), (11.0, 13.0), (21.0, 23.0)])
