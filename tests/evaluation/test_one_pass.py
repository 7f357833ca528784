"""One pass over one video: times, polls, conversations, and what stops it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hermes_like.config import HermesConfig
from hermes_like.errors import BudgetError, DatasetError
from hermes_like.evaluation import one_pass
from hermes_like.evaluation.base import Dataset, Edition, Question, Video
from hermes_like.evaluation.one_pass import OnePass
from hermes_like.evaluation.passes import Pass, plan_passes
from hermes_like.evaluation.predictions import Prediction
from hermes_like.evaluation.scripted import make_sprites, until
from hermes_like.models.base import ModelAdapter
from hermes_like.records import Answer, Frame
from hermes_like.session import StreamSession
from hermes_like.sprites.source import picture_of
from hermes_like.sprites.world import Event, Sprite, Story
from tests.evaluation.runs import settings

STAR = "was there a red star ?"
RING = "was there a blue ring ?"


def question(name: str, text: str = STAR, ask_s: float | None = 5.0, **more: Any) -> Question:
    options = {} if more.get("kind", "yes_no") != "yes_no" else {"gold": "yes"}
    values: dict[str, Any] = {"kind": "yes_no", "category": "all", **options, **more}
    place = int(name)
    return Question(name, "video", place, text, values.pop("kind"), ask_s=ask_s, **values)


def dataset(path: Path, *questions: Question, **video: Any) -> Dataset:
    known = Video("video", path.name, path, **video)
    edition = Edition("made here", "0" * 64, ())
    return Dataset("sprites", edition, {"video": known}, questions)


def answers(
    model: ModelAdapter, data: Dataset, planned: Pass | None = None, **options: Any
) -> dict[str, Prediction]:
    """What one pass gives, by question."""
    how = options.pop("settings", settings())
    planned = planned or plan_passes(data, context=how.context)[0]
    one = OnePass(model, data, planned, how, "config", **options)
    return {row.question_id: row for row in one.predictions()}


@pytest.fixture
def plain_yes_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled model knows no instructions: it is asked with the words of the question."""
    monkeypatch.setattr(one_pass, "prompt_of", lambda name, question, earlier: question.text)


@pytest.mark.usefixtures("plain_yes_no")
def test_times(model: Any, sprites_video: Path) -> None:
    data = dataset(
        sprites_video,
        question("0", RING, None),
        question("1", RING, 20.0),
        question("2", RING, 11.5),
        question("3", RING, 0.0),
        question("4", RING, 99.0),
        question("5", STAR, 11.5),
    )
    found = answers(model, data)
    assert list(found) == ["3", "2", "5", "1", "4", "0"], "in the order of time"
    seen = {name: (row.frames_seen, row.last_frame_s, row.reply) for name, row in found.items()}
    assert seen == {
        "3": (1, 0.0, "no"),
        "2": (12, 11.0, "no"),
        "5": (12, 11.0, "yes"),
        "1": (21, 20.0, "yes"),
        "4": (24, 23.0, "yes"),
        "0": (24, 23.0, "yes"),
    }


@pytest.mark.usefixtures("plain_yes_no")
def test_a_pass_ends_with_its_last_question_and_with_its_stretch(
    model: Any, sprites_video: Path
) -> None:
    data = dataset(sprites_video, question("0", STAR, 2.0))
    one = OnePass(model, data, plan_passes(data)[0], settings(), "config")
    assert [row.reply for row in one.predictions()] == ["yes"]
    assert one.num_frames == 3, "nothing is watched that nobody asks about"
    part = dataset(sprites_video, question("0", STAR, None), start_s=13.0, end_s=17.0)
    (row,) = answers(model, part).values()
    assert (row.frames_seen, row.last_frame_s, row.reply) == (5, 17.0, "no")


@pytest.mark.usefixtures("plain_yes_no")
def test_official_context(model: Any, sprites_video: Path) -> None:
    """Each question sees what its protocol shows; those that begin together share a pass."""
    data = dataset(
        sprites_video,
        question("0", STAR, 20.0, start_s=13.0),
        question("1", STAR, 22.0, start_s=5.0),
        question("2", RING, 14.0, start_s=13.0),
    )
    passes = plan_passes(data, context="official")
    assert [(p.start_s, [q.question_id for q in p.questions]) for p in passes] == [
        (5.0, ["1"]),
        (13.0, ["2", "0"]),
    ]
    official = settings(context="official")
    rows: dict[str, Prediction] = {}
    for planned in passes:
        rows |= answers(model, data, planned, settings=official)
    assert {name: (row.frames_seen, row.reply) for name, row in rows.items()} == {
        "1": (18, "yes"),
        "2": (2, "yes"),
        "0": (8, "no"),
    }
    assert rows["0"].session["from_s"] == 13.0


