"""What is there and what is missing: the report and the exit status of the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_like.cli import run
from hermes_like.evaluation import load_dataset
from hermes_like.evaluation.check import check_dataset
from hermes_like.evaluation.probe import probe
from tests.evaluation.fixtures import DATA, copy_of, write_mp4


def complete(folder: Path) -> Path:
    """The OVO fixture with a file for each of its videos."""
    folder = copy_of("ovobench", folder)
    for video in load_dataset("ovobench", folder).videos.values():
        write_mp4(folder / "src_videos" / video.reference)
    return folder


def test_probe_tells_causes_apart(tmp_path: Path) -> None:
    good = write_mp4(tmp_path / "good.mp4", duration_s=12.5)
    assert (probe(good).problem, probe(good).duration_s) == (None, 12.5)
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(good.read_bytes()[:-10])
    assert probe(cut).problem == "cut off: 10 bytes are missing at the end"
    head = tmp_path / "head.mp4"
    head.write_bytes(good.read_bytes()[:20])
    assert "index (moov) is missing" in (probe(head).problem or "")
    for name, content, problem in (
        ("empty.mp4", b"", "empty (0 bytes)"),
        ("text.mp4", b"<html>not found</html>", "not a video file"),
        ("frames.npy", b"\x93NUMPY", "array of frames"),
    ):
        (tmp_path / name).write_bytes(content)
        assert problem in (probe(tmp_path / name).problem or ""), name
    assert probe(tmp_path).problem is None, "a folder of pictures"
    assert probe(tmp_path / "absent.mp4").problem == "no such file or directory"


def test_probe_reads_the_length_of_a_real_file(sprites_video: Path) -> None:
    found = probe(sprites_video)
    assert found.problem is None
    assert found.duration_s == pytest.approx(24, abs=1.1)


def test_report(tmp_path: Path) -> None:
    folder = complete(tmp_path)
    report = check_dataset(load_dataset("ovobench", folder))
    assert report.is_complete
    assert report.categories["REC"] == 2
    assert report.kinds == {"choice": 3, "count": 2, "yes_no": 4}
    (folder / "src_videos" / "COIN" / "9abc.mp4").unlink()
    (folder / "src_videos" / "thumos" / "v_1.mp4").write_bytes(b"")
    report = check_dataset(load_dataset("ovobench", folder))
    assert [(absent.reference, absent.num_questions) for absent in report.missing] == [
        ("COIN/9abc.mp4", 2)
    ]
    assert [absent.problem for absent in report.broken] == ["the file is empty (0 bytes)"]
    assert not report.is_complete


def test_questions_after_the_end_of_a_file(tmp_path: Path) -> None:
    folder = complete(tmp_path)
    write_mp4(folder / "src_videos" / "COIN" / "9abc.mp4", duration_s=50)
    report = check_dataset(load_dataset("ovobench", folder))
    late = [finding for finding in report.findings if finding.code == "late"]
    assert [(finding.where, finding.message) for finding in late] == [
        ("41", "asked at 63.5 s, the file ends at 50.0 s")
    ]


def test_opening_finds_what_the_first_bytes_do_not_tell(
    tmp_path: Path, sprites_video: Path
) -> None:
    folder = complete(tmp_path)
    (folder / "src_videos" / "COIN" / "9abc.mp4").write_bytes(sprites_video.read_bytes())
    report = check_dataset(load_dataset("ovobench", folder), opens=True)
    assert len(report.broken) == 4, "boxes without a picture"
    assert "COIN/9abc.mp4" not in {absent.reference for absent in report.broken}


def test_command_exit_statuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = complete(tmp_path)
    assert run(["eval", "check", "ovobench", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "videos: 5 of 5 there, 0 missing, 0 broken" in out
    assert "SHA-256" in out
    (folder / "src_videos" / "COIN" / "9abc.mp4").unlink()
    assert run(["eval", "check", "ovobench", str(folder)]) == 3
    assert "COIN/9abc.mp4: missing (2 questions)" in capsys.readouterr().out
    (folder / "data" / "ovo_bench_new.json").write_text('[{"id": 1')
    assert run(["eval", "check", "ovobench", str(folder)]) == 1
    assert "ovo_bench_new.json: expected readable json" in capsys.readouterr().err
    assert run(["eval", "check", "ovobnch", str(folder)]) == 2
    assert "did you mean 'ovobench'" in capsys.readouterr().err


def test_command_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["eval", "check", "streamingbench", str(DATA / "streamingbench_json"), "--json"]) == 3
    )
    report = json.loads(capsys.readouterr().out)
    assert report["num_questions"] == 14
    assert len(report["missing"]) == 7
    assert {finding["code"] for finding in report["findings"]} >= {"stamp", "options", "order"}
    assert len(report["edition"]["sha256"]) == 64


def test_command_lists_datasets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "datasets"]) == 0
    out = capsys.readouterr().out
    assert "ovobench-forward" in out
    assert "EgoSchema" in out


def test_nothing_here_loads_torch_or_a_decoder() -> None:
    code = (
        "import sys\n"
        "import hermes_like.cli.eval, hermes_like.evaluation.check\n"
        "import hermes_like.evaluation.scoring.compare\n"
        "from hermes_like.evaluation import DATASETS\n"
        "[DATASETS.get(name) for name in DATASETS.names()]\n"
        "print(*{'torch', 'transformers', 'av', 'cv2'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""
