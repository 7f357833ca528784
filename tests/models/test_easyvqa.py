"""The bundled easy-VQA model: its files, its words, and that it answers, now and from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest

from hermes_like.easyvqa.questions import FORMS, ReadQuestion
from hermes_like.models import ModelAdapter, load_model
from hermes_like.models.easyvqa import weights_folder
from hermes_like.presets import load_config
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from tests.easyvqa_copy import RGB, SHAPES, draw_picture


@pytest.fixture(scope="module")
def model() -> ModelAdapter:
    return load_model("easyvqa")


def frames(kinds: list[tuple[str, str]], seed: int = 0) -> Iterator[Frame]:
    rng = np.random.default_rng(seed)
    for index, (shape, color) in enumerate(kinds):
        yield Frame(draw_picture(shape, color, rng), index, float(index))


def test_checksums_and_size() -> None:
    folder = weights_folder()
    listed = dict(
        reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines()
    )
    files = {path.name for path in folder.iterdir() if path.suffix in (".json", ".safetensors")}
    assert set(listed) == files
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    assert (folder / "model.safetensors").stat().st_size < 12_000_000
    assert "easy-vqa" in (folder / "MODEL_CARD.md").read_text(encoding="utf-8").lower()


def test_it_knows_every_word_of_every_question(model: ModelAdapter) -> None:
    for form in FORMS:
        for shape, color in ((s, c) for s in SHAPES for c in RGB):
            reads = [ReadQuestion(form, shape, color if "{color}" in form.present else None)]
            if form.wanted == "yes_no":
                reads = [ReadQuestion(form, shape), ReadQuestion(form, None, color)]
            for read in reads:
                for text in (read.present_text, read.past_text, read.timed_text(754)):
                    assert text is None or model.unknown_words(text) == []
    assert model.unknown_words("was there a dog at 12:34?") == ["dog"]


def test_questions_for_a_scan_and_about_a_named_time(model: ModelAdapter) -> None:
    assert model.scan_question("was there a teal shape in the images?") == "is there a teal shape?"
    assert model.scan_question("was a circle present?") == "is there a circle?"
    assert model.scan_question("was there not a circle?") is None
    asked = model.present_question("what shape did the image shown contain?")
    assert asked == "what shape does the image contain?"
    with_time = model.question_ids("was a circle present at 12:34?", is_first=True)
    assert with_time == model.question_ids("was a circle present?", is_first=True)


def test_it_answers_about_the_picture_that_is_shown(model: ModelAdapter) -> None:
    kinds = [(shape, color) for shape in SHAPES for color in RGB]
    rng = np.random.default_rng(1)
    order = [kinds[place] for place in rng.permutation(len(kinds)).tolist()[:16]]
    right = []
    with StreamSession(model, load_config("easyvqa", env={})) as session:
        for frame, (shape, color) in zip(frames(order), order, strict=True):
            session.observe(frame)
            right.append(session.ask("what is the color of the shape?").text == color)
            right.append(session.ask(f"what is the {color} shape?").text == shape)
            right.append(session.ask(f"is there not a {shape} in the image?").text == "no")
            right.append(session.ask(f"does the image contain a {color} shape?").text == "yes")
    assert all(right), right


def test_it_remembers_what_the_device_has_lost(model: ModelAdapter) -> None:
    rng = np.random.default_rng(2)
    fillers = [("circle", "red"), ("rectangle", "green"), ("circle", "blue")]
    kinds = [fillers[int(i)] for i in rng.integers(len(fillers), size=150)]
    kinds[7] = ("triangle", "teal")
    asked = {
        "what color was the triangle?": "teal",
        "what was the teal shape?": "triangle",
        "was there a teal shape?": "yes",
        "was there a black shape in the images?": "no",
        "was no triangle present?": "no",
        "was there not a yellow shape?": "yes",
        "what shape was in the image shown at 00:07?": "triangle",
        "what color was the shape shown at 00:07?": "teal",
        "what shape is in the image?": kinds[-1][0],
    }
    with StreamSession(model, load_config("easyvqa", env={})) as session:
        for frame in frames(kinds):
            session.observe(frame)
        replies = {text: session.ask(text, keep_conversation=False) for text in asked}
    assert {text: reply.text for text, reply in replies.items()} == asked
    assert replies["what shape was in the image shown at 00:07?"].route == "time"
