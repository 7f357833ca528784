"""What every reader of a dataset promises, held on fixtures in the true shape."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from hermes_like.errors import ConfigError
from hermes_like.evaluation import DATASETS, DatasetError, load_dataset
from hermes_like.evaluation.fields import letter_of
from hermes_like.evaluation.files import SUFFIXES
from tests.evaluation.fixtures import DATA, EDITIONS, copy_of, load

IDS = [f"{name}-{fixture}" for name, fixture, *_ in EDITIONS]
PAIRS = [(name, fixture) for name, fixture, *_ in EDITIONS]


@pytest.mark.parametrize(
    ("name", "fixture", "edition", "num_videos", "num_questions"), EDITIONS, ids=IDS
)
def test_contract(
    name: str, fixture: str, edition: str, num_videos: int, num_questions: int
) -> None:
    dataset = load(name, fixture)
    assert dataset == load(name, fixture), "expected the same from the same files"
    assert (dataset.name, dataset.edition.name) == (name, edition)
    assert (len(dataset.videos), len(dataset.questions)) == (num_videos, num_questions)
    assert re.fullmatch("[0-9a-f]{64}", dataset.edition.sha256)
    assert all((DATA / fixture / file.path).is_file() for file in dataset.edition.files)
    assert all(key == video.video_id for key, video in dataset.videos.items())
    assert all(video.path is None for video in dataset.videos.values()), "there are none"
    identifiers = [question.question_id for question in dataset.questions]
    assert len(set(identifiers)) == num_questions
    assert [question.position for question in dataset.questions] == list(range(num_questions))
    for question in dataset.questions:
        assert question.video_id in dataset.videos
        assert question.text
        assert question.category
        assert question.raw
        times = (*question.poll_s, question.start_s)
        times += () if question.ask_s is None else (question.ask_s,)
        assert all(math.isfinite(time_s) and time_s >= 0 for time_s in times)
        assert list(question.poll_s) == sorted(set(question.poll_s))
        if question.kind == "choice":
            assert len(question.options) >= 2
            assert all(text == text.strip() != "" for text in question.options)
        else:
            assert question.options == ()
        if question.gold_index is not None:
            assert question.gold == question.options[question.gold_index]
        assert (question.thread is None) == (question.conversation == "independent")


@pytest.mark.parametrize(("name", "fixture"), PAIRS, ids=IDS)
def test_stream_order_is_by_time_and_complete(name: str, fixture: str) -> None:
    dataset = load(name, fixture)
    met = [question for video in dataset.videos for question in dataset.stream_order(video)]
    assert sorted(question.position for question in met) == list(range(len(dataset.questions)))
    for video in dataset.videos:
        times = [
            math.inf if question.ask_s is None else question.ask_s
            for question in dataset.stream_order(video)
        ]
        assert times == sorted(times)


@pytest.mark.parametrize(("name", "fixture"), PAIRS, ids=IDS)
def test_unreadable_annotations_are_named(name: str, fixture: str, tmp_path: Path) -> None:
    folder = copy_of(fixture, tmp_path)
    used = load_dataset(name, folder).edition.files[0].path
    (folder / used).write_bytes(b'[{"question": "cut of')
    with pytest.raises(DatasetError, match=re.escape(Path(used).name)):
        load_dataset(name, folder / used)


@pytest.mark.parametrize(("name", "fixture"), PAIRS, ids=IDS)
def test_every_byte_of_the_annotations_is_in_the_hash(
    name: str, fixture: str, tmp_path: Path
) -> None:
    folder = copy_of(fixture, tmp_path)
    before = load_dataset(name, folder).edition
    for file in before.files:
        path = folder / file.path
        path.write_bytes(path.read_bytes() + b"\n")
        assert load_dataset(name, folder).edition.sha256 != before.sha256
        path.write_bytes(path.read_bytes()[:-1])
    assert load_dataset(name, folder).edition == before


def test_every_dataset_has_a_fixture_and_every_fixture_is_read() -> None:
    assert {name for name, *_ in EDITIONS} == set(DATASETS.names())
    assert {fixture for _, fixture, *_ in EDITIONS} == {path.name for path in DATA.iterdir()}


@pytest.mark.parametrize("name", DATASETS.names())
def test_every_dataset_falls_back_to_the_conversion(name: str) -> None:
    dataset = load(name, "rekv/converted.json")
    assert dataset.edition.name == "ReKV-style JSON"
    assert [question.gold for question in dataset.questions] == ["A phone", "A cup", "yes"]


@pytest.mark.parametrize("name", DATASETS.names())
def test_a_folder_without_annotations_says_what_was_expected(name: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DatasetError, match=r"no annotations of .*expected .*\.json"):
        load_dataset(name, tmp_path)
    with pytest.raises(DatasetError, match="got nothing"):
        load_dataset(name, tmp_path / "absent")


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ovobench'"):
        load("ovobenc", "ovobench")
    with pytest.raises(DatasetError, match="expected one of: mini, full, hard"):
        load("cgbench", "cgbench", edition="tiny")


def test_letters_and_endings() -> None:
    assert [letter_of(index) for index in (0, 7)] == ["A", "H"]
    assert {path.suffix for path in DATA.rglob("*") if path.is_file()} <= {*SUFFIXES, ".txt"}
