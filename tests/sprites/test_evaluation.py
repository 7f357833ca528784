"""The examination of the bundled model: intervals, conditions, fast path against generate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import hermes_like.sprites
from hermes_like.sprites.questions import draw_question
from hermes_like.sprites.render import STANDARD, render_model_input
from hermes_like.sprites.stories import draw_story
from hermes_like.sprites.tokenizer import prompt_text
from pipelines import evaluate_sprites
from pipelines.evaluate_sprites import wilson
from pipelines.sprites_training.answering import StockAnswerer
from pipelines.sprites_training.conditions import examine, standard_conditions

WEIGHTS = Path(hermes_like.sprites.__path__[0]) / "weights"


@pytest.fixture(scope="module")
def answerer() -> StockAnswerer:
    torch.set_num_threads(1)
    return StockAnswerer(WEIGHTS)


@torch.no_grad()
def test_batched_answers_equal_stock_generation(answerer: StockAnswerer) -> None:
    rng = np.random.default_rng(3)
    story = draw_story(rng, 6)
    drawn = [draw_question(rng, story, type) for type in ("now_what", "exists_pair", "count_shape")]
    questions = [question.text for question in drawn if question is not None]
    features = answerer.see(story, np.random.default_rng(9), STANDARD)
    cache, positions = answerer.remember(features)
    fast = answerer.answer(cache, int(positions[-1]) + 1, questions)
    again = np.random.default_rng(9)
    pixels = np.stack([render_model_input(sprites, again) for sprites in story.frames()])
    videos = (torch.from_numpy(np.rint(pixels)) / 127.5 - 1).permute(0, 3, 1, 2)[None].float()
    for question, text in zip(questions, fast, strict=True):
        prompt = prompt_text(question, story.num_frames)
        ids = answerer.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
        output = answerer.model.generate(
            input_ids=ids, pixel_values_videos=videos, max_new_tokens=4, do_sample=False
        )
        reply = answerer.tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
        assert reply == text


@pytest.mark.parametrize("condition", standard_conditions(), ids=lambda c: c.name)
def test_every_condition_asks_and_grades(answerer: StockAnswerer, condition: object) -> None:
    rng = np.random.default_rng(1)
    replies = [reply for _ in range(2) for reply in examine(answerer, condition, rng)]  # type: ignore[arg-type]
    assert replies
    assert sum(reply.is_right for reply in replies) > 0.3 * len(replies)


def test_intervals_hold_the_share() -> None:
    low, high = wilson(95, 100)
    assert (round(low, 3), round(high, 3)) == (0.888, 0.978)
    assert wilson(0, 0) == (0.0, 1.0)


def test_the_last_line_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "evaluation.json"
    arguments = ["--model", str(WEIGHTS), "--questions", "1", "--only", "held-out"]
    assert evaluate_sprites.main([*arguments, "--out", str(out)]) == 0
    last = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert set(last["percent"]) == set(json.loads(out.read_text())) == {"held-out pairs, 16 frames"}
