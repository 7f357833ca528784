"""How well the decoder answers while it trains, and how long its videos may become."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from hermes_like.sprites.questions import GROUPS, TYPES
from pipelines.sprites_training.batches import Batch
from pipelines.sprites_training.samples import IGNORED, TYPE_NAMES


def answer_hits(logits: Tensor, batch: Batch) -> Tensor:
    """Return whether each question's whole answer is right, ``[questions]`` bool."""
    is_real = batch.answer_ids != IGNORED
    right = logits.argmax(-1) == batch.answer_ids
    wrong = torch.zeros(len(batch.question_types), dtype=torch.int64)
    wrong.index_add_(0, batch.answer_questions[is_real], (~right[is_real]).long())
    return wrong == 0


@dataclass(slots=True)
class Tally:
    """Right and asked, per question type."""

    hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TYPE_NAMES, 0))
    asked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TYPE_NAMES, 0))

    def add(self, types: Tensor, hits: Tensor) -> None:
        """Count the questions of one batch."""
        for index, hit in zip(types.tolist(), hits.tolist(), strict=True):
            self.asked[TYPE_NAMES[index]] += 1
            self.hits[TYPE_NAMES[index]] += int(hit)

    def by_group(self) -> dict[str, float]:
        """Return the share of right answers of each group that was asked about."""
        shares = {}
        for group in GROUPS:
            names = [name for name in TYPE_NAMES if TYPES[name][0] == group]
            asked = sum(self.asked[name] for name in names)
            if asked:
                hits = sum(self.hits[name] for name in names)
                shares[group] = round(100 * hits / asked, 1)
        return shares

    def by_type(self) -> dict[str, float]:
        """Return the share of right answers of each type that was asked."""
        return {
            name: round(100 * self.hits[name] / asked, 1)
            for name, asked in self.asked.items()
            if asked
        }


class Emphasis:
    """Which question types are asked more often: those that still go wrong."""

    PULL = 0.05
    LEAST, MOST = 0.4, 3.0

    def __init__(self) -> None:
        self.errors = dict.fromkeys(TYPE_NAMES, 0.5)

    def note(self, types: Tensor, hits: Tensor) -> None:
        """Count the questions of one batch."""
        for index, hit in zip(types.tolist(), hits.tolist(), strict=True):
            name = TYPE_NAMES[index]
            self.errors[name] += self.PULL * (1.0 - float(hit) - self.errors[name])

    def factors(self) -> dict[str, float]:
        """Return the factor of each type's weight."""
        span = self.MOST - self.LEAST
        return {name: self.LEAST + span * min(1.0, 2 * e) for name, e in self.errors.items()}


@dataclass(slots=True)
class Curriculum:
    """The longest video, grown when look-ups in the long ones succeed.

    Attributes:
        max_frames: Longest video at present.
        skill: Running share of right answers in recall and exists on videos near the longest.
    """

    max_frames: int = 10
    skill: float = 0.0
    since: int = 0

    GOAL_FRAMES = 32
    SKILL = 0.8

    @classmethod
    def grown(cls) -> Curriculum:
        """A curriculum that has reached its goal, for a decoder that is trained already."""
        return cls(max_frames=cls.GOAL_FRAMES)

    @property
    def is_grown(self) -> bool:
        """Whether the goal length has been reached."""
        return self.max_frames >= self.GOAL_FRAMES

    def note(self, num_frames: int, types: Tensor, hits: Tensor) -> None:
        """Count one batch; grow when the skill suffices."""
        if num_frames < 0.7 * self.max_frames:
            return
        chosen = [
            hit
            for index, hit in zip(types.tolist(), hits.tolist(), strict=True)
            if TYPES[TYPE_NAMES[index]][0] in ("recall", "exists")
        ]
        if not chosen:
            return
        self.skill += 0.1 * (sum(chosen) / len(chosen) - self.skill)
        self.since += 1
        if self.skill > self.SKILL and self.since >= 15 and not self.is_grown:
            self.max_frames = min(self.GOAL_FRAMES, self.max_frames + max(1, self.max_frames // 6))
            self.since = 0
