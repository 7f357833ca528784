"""A dataset from end to end: what is missing is run, what is answered already is left alone.

Puts passes, workers and the file of predictions together. Knows no protocol and no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_like.evaluation.base import Dataset
from hermes_like.evaluation.beside import check_beside, write_beside
from hermes_like.evaluation.check import Absent
from hermes_like.evaluation.crew import Crew
from hermes_like.evaluation.hands import Hand, LocalHand, ProcessHand
from hermes_like.evaluation.passes import Pass, Selection, plan_passes
from hermes_like.evaluation.prediction_log import PredictionLog
from hermes_like.evaluation.predictions import Prediction, prediction_of
from hermes_like.evaluation.scoring.scores import verdicts_of
from hermes_like.evaluation.settings import RunSettings
from hermes_like.evaluation.standing import RunReport, Standing, Watcher
from hermes_like.evaluation.worker import Job, Setup

if TYPE_CHECKING:
    from hermes_like.models.base import ModelAdapter


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dataset lies, so that a worker elsewhere can read it as well.

    Attributes:
        folder: The download.
        videos: Where the videos lie, if not in the folder.
        edition: Which edition was asked for.
        scratch: Where the past is kept while a video is watched; None: in RAM.
    """

    folder: Path
    videos: Path | None = None
    edition: str | None = None
    scratch: Path | None = None


def run(
    dataset: Dataset,
    place: Place,
    settings: RunSettings,
    out: Path,
    *,
    selection: Selection | None = None,
    num_workers: int = 1,
    hands: Callable[[Setup, int], Sequence[Hand]] | None = None,
    model: ModelAdapter | None = None,
    watch: Watcher | None = None,
) -> RunReport:
    """Run what of a dataset has no answer yet, and append it to a file of predictions.

    Args:
        dataset: As a reader gave it.
        place: Where it was read from.
        settings: How to run it.
        out: File of predictions; made if it is not there.
        selection: Which part of the dataset.
        num_workers: Videos at a time; more than one: in processes of their own.
        hands: Makes other workers than those.
        model: Loaded already; only for one worker.
        watch: Told how it goes.

    Raises:
        DatasetError: The file holds another result, another run writes to it, or a frame later than
            its question was seen.
        HermesError: The model cannot be used, or every worker died.
    """
    started_s = time.perf_counter()
    setup = Setup(
        dataset=dataset.name,
        folder=place.folder.resolve(),
        videos=None if place.videos is None else place.videos.resolve(),
        edition=place.edition,
        edition_sha256=dataset.edition.sha256,
        settings=settings.model_copy(update={"on_disk": place.scratch is not None}),
        scratch=None if place.scratch is None else place.scratch.resolve(),
    )
    settings = setup.settings
    passes = plan_passes(dataset, selection, settings.context)
    with ExitStack() as stack:
        if hands is not None:
            workers = hands(setup, num_workers)
        elif num_workers == 1:
            workers = [LocalHand(setup, dataset, model)]
        else:
            workers = [
                ProcessHand(setup.model_copy(update={"place": number}))
                for number in range(num_workers)
            ]
        for worker in workers:
            stack.callback(worker.close)
        config_hash = workers[0].start()
        check_beside(out, settings, config_hash)
        log = stack.enter_context(PredictionLog(out, dataset, config_hash))
        write_beside(out, settings, config_hash)
        notes = _Notes(dataset, passes, log, watch)
        crew = Crew(
            workers,
            notes.open_passes(),
            config_hash,
            job_of=notes.job_of,
            take=notes.take,
            give_up=notes.give_up,
            on_done=notes.on_done,
        )
        notes.tell()
        crew.run()
        return notes.report(out, config_hash, crew.num_lost, time.perf_counter() - started_s)


