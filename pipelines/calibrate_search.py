"""Which heads find the past: a greedy search over recorded streams, and the gate's margin.

The score of a frame is a sum over heads, so every head is scored once per question and all the
rest is adding up. Scores come from the library's own scorer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

import numpy as np
import numpy.typing as npt

from hermes_like.config import RetrievalConfig
from hermes_like.retrieval.base import FloatArray
from hermes_like.retrieval.similarity import scorer
from pipelines.calibrate_record import AskedQuestion, RecordedStream, index_at

#: What one standard deviation of separation is worth against recall at 8 and recall at 1.
SEPARATION_WEIGHT = 0.05
#: A head is added for at least this much.
MIN_GAIN = 0.005


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to score.

    Attributes:
        groups: Vectors per frame.
        pooling: Over question tokens.
        normalisation: Per head.
    """

    groups: int
    pooling: str
    normalisation: str

    @property
    def config(self) -> RetrievalConfig:
        """As configuration."""
        return RetrievalConfig.model_validate(
            {"pooling": self.pooling, "normalisation": self.normalisation}
        )


@dataclass(frozen=True, slots=True, eq=False)
class ScoredQuestion:
    """Every head's scores for one question.

    Attributes:
        question: The question.
        scores: float32 ``[heads, frames, vectors per frame]``; frame ``i`` is frame ``i`` of the
            stream.
        resident: float32 ``[heads, rows]`` of the resident frames.
        is_target: Which frames it should find.
        is_other: Which frames it should not find; neither targets nor resident.
    """

    question: AskedQuestion
    scores: FloatArray
    resident: FloatArray
    is_target: npt.NDArray[np.bool_]
    is_other: npt.NDArray[np.bool_]

    def total(self, chosen: Sequence[int]) -> FloatArray:
        """Scores of the frames by some heads, float32 ``[frames]``."""
        best: FloatArray = self.scores[list(chosen)].sum(axis=0).max(axis=1)
        return best

    def margin(self, chosen: Sequence[int]) -> float:
        """How far the best hit beats the best resident frame; -inf without hits."""
        total = self.total(chosen)[self.is_other | self.is_target]
        if not total.size:
            return float("-inf")
        held = self.resident[list(chosen)].sum(axis=0)
        return float(total.max() - held.max()) if held.size else float("inf")


@dataclass(frozen=True, slots=True)
class Fitness:
    """How well some heads find planted events.

    Attributes:
        recall_8: Share of questions whose event is among the best 8 frames, mean over types.
        recall_1: The same for the best frame.
        separation: How far the event's best frame lies above the best other one, in standard
            deviations of all frames; exceeded by 95 % of the questions.
    """

    recall_8: float
    recall_1: float
    separation: float

    @property
    def value(self) -> float:
        """One number to choose by."""
        return self.recall_8 + self.recall_1 + SEPARATION_WEIGHT * self.separation


@dataclass(frozen=True, slots=True)
class Choice:
    """The heads that a variant does best with, by number, in the order they were added."""

    variant: Variant
    heads: tuple[int, ...]
    fitness: Fitness


def score_all(streams: Sequence[RecordedStream], variant: Variant) -> list[ScoredQuestion]:
    """Score every question of some streams with every head."""
    return [scored for stream in streams for scored in _score_stream(stream, variant)]


def _score_stream(stream: RecordedStream, variant: Variant) -> Iterator[ScoredQuestion]:
    num_heads = stream.heads[variant.groups][0].vectors.shape[1]
    everything = range(num_heads)
    for frame, questions in groupby(stream.questions, key=lambda q: q.asked.frame):
        index = index_at(stream, frame, variant.groups, everything)
        rows = index.sample(index.num_rows)
        num_frames = len(index)
        for question in questions:
            score = scorer(question.queries, index, variant.config)
            held = question.resident[variant.groups]
            is_target, is_other = np.zeros(num_frames, np.bool_), np.ones(num_frames, np.bool_)
            is_other[held.frames[held.frames < num_frames]] = False
            targets = [target for target in question.targets() if target < num_frames]
            is_target[targets], is_other[targets] = True, False
            yield ScoredQuestion(
                question,
                np.stack([score.head(h, rows[:, h]) for h in everything]).reshape(
                    num_heads, num_frames, variant.groups
                ),
                np.stack([score.head(h, held.vectors[:, h]) for h in everything]),
                is_target,
                is_other,
            )


def about_past(scored: Sequence[ScoredQuestion]) -> list[ScoredQuestion]:
    """Questions with something to be found, and something to find it among."""
    return [item for item in scored if item.is_target.any() and item.is_other.any()]


def about_present(scored: Sequence[ScoredQuestion]) -> list[ScoredQuestion]:
    """Questions that need nothing from the past."""
    return [item for item in scored if item.question.asked.planted is None]


def fitness(scored: Sequence[ScoredQuestion], chosen: Sequence[int]) -> Fitness:
    """Judge some heads on questions about the past."""
    ranks: dict[str, list[int]] = defaultdict(list)
    separations = []
    for item in scored:
        total = item.total(chosen)
        best, others = float(total[item.is_target].max()), total[item.is_other]
        ranks[item.question.asked.type].append(int((others >= best).sum()))
        separations.append((best - float(others.max())) / max(float(others.std()), 1e-6))
    return Fitness(
        mean(mean(rank < 8 for rank in of_type) for of_type in ranks.values()),
        mean(mean(rank < 1 for rank in of_type) for of_type in ranks.values()),
        float(np.percentile(separations, 5)),
    )


def choose_heads(scored: Sequence[ScoredQuestion], variant: Variant, most: int) -> Choice:
    """Add the head that helps most, as long as one does and there are fewer than ``most``."""
    chosen: tuple[int, ...] = ()
    best: Fitness | None = None
    while len(chosen) < most:
        left = [head for head in range(scored[0].scores.shape[0]) if head not in chosen]
        if not left:
            break
        tried = [(fitness(scored, (*chosen, head)), head) for head in left]
        found, head = max(tried, key=lambda pair: pair[0].value)
        if best is not None and found.value < best.value + MIN_GAIN:
            break
        chosen, best = (*chosen, head), found
    assert best is not None, "a model has at least one head"
    return Choice(variant, chosen, best)


def choose_margin(present: Sequence[float], past: Sequence[float]) -> float:
    """A gate margin from the margins of questions about the present and about the past.

    Questions about the past come first: at least 99 % of them fetch. Within that the margin is as
    high as keeps 95 % of the questions about the present from fetching, and where both can be
    had it lies in the middle between the two bounds.
    """
    highest = float(np.quantile(past, 0.01, method="lower"))
    lowest = present_margin(present)
    return (lowest + highest) / 2 if lowest < highest else highest


def present_margin(present: Sequence[float]) -> float:
    """The margin at which 95 % of the questions about the present do not fetch."""
    return float(np.quantile(present, 0.95, method="higher"))


def drift(scored: Sequence[ScoredQuestion], chosen: Sequence[int]) -> float:
    """Mean score of the oldest quarter of frames less that of the newest, in deviations."""
    differences = []
    for item in scored:
        total = item.total(chosen)
        quarter = total.shape[0] // 4
        old = total[:quarter][item.is_other[:quarter]]
        new = total[-quarter:][item.is_other[-quarter:]]
        spread = float(total[item.is_other].std())
        differences.append((float(old.mean()) - float(new.mean())) / max(spread, 1e-6))
    return mean(differences)
