"""The seam for datasets: a folder as people download it becomes videos and questions with times.

Knows records and the contract of a reader. Knows neither formats nor models nor how an answer is
scored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

#: What kind of reply counts: an option; yes or no; a whole number; free words; or the right words
#: at the right moment (asked again and again until the model says that the moment has come).
Kind = Literal["choice", "yes_no", "count", "open", "proactive"]
#: What a question may know of those before it: nothing; their text, options and *true* answers with
#: times; or the words that the model itself has said.
Conversation = Literal["independent", "gold_history", "own_history"]


@dataclass(frozen=True, slots=True)
class Video:
    """One stream of a dataset: a file, a folder of pictures, or a part of either.

    Attributes:
        video_id: Unique within the dataset.
        reference: How the annotations name it.
        path: Where it was found; None: it is missing.
        start_s: Where the stream begins, on the clock of the file.
        end_s: Where it ends; None: at the end of the file.
        duration_s: Length of the file as annotated; None: not said.
        fps: Pictures per second where it is a folder of pictures or an array; None: not said.
    """

    video_id: str
    reference: str
    path: Path | None
    start_s: float = 0.0
    end_s: float | None = None
    duration_s: float | None = None
    fps: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to be answered and scored. Times are seconds on the clock of the video file.

    Attributes:
        question_id: Unique within the dataset and the same every time the folder is read.
        video_id: Key in ``Dataset.videos``.
        position: Place in the annotation files, from 0: the order in which results are handed in.
        text: The question as written.
        kind: What kind of reply counts.
        category: Row of the dataset's own table.
        ask_s: When it is asked: no frame later than this may be seen. None: after the whole video.
        options: Bare texts without letters; empty unless ``kind`` is ``choice``.
        gold: The true answer in words (text of an option, ``yes``, ``3``); None: hidden.
        gold_index: Place of the true option; None: there are no options, or none is true.
        start_s: First second that the official protocol shows.
        poll_s: Proactive: the times at which the official protocol asks, in order.
        gold_s: Proactive: when the moment comes.
        evidence: Spans ``(start_s, end_s)`` where the answer can be seen, if annotated.
        item_id: Entry of the annotation that it belongs to; several test points may share one.
        conversation: What it may know of earlier questions of its ``thread``.
        thread: Conversation that it is a turn of; None: it stands alone.
        tags: Further classes by which papers split their tables (``duration``, ``domain``, ...).
        raw: The row as it stands in the file.
    """

    question_id: str
    video_id: str
    position: int
    text: str
    kind: Kind
    category: str
    ask_s: float | None
    options: tuple[str, ...] = ()
    gold: str | None = None
    gold_index: int | None = None
    start_s: float = 0.0
    poll_s: tuple[float, ...] = ()
    gold_s: float | None = None
    evidence: tuple[tuple[float, float], ...] = ()
    item_id: str = ""
    conversation: Conversation = "independent"
    thread: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AnnotationFile:
    """A file that was read.

    Attributes:
        path: Relative to the folder.
        sha256: Of its bytes, 64 hex digits.
        num_rows: Entries at its top level.
    """

    path: str
    sha256: str
    num_rows: int


@dataclass(frozen=True, slots=True)
class Edition:
    """Which of the copies in circulation the annotations are.

    Attributes:
        name: Shape of the files, in words.
        sha256: Of the only file, or of the list of all hashes where there are several.
        files: What was read.
        usual: Videos and questions of a complete copy; None, or 0 for one of them: not known.
    """

    name: str
    sha256: str
    files: tuple[AnnotationFile, ...]
    usual: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the annotations that is not as it should be, and what was made of it.

    Attributes:
        code: ``stamp``, ``options``, ``gold``, ``duplicate``, ``order``, ``late``, ``video``, or
            ``row`` for one that could not be used at all.
        where: File and place, or the question.
        message: What was found and how it was read.
    """

    code: str
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """Everything a reader found.

    Attributes:
        name: Registered name of the reader.
        edition: Which copy.
        videos: By identifier, the missing ones included.
        questions: In the order of the files.
        findings: Oddities, in the order of the files.
        remarks: What has to be said beside every result (no sound, other editions in the folder).
    """

    name: str
    edition: Edition
    videos: Mapping[str, Video]
    questions: tuple[Question, ...]
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()

    def stream_order(self, video_id: str) -> tuple[Question, ...]:
        """Questions of one video in the order in which one pass over it meets them.

        Ties keep the order of the files; questions about the whole video come last.
        """
        own = [question for question in self.questions if question.video_id == video_id]
        return tuple(sorted(own, key=lambda question: first_asked_s(question)))


def first_asked_s(question: Question) -> float:
    """When a pass over the video meets a question; infinity: at the end."""
    return math.inf if question.ask_s is None else question.ask_s


class DatasetReader(ABC):
    """Reads one family of files. Reading opens no video.

    Contract, held by one test for all readers: identifiers are unique and stable; every question
    names a video that is listed; options are bare; ``gold`` is ``options[gold_index]``; times are
    finite and not negative; a missing video is reported, never raised; annotations that cannot be
    read raise :class:`DatasetError` with the name of the file.

    Args:
        folder: Download, or one annotation file of it.
        videos: Where the videos lie, if not in the folder.
        edition: Name of the edition to read; None: the first of which files are there.
    """

    #: What the table is called.
    title: ClassVar[str]

    def __init__(
        self, folder: Path, *, videos: Path | None = None, edition: str | None = None
    ) -> None:
        self.folder, self.videos, self.edition = folder, videos, edition

    @abstractmethod
    def load(self, name: str) -> Dataset:
        """Read the annotations and look for the videos.

        Args:
            name: Under which the dataset is registered; it is written into every result.

        Raises:
            DatasetError: No annotations of this dataset are there, or they cannot be read.
        """
