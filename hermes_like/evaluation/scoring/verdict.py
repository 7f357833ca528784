"""What a rule makes of one prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hermes_like.evaluation.predictions import Prediction
from hermes_like.evaluation.scoring.judge import Judgement

#: Why a prediction does not enter the denominator: the rule drops it; its true answer is not
#: public; or nobody judged its free words.
Dropped = Literal["", "rule", "hidden", "unjudged"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One prediction, scored.

    Attributes:
        score: 0 to 1; without meaning where it is dropped.
        is_parsed: Whether the reply could be understood.
        dropped: Why it does not count; empty: it counts.
        parsed: What the reply was taken for, for people.
    """

    score: float
    is_parsed: bool = True
    dropped: Dropped = ""
    parsed: str | None = None


#: Scores one prediction; the judgement of its words, where there is a judge.
Rule = Callable[[Prediction, Judgement | None], Verdict]


def is_hidden(prediction: Prediction) -> bool:
    """Whether the true answer is not public."""
    return prediction.gold is None and prediction.gold_index is None
