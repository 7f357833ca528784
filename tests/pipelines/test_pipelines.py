"""The measurements on tiny settings: their structure, their last line, and what they rest on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hermes_like.models import ModelAdapter, load_model
from hermes_like.presets import load_config
from hermes_like.session import StreamSession
from hermes_like.sprites.source import SpritesSource
from pipelines import bench, evidence, needles, recall
from pipelines.needles import LEAD_FRAMES, draw_stream, story_until
from pipelines.replay import Replay, numbered
from pipelines.reporting import wilson

ENVIRONMENT = {"hardware", "commit", "torch", "transformers", "load_average"}


@pytest.fixture(scope="module")
def model() -> ModelAdapter:
    return load_model("sprites")


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The JSON object that ends the output."""
    output = capsys.readouterr().out
    assert output.endswith("\n")
    result = json.loads(output.splitlines()[-1])
    assert set(result) >= ENVIRONMENT
    return result


def test_wilson_interval() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(0, 20)[0] == pytest.approx(0.0)
    assert wilson(20, 20)[1] == pytest.approx(1.0)


@pytest.mark.parametrize("index", range(5))
def test_needles_look_like_nothing_else_in_their_stream(index: int) -> None:
    stream = draw_stream(3, index, (10, 90))
    found = list(dict.fromkeys(moment.needle for moment in stream.moments))
    assert len(found) == needles.NUM_NEEDLES
    assert found[0].start_frame >= LEAD_FRAMES
    frames = list(stream.story.frames())
    for needle in found:
        others = [
            sprite
            for number, sprites in enumerate(frames)
            for sprite in sprites
            if not needle.start_frame <= number < needle.end_frame
        ]
        assert frames[needle.start_frame] == frames[needle.end_frame - 1] == (needle.sprite,)
        assert needle.sprite.shape not in {sprite.shape for sprite in others}
        assert needle.sprite.color not in {sprite.color for sprite in others}
        assert needle.sprite.digit not in {sprite.digit for sprite in others}
        shown = {(sprite.shape, sprite.color) for sprite in (*others, needle.sprite)}
        assert not shown.intersection(needle.look_alikes)


def test_a_needle_has_its_age_when_it_is_asked_about() -> None:
    stream = draw_stream(3, 0, (10, 40))
    assert len(stream.moments) == 2 * needles.NUM_NEEDLES
    assert [m.frame for m in stream.moments] == sorted(m.frame for m in stream.moments)
    assert max(m.frame for m in stream.moments) == stream.story.num_frames
    for moment in stream.moments:
        assert moment.frame - moment.needle.end_frame == moment.age
        truths = {query.type: query.truth for query in moment.queries}
        assert truths["recall_number"] == str(moment.needle.sprite.digit)
        assert truths["recall_where"] == moment.needle.sprite.zone
        groups = [needles.group_of(query) for query in moment.queries]
        assert groups.count("exists_yes") == groups.count("exists_no") == 2
        assert story_until(stream.story, moment.frame).num_frames == moment.frame


def test_replayed_vision_tokens_give_what_real_frames_give(
    model: ModelAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needles, "NUM_NEEDLES", 1)
    stream = draw_stream(3, 0, (6,))
    frames = list(SpritesSource(stream.story, seed=9))[:40]
    config = recall.configuration("hermes", 180)
    overrides = {"answer.keep_conversation": "false", "memory.device_tokens": "180"}
    replay = Replay(model, recall.encode(model, stream, 9))
    replayed = StreamSession(replay, config)  # type: ignore[arg-type]
    real = StreamSession(model, load_config("hermes", overrides))
    for frame in frames:
        real.observe(frame)
        replayed.observe(numbered(frame.index))
        if frame.index in (21, 37):  # two frames wait in one session, none in the other
            question = "what is visible now ?"
            assert real.ask(question).text == replayed.ask(question).text
    assert replayed.memory.num_compactions > 3
    for one, other in zip(real.memory.cache.layers, replayed.memory.cache.layers, strict=True):
        assert torch.equal(one.ids, other.ids)
        torch.testing.assert_close(one.raw_keys, other.raw_keys, atol=1e-3, rtol=1e-3)


