"""One pass over one video: frames in order, every question at its time, nothing from the future.

Knows sessions and protocols. Knows neither files of predictions nor processes.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_like.errors import BudgetError, DatasetError, HermesError, SourceError
from hermes_like.evaluation.base import Dataset, Question
from hermes_like.evaluation.footage import EPSILON_S, footage
from hermes_like.evaluation.passes import Asking, Pass, askings
from hermes_like.evaluation.predictions import Poll, Prediction, prediction_of
from hermes_like.evaluation.prompts import poll_prompt, prompt_of, said_before, told_before
from hermes_like.evaluation.scoring import words
from hermes_like.evaluation.scoring.scores import verdicts_of
from hermes_like.evaluation.scratch import MakeSession, in_ram
from hermes_like.evaluation.settings import RunSettings
from hermes_like.models.base import ModelAdapter
from hermes_like.records import Answer
from hermes_like.session import StreamSession

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asked:
    """How far one question has come.

    Attributes:
        polls: Times at which it was asked whether its moment has come.
        answers: What the session gave, in order.
        started_s: Wall time of the first of them.
        num_untold: Earlier turns that did not fit into the prompt.
    """

    polls: list[Poll] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    started_s: float = 0.0
    num_untold: int = 0


class OnePass:
    """Watches one stretch of a video and answers its questions.

    Args:
        model: Shared by all passes.
        dataset: That the questions belong to.
        planned: What to watch and to ask.
        settings: How.
        config_hash: Written into every prediction.
        replies: What the model has said to questions of the same video before, by question.
        make: Opens the session.
    """

    def __init__(
        self,
        model: ModelAdapter,
        dataset: Dataset,
        planned: Pass,
        settings: RunSettings,
        config_hash: str,
        replies: Mapping[str, str | None] | None = None,
        make: MakeSession = in_ram,
    ) -> None:
        self.model, self.dataset, self.planned = model, dataset, planned
        self.settings, self.config_hash = settings, config_hash
        self._replies = dict(replies or {})
        self._make = make
        self._asked: dict[str, _Asked] = {}
        self._waiting = deque(askings(planned))
        self._finished: set[str] = set()
        #: Seen so far.
        self.num_frames, self.last_frame_s = 0, 0.0

    def predictions(self) -> Iterator[Prediction]:
        """One prediction per question, as they come.

        A video that is missing or breaks off gives predictions with ``error`` and no reply; so does
        a question that the session refuses.

        Raises:
            DatasetError: A frame later than a question was seen: nothing of this may be scored.
        """
        video = self.planned.video
        if video.path is None:
            yield from self.give_up(f"the video is missing: {video.reference}")
            return
        config = self.settings.config
        try:
            with (
                footage(video, self.planned.start_s, config.source) as frames,
                self._make(self.model, config, video.video_id) as session,
            ):
                for frame in frames:
                    yield from self._ask_until(session, frame.pts_s - EPSILON_S)
                    if not self._waiting:
                        return
                    session.observe(frame)
                    self.num_frames, self.last_frame_s = self.num_frames + 1, frame.pts_s
                yield from self._ask_until(session, math.inf)
        except SourceError as error:
            logger.warning("%s: %s", video.video_id, error)
            yield from self.give_up(f"the video is broken: {error}")

    # -- asking ----------------------------------------------------------------------------------

    def _ask_until(self, session: StreamSession, before_s: float) -> Iterator[Prediction]:
        """Ask everything whose time comes before the next frame's; infinity: everything."""
        while self._waiting and (before_s == math.inf or self._waiting[0].at_s < before_s):
            asking = self._waiting.popleft()
            if asking.question.question_id in self._finished:
                continue
            try:
                done = self._ask(session, asking)
            except (HermesError, ValueError) as error:
                if isinstance(error, DatasetError):
                    raise
                yield self._prediction(asking.question, error=str(error))
                continue
            if done is not None:
                yield done

    def _ask(self, session: StreamSession, asking: Asking) -> Prediction | None:
        """Ask once; the prediction if that ends the question."""
        self._require_past(session, asking)
        question = asking.question
        asked = self._asked.setdefault(question.question_id, _Asked(started_s=time.time()))
        if not asking.is_poll:
            self._put(session, question, asked)
            return self._prediction(question, reply=asked.answers[-1].text)
        # Whether its moment has come is a question about the present, whatever its words are.
        route = self.settings.route or "now"
        answer = session.ask(poll_prompt(question), route=route, keep_conversation=False)
        asked.answers.append(answer)
        asked.polls.append(Poll(at_s=asking.at_s, reply=answer.text))
        if words.yes_no(answer.text) == "yes":
            self._put(session, question, asked)
            return self._prediction(question, reply=asked.answers[-1].text)
        is_last = asking.at_s >= question.poll_s[-1]
        return self._prediction(question, reply="") if is_last else None

    def _put(self, session: StreamSession, question: Question, asked: _Asked) -> None:
        """Ask the question itself, with as many of the earlier turns as fit, the latest first."""
        earlier = [
            *told_before(self.dataset, question),
            *said_before(self.dataset, question, self._replies),
        ]
        while True:
            prompt = prompt_of(self.dataset.name, question, earlier)
            try:
                answer = self._answer(session, question, prompt)
                break
            except BudgetError:
                if not earlier:
                    raise
                del earlier[0]
                asked.num_untold += 1
        asked.answers.append(answer)
        self._replies[question.question_id] = answer.text

    def _answer(self, session: StreamSession, question: Question, prompt: str) -> Answer:
        """Ask with a prompt, where the route goes by the question alone.

        Options, instructions and earlier turns hold words and times that say nothing about where to
        look.
        """
        route = self.settings.route
        if prompt == question.text or question.kind in ("count", "yes_no"):
            return session.ask(prompt, route=route, keep_conversation=False)
        return session.ask(question.text, prompt=prompt, route=route, keep_conversation=False)

    def _require_past(self, session: StreamSession, asking: Asking) -> None:
        """No frame later than the question, by the session's own clock."""
        stats = session.stats()
        if stats.num_frames != self.num_frames:
            raise DatasetError(
                f"{asking.question.question_id!r}: {self.num_frames} frames were shown and the "
                f"session has seen {stats.num_frames}"
            )
        if stats.num_frames and stats.stream_s > asking.at_s + EPSILON_S:
            raise DatasetError(
                f"{asking.question.question_id!r} is asked at {asking.at_s:g} s and a frame of "
                f"{stats.stream_s:g} s has been seen: the run is wrong"
            )

    # -- what comes of it ------------------------------------------------------------------------

    def give_up(self, problem: str) -> Iterator[Prediction]:
        """Every question that is left, with the reason."""
        for question in self.planned.questions:
            if question.question_id not in self._finished:
                yield self._prediction(question, error=problem)

    def _prediction(
        self, question: Question, *, reply: str | None = None, error: str | None = None
    ) -> Prediction:
        self._finished.add(question.question_id)
        asked = self._asked.get(question.question_id, _Asked())
        last = asked.answers[-1] if asked.answers and error is None else None
        timings: dict[str, Any] = {}
        if last is not None:
            timings = {"ttft_s": last.ttft_s, "tpot_s": last.tpot_s, "num_tokens": last.num_tokens}
        prediction = prediction_of(
            self.dataset,
            question,
            self.config_hash,
            reply=reply,
            error=error,
            polls=tuple(asked.polls),
            frames_seen=self.num_frames,
            # Without a reply no frame was used for one.
            last_frame_s=self.last_frame_s if self.num_frames and error is None else None,
            started_s=asked.started_s or None,
            session={} if last is None else self._told(last, asked),
            **timings,
        )
        if error is not None:
            return prediction
        (verdict,) = verdicts_of([prediction], "strict")
        return prediction.model_copy(update={"parsed": verdict.parsed})

    def _told(self, answer: Answer, asked: _Asked) -> dict[str, Any]:
        """What the session tells about its last answer."""
        told: dict[str, Any] = {
            "route": answer.route,
            "status": answer.status,
            "asked_at_s": answer.asked_at_s,
            "evidence": [[span.start_s, span.end_s] for span in answer.evidence],
            "from_s": self.planned.start_s,
        }
        if answer.missing:
            told["missing"] = [[m.start_s, m.end_s, m.reason] for m in answer.missing]
        if asked.num_untold:
            told["turns_left_out"] = asked.num_untold
        return told
