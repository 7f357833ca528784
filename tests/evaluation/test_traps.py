"""One test per trap of real annotation files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_like.evaluation import Dataset, DatasetError, fields, load_dataset
from hermes_like.evaluation.files import read_content
from hermes_like.evaluation.listing import Listing, Reference
from tests.evaluation.fixtures import copy_of, load, rewrite, write_mp4


def codes(dataset: Dataset, code: str) -> list[str]:
    return [finding.message for finding in dataset.findings if finding.code == code]


@pytest.mark.parametrize(
    ("value", "expected_s", "is_odd"),
    [
        ("00:01:23", 83, False),
        ("0:01:23", 83, False),
        ("00:24", 24, False),
        ("00:00:8", 8, False),
        (" 01:02:03 ", 3723, False),
        ("00:00:01.200", 1.2, False),
        ("83", 83, False),
        (83, 83, False),
        (63.5, 63.5, False),
        ("00:12450", 12450, True),
        ("00:75", 75, True),
        ("0:61:00", 3660, True),
    ],
)
def test_times(value: object, expected_s: float, is_odd: bool) -> None:
    at_s, remark = fields.seconds(value)
    assert at_s == pytest.approx(expected_s)
    assert (remark is not None) == is_odd


@pytest.mark.parametrize("value", [None, True, -1, "soon", "", "1:2:3:4", float("nan"), "1:-2"])
def test_what_is_no_time(value: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        fields.seconds(value)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_every_spelling_of_a_time_says_the_same(hours: int, minutes: int, second: int) -> None:
    total = hours * 3600 + minutes * 60 + second
    for text in (f"{hours}:{minutes:02}:{second:02}", str(total), f"{hours}:{minutes}:{second}"):
        assert fields.seconds(text) == (total, None)


@pytest.mark.parametrize(
    "value",
    [
        ["A cup", "The cook's hat", "A book"],
        ["A. A cup", "B. The cook's hat", "C. A book"],
        "['A. A cup', \"B. The cook's hat\", 'C. A book']",
        ["(A) A cup", "(B) The cook's hat", "(C) A book"],
        ["A.A cup", "B. The cook's hat", "C.A book"],
        ("A: A cup", "B: The cook's hat", "C: A book"),
    ],
)
def test_options_in_all_shapes(value: object) -> None:
    options, remarks = fields.bare_options(fields.option_texts(value))
    assert options == ("A cup", "The cook's hat", "A book")
    assert remarks == []


def test_options_in_columns() -> None:
    row = {"option 1": "b", "option 0": "a", "option_2": "N/A", "option3": None, "options": "no"}
    assert fields.option_columns(row) == ["a", "b"]


@pytest.mark.parametrize("value", ["not a list", "__import__('os').getcwd()", 3, "(1", "'text'"])
def test_what_holds_no_options(value: object) -> None:
    with pytest.raises(ValueError, match="expected a list of options"):
        fields.option_texts(value)


@pytest.mark.parametrize(
    ("texts", "expected", "remark"),
    [
        (["C. elegans", "E. coli", "Yeast"], ("C. elegans", "E. coli", "Yeast"), None),
        (["A. Lincoln", "Grant", "Lee"], ("A. Lincoln", "Grant", "Lee"), "may carry a letter"),
        (["A. x", "B. y", "", "C. z", "D. w"], ("x", "y", "z", "w"), "1 empty"),
        (["A. x", "B. y", "more", "C. z", "D. w"], ("x", "y more", "z", "w"), "joined"),
        (["A. x", "B. y", "B. z", "D. w"], ("x", "y", "z", "w"), "letters A B B D"),
        (["Vitamin A. x", "B. y"], ("Vitamin A. x", "B. y"), None),
    ],
)
def test_options_with_odd_letters(
    texts: list[str], expected: tuple[str, ...], remark: str | None
) -> None:
    options, remarks = fields.bare_options(texts)
    assert options == expected
    assert [remark in text for text in remarks] == ([] if remark is None else [True])


def test_malformed_stamps_are_read_as_the_official_parser_does_and_told() -> None:
    dataset = load("streamingbench-real", "streamingbench_json")
    assert [q.ask_s for q in dataset.questions] == [68, 24, 12450, 24, 24]
    assert codes(dataset, "stamp") == ["'00:12450' read as 12450 s"]


def test_a_stamp_that_is_none_costs_its_row_and_nothing_else(tmp_path: Path) -> None:
    folder = copy_of("ovobench", tmp_path)

    def change(rows: list[dict[str, object]]) -> None:
        rows[0]["realtime"] = "later"
        del rows[2]["options"]

    rewrite(folder / "data" / "ovo_bench_new.json", change)
    dataset = load_dataset("ovobench", folder)
    assert len(dataset.questions) == 7
    assert codes(dataset, "row") == [
        "not used: expected seconds, M:SS or H:MM:SS, got 'later'",
        "not used: no field 'options'",
    ]


def test_questions_out_of_order_are_met_in_order_and_handed_in_as_they_stood() -> None:
    dataset = load("streamingbench-real", "streamingbench_json")
    assert codes(dataset, "order") == ["questions are not in order of time"] * 2
    met = dataset.stream_order("sample_132_real")
    assert [q.ask_s for q in met] == [24, 24, 12450]
    assert [q.position for q in met] == [3, 4, 2]


def test_duplicate_questions_are_kept_and_told() -> None:
    dataset = load("streamingbench-real", "streamingbench_json")
    first, second = dataset.questions[-2:]
    assert (first.text, first.ask_s) == (second.text, second.ask_s)
    assert first.question_id != second.question_id
    assert len(codes(dataset, "duplicate")) == 1


def test_duplicate_identifiers_stay_apart(tmp_path: Path) -> None:
    folder = copy_of("videomme", tmp_path)
    path = folder / "videomme_test.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["question_id"] = rows[0]["question_id"]
    path.write_text("\n".join(map(json.dumps, rows)))
    dataset = load_dataset("videomme", folder)
    assert [q.question_id for q in dataset.questions] == ["017-1", "017-1~2", "601-1"]
    assert codes(dataset, "duplicate") == ["identifier used before; called 017-1~2"]


def test_one_identifier_for_two_videos_gives_two_streams() -> None:
    dataset = load("rekv", "rekv")
    assert list(dataset.videos) == ["7", "7~2"]
    assert [q.video_id for q in dataset.questions] == ["7", "7", "7~2"]


def test_answers_that_are_no_option_cannot_be_right() -> None:
    dataset = load("mlvu", "mlvu")
    assert (dataset.questions[1].gold, dataset.questions[1].gold_index) == ("a glove", None)
    assert dataset.questions[0].gold_index == 0, "the first of equal options"
    assert len(codes(dataset, "gold")) == 2


def test_a_question_after_the_end_of_its_video_is_told(tmp_path: Path) -> None:
    folder = copy_of("rekv", tmp_path)
    rewrite(folder / "converted.json", lambda rows: rows[0].update(duration=60.0))
    assert codes(load_dataset("rekv", folder), "late") == ["asked at 83 s of a video of 60 s"]


def test_byte_order_marks_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'[{"a":\r\n1}]')
    assert read_content(path) == [{"a": 1}]
    table = tmp_path / "rows.csv"
    table.write_bytes(b'\xef\xbb\xbfa,b\r\n"1, ""2""",\xc3\xa9\r\n')
    assert read_content(table) == [{"a": '1, "2"', "b": "é"}]