def test_recall_resumes_and_ends_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needles, "NUM_NEEDLES", 1)
    argv = ["--ages", "4,8", "--device-tokens", "150", "--full-frames", "40", "--out"]
    argv += [str(tmp_path), "--policies"]
    assert recall.main([*argv, "window"]) == 0
    last_line(capsys)
    with (tmp_path / "stream_000.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"settings": {"policy"')  # a run that was killed while it wrote
    assert recall.main([*argv, "window,full"]) == 0
    first = last_line(capsys)
    assert first["streams_run_now"] == 1

    monkeypatch.setattr(recall, "run_job", lambda job: pytest.fail(f"ran {job} again"))
    assert recall.main([*argv, "window,full"]) == 0
    again = last_line(capsys)
    assert again["recall"] == first["recall"]
    cell = again["recall"]["window"]["4"]
    assert cell["asked"] == 7
    assert 0 <= cell["interval"][0] <= cell["percent"] <= cell["interval"][1] <= 100
    assert again["groups"]["window"]["now"]["asked"] > 0
    assert again["policies"]["window"]["peak_slots"] <= 150
    assert again["recall"]["full"]["8"]["asked"] == 0  # it stops before that
    for name in ("recall.png", "recall.json", "window.yaml", "full.yaml"):
        assert (tmp_path / name).stat().st_size > 0


def test_another_setting_is_not_taken_for_a_finished_run(tmp_path: Path) -> None:
    argv = ["--policies", "window", "--ages", "4", "--out", str(tmp_path)]
    (job,) = recall.plan(recall.parse(argv))
    job.file.write_text(json.dumps({"settings": job.settings("window"), "rows": []}) + "\n")
    assert recall.remaining(job) is None
    (other,) = recall.plan(recall.parse([*argv, "--device-tokens", "300"]))
    assert recall.remaining(other) == other


def test_bench_of_sprites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--frames", "40,60", "--repeats", "1", "--device-tokens", "300", "--threads", "1"]
    assert bench.main([*argv, "--out", str(tmp_path)]) == 0
    result = last_line(capsys)
    assert [one["frames"] for one in result["lengths"]] == [40, 60]
    for one in result["lengths"]:
        assert one["cache_bytes"] == one["arithmetic_bytes"]
        assert one["peak_slots"] <= one["device_tokens"] == 300
        assert one["ttft"]["median_ms"] > 0
        assert one["tpot_100"]["median_ms"] > result["ceilings"]["tpot_floor_s"] * 1e3
    shares = result["shares"]
    parts = sum(shares[name] for name in ("vision", "prefill", "scoring", "compaction"))
    assert parts == pytest.approx(1.0, abs=1e-3)
    assert shares["scoring"] > 0
    assert (tmp_path / "sprites.png").stat().st_size > 0


def test_bench_of_a_random_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--model", "random:llava-onevision-tiny", "--preset", "llava-onevision-0.5b"]
    argv += ["--frames", "16", "--segment-frames", "4", "--device-tokens", "2600"]
    assert bench.main([*argv, "--vision-frames", "2", "--out", str(tmp_path)]) == 0
    result = last_line(capsys)
    assert result["pictures encoded"] == "2, repeated"
    assert result["shares"]["vision"] > 0
    assert result["bar"] == "no bar"


def test_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evidence.main(["--lengths", "8", "--streams", "2", "--out", str(tmp_path)]) == 0
    results = last_line(capsys)["results"]
    assert set(results) == {"full", "hermes"}
    for part in results.values():
        assert part["overlaps"]["asked"] == part["answers_right"]["asked"] > 0
        assert part["covers"]["hits"] <= part["overlaps"]["hits"] <= part["any_overlaps"]["hits"]
        assert 0 < part["mean_span_frames"] <= 8
    findings = (tmp_path / "full.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(findings) == results["full"]["overlaps"]["asked"]
