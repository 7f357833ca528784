"""Long streams with needles: what is planted, through which views it is asked, and the reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hermes_like.models import ModelAdapter, load_model
from hermes_like.sprites.questions import answer
from hermes_like.sprites.templates import TEMPLATES
from hermes_like.sprites.world import HELD_OUT_PAIRS
from pipelines import long_recall, long_report
from pipelines.long_jobs import configuration, read_unit
from pipelines.long_needles import NUM_UNIQUE, LongStream, draw_long_stream
from pipelines.long_views import StudySession
from pipelines.long_vision import Film, encode_films, read_tokens
from pipelines.needles import group_of, story_until
from pipelines.replay import Replay, numbered

AGES = (8, 40)


@pytest.fixture(scope="module")
def model() -> ModelAdapter:
    return load_model("sprites")


@pytest.fixture(scope="module")
def stream() -> LongStream:
    return draw_long_stream(5, 0, AGES, 3)


@pytest.fixture(scope="module")
def tokens(
    model: ModelAdapter, stream: LongStream, tmp_path_factory: pytest.TempPathFactory
) -> torch.Tensor:
    file = tmp_path_factory.mktemp("vision") / "vision.npy"
    film = Film(stream.story, (5, 0), file, variants=1)
    encode_films(model, [film])
    return read_tokens(film)


@pytest.mark.parametrize("index", range(4))
def test_truths_hold_and_look_alikes_never_occur(index: int) -> None:
    stream = draw_long_stream(9, index, AGES, 24)
    assert len(stream.needles) >= 20
    shown = list(stream.story.frames())
    for needle in stream.needles:
        assert all(
            frame == (needle.sprite,) for frame in shown[needle.start_frame : needle.end_frame]
        )
    kinds = {(s.shape, s.color) for frame in shown for s in frame}
    assert not kinds & HELD_OUT_PAIRS
    for moment in stream.moments[::7]:
        assert moment.frame - moment.needle.end_frame == moment.age
        story = story_until(stream.story, moment.frame)
        sprite = moment.needle.sprite
        slots = {"shape": sprite.shape, "color": sprite.color, "digit": str(sprite.digit)}
        for query in moment.queries:
            group = group_of(query)
            if group == "exists_no":
                pairs = moment.needle.look_alikes
                assert any(shape in query.text and color in query.text for shape, color in pairs)
                assert not kinds.intersection(pairs)
            else:
                named = {k: v for k, v in slots.items() if "{" + k in TEMPLATES[query.type][0]}
                assert answer(story, query.type, named) == query.truth


def test_some_needles_share_nothing() -> None:
    stream = draw_long_stream(9, 1, AGES, 24)
    others = [s for frame in stream.story.frames() for s in frame]
    alone = [
        needle
        for needle in stream.needles
        if {s for s in others if s.shape == needle.sprite.shape} == {needle.sprite}
    ]
    assert len(alone) == NUM_UNIQUE


def test_a_film_repeats_pictures_of_the_same_sprites_only(stream: LongStream) -> None:
    frames = list(stream.story.frames())
    drawn, shown = Film(stream.story, (1,), Path("none"), variants=2).pictures()
    assert len(drawn) < len(frames)
    assert all(frames[drawn[picture]] == frames[n] for n, picture in enumerate(shown))
    drawn, shown = Film(stream.story, (1,), Path("none")).pictures()
    assert drawn == list(range(len(frames))) == shown.tolist()


def test_a_view_reads_what_its_codec_would_have_stored(
    model: ModelAdapter, tokens: torch.Tensor
) -> None:
    replay: Any = Replay(model, tokens)
    raw = configuration("ours", 256)
    real = raw.model_copy(update={"store": raw.store.model_copy(update={"codec": "int4"})})
    viewed = StudySession(replay, raw, codecs=("int4", "raw"), extras=("oracle", "recipe"))
    stored = StudySession(replay, real, codecs=("raw",))  # "raw": as it comes from the store
    with viewed, stored:
        for index in range(64):
            viewed.observe(numbered(index))
            stored.observe(numbered(index))
        one, two = viewed.views[0].consultant, stored.views[0].consultant
        assert one is not None
        assert two is not None
        fetched = [c.long_term.fetch({2: [8, 9], 5: [21]}, 60.0) for c in (one, two)]
        for ours, theirs in zip(fetched[0].tokens, fetched[1].tokens, strict=True):
            assert torch.equal(ours.raw_keys, theirs.raw_keys)
            assert torch.equal(ours.values, theirs.values)
        exact = viewed.views[1].consultant
        assert exact is not None
        kept = exact.long_term.fetch({2: [8, 9]}, 60.0).tokens[0].raw_keys
        assert not torch.equal(kept, fetched[0].tokens[0].raw_keys[:, : kept.shape[1]])
        oracle = next(view for view in viewed.views if view.name == "raw, oracle")
        asked = viewed.ask_through(oracle, "where was the star ?", range(8, 10))
        assert asked.frames == [8, 9]
        assert asked.has_found
        recipe = next(view for view in viewed.views if view.name == "raw, recipe")
        assert len(viewed.ask_through(recipe, "where was the star ?").frames) == 8


def test_long_recall_resumes_and_ends_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["--ages", "40", "--needles", "2", "--codecs", "int8", "--views", "resident"]
    argv += ["--variants", "1", "--out", str(tmp_path), "--policies"]
    assert long_recall.main([*argv, "window"]) == 0
    assert long_recall.main([*argv, "window,ours"]) == 0
    output = capsys.readouterr().out.splitlines()[-1]
    first = json.loads(output)
    assert first["units_run_now"] == 1
    cell = first["cells"]["ours (int8)"]["recall"]["40"]
    assert cell["asked"] == first["cells"]["window"]["recall"]["40"]["asked"] > 0
    assert set(first["cells"]) == {"window", "ours (int8)", "ours (int8, resident)"}
    assert first["routing"]["ours (int8)"]["went"]["exists"] == {"scan": 4}
    assert first["differences"]["ours (int8) - window: now"]["all"]["paired"] > 0
    monkeypatch.setattr(long_recall, "run_unit", lambda unit: pytest.fail(f"ran {unit} again"))
    assert long_recall.main([*argv, "window,ours"]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert again["cells"] == first["cells"]
    for name in ("tables.md", "long_recall.png", "long_recall.json", "ours.yaml"):
        assert (tmp_path / name).stat().st_size > 0

    (unit,) = long_recall.plan(long_recall.parse([*argv, "ours"]))
    lines = unit.file.read_text(encoding="utf-8").splitlines()
    unit.file.write_text("\n".join([*lines[:2], lines[2][:40]]), encoding="utf-8")
    moments, last = read_unit(unit)
    assert (len(moments), last) == (1, None)  # killed while it wrote
    (other,) = long_recall.plan(long_recall.parse([*argv, "ours", "--seed", "3"]))
    assert read_unit(other) == ([], None)


def _row(number: int, is_right: bool, **changes: Any) -> dict[str, Any]:
    row = {"view": "-", "needle": number // 4, "age": 60, "number": number, "group": "recall",
           "type": "recall_where", "is_right": is_right, "said": "x", "truth": "y", "held": 0.0,
           "route": "recall", "found": True, "ttft_ms": 1.0, "parts_ms": {}, "stream": 0,
           "frame": 43_200}  # fmt: skip
    return row | changes


def test_differences_are_paired() -> None:
    ours = [_row(n, n % 4 != 0) for n in range(40)]
    others = [_row(n, True) for n in range(30)]
    found = long_report.difference(ours, others, "recall", 60)
    assert found is not None
    assert found["paired"] == 30
    assert found["points"] == pytest.approx(-100 * 8 / 30, abs=0.01)
    assert found["interval"][0] <= found["points"] <= found["interval"][1] <= 0
    assert long_report.difference(ours, others, "now", None) is None


def test_failures_and_false_alarms_are_told_apart() -> None:
    rows = [
        _row(0, False),
        _row(1, False, found=False),
        _row(2, False, found=False, route="now"),
        _row(3, True, found=False, held=2.0),
        _row(4, False, group="exists_no", said="yes"),
        _row(5, True, group="exists_no", said="no"),
    ]
    cell = long_report.failures(rows, [60])["recall"]["60"]
    assert cell == {"asked": 4, "available": 2, "model": 1, "retrieval": 1, "router": 1}
    alarms = long_report.false_alarms(rows, [60])["60"]
    assert alarms == {"alarms": 1, "days": 1.0, "per_day": 1.0}
    routed = long_report.routing(rows)
    assert routed["past_answered_from_present"]["hits"] == 1
    assert np.isfinite(routed["past_answered_from_present"]["percent"])
