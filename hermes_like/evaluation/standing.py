"""How far a run is, and what came of it. Knows no run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hermes_like.evaluation.check import Absent


@dataclass(slots=True)
class Standing:
    """How far a run is.

    Attributes:
        num_videos: That it is about.
        num_videos_done: Of these, with nothing left to ask.
        num_questions: That it is about.
        num_done: Of these, answered or given up, earlier runs included.
        num_reused: Of these, answered by earlier runs.
        num_scored: Whose reply counts for the accuracy.
        num_right: By the strict rule.
    """

    num_videos: int = 0
    num_videos_done: int = 0
    num_questions: int = 0
    num_done: int = 0
    num_reused: int = 0
    num_scored: int = 0
    num_right: float = 0.0

    @property
    def accuracy(self) -> float | None:
        """Share of right replies so far, strict; None: nothing counts."""
        return self.num_right / self.num_scored if self.num_scored else None


class Watcher(Protocol):
    """Told how a run goes."""

    def __call__(self, standing: Standing) -> None:
        """Called after every question and every video, never by two threads at once."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did.

    Attributes:
        path: File of predictions.
        config_hash: In every line of it.
        standing: At the end.
        absent: Videos that are missing or broken, with the questions that have no reply.
        refused: Questions without a reply for other reasons, with these.
        num_lost: Workers that died.
        num_frames: Shown to sessions.
        seconds: Wall time.
        question_ids: That the run was about, in the order of its passes.
    """

    path: Path
    config_hash: str
    standing: Standing
    absent: tuple[Absent, ...]
    refused: tuple[tuple[str, str], ...]
    num_lost: int
    num_frames: int
    seconds: float
    question_ids: tuple[str, ...] = field(default=(), repr=False)
