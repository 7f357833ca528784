"""Streams of easy-VQA, checked against what the pictures truly show, not by the generator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermes_like.easyvqa.package import package_folder, read_split
from hermes_like.easyvqa.questions import FORMS, clock_text, in_present, read_question
from hermes_like.errors import DatasetError
from hermes_like.evaluation import load_dataset
from hermes_like.evaluation.easyvqa_set import make_easyvqa
from hermes_like.retrieval.clock import StreamClock
from hermes_like.retrieval.planner import plan_question
from tests.easyvqa_copy import RGB, SHAPES, YES_NO, Copy, write_copy

LATER = (4, 16, 64)
WORDS = re.compile(rf"\b({'|'.join((*SHAPES, *RGB))})\b")
NEGATED = re.compile(r"\b(not|no)\b")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return write_copy(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def made(copy: Copy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    make_easyvqa(folder, package=copy.folder, num_streams=12, later=LATER, seed=3)
    return folder


def true_answer(text: str, shape: str, color: str) -> str:
    """The answer by the words of a question and by the eyes of the one who drew the picture."""
    if text.startswith("what"):
        is_color = "color" in text.replace(f"{color} shape", "")
        return color if is_color else shape
    (word,) = WORDS.findall(text)
    return "yes" if (word in (shape, color)) != bool(NEGATED.search(text)) else "no"


def entries(folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    content = json.loads((folder / "easyvqa.json").read_text(encoding="utf-8"))
    return [(row, entry) for row in content["streams"] for entry in row["questions"]]


def test_answers_are_true_and_from_the_package(copy: Copy, made: Path) -> None:
    rows = json.loads((copy.folder / "data" / "test" / "questions.json").read_text())
    for stream, entry in entries(made):
        image = stream["images"][entry["shown_s"]]
        shape, color = copy.kinds["test"][image]
        assert entry["answer"] == true_answer(entry["question"], shape, color), entry
        text, answer, image_id = rows[entry["package_question"]]
        assert (image_id, answer) == (image, entry["answer"])
        assert (entry["question"] == text) == (entry["naming"] == "now")


def test_no_other_image_fits_a_question_by_content(copy: Copy, made: Path) -> None:
    seen = {"what": 0, "there": 0, "absent": 0}
    for stream, entry in entries(made):
        if entry["naming"] != "content":
            continue
        (word,) = WORDS.findall(entry["question"])
        kinds = [copy.kinds["test"][image] for image in stream["images"][: entry["asked_s"] + 1]]
        fitting = [place for place, kind in enumerate(kinds) if word in kind]
        if entry["question"].startswith("what"):
            assert fitting == [entry["shown_s"]], entry
            seen["what"] += 1
        elif (entry["answer"] == "yes") != bool(NEGATED.search(entry["question"])):
            assert fitting == [entry["shown_s"]], entry
            seen["there"] += 1
        else:
            assert fitting == [], entry
            seen["absent"] += 1
    assert min(seen.values()) > 20, seen


def test_times_and_distances(made: Path) -> None:
    found = set()
    for stream, entry in entries(made):
        later = entry["asked_s"] - entry["shown_s"]
        found.add((entry["naming"], later))
        assert 0 <= entry["shown_s"] <= entry["asked_s"] < len(stream["images"])
        if entry["naming"] == "time":
            minutes, seconds = divmod(entry["shown_s"], 60)
            assert f"at {minutes:02}:{seconds:02}" in entry["question"]
    assert found == {("now", 0), *((naming, k) for naming in ("content", "time") for k in LATER)}


def test_pictures_are_those_of_the_package(copy: Copy, made: Path) -> None:
    content = json.loads((made / "easyvqa.json").read_text(encoding="utf-8"))
    images = copy.folder / "data" / "test" / "images"
    for stream in content["streams"][:3]:
        files = sorted((made / stream["folder"]).iterdir())
        assert len(files) == len(stream["images"])
        for file, image in zip(files, stream["images"], strict=True):
            assert file.read_bytes() == (images / f"{image}.png").read_bytes()


def test_an_image_that_might_show_it_never_fills_a_gap(copy: Copy) -> None:
    for picture in read_split(package_folder(copy.folder), "test"):
        shape, color = copy.kinds["test"][picture.image_id]
        assert picture.may_show(shape)
        assert picture.may_show(color)
        if picture.image_id % 7 == 6:
            assert picture.kind is None, "the answers do not tell the colour"


def test_the_reader_gives_the_rows_of_the_table(made: Path) -> None:
    dataset = load_dataset("easyvqa", made)
    assert len(dataset.videos) == 12
    assert not dataset.findings
    assert all(video.path is not None and video.fps == 1.0 for video in dataset.videos.values())
    categories = {question.category for question in dataset.questions}
    expected = {"now what", "now yes/no"}
    for k in LATER:
        expected |= {f"{k} later {kind}" for kind in ("what", "yes/no")}
        expected |= {f"by time {k} later {kind}" for kind in ("what", "yes/no")}
    assert categories == expected
    for question in dataset.questions:
        assert question.gold_index is not None
        assert question.evidence[0][0] <= question.ask_s


def test_all_questions_at_once(copy: Copy, tmp_path: Path) -> None:
    make_easyvqa(tmp_path, kind="now", package=copy.folder, images_per_stream=50)
    found = entries(tmp_path)
    rows = json.loads((copy.folder / "data" / "test" / "questions.json").read_text())
    assert sorted(entry["package_question"] for _, entry in found) == list(range(len(rows)))
    assert all(entry["shown_s"] == entry["asked_s"] for _, entry in found)
    content = json.loads((tmp_path / "easyvqa.json").read_text(encoding="utf-8"))
    shown = [image for stream in content["streams"] for image in stream["images"]]
    assert sorted(shown) == list(range(144))


def test_the_same_seed_gives_the_same_streams(copy: Copy, tmp_path: Path) -> None:
    paths = [
        make_easyvqa(tmp_path / name, package=copy.folder, num_streams=2, later=(4,), seed=seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    one, same, other = (path.read_bytes() for path in paths)
    assert one == same
    assert one != other
    with pytest.raises(DatasetError, match="they are not replaced"):
        make_easyvqa(tmp_path / "a", package=copy.folder)
    with pytest.raises(DatasetError, match="each at least 1"):
        make_easyvqa(tmp_path / "d", package=copy.folder, later=(0,))


def test_the_train_split_is_another(copy: Copy, tmp_path: Path) -> None:
    path = make_easyvqa(tmp_path, package=copy.folder, split="train", num_streams=1, later=(4,))
    content = json.loads(path.read_text(encoding="utf-8"))
    images = copy.folder / "data" / "train" / "images"
    first = tmp_path / content["streams"][0]["folder"] / "000000.png"
    assert first.read_bytes() == (images / f"{content['streams'][0]['images'][0]}.png").read_bytes()


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DatasetError, match="pip install easy-vqa"):
        make_easyvqa(tmp_path / "streams")
    with pytest.raises(DatasetError, match=r"found no test/questions\.json"):
        package_folder(tmp_path)


def test_contradicting_answers_are_refused(tmp_path: Path) -> None:
    folder = write_copy(tmp_path, num_images=3).folder
    path = folder / "data" / "test" / "questions.json"
    rows = [["what shape is present?", "circle", 0], ["is there a circle?", "no", 0]]
    path.write_text(json.dumps(rows), encoding="utf-8")
    with pytest.raises(DatasetError, match="contradict"):
        read_split(package_folder(folder), "test")
    path.write_text(json.dumps([["why?", "circle", 0]]), encoding="utf-8")
    with pytest.raises(DatasetError, match="expected a question of the package"):
        read_split(package_folder(folder), "test")


def test_every_form_is_read_and_routed() -> None:
    clock, config = StreamClock(4000.0, 0.0, None), _retrieval()
    rng = np.random.default_rng(0)
    for form in FORMS:
        text = form.present.replace("{shape}", "circle").replace("{color}", "teal")
        text = text.replace("{thing}", "teal shape" if rng.random() < 0.5 else "circle")
        read = read_question(text)
        assert read.form is form
        assert read.present_text == text
        assert plan_question(text, clock=clock, config=config).route == "now"
        if read.past_text is not None:
            plan = plan_question(read.past_text, clock=clock, config=config)
            assert plan.route in ("recall", "scan"), read.past_text
        timed = read.timed_text(3725)
        assert timed.count("1:02:05") == 1
        plan = plan_question(timed, clock=clock, config=config)
        assert plan.route == "time"
        assert plan.start_s <= 3725 <= plan.end_s
        assert read_question(in_present(plan.text)).form.wanted == form.wanted
        assert read_question(in_present(plan.text)).form.is_negated == form.is_negated
    assert len({text for text, _ in YES_NO}) + 8 == len(FORMS)
    assert (clock_text(59), clock_text(3600)) == ("00:59", "1:00:00")


def _retrieval() -> Any:
    from hermes_like.config import RetrievalConfig

    return RetrievalConfig()