class _Kept(StreamSession):
    """Keeps what was in the memory at the end, and the questions as they were asked."""

    last: list[torch.Tensor]
    asked: list[str]

    def ask(self, question: str, **options: Any) -> Answer:
        _Kept.asked.append(options.get("prompt") or question)
        return super().ask(question, **options)

    def close(self, *, save: bool = True) -> None:
        layers = self.memory.cache.layers
        _Kept.last = [t.clone() for layer in layers for t in (layer.raw_keys, layer.values)]
        super().close(save=save)


def _make_kept(model: ModelAdapter, config: HermesConfig, name: str) -> StreamSession:
    _Kept.asked = []
    return _Kept(model, config, name=name)


def test_polls_at_their_times_until_yes_and_the_memory_stays(
    model: Any, sprites_video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_pass, "prompt_of", lambda name, question, earlier: question.text)
    plain = dataset(sprites_video, question("9", STAR, None))
    answers(model, plain, make=_make_kept)
    silent = _Kept.last
    monkeypatch.setattr(one_pass, "poll_prompt", lambda question: question.item_id)
    polls = tuple(float(second) for second in range(8, 18))
    polled = {"kind": "proactive", "gold": "blue", "gold_s": 12.0, "poll_s": polls}
    data = dataset(
        sprites_video,
        question("0", "what is visible now ?", 7.0, item_id=RING, **polled),
        question("1", "what is visible now ?", 7.0, item_id="was there a green moon ?", **polled),
        question("9", STAR, None),
    )
    found = answers(model, data, make=_make_kept)
    times = [poll.at_s for poll in found["0"].polls]
    assert times == [8.0, 9.0, 10.0, 11.0, 12.0], "no poll after the first yes"
    assert [poll.reply for poll in found["0"].polls] == ["no"] * 4 + ["yes"]
    assert (found["0"].reply, found["0"].last_frame_s) == ("blue ring", 12.0)
    assert found["0"].parsed is not None
    assert [poll.at_s for poll in found["1"].polls] == list(polls)
    assert (found["1"].reply, found["1"].error, found["1"].last_frame_s) == ("", None, 17.0)
    assert found["9"].reply == "yes"
    assert len(_Kept.last) == len(silent)
    assert all(map(torch.equal, _Kept.last, silent)), "asking leaves no trace"


def test_conversations(model: Any, sprites_video: Path) -> None:
    """Own replies are told as they were said, also after a run was broken off; truth as it is."""
    turn = {"kind": "open", "conversation": "own_history", "thread": "t"}
    data = dataset(
        sprites_video,
        question("0", "what is visible now ?", 3.0, gold="GOLD", **turn),
        question("1", STAR, 4.0, gold="GOLD", **turn),
        question("2", RING, 5.0, gold="GOLD", **turn),
        question("3", RING, 5.0, kind="open", gold="GOLD"),
    )
    rows = answers(model, data, make=_make_kept)
    whole = list(_Kept.asked)
    assert whole[0] == "what is visible now ?"
    assert "At 00:00:03: what is visible now ?" in whole[1]
    assert f"Answer: {rows['0'].reply}" in whole[1]
    assert whole[2].count("Answer: ") == 2
    assert "GOLD" not in "".join(whole)
    assert whole[3] == RING, "another thread is told nothing"
    (planned,) = plan_passes(data)
    replies = {"0": rows["0"].reply, "1": rows["1"].reply}
    answers(model, data, planned.without({"0", "1"}), make=_make_kept, replies=replies)
    assert _Kept.asked == whole[2:]
    gold = dataclasses.replace(
        data,
        questions=tuple(
            dataclasses.replace(q, conversation="gold_history") if q.thread else q
            for q in data.questions
        ),
    )
    answers(model, gold, make=_make_kept)
    assert _Kept.asked[2].count("Answer: GOLD") == 2


