"""The measurement of codecs runs, and measures what it says."""

from __future__ import annotations

import json
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch


def test_codecs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers loads torchao where it is installed
        from pipelines import codecs
    argv = ["--tokens", "0", "--streams", "1", "--frames", "8"]
    argv += ["--questions", "6", "--repeats", "1"]
    assert codecs.main([*argv, "--out", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert json.loads((tmp_path / "codecs.json").read_text(encoding="utf-8")) == result
    assert all(result["bars"].values()), result["bars"]
    parts = result["sprites"]
    assert list(parts) == ["raw", "int8", "k8v4", "int4"]
    for name, part in parts.items():
        assert part["same_answers"]["asked"] == 6
        assert part["points_lost"] <= 0 or name == "int4"
    for error in ("keys_percent", "values_percent", "outputs_percent", "logit_error_max"):
        assert 0 == parts["raw"][error] < parts["int8"][error] < parts["int4"][error]
    assert parts["k8v4"]["keys_percent"] == parts["int8"]["keys_percent"]
    sizes = [part["0.5b"]["bytes_per_value"] for part in result["speed"].values()]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1:] == pytest.approx([1.0635, 0.8755, 0.6255], abs=0.01)
    assert "perplexity" not in result


def _text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def test_gguf_is_read_number_by_number(tmp_path: Path) -> None:
    """A file made here by the format's description: two settings and a tensor of each kind."""
    from pipelines.codecs_gguf import GGUF

    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (2, 32)).astype(np.uint8)
    signed = rng.integers(-128, 128, (2, 32)).astype(np.int8)
    plain = rng.standard_normal(6).astype(np.float32)
    q4 = b"".join(
        np.array([0.5, -3], np.float16).tobytes() + (row[:16] | row[16:] << 4).tobytes()
        for row in codes
    )
    q8 = b"".join(np.array([0.25], np.float16).tobytes() + row.tobytes() for row in signed)
    payload, places = b"", []
    for part in (q4, q8, plain.tobytes()):
        payload += bytes(-len(payload) % 32)
        places.append(len(payload))
        payload += part
    head = b"GGUF" + struct.pack("<IQQ", 3, 3, 2)
    head += _text("name") + struct.pack("<I", 8) + _text("small")
    head += _text("list") + struct.pack("<IIQ2i", 9, 5, 2, 7, -7)
    for name, kind, dims, place in zip(
        ("four", "eight", "plain"), (3, 8, 0), ((32, 2), (64, 1), (3, 2)), places, strict=True
    ):
        head += _text(name) + struct.pack("<I2QIQ", 2, *dims, kind, place)
    path = tmp_path / "small.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + payload)
    file = GGUF(path)
    assert file.fields == {"name": "small", "list": [7, -7]}
    expected = torch.from_numpy(codes.astype(np.float32)) * 0.5 - 3
    assert torch.equal(file.tensor("four"), expected)
    assert torch.equal(file.tensor("eight"), torch.from_numpy(signed.reshape(1, 64)) * 0.25)
    assert torch.equal(file.tensor("plain"), torch.from_numpy(plain.reshape(2, 3)))
    (tmp_path / "no.gguf").write_bytes(b"no model")
    with pytest.raises(ValueError, match="expected a GGUF file"):
        GGUF(tmp_path / "no.gguf")