@dataclass(slots=True)
class _Notes:
    """The file of predictions with what the run knows about it."""

    dataset: Dataset
    passes: Sequence[Pass]
    log: PredictionLog
    watch: Watcher | None
    standing: Standing = field(default_factory=Standing)
    num_frames: int = 0
    closed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        wanted = [q.question_id for planned in self.passes for q in planned.questions]
        videos = {planned.video.video_id for planned in self.passes}
        self.standing.num_videos, self.standing.num_questions = len(videos), len(wanted)
        for name in wanted:
            if name in self.log.done:
                self.standing.num_reused += 1
                self._count(self.log.rows[name])

    def open_passes(self) -> list[Pass]:
        """Passes with questions that have no answer; of missing videos there is nothing to run."""
        found = []
        for planned in self.passes:
            left = planned.without(self.log.done)
            if not left.questions:
                self._close_video(planned)
            elif planned.video.path is None:
                self.give_up(left, f"the video is missing: {planned.video.reference}")
                self._close_video(planned)
            else:
                found.append(left)
        return found

    def job_of(self, planned: Pass) -> Job:
        """The message for a pass."""
        names = tuple(question.question_id for question in planned.questions)
        threads = {question.thread for question in planned.questions} - {None}
        replies = {
            other.question_id: self.log.rows[other.question_id].reply
            for other in self.dataset.questions
            if other.thread in threads
            and other.conversation == "own_history"
            and other.question_id in self.log.done
        }
        return Job(
            video_id=planned.video.video_id,
            start_s=planned.start_s,
            question_ids=names,
            replies=replies,
        )

    def take(self, row: dict[str, Any]) -> None:
        """Write a prediction."""
        self._append(Prediction.model_validate(row))

    def give_up(self, planned: Pass, problem: str) -> None:
        """Write down that questions have no reply, and why."""
        for question in planned.questions:
            config_hash = self.log.config_hash
            self._append(prediction_of(self.dataset, question, config_hash, error=problem))

    def on_done(self, planned: Pass, num_frames: int) -> None:
        """A pass has ended."""
        self.num_frames += num_frames
        self.log.sync()
        self._close_video(planned)
        self.tell()

    def tell(self) -> None:
        """Show how far the run is."""
        if self.watch is not None:
            self.watch(self.standing)

    def report(self, path: Path, config_hash: str, num_lost: int, seconds: float) -> RunReport:
        """What came of it."""
        absent: dict[str, Absent] = {}
        refused = []
        for planned in self.passes:
            video = planned.video
            for question in planned.questions:
                row = self.log.rows.get(question.question_id)
                if row is None or row.error is None:
                    continue
                if not row.error.startswith("the video is "):
                    refused.append((question.question_id, row.error))
                    continue
                known = absent.get(video.video_id)
                num = 1 if known is None else known.num_questions + 1
                problem = "" if video.path is None else row.error
                absent[video.video_id] = Absent(
                    video.video_id, video.reference, num, problem, video.path
                )
        return RunReport(
            path,
            config_hash,
            self.standing,
            tuple(absent.values()),
            tuple(refused),
            num_lost,
            self.num_frames,
            seconds,
            tuple(q.question_id for planned in self.passes for q in planned.questions),
        )

    def _append(self, row: Prediction) -> None:
        known = self.log.rows.get(row.question_id)
        if known is None or known.error is None or known.error != row.error:
            # The same failure again is no news, however often the run is repeated.
            self.log.append(row)
        self._count(row)
        self.tell()

    def _count(self, row: Prediction) -> None:
        (verdict,) = verdicts_of([row], "strict")
        self.standing.num_done += 1
        if not verdict.dropped:
            self.standing.num_scored += 1
            self.standing.num_right += verdict.score

    def _close_video(self, planned: Pass) -> None:
        names = {
            question.question_id
            for other in self.passes
            if other.video.video_id == planned.video.video_id
            for question in other.questions
        }
        if names <= self.log.rows.keys():
            self.closed.add(planned.video.video_id)
            self.standing.num_videos_done = len(self.closed)
