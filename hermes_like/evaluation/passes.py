"""Which questions are asked on which pass over which video, and in which order.

Knows datasets only: no video is opened and no model is asked here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from hermes_like.errors import DatasetError
from hermes_like.evaluation.base import Dataset, Question, Video, first_asked_s
from hermes_like.registry import unknown_name


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of a dataset.

    Attributes:
        tasks: Rows of the table; empty: all.
        videos: Identifiers; empty: all.
        limit: Only the first videos that are left, so many of them, with all their questions.
    """

    tasks: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One stretch of a video that is watched once.

    Attributes:
        video: Which one.
        start_s: First second that is shown, on the clock of the file.
        questions: In the order in which they are met.
    """

    video: Video
    start_s: float
    questions: tuple[Question, ...]

    def without(self, done: Collection[str]) -> Pass:
        """The same pass without the questions that are answered."""
        left = tuple(q for q in self.questions if q.question_id not in done)
        return Pass(self.video, self.start_s, left)


@dataclass(frozen=True, slots=True)
class Asking:
    """One time at which something is asked.

    Attributes:
        at_s: Stream time; infinity: after the last frame.
        question: What.
        is_poll: Whether it is asked if its moment has come.
    """

    at_s: float
    question: Question
    is_poll: bool = False


def plan_passes(
    dataset: Dataset,
    selection: Selection | None = None,
    context: Literal["stream", "official"] = "stream",
) -> tuple[Pass, ...]:
    """Passes in the order of the videos.

    Args:
        dataset: As a reader gave it.
        selection: Which part of it; None: all.
        context: ``stream``: every video is watched once from its beginning. ``official``: a
            question sees nothing before its ``start_s``; those that begin together share a pass.

    Raises:
        DatasetError: The selection names something that is not there.
    """
    wanted = _selected(dataset, selection or Selection())
    groups: dict[tuple[str, float], list[Question]] = defaultdict(list)
    for question in wanted:
        video = dataset.videos[question.video_id]
        context_s = question.start_s if context == "official" else 0.0
        groups[question.video_id, max(video.start_s, context_s)].append(question)
    order = {video_id: place for place, video_id in enumerate(dataset.videos)}
    return tuple(
        Pass(
            dataset.videos[video_id],
            start_s,
            tuple(sorted(questions, key=lambda q: (first_asked_s(q), q.position))),
        )
        for (video_id, start_s), questions in sorted(
            groups.items(), key=lambda item: (order[item[0][0]], item[0][1])
        )
    )


def askings(planned: Pass) -> list[Asking]:
    """Every time of a pass at which something is asked, in order; ties keep the order of files."""
    found = []
    for question in planned.questions:
        if question.kind == "proactive" and question.poll_s:
            found += [Asking(at_s, question, is_poll=True) for at_s in question.poll_s]
        else:
            at_s = math.inf if question.ask_s is None else question.ask_s
            found.append(Asking(at_s, question))
    return sorted(found, key=lambda asking: asking.at_s)


def _selected(dataset: Dataset, selection: Selection) -> list[Question]:
    categories = list(dict.fromkeys(question.category for question in dataset.questions))
    for kind, names, known in (
        ("task", selection.tasks, categories),
        ("video", selection.videos, list(dataset.videos)),
    ):
        for name in names:
            if name not in known:
                raise DatasetError(f"{dataset.name}: {unknown_name(kind, name, known)}")
    wanted = [
        question
        for question in dataset.questions
        if (not selection.tasks or question.category in selection.tasks)
        and (not selection.videos or question.video_id in selection.videos)
    ]
    if selection.limit is not None:
        asked = {question.video_id for question in wanted}
        first = [video for video in dataset.videos if video in asked][: selection.limit]
        wanted = [question for question in wanted if question.video_id in first]
    return wanted