class _Narrow(StreamSession):
    """Has room for a question and one earlier turn."""

    def ask(self, question: str, **options: Any) -> Answer:
        if (options.get("prompt") or question).count("Answer:") > 1:
            raise BudgetError("the question is longer than its reserve")
        return super().ask(question, **options)


def test_of_a_long_conversation_the_latest_turns_are_told(model: Any, sprites_video: Path) -> None:
    turn = {"kind": "open", "conversation": "gold_history", "thread": "t", "gold": "GOLD"}
    data = dataset(sprites_video, *(question(str(n), STAR, 2.0 + n, **turn) for n in range(4)))
    found = answers(model, data, make=lambda model, config, name: _Narrow(model, config))
    told = [found[str(n)].session.get("turns_left_out", 0) for n in range(4)]
    assert told == [0, 0, 1, 2]
    assert all(row.error is None for row in found.values())


class _Fast(StreamSession):
    """Runs ahead of the video."""

    def observe(self, frame: Frame, tokens: Any = None) -> None:
        super().observe(dataclasses.replace(frame, pts_s=frame.pts_s + 2.0), tokens)


class _Full(StreamSession):
    """Has seen something before."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.observe(Frame(np.zeros((64, 64, 3), np.uint8), 0, 0.0))


@pytest.mark.parametrize(("kind", "told"), [(_Fast, "a frame of 7 s has been seen"), (_Full, "6")])
def test_a_session_that_knows_more_than_it_was_shown_ends_the_run(
    kind: type[StreamSession], told: str, model: Any, sprites_video: Path
) -> None:
    data = dataset(sprites_video, question("0", STAR, 5.0))
    with pytest.raises(DatasetError, match=told):
        answers(model, data, make=lambda model, config, name: kind(model, config))


@pytest.mark.usefixtures("plain_yes_no")
def test_a_question_that_is_refused_is_no_end(model: Any, sprites_video: Path) -> None:
    long = " ".join(["what is visible now ?"] * 20)
    data = dataset(sprites_video, question("0", long, 2.0), question("1", STAR, 3.0))
    found = answers(model, data)
    assert "expected at most memory.question_tokens" in str(found["0"].error)
    assert found["0"].reply is None
    assert found["1"].reply == "yes"


@pytest.mark.usefixtures("plain_yes_no")
def test_arrays_of_pictures(model: Any, tmp_path: Path) -> None:
    story = Story((Event((Sprite("star", "red", "left"),), 6), Event((), 6)))
    pictures = np.stack([picture_of(story, index, 0) for index in range(12)])
    np.save(tmp_path / "clip.npy", pictures)
    asked = question("0", STAR, 2.0), question("1", "what is visible now ?", 5.0, kind="open")
    data = dataset(tmp_path / "clip.npy", *asked, fps=2.0)
    found = answers(model, data)
    assert [(row.frames_seen, row.reply) for row in found.values()] == [(3, "yes"), (6, "nothing")]
    np.save(tmp_path / "clip.npy", pictures[..., 0])
    (row, _) = answers(model, data).values()
    assert "expected uint8 [frames, H, W, 3], got uint8 [12," in str(row.error)
    (tmp_path / "clip.npy").write_bytes(b"\x80\x04K\x01.")  # a pickle
    (row, _) = answers(model, data).values()
    assert "no array can be read" in str(row.error)


def test_made_questions_are_true_at_their_time(tmp_path: Path) -> None:
    """Options hold the truth once; the same seed gives the same annotations."""
    paths = [
        make_sprites(tmp_path / name, num_videos=1, seconds=20, num_questions=10, seed=3)
        for name in ("a", "b")
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    from hermes_like.evaluation import load_dataset

    data = load_dataset("sprites", tmp_path / "a")
    assert data.findings == ()
    assert {q.category for q in data.questions} >= {"now", "exists", "count"}
    for q in data.questions:
        assert len(set(q.options)) == len(q.options) >= 2
        assert q.gold in q.options
        assert q.ask_s is not None
        assert all(end <= q.ask_s + 1 for _, end in q.evidence), "nothing from the future"
    read_as_usual = load_dataset("rekv", tmp_path / "a")
    assert [q.gold for q in read_as_usual.questions] == [q.gold for q in data.questions]
    story = Story((Event((), 3), Event((), 5)))
    assert until(story, 4) == Story((Event((), 3), Event((), 1)))
