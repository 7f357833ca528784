"""Calibration on tiny settings: what it plants, what it chooses, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest

from hermes_like.config import RetrievalConfig
from hermes_like.models import load_model
from hermes_like.presets import header, load_config, preset_path
from hermes_like.retrieval.base import ResidentFrames
from hermes_like.retrieval.similarity import scorer
from hermes_like.tiers.base import SegmentHead
from pipelines import calibrate
from pipelines.calibrate_record import AskedQuestion, RecordedStream, every_head, index_at, record
from pipelines.calibrate_search import (
    Variant,
    about_past,
    about_present,
    choose_heads,
    choose_margin,
    drift,
    fitness,
    score_all,
)
from pipelines.calibrate_speed import speed
from pipelines.calibrate_streams import (
    MIN_AGE_FRAMES,
    NUM_PLANTED,
    RECALL_TYPES,
    Asked,
    Planted,
    draw_planted_stream,
)
from tests.retrieval.segments import DIM, segment

NUM_HEADS = 5


@pytest.mark.parametrize("index", range(5))
def test_planted_events_look_like_nothing_else(index: int) -> None:
    stream = draw_planted_stream(3, index, 200)
    frames = list(stream.story.frames())
    assert len(frames) == 200
    planted = list(dict.fromkeys(a.planted for a in stream.asked if a.planted is not None))
    assert len(planted) in (NUM_PLANTED - 1, NUM_PLANTED)  # the last one may be too young
    for event in planted:
        own = range(event.start_frame, event.end_frame)
        assert all(event.sprite in frames[number] for number in own)
        assert all(len(frames[number]) == 1 + event.has_company for number in own)
        others = [
            sprite
            for number, sprites in enumerate(frames)
            for sprite in sprites
            if number not in own or sprite != event.sprite
        ]
        shapes, colors = ({getattr(s, name) for s in others} for name in ("shape", "color"))
        assert (event.sprite.shape, event.sprite.color) not in {(s.shape, s.color) for s in others}
        if event.is_unique:
            assert event.sprite.shape not in shapes
            assert event.sprite.color not in colors
        else:
            assert event.sprite.shape in shapes
            assert event.sprite.color in colors
        assert event.sprite.digit not in {sprite.digit for sprite in others}
    for asked in stream.asked:
        assert (asked.planted is not None) == (asked.type in RECALL_TYPES)
        if asked.planted is not None:
            assert asked.frame - asked.planted.end_frame >= MIN_AGE_FRAMES
    assert [a.frame for a in stream.asked] == sorted(a.frame for a in stream.asked)
    assert stream == draw_planted_stream(3, index, 200)


def synthetic(good: int, *, num_frames: int = 64, strength: float = 6.0) -> RecordedStream:
    """A stream in which one head alone matches questions to their events; the rest is noise."""
    rng = np.random.default_rng(good)
    vectors = rng.standard_normal((num_frames, NUM_HEADS, DIM)).astype(np.float32)
    heads = [
        SegmentHead(
            number,
            number * 4,
            tuple(float(number * 4 + i) for i in range(4)),
            float(number * 4 + 4),
            (None,) * 4,
            4,
            segment(0).token_cells,
            vectors[number * 4 : number * 4 + 4],
            bytes(16),
        )
        for number in range(num_frames // 4)
    ]
    sprite = next(a.planted for a in draw_planted_stream(1, 0, 200).asked if a.planted).sprite
    questions = []
    for place in range(4, num_frames - 8, 5):
        queries = rng.standard_normal((6, NUM_HEADS, DIM)).astype(np.float32)
        word = queries[2, good] / np.linalg.norm(queries[2, good])
        queries[2, good] = 4 * word
        vectors[place, good] = strength * word
        event = Planted(sprite, place, place + 1, False)
        type = RECALL_TYPES[place % len(RECALL_TYPES)]
        resident = ResidentFrames(np.arange(num_frames - 4, num_frames), vectors[-4:])
        questions.append(AskedQuestion(Asked(num_frames, "?", type, event), queries, {1: resident}))
    now = Asked(num_frames, "?", "now_what", None)
    questions.append(AskedQuestion(now, queries, {1: resident}))
    return RecordedStream({1: heads}, questions)


@pytest.mark.parametrize("good", range(NUM_HEADS))
def test_the_head_that_finds_is_chosen(good: int) -> None:
    variant = Variant(1, "max", "standard")
    scored = score_all([synthetic(good)], variant)
    assert len(about_present(scored)) == 1
    assert len(about_past(scored)) == len(scored) - 1
    choice = choose_heads(about_past(scored), variant, 3)
    assert choice.heads[0] == good
    assert choice.fitness.recall_8 == 1.0
    noise = fitness(about_past(scored), [(good + 1) % NUM_HEADS])
    assert noise.recall_8 < 0.5
    assert noise.value < choice.fitness.value
    assert abs(drift(about_past(scored), [good])) < 0.5


def test_questions_whose_event_is_resident_are_not_counted() -> None:
    stream = synthetic(0)
    question = stream.questions[0]
    event = question.asked.planted
    assert event is not None
    held = ResidentFrames(np.array([event.start_frame]), stream.heads[1][1].vectors[:1])
    resident = AskedQuestion(question.asked, question.queries, {1: held})
    assert not resident.targets()
    scored = score_all([RecordedStream(stream.heads, [resident])], Variant(1, "max", "standard"))
    assert not about_past(scored)
    assert not about_present(scored)


def test_the_search_scores_as_the_library_does() -> None:
    stream = synthetic(2)
    for pooling, normalisation in calibrate.WAYS:
        variant = Variant(1, pooling, normalisation)
        scored = score_all([stream], variant)
        chosen = [3, 2]
        index = index_at(stream, 64, 1, chosen)
        for item in scored[:3]:
            ranking = index.top(scorer(item.question.queries[:, chosen], index, variant.config))
            total = item.total(chosen)
            assert ranking.scores == pytest.approx(total[ranking.frames], abs=1e-4)


def test_the_margin_lets_the_past_through_first() -> None:
    apart = choose_margin([0.0] * 99 + [5.0], [4.0] * 99 + [1.0])
    assert sum(value >= apart for value in [4.0] * 99 + [1.0]) >= 99
    assert sum(value < apart for value in [0.0] * 99 + [5.0]) >= 95
    mixed = choose_margin(list(np.linspace(0, 10, 100)), list(np.linspace(2, 12, 100)))
    assert np.mean(np.linspace(2, 12, 100) >= mixed) >= 0.99
    assert choose_margin([float("-inf")] * 10, [3.0] * 10) <= 3.0


def test_speed_is_measured_on_an_index_of_that_size() -> None:
    found = speed(2, DIM, 2, num_frames=4000)
    assert found["frames"] == 4000
    assert found["rows_per_frame"] == 2
    assert all(value >= 0 for value in found.values())
    assert found["index_mib"] > 4000 * 2 * 2 * DIM * 4 / 2**20


def test_recording_leaves_the_memory_as_it_was() -> None:
    """A stream that is asked has the vectors of one that is never asked."""
    model, config = load_model("sprites"), load_config("sprites", {"memory.prefill_frames": "4"})
    stream = draw_planted_stream(2, 0, 64)
    asked = record(model, config, stream, 5, [1, 2])
    assert len(asked.questions) == len(stream.asked)
    silent = record(model, config, type(stream)(stream.story, ()), 5, [2])
    assert not silent.questions
    for one, other in zip(asked.heads[2], silent.heads[2], strict=True):
        assert one.vectors.shape == (8, len(every_head(model)), model.dims.head_dim)
        assert np.array_equal(one.vectors, other.vectors)
    for fine, coarse in zip(asked.heads[2], asked.heads[1], strict=True):
        halves = fine.vectors.reshape(4, 2, *fine.vectors.shape[1:])
        assert coarse.vectors == pytest.approx(halves.mean(1), abs=1e-5)


def test_from_the_command_line_to_a_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = tmp_path / "mine.yaml"
    copyfile(preset_path("sprites"), preset)
    before = load_config(preset, env={})
    sizes = "--streams 1 --held-out 1 --frames 64 --oracle-streams 1 --oracle-frames 64 --groups 1"
    options = [*sizes.split(), "--speed-frames", "400", "--out", str(tmp_path / "out")]
    assert calibrate.main([*options, "--write", str(preset)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(result) >= {"hardware", "commit", "recall", "gate", "speed", "oracle", "retrieval"}
    assert {"chosen", "mean of everything"} <= set(result["recall"])
    asked = [result["recall"]["chosen"][type]["8"]["asked"] for type in RECALL_TYPES]
    assert min(asked) > 0
    assert (tmp_path / "out" / "tables.md").read_text().count("| scorer |") == 4
    after = load_config(preset, env={})
    assert header(preset) == header(preset_path("sprites"))
    assert "# over question tokens" in preset.read_text(encoding="utf-8")
    assert [list(pair) for pair in after.retrieval.heads] == result["retrieval"]["heads"]
    assert after.retrieval.gate_margin == result["retrieval"]["gate_margin"]
    assert 1 <= len(after.retrieval.heads) <= 4
    changed = {name: getattr(before.retrieval, name) for name in calibrate.CHOSEN}
    restored = RetrievalConfig.model_validate(after.retrieval.model_dump() | changed)
    assert after.model_copy(update={"retrieval": restored}) == before
