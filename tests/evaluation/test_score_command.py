"""``hermes-like eval score``: tables for people, JSON for machines, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_like.cli import run
from tests.evaluation.fixtures import load, predictions, write_lines

OVO = load("ovobench", "ovobench")


@pytest.fixture
def result(tmp_path: Path) -> Path:
    rows = predictions(OVO, _0="Because", _3="1", _4="two")
    return write_lines(tmp_path / "predictions.jsonl", rows)


def test_table_for_people(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "score", str(result)]) == 0
    out = capsys.readouterr().out
    assert out.index("scorer official") < out.index("scorer strict")
    for text in ("Overall Avg.", "Backward Tracing", "chance %", "unparsed %", "95 % interval"):
        assert text in out
    assert "published rule: a letter, Yes or No counts wherever it stands" in out


def test_a_set_without_a_published_rule_is_scored_by_the_strict_one_alone(
    result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result.write_text(result.read_text().replace('"dataset": "ovobench"', '"dataset": "sprites"'))
    assert run(["eval", "score", str(result), "--json"]) == 0
    (report,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (report["dataset"], report["scorer"]) == ("sprites", "strict")
    assert run(["eval", "score", str(result), "--scorer", "official"]) == 1
    assert "nobody has published how it is scored" in capsys.readouterr().err


def test_json_has_one_report_per_line(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "score", str(result), "--json"]) == 0
    by_rule, sane = map(json.loads, capsys.readouterr().out.splitlines())
    assert (by_rule["scorer"], sane["scorer"]) == ("official", "strict")
    rows = {row["name"]: row["score"] for part in sane["parts"] for row in part["rows"]}
    assert rows["OJR"] == 0.0
    assert rows["REC"] == 1.0
    rows = {row["name"]: row["score"] for part in by_rule["parts"] for row in part["rows"]}
    assert rows["OJR"] == 1.0, "Because holds a B"
    assert rows["REC"] == 0.5, "two is no digit"
    # The published rule wants Yes and No with their capitals.
    assert rows["CRR"] == 0.0


def test_one_scorer_and_shards(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = predictions(OVO, _0="Because", _3="1", _4="two")
    shards = [write_lines(tmp_path / f"{number}.jsonl", rows[number::2]) for number in range(2)]
    reports = []
    for paths in ([result], shards):
        assert run(["eval", "score", *map(str, paths), "--scorer", "strict", "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0] == reports[1]


def test_comparison(result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_lines(
        tmp_path / "other.jsonl",
        [row.model_copy(update={"config_hash": "second"}) for row in predictions(OVO)],
    )
    arguments = ["eval", "score", str(other), "--compare", str(result), "--scorer", "strict"]
    assert run(arguments) == 0
    assert "paired difference, first minus second: 9 questions, 1 right in the first alone" in (
        capsys.readouterr().out
    )
    assert run([*arguments, "--json"]) == 0
    report, found = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["total"]["first"] == report["total"]["score"]
    assert found["total"]["difference"] > 0


def test_refusals(result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "score", str(result), "--dataset", "mlvu"]) == 1
    assert "expected predictions for mlvu, got ovobench" in capsys.readouterr().err
    assert run(["eval", "score", str(result), "--dataset", "ovobench", "--json"]) == 0
    capsys.readouterr()
    assert run(["eval", "score", str(result), str(result)]) == 1
    assert "already" in capsys.readouterr().err
    assert run(["eval", "score", str(tmp_path / "absent.jsonl")]) == 1
    assert run(["eval", "score", str(result), "--judge", "http://127.0.0.1:9/v1"]) == 2
    assert "--judge-model" in capsys.readouterr().err
