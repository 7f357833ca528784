"""Carries out passes one after the other, here, in a process of its own, or on another machine.

Messages are plain JSON objects, so that every kind of worker speaks the same language. Knows models
and passes; knows no file of predictions: whoever reads the messages writes.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pydantic import BaseModel, ConfigDict

from hermes_like.config import ModelConfig
from hermes_like.errors import DatasetError, HermesError
from hermes_like.evaluation import load_dataset
from hermes_like.evaluation.base import Dataset
from hermes_like.evaluation.passes import Pass
from hermes_like.evaluation.prompts import prompt_of
from hermes_like.evaluation.settings import RunSettings

if TYPE_CHECKING:
    from hermes_like.models.base import ModelAdapter

logger = logging.getLogger(__name__)


class Setup(BaseModel):
    """What a worker needs to know before its first pass.

    Attributes:
        dataset: Registered name.
        folder: The download, where the worker sees it.
        videos: Where the videos lie, if not in the folder.
        edition: Which edition.
        edition_sha256: Of the annotations that everyone must see.
        settings: How to run.
        scratch: Where the past is kept while a pass runs; None: in RAM.
        place: Running number of the worker; picks the accelerator where there are several.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    folder: Path
    videos: Path | None = None
    edition: str | None = None
    edition_sha256: str
    settings: RunSettings
    scratch: Path | None = None
    place: int = 0


class Job(BaseModel):
    """One pass, by names.

    Attributes:
        video_id: Which video.
        start_s: First second that is shown.
        question_ids: What is asked, in order.
        replies: What the model said to earlier turns of the same conversations.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    video_id: str
    start_s: float
    question_ids: tuple[str, ...]
    replies: dict[str, str | None] = {}


class Worker:
    """A loaded model and a dataset, ready for passes.

    Args:
        setup: What to run.
        dataset: Read already, where that is in this process.
        model: Loaded already.

    Raises:
        DatasetError: The annotations here are not those of the run.
        ModelError: The model cannot be loaded.
    """

    def __init__(
        self, setup: Setup, dataset: Dataset | None = None, model: ModelAdapter | None = None
    ) -> None:
        self.setup = setup
        if dataset is None:
            dataset = load_dataset(
                setup.dataset, setup.folder, videos=setup.videos, edition=setup.edition
            )
        if dataset.edition.sha256 != setup.edition_sha256:
            raise DatasetError(
                f"{setup.folder}: expected annotations {setup.edition_sha256[:12]} as the run has "
                f"them, got {dataset.edition.sha256[:12]}"
            )
        # Only now: what is wrong with the annotations is said without waiting for torch.
        from hermes_like.evaluation.scratch import in_ram, on_disk

        self.dataset = dataset
        self.model = load(setup.settings.config.model, setup.place) if model is None else model
        # What does not fit the model is said now, and not once per question.
        self._make = in_ram if setup.scratch is None else on_disk(setup.scratch)
        with self._make(self.model, setup.settings.config, "check"):
            pass
        self._warn_of_long_prompts()
        self._questions = {question.question_id: question for question in dataset.questions}
        self.config_hash = setup.settings.hash_with(identity_of(self.model))

    def _warn_of_long_prompts(self) -> None:
        """Say before the first video that prompts will be refused: another limit is another run."""
        prompts = (prompt_of(self.dataset.name, question) for question in self.dataset.questions)
        longest = max(prompts, key=len)
        num_tokens = len(self.model.question_ids(longest, is_first=True))
        most = self.setup.settings.config.memory.question_tokens
        if num_tokens > most:
            logger.warning(
                "memory.question_tokens is %d; a question has %d tokens with its options and will "
                "be refused",
                most,
                num_tokens,
            )

    def work(self, job: Job) -> Iterator[dict[str, Any]]:
        """Carry out one pass.

        Yields:
            ``{"row": prediction}`` per question, and ``{"done": seconds, "frames": number}``.

        Raises:
            DatasetError: A frame later than a question was seen.
        """
        from hermes_like.evaluation.one_pass import OnePass

        started_s = time.perf_counter()
        questions = tuple(self._questions[name] for name in job.question_ids)
        planned = Pass(self.dataset.videos[job.video_id], job.start_s, questions)
        one = OnePass(
            self.model,
            self.dataset,
            planned,
            self.setup.settings,
            self.config_hash,
            job.replies,
            self._make,
        )
        try:
            for prediction in one.predictions():
                yield {"row": prediction.model_dump(mode="json")}
        except DatasetError:
            raise
        except Exception as error:  # whatever one video does, the others are run
            logger.error("%s: %s", job.video_id, error, exc_info=error)
            for prediction in one.give_up(f"the run failed: {type(error).__name__}: {error}"):
                yield {"row": prediction.model_dump(mode="json")}
        yield {"done": time.perf_counter() - started_s, "frames": one.num_frames}


def load(config: ModelConfig, place: int = 0) -> ModelAdapter:
    """Load a model for one worker of several.

    On a CPU one thread each: then sums are added in the same order whoever does them, and workers
    do not take cores from each other. Several accelerators are shared out in turn.
    """
    import torch

    from hermes_like.models import load_model

    count = torch.cuda.device_count()
    if config.device == "auto" and config.device_map is None and count > 1:
        config = config.model_copy(update={"device": f"cuda:{place % count}"})
    model = load_model(config)
    if model.dims.device.type == "cpu":
        torch.set_num_threads(1)
    return model


def identity_of(model: ModelAdapter) -> dict[str, Any]:
    """What tells a loaded model from others, for the hash of the settings."""
    return model.identity() | {"device": model.dims.device.type}


def serve(requests: TextIO, replies: TextIO) -> int:
    """Be a worker for another process: JSON lines in, JSON lines out.

    The first line is a :class:`Setup`, every further one a :class:`Job`. The end of the input ends
    the process, in the middle of a pass too: whoever wanted it is gone.

    Returns:
        Exit status.
    """
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    setup = Setup.model_validate_json(requests.readline())
    threading.Thread(target=_read, args=(requests, jobs), daemon=True).start()
    try:
        worker = Worker(setup)
        _say(replies, {"ready": worker.config_hash})
        while True:
            job = Job.model_validate_json(jobs.get())
            for message in worker.work(job):
                _say(replies, message)
    except HermesError as error:
        _say(replies, {"failed": str(error)})
    return 1


def _read(requests: TextIO, jobs: queue.SimpleQueue[str]) -> None:
    for line in requests:
        jobs.put(line)
    os._exit(0)


def _say(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message, ensure_ascii=False) + "\n")
    replies.flush()


def own_stdout() -> TextIO:
    """The process's stdout, taken so that nobody else can write to it; prints go to stderr."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(ours, "w", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(serve(sys.stdin, own_stdout()))
