"""The next token from logits: greedy or sampled, with the usual controls. Knows no model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hermes_like.config import AnswerConfig
from hermes_like.errors import ModelError


class Sampler:
    """Chooses tokens for one answer.

    Args:
        config: Temperature, top-p, repetition penalty, minimum length and seed.
        eos_ids: Tokens that may not come before ``min_tokens``.
    """

    def __init__(self, config: AnswerConfig, eos_ids: frozenset[int]) -> None:
        self.config = config
        self._eos = sorted(eos_ids)
        self._generator = torch.Generator().manual_seed(config.seed)

    def next(self, logits: Tensor, generated: Sequence[int]) -> int:
        """Choose one token.

        Args:
            logits: float32 ``[vocab]``; not changed.
            generated: Tokens of the answer so far.

        Raises:
            ModelError: A logit is not finite, for example after an overflow in half precision.
        """
        if not bool(torch.isfinite(logits).all()):
            raise ModelError(
                "the model returned logits that are not finite; try model.dtype float32 or bfloat16"
            )
        scores = self._penalised(logits.float().cpu().clone(), generated)
        if len(generated) < self.config.min_tokens:
            scores[self._eos] = float("-inf")
        if self.config.temperature == 0.0:
            return int(scores.argmax())
        probabilities = self._nucleus((scores / self.config.temperature).softmax(-1))
        return int(torch.multinomial(probabilities, 1, generator=self._generator))

    def _penalised(self, scores: Tensor, generated: Sequence[int]) -> Tensor:
        """Repetition penalty (CTRL, arXiv 1909.05858) on tokens of the answer so far."""
        penalty = self.config.repetition_penalty
        if penalty != 1.0 and generated:
            index = torch.tensor(sorted(set(generated)))
            seen = scores[index]
            scores[index] = torch.where(seen > 0, seen / penalty, seen * penalty)
        return scores

    def _nucleus(self, probabilities: Tensor) -> Tensor:
        """Keep the smallest set of tokens whose mass reaches top-p (arXiv 1904.09751)."""
        if self.config.top_p >= 1.0:
            return probabilities
        ordered, index = probabilities.sort(descending=True)
        is_outside = ordered.cumsum(0) - ordered >= self.config.top_p
        return probabilities.index_fill(0, index[is_outside], 0.0)
