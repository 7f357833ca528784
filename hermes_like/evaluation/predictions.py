"""Predictions: one JSON line per answered question, appended, never rewritten.

A line holds everything that scoring needs, so neither dataset nor videos nor model are wanted
again. Knows the format and how a file of it stays whole. Knows nothing of scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hermes_like.errors import DatasetError
from hermes_like.evaluation.base import Dataset, Kind, Question

VERSION: Final = 1
#: What must be the same in every line of a result.
SETTINGS: Final = ("dataset", "edition_sha256", "config_hash", "protocol")
#: Times that differ by less are the same time.
EPSILON_S: Final = 1e-6


class Poll(BaseModel):
    """One time that a proactive question was asked whether its moment had come."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    at_s: float = Field(ge=0, description="stream time")
    reply: str = Field(description="as the model gave it")


class Prediction(BaseModel):
    """One answered question.

    Fields of the question are copied from the dataset by :func:`prediction_of`; the rest is what
    the run adds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    version: Literal[1] = VERSION
    dataset: str = Field(description="registered name of the reader")
    edition_sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the annotations")
    config_hash: str = Field(min_length=1, description="of everything that can change an answer")
    protocol: Literal["stream", "offline"] = Field(
        "stream", description="offline: the whole video was read before the first question"
    )

    question_id: str
    video_id: str
    item_id: str = Field("", description="entry that several test points share")
    position: int = Field(ge=0, description="place in the annotation files")
    kind: Kind
    category: str
    tags: Mapping[str, str] = {}
    question: str
    options: tuple[str, ...] = ()
    gold: str | None = Field(None, description="true answer in words; null: hidden")
    gold_index: int | None = Field(None, description="place of the true option")
    gold_s: float | None = Field(None, description="proactive: when the moment comes")

    ask_s: float | None = Field(None, ge=0, description="null: after the whole video")
    frames_seen: int = Field(0, ge=0, description="frames observed before the reply")
    last_frame_s: float | None = Field(None, description="time of the newest of them")
    reply: str | None = Field(None, description="as the model gave it; null: there is none")
    parsed: str | None = Field(None, description="as the runner understood it, for display only")
    polls: tuple[Poll, ...] = ()
    error: str | None = Field(None, description="why there is no reply")

    started_s: float | None = Field(None, description="wall time of the question, epoch seconds")
    ttft_s: float | None = None
    tpot_s: float | None = None
    num_tokens: int | None = None
    session: Mapping[str, Any] = Field(
        default_factory=dict,
        description="whatever the session tells: route, status, evidence, caps",
    )

    def line(self) -> str:
        """The prediction as one line of JSON, without the line end."""
        return json.dumps(self.model_dump(mode="json"), ensure_ascii=False)


def prediction_of(dataset: Dataset, question: Question, config_hash: str, **run: Any) -> Prediction:
    """A prediction with the fields of its question filled in.

    Args:
        dataset: That the question belongs to.
        question: What was asked.
        config_hash: Of everything that can change an answer.
        run: The other fields of :class:`Prediction`: reply, frames_seen, ttft_s and so on.
    """
    return Prediction(
        dataset=dataset.name,
        edition_sha256=dataset.edition.sha256,
        config_hash=config_hash,
        question_id=question.question_id,
        video_id=question.video_id,
        item_id=question.item_id,
        position=question.position,
        kind=question.kind,
        category=question.category,
        tags=dict(question.tags),
        question=question.text,
        options=question.options,
        gold=question.gold,
        gold_index=question.gold_index,
        gold_s=question.gold_s,
        ask_s=question.ask_s,
        **run,
    )


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a result holds, in the order of the annotations.

    Attributes:
        rows: At least one.
        num_torn: Files whose last line was cut off, as a killed run leaves it; it does not count.
    """

    rows: tuple[Prediction, ...]
    num_torn: int = 0

    @property
    def dataset(self) -> str:
        """Registered name, the same in all rows."""
        return self.rows[0].dataset

    @property
    def edition_sha256(self) -> str:
        """Hash of the annotations, the same in all rows."""
        return self.rows[0].edition_sha256

    @property
    def config_hash(self) -> str:
        """Hash of the settings, the same in all rows."""
        return self.rows[0].config_hash


