"""The check of a GPU, run small on a CPU, and what it rests on."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hermes_like.config import ModelConfig
from hermes_like.models import load_model, random_shapes
from hermes_like.presets import preset_names
from pipelines import bench, gpu_check, gpu_kernels
from pipelines.gpu_check_rows import (
    Clock,
    PartOverrunError,
    Recorder,
    Row,
    interrupted_after,
    seconds_left,
)
from pipelines.gpu_check_ttft import cases
from pipelines.reporting import ROOT

SMALL = ["--device", "cpu", "--threads", "1", "--device-tokens", "1400", "--sizes", "2"]
SMALL += ["--repeats", "1", "--frames", "64", "--minutes", "1"]


def test_a_small_check_on_a_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.gpu_check_stream.NUM_PICTURES", 16)
    argv = ["--model", "random:llava-onevision-tiny", *SMALL, "--out", str(tmp_path)]
    assert gpu_check.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result["failed"] == []
    kept = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in kept] == result["rows"]
    assert set(kept) <= set(lines), "every figure is printed as soon as it is there"
    rows = {(row["part"], row["name"]): row for row in result["rows"]}
    took = {part: row["value"] for (part, name), row in rows.items() if name == "took"}
    assert set(took) == set(gpu_check.SHARES)
    assert {name for part, name in rows if part == "ttft"} - {"took"} == {
        case.name for case in cases([2])
    }
    for row in result["rows"]:
        if row["part"] == "ttft" and row["name"] != "took":
            assert row["value"] > row["ceiling"] > 0, row
            assert "came from" not in row["note"], row
            assert row["verdict"] == "-"
    shares = rows["ingest", "watching"]["parts"]
    assert sum(shares.values()) == pytest.approx(100)
    assert shares["scoring"] > 0, "the stream is long enough to be compacted"
    assert rows["flat", "growth of the cache"]["verdict"] == "pass"
    assert rows["flat", "growth of the cache"]["note"].startswith("64 of 64 frames")
    assert rows["codec int8", "encode a segment"]["value"] > 0
    assert rows["machine", "raw reads, page cache warm"]["value"] > 0
    assert not list(tmp_path.glob("memory_*")), "the memory folder is gone"
    assert "| ttft: resident |" in (tmp_path / "tables.md").read_text(encoding="utf-8")


def test_promises_hold_for_7b_in_half_precision_on_cuda(tmp_path: Path) -> None:
    argv = ["--model", "random:llava-onevision-7b", "--device", "cpu", "--dtype", "bfloat16"]
    run = gpu_check.Run(gpu_check.parse([*argv, "--out", str(tmp_path)]), Recorder(tmp_path / "r"))
    assert not run.has_targets
    memory, retrieval = run.config.memory, run.config.retrieval
    assert retrieval.retrieved_tokens == 64 * 196
    assert memory.device_tokens == 9312 + (64 - 8) * 196
    run.device = torch.device("cuda")
    assert gpu_check.promises_hold("random:llava-onevision-7b", torch.bfloat16, run.device)
    assert not gpu_check.promises_hold("random:qwen3-vl-8b", torch.bfloat16, run.device)


def test_what_is_promised_is_measured_first() -> None:
    found = cases([8, 16, 64])
    names = [case.name for case in found]
    assert names[:3] == [
        "resident",
        "16 frames from host, together",
        "64 frames from disk, together",
    ]
    assert len(names) == len(set(names)) == 1 + 12 + 13 + 6


def test_verdicts() -> None:
    assert Row("p", "n", 29.0, "ms", target=30.0).verdict == "pass"
    assert Row("p", "n", 31.0, "ms", target=30.0).verdict == "miss"
    assert Row("p", "n", 31.0, "GB/s", target=30.0, is_most=False).verdict == "pass"
    assert Row("p", "n", None, "ms", target=30.0).verdict == "-"
    assert Row("p", "n", 31.0, "ms").verdict == "-"


def test_unused_time_goes_to_later_parts() -> None:
    assert seconds_left([1, 1, 2], 40.0) == 10.0
    assert seconds_left([1, 2], 39.0) == 13.0
    assert seconds_left([2], -1.0) == 0.0


def test_a_part_that_hangs_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.gpu_check_rows.GRACE_S", 0.05)
    started = time.perf_counter()
    with pytest.raises(PartOverrunError), interrupted_after(0.05):
        time.sleep(20)
    assert time.perf_counter() - started < 10
    with interrupted_after(0.05):
        pass
    time.sleep(0.2)  # nothing rings any more


def test_a_part_that_fails_leaves_the_others(tmp_path: Path) -> None:
    argv = ["--model", "random:llava-onevision-tiny", "--device", "cpu", "--out", str(tmp_path)]
    run = gpu_check.Run(gpu_check.parse(argv), recorder := Recorder(tmp_path / "rows.jsonl"))

    def broken(clock: Clock) -> Iterator[Row]:
        yield Row("one", "first", 1.0, "s")
        raise RuntimeError("out of memory")

    run._part("one", broken, 5.0)
    run._part("two", lambda clock: iter([Row("two", "second", 2.0, "s")]), 5.0)
    assert recorder.failures == ["one"]
    assert [row.name for row in recorder.rows] == ["first", "failed", "took", "second", "took"]
    assert "out of memory" in recorder.rows[1].note


@pytest.mark.parametrize("shape", random_shapes.SHAPES)
def test_weights_are_made_in_place_in_the_wanted_type(shape: str) -> None:
    """On the device ``meta`` nothing is ever computed: whatever is elsewhere was made elsewhere."""
    config = ModelConfig(name=f"random:{shape}", device="meta", dtype="bfloat16")
    adapter: Any = load_model(config)
    model = adapter._model
    assert {p.device.type for p in model.parameters()} == {"meta"}
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert {b.device.type for b in model.buffers()} == {"meta"}


@pytest.mark.parametrize("shape", ["qwen2-vl-tiny", "qwen2.5-vl-tiny", "qwen3-vl-tiny"])
def test_bench_of_every_family(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--model", f"random:{shape}", "--frames", "8", "--segment-frames", "4"]
    argv += ["--device-tokens", "2800", "--vision-frames", "2", "--out", str(tmp_path)]
    assert bench.main([*argv, "--repeats", "1", "--threads", "1"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    (one,) = result["lengths"]
    assert one["peak_slots"] <= one["device_tokens"] == 2800
    assert one["ttft"]["median_ms"] > 0


def test_every_shape_has_a_preset() -> None:
    for shape in random_shapes.SHAPES:
        preset = bench.preset_of_shape(shape)
        assert preset == shape or shape not in preset_names()
        assert preset[:7] == shape[:7], "of the same family"
    assert bench.preset_of_shape("qwen2.5-vl-tiny") == "qwen2.5-vl-3b"
    assert bench.preset_of_shape("nothing-alike") == bench.RANDOM.preset


def test_the_candidate_kernel_computes_what_two_steps_do() -> None:
    args = gpu_kernels.example((4, 33, 64), torch.device("cpu"))
    expected = gpu_kernels.restore_rotated(*args)
    ways = [gpu_kernels._plain]
    if os.environ.get("HERMES_LIKE_COMPILE_TESTS"):  # half a minute of compiling
        ways.append(gpu_kernels.compiled())
    for way in ways:
        for found, wanted in zip(way(*args), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=2**-7, atol=0.05)


def test_the_script_is_sound() -> None:
    script = ROOT / "pipelines" / "gpu_check.sh"
    assert os.access(script, os.X_OK)
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
