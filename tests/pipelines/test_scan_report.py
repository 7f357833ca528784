"""Counted streams, how spans are judged, and the report on a tiny setting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_like.retrieval.cues import find_cues
from pipelines import scan_report
from pipelines.scan_streams import COUNTS, draw_counted_stream


@pytest.mark.parametrize("index", range(3))
def test_targets_appear_as_often_as_they_say(index: int) -> None:
    stream = draw_counted_stream(4, index, 900)
    assert stream.story.num_frames == 900
    assert sorted(len(target.spans) for target in stream.targets) == list(COUNTS)
    frames = list(stream.story.frames())
    for target in stream.targets:
        assert find_cues(target.question, target.question, "en").scan_kind == "count"
        words = target.question.split()
        hits = [
            number
            for number, sprites in enumerate(frames)
            for s in sprites
            if (target.kind == "color" or any(w.startswith(s.shape) for w in words))
            and (target.kind == "shape" or s.color in words)
        ]
        assert hits == [n for start, end in target.spans for n in range(start, end)]


def test_too_short_a_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least"):
        draw_counted_stream(4, 0, 300)


def test_an_event_is_claimed_once() -> None:
    true = [(10, 13), (20, 22)]
    assert scan_report.matched([(10, 13), (20, 22)], true) == 2
    assert scan_report.matched([(10, 11), (12, 13)], true) == 1
    assert scan_report.matched([(13, 20)], true) == 0
    assert scan_report.matched([(12, 21)], true) == 1


def test_summary_counts_spans_and_numbers() -> None:
    rows = [
        {"right": 2, "found": 4, "true": 2, "said": "4", "ttft_s": 1.0},
        {"right": 1, "found": 1, "true": 2, "said": "1", "ttft_s": 2.0},
        {"right": 0, "found": 0, "true": 0, "said": "nothing", "ttft_s": 3.0},
    ]
    cell = scan_report.summary(rows)
    assert cell["precision"]["percent"] == 60.0
    assert cell["recall"]["percent"] == 75.0
    assert cell["f1_percent"] == pytest.approx(66.7)
    assert (cell["exact"]["hits"], cell["within_1"]["hits"]) == (0, 1)


def test_the_setting_is_chosen_by_f1_then_by_speed() -> None:
    good = {"right": 1, "found": 1, "true": 1, "said": "1", "ttft_s": 1.0}
    rows = [good | {"setting": [1, 96]}, good | {"setting": [1, 24]}]
    rows += [good | {"setting": [2, 24], "right": 0}]
    assert scan_report.choose_setting(rows) == (1, 24)


def test_scan_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.scan_streams.COUNTS", (0, 0, 0, 0, 1, 0, 1, 0, 2, 0, 0))
    monkeypatch.setattr(scan_report, "PATIENCES", (4,))
    argv = ["--streams", "1", "--held-out", "1", "--frames", "80", "--out", str(tmp_path)]
    argv += ["--policies", "ours,window"]
    assert scan_report.main(argv) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    ours = result["kinds"]["ours"]["all"]
    assert ours["spans_true"] == 4
    assert ours["exact"]["asked"] == result["kinds"]["window"]["all"]["exact"]["asked"] == 11
    assert 0 <= ours["f1_percent"] <= 100
    assert len(result["tried"]) == 2
    monkeypatch.setattr(scan_report, "run_unit", lambda unit: pytest.fail(f"ran {unit} again"))
    assert scan_report.main(argv) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["kinds"] == result["kinds"]
