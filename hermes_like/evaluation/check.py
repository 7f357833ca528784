"""What of a dataset is there, before any time on a GPU is spent.

Reads the annotations, looks for every video and at the beginning of each. Loads no model, and a
decoder only when asked to open the videos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hermes_like.errors import SourceError
from hermes_like.evaluation.base import Dataset, Edition, Finding, Video
from hermes_like.evaluation.probe import probe


@dataclass(frozen=True, slots=True)
class Absent:
    """A video that cannot be used.

    Attributes:
        video_id: Which one.
        reference: How the annotations name it.
        num_questions: That are lost with it.
        problem: What is wrong with the file; empty: there is none.
        path: The file, if there is one.
    """

    video_id: str
    reference: str
    num_questions: int
    problem: str = ""
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """The report.

    Attributes:
        dataset: Registered name.
        edition: Which copy of the annotations, with hashes.
        num_videos: That the annotations name.
        num_questions: In the annotations.
        num_scored: Of these, with a public answer.
        categories: Questions per row of the table.
        kinds: Questions per kind of reply.
        missing: Videos that were not found.
        broken: Videos that will not play.
        findings: Oddities of the annotations, and questions after the end of their video.
        remarks: What has to be said beside every result.
    """

    dataset: str
    edition: Edition
    num_videos: int
    num_questions: int
    num_scored: int
    categories: Mapping[str, int]
    kinds: Mapping[str, int]
    missing: tuple[Absent, ...]
    broken: tuple[Absent, ...]
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every video is there and seems to play."""
        return not self.missing and not self.broken


def check_dataset(
    dataset: Dataset,
    *,
    opens: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Check:
    """Look for every video of a dataset, and at it.

    Args:
        dataset: As a reader gave it.
        opens: Also decode the first frame of every video.
        progress: Called with how many videos are done and how many there are.
    """
    asked = Counter(question.video_id for question in dataset.questions)
    missing, broken, durations = [], [], {}
    for number, video in enumerate(dataset.videos.values(), 1):
        absent = Absent(video.video_id, video.reference, asked[video.video_id])
        if video.path is None:
            missing.append(absent)
        else:
            seen = probe(video.path)
            problem = seen.problem or (_open_problem(video.path) if opens else None)
            if problem is not None:
                broken.append(replace(absent, problem=problem, path=video.path))
            durations[video.video_id] = seen.duration_s
        if progress is not None:
            progress(number, len(dataset.videos))
    return Check(
        dataset=dataset.name,
        edition=dataset.edition,
        num_videos=len(dataset.videos),
        num_questions=len(dataset.questions),
        num_scored=sum(question.gold is not None for question in dataset.questions),
        categories=dict(Counter(question.category for question in dataset.questions)),
        kinds=dict(Counter(question.kind for question in dataset.questions)),
        missing=tuple(missing),
        broken=tuple(broken),
        findings=(*dataset.findings, *_late(dataset, durations)),
        remarks=(*dataset.remarks, *_usual(dataset)),
    )


def _open_problem(path: Path) -> str | None:
    from hermes_like.sources import open_source

    try:
        with open_source(path) as source:
            return None if next(iter(source), None) is not None else "no frame can be read"
    except SourceError as error:
        return str(error)


def _late(dataset: Dataset, durations: Mapping[str, float | None]) -> list[Finding]:
    """Questions after the end of the file, where the annotations do not say so themselves."""
    found = []
    for question in dataset.questions:
        video: Video = dataset.videos[question.video_id]
        duration_s = durations.get(video.video_id)
        if question.ask_s is None or duration_s is None or video.duration_s is not None:
            continue
        if question.ask_s > duration_s + 1:
            message = f"asked at {question.ask_s:g} s, the file ends at {duration_s:.1f} s"
            found.append(Finding("late", question.question_id, message))
    return found


def _usual(dataset: Dataset) -> tuple[str, ...]:
    usual = dataset.edition.usual
    own = len(dataset.videos), len(dataset.questions)
    pairs = zip(own, usual or (0, 0), ("videos", "questions"), strict=True)
    return tuple(
        f"a complete copy of this edition has {all_of} {name}, this one {here}"
        for here, all_of, name in pairs
        if all_of and here != all_of
    )
