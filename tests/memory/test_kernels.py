"""Every way of computing attention gives the attention of the definition."""

from __future__ import annotations

import math

import pytest
import torch

from hermes_like.config import ModelConfig
from hermes_like.errors import ModelError
from hermes_like.memory.attention import ATTENTION_NAMES
from hermes_like.memory.kernels import KERNELS, why_no_flash
from hermes_like.models import ModelAdapter, load_model
from tests.memory.streams import append, ask_logits, images, memory

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
NAME = "random:qwen2.5-vl-tiny"


def by_hand(query, key, value, scale) -> torch.Tensor:
    """Row by row and head by head, from the words of the definition alone."""
    rows, heads, num_queries, _ = query.shape
    past = key.shape[2] - num_queries
    out = torch.zeros_like(query)
    for row in range(rows):
        for head in range(heads):
            of = head * key.shape[1] // heads
            for i in range(num_queries):
                seen = key[row, of, : past + i + 1]
                weights = (seen @ query[row, head, i] * scale).softmax(0)
                out[row, head, i] = weights @ value[row, of, : past + i + 1]
    return out


def tensors(rows, heads, kv_heads, num_queries, num_keys, device=CPU, dtype=torch.float32):
    torch.manual_seed(num_queries * 100 + num_keys)
    query = torch.randn(rows, heads, num_queries, 8)
    key, value = torch.randn(2, rows, kv_heads, num_keys, 8)
    return [t.to(device, dtype) for t in (query, key, value)]


@pytest.mark.parametrize("name", sorted(KERNELS))
@pytest.mark.parametrize(
    ("rows", "heads", "kv_heads", "num_queries", "num_keys"),
    [(1, 4, 2, 1, 7), (1, 4, 4, 5, 5), (1, 4, 2, 3, 9), (1, 6, 1, 1, 1), (2, 4, 2, 3, 8)],
)
def test_a_kernel_is_the_definition(name, rows, heads, kv_heads, num_queries, num_keys) -> None:
    """Nothing cached, one new token, several behind a past, rows side by side, grouped heads."""
    given = tensors(rows, heads, kv_heads, num_queries, num_keys)
    scale = 1 / math.sqrt(8)
    got = KERNELS[name](*given, scale)
    torch.testing.assert_close(got, by_hand(*given, scale), atol=1e-5, rtol=1e-5)


def test_a_stream_is_the_same_with_every_kernel() -> None:
    """Layers of unequal length after compactions, probes for scores, and a question."""
    logits = {}
    for name, registered in ATTENTION_NAMES.items():
        adapter = load_model(ModelConfig(name=NAME, device="cpu"))
        adapter._model.set_attn_implementation({"text_config": registered})
        target = memory(adapter, "hermes", resident=26)
        for seed in range(3):
            append(target, images(4, seed), 2)
            target.compact()
        assert target.num_compactions == 2
        logits[name] = ask_logits(target, [5, 6, 7])
    torch.testing.assert_close(logits["flash"], logits["sdpa"], atol=2e-5, rtol=0)
    torch.testing.assert_close(logits["eager"], logits["sdpa"], atol=2e-5, rtol=0)


def test_the_configuration_chooses() -> None:
    chosen = load_model(ModelConfig(name=NAME, device="cpu", attention="eager"))
    assert chosen._model.config.text_config._attn_implementation == ATTENTION_NAMES["eager"]
    assert chosen._model.config.vision_config._attn_implementation != ATTENTION_NAMES["eager"]
    with pytest.raises(ModelError, match="no flash kernels: they run on CUDA devices"):
        load_model(ModelConfig(name=NAME, device="cpu", attention="flash"))
    with pytest.raises(ModelError, match="has one way only, got 'eager'"):
        ModelAdapter.use_attention(chosen, "eager")


def test_why_flash_cannot_run(monkeypatch) -> None:
    assert "float32" in str(why_no_flash(CUDA, torch.float32, 128))
    assert "at most 256" in str(why_no_flash(CUDA, torch.bfloat16, 512))
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: False)
    assert "build of torch" in str(why_no_flash(CUDA, torch.bfloat16, 128))
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    assert why_no_flash(CUDA, torch.bfloat16, 128) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("num_queries", [1, 5, 64])
def test_flash_on_a_device_is_the_definition(num_queries: int) -> None:
    """In 16 bits, with grouped heads, behind a past."""
    torch.manual_seed(0)
    query = torch.randn(1, 8, num_queries, 64, device=CUDA, dtype=torch.bfloat16)
    key, value = torch.randn(2, 1, 2, 200, 64, device=CUDA, dtype=torch.bfloat16)
    want = KERNELS["eager"](query.float(), key.float(), value.float(), 0.125)
    for name in ("sdpa", "flash"):
        got = KERNELS[name](query, key, value, 0.125).float()
        torch.testing.assert_close(got, want, atol=2e-2, rtol=2e-2)
