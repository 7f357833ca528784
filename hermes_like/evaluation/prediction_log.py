"""A file of predictions that grows line by line and can be taken up again after a kill.

Knows how lines are written and what may stand beside each other. Knows neither runs nor scores.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from hermes_like.errors import DatasetError
from hermes_like.evaluation.base import Dataset
from hermes_like.evaluation.predictions import (
    SETTINGS,
    Prediction,
    last_attempts,
    mixed,
    read_file,
)


class PredictionLog:
    """A file of predictions that is appended to, by one process.

    Opening it takes off a torn last line, so that the next one starts on a line of its own, and
    refuses lines of another dataset, edition or setting.

    Args:
        path: File; made with its folder if it is not there.
        dataset: Whose questions are answered.
        config_hash: Of everything that can change an answer.
        protocol: How the video is shown.

    Raises:
        DatasetError: The file holds something else, or another run writes to it.
    """

    def __init__(
        self, path: Path, dataset: Dataset, config_hash: str, protocol: str = "stream"
    ) -> None:
        self.path, self.config_hash = path, config_hash
        self._settings = (dataset.name, dataset.edition.sha256, config_hash, protocol)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        try:
            self._claim()
            rows = self._read_and_mend()
        except BaseException:
            self._file.close()
            raise
        #: One prediction per question, the last attempt.
        self.rows: dict[str, Prediction] = {row.question_id: row for row in rows}
        #: Questions that need no further attempt.
        self.done: set[str] = {row.question_id for row in rows if row.error is None}
        #: Those that ended with an error; they may be tried again.
        self.failed: set[str] = {row.question_id for row in rows if row.error is not None}

    def append(self, prediction: Prediction) -> None:
        """Write one line, in one call of the system.

        Raises:
            DatasetError: It belongs to another result, or the question is answered already.
        """
        came = tuple(getattr(prediction, name) for name in SETTINGS)
        if came != self._settings:
            raise DatasetError(mixed(self.path.name, self._settings, "a prediction", came))
        if prediction.question_id in self.done:
            raise DatasetError(f"{self.path}: {prediction.question_id!r} is answered already")
        self._file.write(prediction.line().encode() + b"\n")
        self.rows[prediction.question_id] = prediction
        if prediction.error is None:
            self.done.add(prediction.question_id)
            self.failed.discard(prediction.question_id)
        else:
            self.failed.add(prediction.question_id)

    def sync(self) -> None:
        """Wait until everything is on the disk; meant for the end of each video."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close; safe to call twice."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _claim(self) -> None:
        """Hold the file while it is open; the claim goes with the process, however that ends."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DatasetError(f"{self.path}: another run writes to it") from error

    def _read_and_mend(self) -> Sequence[Prediction]:
        if not self.path.stat().st_size:
            return ()
        found, is_torn = read_file(self.path)
        if is_torn:
            whole = self.path.read_bytes()
            os.truncate(self.path, whole.rfind(b"\n") + 1)
        for where, row in found:
            came = tuple(getattr(row, name) for name in SETTINGS)
            if came != self._settings:
                raise DatasetError(mixed("this run", self._settings, where, came))
        return [row for _, row in last_attempts(found)]
