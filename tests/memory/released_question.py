"""The recorded question and answers of a released run, asked of our memory. Knows no family."""

from __future__ import annotations

import torch

from hermes_like.config import AnswerConfig
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.sampling import Sampler


def check_question(
    memory: DeviceMemory, want: dict[str, torch.Tensor], question: list[int]
) -> None:
    starts = memory.scheme.starts([s.positions for s in memory.cache.layers])
    assert starts == want["question.start_pos"].tolist()
    untouched = [s.keys.clone() for s in memory.cache.layers]
    for run, penalty in (("greedy_rp", 1.1), ("greedy_plain", 1.0)):
        sampler = Sampler(AnswerConfig(repetition_penalty=penalty), frozenset())
        with memory.cache.fork() as cache:
            logits = _extend(memory, cache, question)
            torch.testing.assert_close(logits, want["question.logits"][-1], atol=1e-4, rtol=0)
            tokens: list[int] = []
            for row in want[f"{run}.logits"]:
                torch.testing.assert_close(logits, row, atol=1e-4, rtol=0)
                tokens.append(sampler.next(logits, tokens))
                logits = _extend(memory, cache, tokens[-1:])
        assert tokens == want[f"{run}.tokens"].tolist()
        assert all(map(torch.equal, untouched, [s.keys for s in memory.cache.layers]))


def _extend(memory: DeviceMemory, cache, ids: list[int]) -> torch.Tensor:
    embeds = memory.adapter.embed_text(ids)
    provenance = -1 - cache.layers[0].length - torch.arange(len(ids))
    return memory.extend(cache, embeds, provenance, logits=True)
