"""The ``hermes_released`` variant repeats the authors' code on a tiny random model.

Expected values were recorded once from the released implementation (arXiv 2601.14724); see
``tests/data/hermes_released/README.md``. The first (chunk, layer) that deviates fails the test.
"""

from __future__ import annotations

import pytest
import torch

from hermes_like.memory.provenance import FrameRecord
from tests.memory import released
from tests.memory.released import META
from tests.memory.released_question import check_question

PREFIX = META["hermes"]["prefix_length"]


@pytest.mark.parametrize("mode", ["lazy", "eager"])
def test_every_chunk_is_repeated(mode: str) -> None:
    memory, want, given = released.memory(mode), released.recorded(mode), released.inputs()
    per_frame = META["hermes"]["tokens_per_frame"]
    for chunk in range(10):
        name = f"chunk{chunk:02d}"
        embeds = given[f"{name}.embeds"]
        frames = embeds.shape[0] // per_frame
        records = [FrameRecord(float(memory.num_frames + i), None, chunk) for i in range(frames)]
        memory.append_frames(embeds.view(frames, per_frame, -1), records)
        slots = memory.cache.layers
        before = torch.stack([s.positions for s in slots])
        assert torch.equal(before.int(), want[f"{name}.pos_before"]), name
        masses = memory.masses()
        assert masses is not None
        views = memory.compactor.views(masses)
        scores = memory.compactor.scores(views)
        torch.testing.assert_close(torch.stack(masses), want[f"{name}.attn"], atol=1e-6, rtol=0)
        torch.testing.assert_close(torch.stack(scores), want[f"{name}.score"], atol=2e-5, rtol=0)
        kept = memory.compactor.select(views, scores)
        for layer, indices in enumerate(kept):
            row = want[f"{name}.keep"][layer]
            row = row[row >= PREFIX] - PREFIX
            assert torch.equal(indices.int(), row), f"first deviation: {name}, layer {layer}"
        assert memory.compact() == META["runs"][mode]["chunks"][chunk]["compressed"], name
        memory.check()
        after = torch.stack([s.positions for s in slots])
        assert torch.equal(after.int(), want[f"{name}.pos_after"]), name
        _check_summaries(memory, want, name)
        if f"{name}.k_after" in want:
            _check_cache(memory, want[f"{name}.k_after"], want[f"{name}.v_after"])
    _check_cache(memory, want["final.k"], want["final.v"])
    check_question(memory, want, given["question_ids"].tolist())


def _check_summaries(memory, want, name: str) -> None:
    if f"{name}.summary_k" not in want:
        return
    for row, layer in enumerate(range(META["hermes"]["deep_layers"][0], 10)):
        slots = memory.cache.layers[layer]
        values = slots.values[0, :, -1]
        torch.testing.assert_close(values, want[f"{name}.summary_v"][row], atol=1e-5, rtol=0)


def _check_cache(memory, keys: torch.Tensor, values: torch.Tensor) -> None:
    for layer, slots in enumerate(memory.cache.layers):
        torch.testing.assert_close(slots.keys[0], keys[layer], atol=5e-5, rtol=0)
        torch.testing.assert_close(slots.values[0], values[layer], atol=5e-5, rtol=0)