def read_predictions(*paths: Path) -> Predictions:
    """Read one result, from one file or from the shards of several workers.

    Raises:
        DatasetError: A file or a line cannot be read (a torn last line can), the lines come from
            different datasets, editions or settings, a question is answered twice (an error may be
            followed by another attempt), a frame later than its question was seen, or there is no
            line at all.
    """
    rows: list[tuple[str, Prediction]] = []
    num_torn = 0
    for path in paths:
        found, is_torn = read_file(path)
        rows += found
        num_torn += is_torn
    if not rows:
        names = ", ".join(map(str, paths)) or "no file"
        raise DatasetError(f"{names}: expected predictions, got none")
    _check_settings(rows)
    rows = last_attempts(rows)
    _check_no_future(rows)
    ordered = sorted((row for _, row in rows), key=lambda row: row.position)
    return Predictions(tuple(ordered), num_torn)


def read_file(path: Path) -> tuple[list[tuple[str, Prediction]], bool]:
    """Lines with their place, and whether the last one was torn.

    Only a line with its end counts: a run writes both at once.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path}: expected predictions: {error.strerror}") from error
    *lines, rest = content.split(b"\n")
    is_torn = bool(rest.strip())
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}:{number}"
            rows.append((where, _parse(where, line)))
    if is_torn and (last := _whole(rest)) is not None:
        # An editor, or a hand, may leave out the last line end; nothing is lost then.
        rows.append((f"{path}:{len(lines) + 1}", last))
        is_torn = False
    return rows, is_torn


def _parse(where: str, line: bytes) -> Prediction:
    try:
        return Prediction.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "line"
        raise DatasetError(f"{where}: expected a prediction: {field}: {first['msg']}") from error


def _whole(line: bytes) -> Prediction | None:
    try:
        return Prediction.model_validate_json(line)
    except ValidationError:
        return None


def _check_settings(rows: Sequence[tuple[str, Prediction]]) -> None:
    first_where, first = rows[0]
    expected = tuple(getattr(first, name) for name in SETTINGS)
    for where, row in rows[1:]:
        came = tuple(getattr(row, name) for name in SETTINGS)
        if came != expected:
            raise DatasetError(mixed(first_where, expected, where, came))


def mixed(first: str, expected: Sequence[Any], where: str, came: Sequence[Any]) -> str:
    """Message for lines of two results: which of ``SETTINGS`` differs, and where."""
    name, wanted, got = next(
        (name, a, b) for name, a, b in zip(SETTINGS, expected, came, strict=True) if a != b
    )
    return f"{where}: expected {name} {wanted!r} as in {first}, got {got!r}"


def last_attempts(rows: Iterable[tuple[str, Prediction]]) -> list[tuple[str, Prediction]]:
    """One line per question: an error gives way to what came of the next attempt."""
    kept: dict[str, tuple[str, Prediction]] = {}
    for where, row in rows:
        known = kept.get(row.question_id)
        if known is not None and known[1].error is None:
            raise DatasetError(f"{where}: {row.question_id!r} is answered in {known[0]} already")
        kept[row.question_id] = (where, row)
    return list(kept.values())


def _check_no_future(rows: Iterable[tuple[str, Prediction]]) -> None:
    for where, row in rows:
        limit_s = row.polls[-1].at_s if row.polls else row.ask_s
        if limit_s is None or row.last_frame_s is None:
            continue
        if row.last_frame_s > limit_s + EPSILON_S:
            raise DatasetError(
                f"{where}: {row.question_id!r} was asked at {limit_s:g} s and a frame of "
                f"{row.last_frame_s:g} s had been seen: this result cannot be scored"
            )
