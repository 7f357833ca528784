"""What is asked, and what is handed in to others."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from hermes_like.cli import run
from hermes_like.errors import ConfigError
from hermes_like.evaluation import DatasetError
from hermes_like.evaluation.export import export
from hermes_like.evaluation.predictions import Predictions
from hermes_like.evaluation.prompts import poll_prompt, prompt_of, told_before
from tests.evaluation.fixtures import EDITIONS, load, predictions, write_lines


@pytest.mark.parametrize(("name", "fixture"), [pair[:2] for pair in EDITIONS])
def test_every_question_is_asked_with_all_it_has_and_nothing_of_its_answer(
    name: str, fixture: str
) -> None:
    for question in load(name, fixture).questions:
        prompt = prompt_of(name, question)
        assert question.text.rstrip("?")[1:] in prompt
        # The bundled models know no letters: options are for the score and not for their eyes.
        shown = [text for text in question.options if text in prompt]
        assert len(shown) == (0 if name in ("easyvqa", "sprites") else len(question.options))
        assert prompt == prompt.strip()
        if question.kind in ("open", "count"):
            assert question.gold not in prompt.split()


def test_published_forms() -> None:
    first = load("streamingbench-real", "streamingbench_json").questions[0]
    assert prompt_of("streamingbench-real", first) == (
        "Respond with only the letter (A, B, C, or D) of the correct option.\n"
        "Question: What is on the table right now?\nOptions:\n"
        "A. A lamp.\nB. A hat.\nC. A bowl.\nD. A clock.\nThe best option is:"
    )
    question = load("activitynet-qa", "activitynet").questions[0]
    assert prompt_of("activitynet-qa", question) == (
        "Is the athlete wearing trousers? Answer the question using a single word or phrase."
    )
    assert prompt_of("mlvu", load("mlvu", "mlvu").questions[0]).endswith("Best option: (")


def test_sequences_are_told_what_was_true_before_them() -> None:
    dataset = load("streamingbench-sqa", "streamingbench_json")
    first, second = dataset.questions
    assert told_before(dataset, first) == ()
    assert told_before(dataset, second) == (first,)
    prompt = prompt_of(dataset.name, second, told_before(dataset, second))
    assert "At 00:01:00: Who painted it?" in prompt
    assert "Answer: B. Lebrun" in prompt
    real = load("streamingbench-real", "streamingbench_json")
    assert all(told_before(real, question) == () for question in real.questions)


def test_polls_ask_for_yes_or_no() -> None:
    question = load("streamingbench-proactive", "streamingbench_json").questions[0]
    assert poll_prompt(question).endswith(
        'Is it the right time to output "Second goal"? You can only answer yes or no.'
    )


def test_submissions() -> None:
    rows = Predictions(tuple(predictions(load("egoschema", "egoschema"), _1="no idea")))
    assert json.loads(export(rows, "egoschema")) == {"00aa": 1, "00bb": 0}
    rows = Predictions(tuple(predictions(load("svbench-dialogue", "svbench"), _2=None)))
    assert json.loads(export(rows, "svbench")) == {
        "vid9": [
            {
                "questions": ["What is she doing?", "With what?"],
                "gt_answers": ["Cooking.", "A pan."],
                "answers": ["Cooking.", "A pan."],
            },
            {"questions": ["And now?"], "gt_answers": ["Eating."], "answers": [""]},
        ]
    }
    with pytest.raises(DatasetError, match="expected predictions for egoschema"):
        export(rows, "egoschema")
    with pytest.raises(ConfigError, match="did you mean 'vlmevalkit'"):
        export(rows, "vlmevalki")


def test_results_of_other_harnesses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_lines(
        tmp_path / "p.jsonl", predictions(load("ovobench", "ovobench"), _0='B\n"so"\tit is')
    )
    assert run(["eval", "export", str(path), "--to", "vlmevalkit"]) == 0
    table = list(csv.DictReader(capsys.readouterr().out.splitlines(keepends=True), delimiter="\t"))
    assert (table[0]["prediction"], table[0]["answer"]) == ('B\n"so"\tit is', "B")
    assert [row["index"] for row in table] == [str(number) for number in range(9)]
    assert run(["eval", "export", str(path), "--to", "lmms-eval"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (lines[0]["resps"], lines[3]["target"]) == ([['B\n"so"\tit is']], "1")
