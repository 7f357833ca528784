"""What is particular to each dataset."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hermes_like.evaluation import DatasetError, Question, load_dataset
from tests.evaluation.fixtures import DATA, copy_of, load, rewrite, write_mp4


def by_id(name: str, fixture: str) -> dict[str, Question]:
    return {question.question_id: question for question in load(name, fixture).questions}


def test_streamingbench_editions_speak_of_the_same_tasks() -> None:
    github = by_id("streamingbench-real", "streamingbench_json")
    table = by_id("streamingbench-real", "streamingbench_csv")
    assert github["sample_12_real/1"].category == table["sample_12_real/1"].category == "OP"
    assert table["sample_12_real/3"].text == 'How many cups, "big" ones, are visible?'
    assert table["sample_12_real/1"].options[2] == "The cook's bowl."
    assert table["sample_12_real/1"].ask_s == github["sample_12_real/1"].ask_s == 68
    assert github["sample_12_real/1"].start_s == 8, "the official context is 60 s"


def test_streamingbench_groups_are_the_papers() -> None:
    contextual = load("streamingbench-contextual", "streamingbench_json")
    assert {q.category for q in contextual.questions} == {"MCU", "SQA", "PO"}
    omni = load("streamingbench-omni", "streamingbench_json")
    assert {q.category for q in omni.questions} == {"ER", "SCU"}
    assert any("without sound" in remark for remark in omni.remarks)


def test_streamingbench_sequences_know_the_true_answers_before_them() -> None:
    first, second = load("streamingbench-sqa", "streamingbench_json").questions
    assert first.conversation == second.conversation == "gold_history"
    assert first.thread == second.thread == "sample_3_sqa"
    assert (first.options[1], second.options[0]) == ("Lebrun", "Lebrun.")


def test_streamingbench_proactive_is_polled_as_the_official_loop_does() -> None:
    first, second = load("streamingbench-proactive", "streamingbench_json").questions
    assert (first.ask_s, first.gold_s, first.gold) == (190, 195, "Second goal")
    assert first.poll_s == tuple(range(191, 200)), "from a second after asking to 4 s after"
    assert second.gold_s == second.ask_s
    assert second.poll_s == (858, 859, 860, 861)


def test_streamingbench_second_proactive_set_is_an_edition_of_its_own(tmp_path: Path) -> None:
    folder = copy_of("streamingbench_json", tmp_path) / "src" / "data"
    shutil.move(folder / "questions_proactive.json", folder / "questions_proactive_50.json")
    dataset = load_dataset("streamingbench-proactive", folder)
    assert dataset.edition.name == "second proactive set"


def test_streamingbench_finds_the_videos_of_its_archives(tmp_path: Path) -> None:
    folder = copy_of("streamingbench_csv", tmp_path)
    real = write_mp4(folder / "Real-Time Visual Understanding_1-50" / "sample_12" / "video.mp4")
    write_mp4(folder / "__MACOSX" / "sample_2" / "video.mp4")
    write_mp4(folder / "Emotion Recognition" / "sample_2" / "video.mp4")
    videos = load_dataset("streamingbench", folder).videos
    assert videos["sample_12_real"].path == real
    assert videos["sample_2_Anomaly_Context_Understanding"].path is None, "other category, or junk"
    flat = write_mp4(folder / "videos" / "sample_2_Anomaly_Context_Understanding.MP4")
    videos = load_dataset("streamingbench", folder).videos
    assert videos["sample_2_Anomaly_Context_Understanding"].path == flat


def test_ovobench_place_of_the_option_beats_its_text() -> None:
    question = by_id("ovobench", "ovobench")["41"]
    assert question.raw["answer"] == "a saw"
    assert (question.gold, question.gold_index, question.ask_s) == ("a hammer", 1, 63.5)


def test_ovobench_forward_is_polled_at_its_test_points() -> None:
    questions = by_id("ovobench-forward", "ovobench")
    assert [(q.kind, q.gold, q.ask_s) for q in questions.values()] == [
        ("count", "1", 5),
        ("count", "2", 12),
        ("yes_no", "yes", 15),
        ("yes_no", "no", 25),
        ("yes_no", "no", 30),
        ("yes_no", "yes", 52),
    ]
    assert questions["1501/0"].item_id == questions["1501/1"].item_id == "1501"
    assert (questions["1501/0"].text, questions["1590/1"].text) == ("jump", "pour")


def test_ovobench_takes_the_video_of_the_right_source(tmp_path: Path) -> None:
    folder = copy_of("ovobench", tmp_path)
    write_mp4(folder / "src_videos" / "star" / "9abc.mp4")
    right = write_mp4(folder / "src_videos" / "COIN" / "9abc.mp4")
    game = write_mp4(folder / "src_videos" / "YouTube_Games" / "a & b.mp4")
    videos = load_dataset("ovobench", folder).videos
    assert videos["COIN/9abc.mp4"].path == right
    assert videos["YouTube_Games/a & b.mp4"].path == game
    right.unlink()
    assert load_dataset("ovobench", folder).videos["COIN/9abc.mp4"].path is None


def test_rvs_editions() -> None:
    ego = load("rvs-ego", "rvs_rekv")
    assert [q.ask_s for q in ego.questions] == [300, 300, 600]
    assert [q.tags["answer"] for q in ego.questions] == ["free", "yes/no", "yes/no"]
    movie = next(iter(load("rvs-movie", "rvs_rekv").videos.values()))
    assert (movie.start_s, movie.end_s, movie.fps) == (300, 900, 1)
    cut = load("rvs-ego", "rvs_original")
    video = cut.videos["000012"]
    assert (video.reference, video.start_s, video.end_s) == ("9f-1", 600, 900)
    assert [q.ask_s for q in cut.questions] == [900, 900]
    assert not any("/vstream/" in f"/{file.path}" for file in cut.edition.files)


def test_rvs_clip_that_was_cut_out_begins_at_zero(tmp_path: Path) -> None:
    folder = copy_of("rvs_original", tmp_path)
    clip = write_mp4(folder / "clips" / "000012.mp4")
    dataset = load_dataset("rvs-ego", folder)
    video = dataset.videos["000012"]
    assert (video.path, video.start_s, video.end_s) == (clip, 0, 300)
    assert [q.ask_s for q in dataset.questions] == [300, 300]


def test_odvbench_shows_no_more_than_its_end() -> None:
    dataset = load("odvbench", "odvbench")
    assert [(q.ask_s, len(q.options)) for q in dataset.questions] == [(1.38, 4), (2.8, 2), (2.8, 2)]
    assert len({q.video_id for q in dataset.questions[1:]}) == 2, "base names repeat"
    assert dataset.videos["TR_Analysis/CAP-DATA/10/000001.mp4"].fps == 10


def test_svbench_keeps_conversations() -> None:
    dialogue = load("svbench-dialogue", "svbench").questions
    assert [(q.thread, q.start_s, q.ask_s) for q in dialogue] == [
        ("vid9/0", 0, 24.5),
        ("vid9/0", 0, 24.5),
        ("vid9/1", 24.5, 51),
    ]
    streaming = load("svbench-streaming", "svbench").questions
    assert [(q.thread, q.start_s, q.ask_s) for q in streaming] == [
        ("vid9/0", 0, 24.5),
        ("vid9/0", 0, 51),
    ]
    assert {q.conversation for q in (*dialogue, *streaming)} == {"own_history"}


def test_videomme_parquet(tmp_path: Path) -> None:
    table = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    lines = (DATA / "videomme" / "videomme_test.jsonl").read_text().splitlines()
    path = tmp_path / "videomme" / "test-00000-of-00001.parquet"
    path.parent.mkdir()
    parquet.write_table(table.Table.from_pylist([json.loads(line) for line in lines]), path)
    dataset = load_dataset("videomme", tmp_path)
    assert dataset.edition.name == "Parquet"
    assert dataset.questions == load("videomme", "videomme").questions
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match="expected readable parquet"):
        load_dataset("videomme", tmp_path)


def test_videomme_classes_and_letters() -> None:
    first, second, _ = load("videomme", "videomme").questions
    assert first.tags == {"duration": "medium", "domain": "Knowledge", "sub_category": "Astronomy"}
    assert second.options[0] == "A. Lincoln", "only the letter of the option is taken off"
    assert first.ask_s is None


def test_mlvu_generation_tasks_and_the_conversion() -> None:
    assert [q.category for q in load("mlvu", "mlvu").questions] == ["NQA", "NQA", "SSC", "VS"]
    assert load("mlvu", "mlvu_rekv").questions[0].category == "NQA"


def test_mlvu_looks_in_the_folder_of_the_task(tmp_path: Path) -> None:
    folder = copy_of("mlvu", tmp_path)
    write_mp4(folder / "MLVU" / "video" / "9_summary" / "needle_7.mp4")
    right = write_mp4(folder / "MLVU" / "video" / "2_needle" / "needle_7.mp4")
    assert load_dataset("mlvu", folder).videos["2_needle/needle_7.mp4"].path == right


def test_mlvu_options_inside_the_question(tmp_path: Path) -> None:
    path = tmp_path / "test_repacked.json"
    row = {
        "video_name": "a.mp4",
        "question": "What is it?\n(A) a cup\n(B) a hat\nOnly give the best option.",
        "answer": "B",
        "task_type": "needle",
    }
    path.write_text(json.dumps([row]))
    (question,) = load_dataset("mlvu", tmp_path).questions
    assert (question.text, question.options) == ("What is it?", ("a cup", "a hat"))
    assert (question.gold, question.category) == ("a hat", "NQA")


def test_egoschema_hides_most_answers() -> None:
    first, second = load("egoschema", "egoschema").questions
    assert (first.gold, first.category) == ("C cleans.", "subset")
    assert (second.gold, second.gold_index, second.category) == (None, None, "full set")
    assert len(second.options) == 5
    (row,) = load("egoschema", "egoschema_table").questions
    assert row.options == first.options


def test_longvideobench_columns_and_lists() -> None:
    (listed,) = load("longvideobench", "longvideobench").questions
    (columns,) = load("longvideobench", "longvideobench_test").questions
    assert listed.gold == "a wand"
    assert columns.options == ("x-ray", "yarn", "a wand")
    assert columns.gold is None
    assert listed.tags["duration_group"] == "60"


def test_qaego4d_evidence_in_seconds() -> None:
    assert load("qaego4d", "qaego4d_mc").questions[0].evidence == ((71.0, 80.5),)
    assert load("qaego4d", "qaego4d_original").questions[0].evidence == ((141.0, 145.0),)
    (closed,) = load("qaego4d", "qaego4d_closed").questions
    assert closed.gold == "on the table"
    assert closed.options == tuple(sorted(closed.options))


def test_cgbench_has_up_to_eight_options(tmp_path: Path) -> None:
    folder = copy_of("cgbench", tmp_path)

    def change(rows: list[dict[str, object]]) -> None:
        rows[0] |= {"choices": [f"choice {n}" for n in range(8)], "right_answer": "H"}

    rewrite(folder / "cgbench_mini.json", change)
    (question,) = load_dataset("cgbench", folder).questions
    assert (question.gold_index, question.evidence) == (7, ((8.0, 11.0),))


def test_mvbench_parts_of_a_file_are_streams_of_their_own(tmp_path: Path) -> None:
    folder = copy_of("mvbench", tmp_path)
    write_mp4(folder / "video" / "star" / "Charades_v1_480" / "ZS9XR.mp4")
    frames = folder / "video" / "tvqa" / "frames_fps3_hq" / "s01e02_seg01"
    frames.mkdir(parents=True)
    (frames / "00001.jpg").write_bytes(b"\xff\xd8\xff")
    dataset = load_dataset("mvbench", folder)
    first, second, episode, _ = dataset.questions
    assert first.video_id != second.video_id
    assert (dataset.videos[second.video_id].start_s, second.ask_s) == (12, 20)
    assert (dataset.videos[episode.video_id].path, dataset.videos[episode.video_id].fps) == (
        frames,
        3,
    )


def test_mvbench_segments_that_were_cut_out_are_not_cut_again(tmp_path: Path) -> None:
    folder = copy_of("mvbench", tmp_path)
    write_mp4(folder / "video" / "star" / "Charades_segment" / "ZS9XR.mp4")
    first = load_dataset("mvbench", folder).questions[0]
    assert (first.start_s, first.ask_s) == (0, None)


def test_activitynet_types_and_name_of_the_files(tmp_path: Path) -> None:
    folder = copy_of("activitynet", tmp_path)
    video = folder / "all_test" / "v_1QIUaaaaaaa.mkv"
    video.parent.mkdir()
    video.write_bytes(b"\x1a\x45\xdf\xa3")
    dataset = load_dataset("activitynet-qa", folder)
    assert [q.category for q in dataset.questions] == ["yes/no", "color"]
    assert dataset.videos["1QIUaaaaaaa"].path == video


def test_msvd_numbers_lead_to_files() -> None:
    (video,) = load("msvd-qa", "msvd_original").videos.values()
    assert video.reference == "-wa0umYJVGg_168_176"


def test_several_conversions_in_one_folder_must_be_chosen_from(tmp_path: Path) -> None:
    folder = copy_of("rekv", tmp_path)
    shutil.copy(folder / "converted.json", folder / "other.json")
    with pytest.raises(DatasetError, match="name the one to read"):
        load_dataset("rekv", folder)
    assert len(load_dataset("rekv", folder / "other.json").questions) == 3


def test_other_editions_in_the_folder_are_told_and_can_be_chosen(tmp_path: Path) -> None:
    folder = copy_of("cgbench", tmp_path)
    shutil.copy(folder / "cgbench_mini.json", folder / "cgbench.json")
    assert "also in the folder, not read: full" in load_dataset("cgbench", folder).remarks
    assert load_dataset("cgbench", folder, edition="full").edition.name == "full"


def test_videos_elsewhere(tmp_path: Path) -> None:
    path = write_mp4(tmp_path / "elsewhere" / "xxxxxxxxxxx.mp4")
    dataset = load("cgbench", "cgbench", videos=tmp_path / "elsewhere")
    assert dataset.videos["xxxxxxxxxxx"].path == path
    with pytest.raises(DatasetError, match="expected a folder of videos"):
        load("cgbench", "cgbench", videos=tmp_path / "nowhere")
