"""Puts a dataset together row by row and keeps a list of what was odd about the rows.

Knows the records and how identifiers stay unique. Knows no format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_like.evaluation import fields
from hermes_like.evaluation.base import (
    AnnotationFile,
    Conversation,
    Dataset,
    Edition,
    Finding,
    Kind,
    Question,
    Video,
    first_asked_s,
)
from hermes_like.evaluation.files import combined_sha256, sha256_of
from hermes_like.evaluation.listing import Listing, Reference

YES_NO = ("yes", "no")


class Builder:
    """Collects videos, questions and findings.

    Args:
        listing: Where videos are looked for.
    """

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.remarks: list[str] = []
        self._videos: dict[str, Video] = {}
        self._questions: dict[str, Question] = {}
        self._findings: list[Finding] = []
        self._asked: set[tuple[object, ...]] = set()

    def note(self, code: str, where: str, message: str) -> None:
        """Add a finding; see :class:`~hermes_like.evaluation.base.Finding` for the codes."""
        self._findings.append(Finding(code, where, message))

    def video(
        self,
        video_id: str,
        *references: str | Reference,
        start_s: float = 0.0,
        end_s: float | None = None,
        duration_s: Any = None,
        fps: float | None = None,
    ) -> str:
        """Add a stream if it is new, and return its identifier.

        Args:
            video_id: Wanted identifier; another one is given where it is taken by another stream.
            references: Names by which to look for the file, best first.
            start_s: Where the stream begins in the file.
            end_s: Where it ends.
            duration_s: As annotated; what is no number is left out.
            fps: Of a folder of pictures.
        """
        first = references[0]
        reference = first if isinstance(first, str) else first.text
        key, count = video_id, 1
        while (known := self._videos.get(key)) is not None:
            if (known.reference, known.start_s, known.end_s) == (reference, start_s, end_s):
                return key
            count += 1
            key = f"{video_id}~{count}"
        found = self.listing.find(*references)
        if found is not None and found.others:
            others = ", ".join(map(str, found.others[:3]))
            self.note("video", reference, f"{found.path} taken; fit as well: {others}")
        self._videos[key] = Video(
            key,
            reference,
            None if found is None else found.path,
            start_s,
            end_s,
            _number(duration_s),
            fps,
        )
        return key

    def choice(
        self, where: str, options: Sequence[str], answer: Any, encoding: str
    ) -> tuple[tuple[str, ...], str | None, int | None]:
        """Options without letters, the true one in words, and its place.

        An answer that fits no option is kept in words with no place: no reply can be right then.

        Args:
            where: For findings.
            options: As they stand in the row.
            answer: As it stands in the row; None: hidden.
            encoding: ``letter``, ``index`` (from 0) or ``text``.
        """
        bare, remarks = fields.bare_options(options)
        for remark in remarks:
            self.note("options", where, remark)
        if answer is None:
            return bare, None, None
        try:
            index = self._index(where, bare, answer, encoding)
        except ValueError as error:
            self.note("gold", where, f"{error}; no reply can be right")
            return bare, str(answer), None
        return bare, bare[index], index

    def ask_s(self, where: str, value: Any) -> float | None:
        """A time, with a finding for an odd spelling; None stays None.

        Raises:
            ValueError: It is no time.
        """
        if value is None:
            return None
        at_s, remark = fields.seconds(value)
        if remark is not None:
            self.note("stamp", where, remark)
        return at_s

    def add(
        self,
        question_id: str,
        video_id: str,
        text: Any,
        kind: Kind,
        category: str,
        ask_s: float | None,
        *,
        options: tuple[str, ...] = (),
        gold: str | None = None,
        gold_index: int | None = None,
        start_s: float = 0.0,
        poll_s: tuple[float, ...] = (),
        gold_s: float | None = None,
        evidence: tuple[tuple[float, float], ...] = (),
        item_id: str = "",
        conversation: Conversation = "independent",
        thread: str | None = None,
        tags: Mapping[str, str] | None = None,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a question; the arguments are the fields of ``Question``.

        Raises:
            ValueError: It has no text, or fewer than two options to choose from.
        """
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"expected the text of a question, got {text!r}")
        if kind == "choice" and len(options) < 2:
            raise ValueError(f"expected options to choose from, got {list(options)}")
        unique = self._unique(question_id)
        asked = (video_id, text, ask_s, options, start_s, item_id if kind != "choice" else "")
        if asked in self._asked:
            self.note("duplicate", unique, "the same question at the same time; both are kept")
        self._asked.add(asked)
        self._questions[unique] = Question(
            unique,
            video_id,
            len(self._questions),
            text.strip(),
            kind,
            category,
            ask_s,
            options=options,
            gold=gold,
            gold_index=gold_index,
            start_s=start_s,
            poll_s=poll_s,
            gold_s=gold_s,
            evidence=evidence,
            item_id=item_id or unique,
            conversation=conversation,
            thread=thread,
            tags=dict(tags or {}),
            raw=raw or {},
        )

    def build(
        self, name: str, edition: str, files: Mapping[str, int], usual: tuple[int, int] | None
    ) -> Dataset:
        """The dataset.

        Args:
            name: Registered name.
            edition: Which shape the files have.
            files: Relative path of each file to the number of its rows.
            usual: Videos and questions of a complete copy.
        """
        read = tuple(
            AnnotationFile(path, sha256_of(self.listing.root / path), rows)
            for path, rows in files.items()
        )
        sha256 = combined_sha256(file.sha256 for file in read)
        self._note_order()
        self._note_late()
        asked = {question.video_id for question in self._questions.values()}
        videos = {key: video for key, video in self._videos.items() if key in asked}
        return Dataset(
            name,
            Edition(edition, sha256, read, usual),
            videos,
            tuple(self._questions.values()),
            tuple(self._findings),
            tuple(self.remarks),
        )

    def _index(self, where: str, options: Sequence[str], answer: Any, encoding: str) -> int:
        if encoding == "text":
            index, remark = fields.index_of_text(options, answer)
            if remark is not None:
                self.note("gold", where, f"{remark}; the first is taken")
            return index
        index = fields.index_of_letter(answer) if encoding == "letter" else int(answer)
        if not 0 <= index < len(options):
            raise ValueError(f"answer {answer!r} is out of the {len(options)} options")
        return index

    def _unique(self, question_id: str) -> str:
        key, count = question_id, 1
        while key in self._questions:
            count += 1
            key = f"{question_id}~{count}"
        if key != question_id:
            self.note("duplicate", question_id, f"identifier used before; called {key}")
        return key

    def _note_order(self) -> None:
        last_s: dict[str, float] = {}
        told = set()
        for question in self._questions.values():
            at_s = first_asked_s(question)
            if at_s < last_s.get(question.video_id, 0.0) and question.video_id not in told:
                told.add(question.video_id)
                self.note("order", question.video_id, "questions are not in order of time")
            last_s[question.video_id] = at_s

    def _note_late(self) -> None:
        for question in self._questions.values():
            duration_s = self._videos[question.video_id].duration_s
            if question.ask_s is not None and duration_s and question.ask_s > duration_s + 1:
                self.note(
                    "late",
                    question.question_id,
                    f"asked at {question.ask_s:g} s of a video of {duration_s:g} s",
                )


def yes_no(answer: Any) -> str | None:
    """``yes`` or ``no`` if the answer is just that, else None."""
    plain = str(answer).strip().strip(".!").casefold()
    return plain if plain in YES_NO else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number, _ = fields.seconds(value)
    except ValueError:
        return None
    return number
