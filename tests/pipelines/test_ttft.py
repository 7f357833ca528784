"""Time to the first token by tier, on a stream of seconds, and bytes of real shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hermes_like.codec import CODECS
from pipelines import ttft
from pipelines.ttft_shapes import Shape, check, shape_bytes


def test_every_tier_is_really_read_and_the_parts_add_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ttft, "NUM_PICTURES", 24)
    monkeypatch.setattr(ttft, "shape_bytes", lambda names: shape_bytes(segment_frames=1))
    argv = ["--lengths", "120,160", "--repeats", "2", "--out", str(tmp_path)]
    assert ttft.main(argv) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    for one in result["lengths"]:
        for tier, cell in one["tiers"].items():
            if tier == "disk":  # what a prefetch has brought by then comes from RAM
                assert "disk" in cell["read_from"]
            else:
                assert cell["read_from"] == ([] if tier == "device" else [tier])
            if tier == "source":  # two hits in one segment come back as its one picture
                assert 4 <= cell["frames"] <= 8
            else:
                assert cell["frames"] == (0 if tier == "device" else 8)
            assert sum(cell["parts_ms"].values()) == pytest.approx(cell["ttft_ms"], rel=0.5)
        assert one["tiers"]["source"]["parts_ms"]["decode"] == 0
        assert one["tiers"]["disk"]["parts_ms"]["decode"] > 0
        assert one["bytes"]["tiers"]["disk"][0] > 0
        assert one["bytes"]["rows"] > 0
    assert set(result["longest_to_shortest_without_search"]) == set(ttft.TIERS)
    assert result["search_ms_per_100k_vectors"]["160"] > 0
    assert (tmp_path / "ttft.png").stat().st_size > 0


def test_noise_of_a_shape_has_the_size_of_what_a_session_writes() -> None:
    found = check("random:llava-onevision-tiny", 4)
    for codec in CODECS.names():
        assert found[codec]["written"] >= found[codec]["layers_by_arithmetic"]
        assert found[codec]["written"] == pytest.approx(
            found[codec]["layers_by_arithmetic"], rel=0.25
        )
    assert found["int4"]["written"] < found["int8"]["written"] < found["raw"]["written"]


def test_bytes_of_a_token_are_the_arithmetic() -> None:
    shape = Shape(28, 4, 128, 196, torch.bfloat16)
    assert shape.bytes_per_token == 57_344
    by_shape = shape_bytes(segment_frames=1)["by_shape"]
    assert by_shape["llava-onevision-0.5b"]["bytes_per_token"] == 12_288
    for cell in by_shape.values():
        raw = cell["codec_bytes_per_hour"]["raw"]
        assert raw == pytest.approx(cell["arithmetic_bytes_per_hour"], rel=0.02)