@pytest.mark.parametrize("content", ["a,b\n1\n", "a,b\n1,2,3\n", 'a,b\n"1,2\n'])
def test_tables_that_were_cut_off(content: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with pytest.raises(DatasetError, match=r"rows\.csv"):
        read_content(path)


@pytest.mark.parametrize(
    "name", ["plain.mp4", "UPPER.MP4", "two words.mp4", "a & b.mkv", "é中.webm", "v.1.2.mp4"]
)
def test_names_of_videos(name: str, tmp_path: Path) -> None:
    path = write_mp4(tmp_path / "videos" / name)
    stem = name.rpartition(".")[0]
    listing = Listing(tmp_path)
    for reference in (name, stem, f"./elsewhere/{name}", f"data\\{name.lower()}", f"{stem}.avi"):
        found = listing.find(reference)
        assert found is not None, reference
        assert found.path == path
    assert listing.find("other.mp4") is None
    assert listing.find(Reference(f"elsewhere/{name}", num_parts=2)) is None


def test_links_are_followed_once(tmp_path: Path) -> None:
    store = write_mp4(tmp_path / "store" / "clip.mp4").parent
    folder = tmp_path / "download"
    folder.mkdir()
    (folder / "videos").symlink_to(store)
    (store / "up").symlink_to(folder)
    found = Listing(folder).find("clip.mp4")
    assert found is not None
    assert (found.path, found.others) == (folder / "videos" / "clip.mp4", ())


def test_the_working_folder_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy_of("cgbench", tmp_path))
    assert load_dataset("cgbench", Path()).edition.name == "mini"
    assert load_dataset("cgbench", Path("cgbench_mini.json")).edition.name == "mini"


def test_two_videos_of_one_name_are_told(tmp_path: Path) -> None:
    folder = copy_of("cgbench", tmp_path)
    for place in ("a", "b"):
        write_mp4(folder / place / "xxxxxxxxxxx.mp4")
    (message,) = codes(load_dataset("cgbench", folder), "video")
    assert "taken; fit as well" in message
