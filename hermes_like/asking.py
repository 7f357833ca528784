"""Questions at the door: planned, then answered by code, by a scan, or by the model.

It knows plans, routes and what there is footage of. It does not know how frames become memory.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from hermes_like.answer import NO_FOOTAGE, Answerer, AnswerStream, Request
from hermes_like.config import AnswerConfig, HermesConfig
from hermes_like.consult import Consultant, Consulted, Search
from hermes_like.directions import (
    covered,
    is_instant,
    is_sure,
    max_neighbours,
    missing_notes,
    scan_evidence,
    scan_text,
    search_range,
    stale,
)
from hermes_like.long_term import LongTermMemory
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.provenance import FrameTable
from hermes_like.models.base import ModelAdapter
from hermes_like.pace import Pace
from hermes_like.records import Answer, AnswerStatus, MissingSpan, Route
from hermes_like.resume import SessionState
from hermes_like.retrieval.clock import StreamClock
from hermes_like.retrieval.planner import Plan, plan_question
from hermes_like.retrieval.queries import search_share
from hermes_like.scan import Scanner

#: Most spans that a scan lists.
MAX_SCAN_SPANS = 1000

Progress = Callable[[int, int], None]
Fork = Callable[[], AbstractContextManager[tuple[HierarchicalCache, FrameTable]]]


@dataclass(frozen=True, slots=True)
class _Question:
    """One question on its way.

    Attributes:
        config: How to generate.
        started_s: Clock reading when it came.
        until_s: Clock reading at which the first text should come; None: no hurry.
        asked_at_s: Stream time of the present.
        missing: What there is no footage of in the time that it is about.
        notes: Sentences to go with the answer.
        prompt: What the model is asked in place of the question; None: the question.
    """

    config: AnswerConfig
    started_s: float
    until_s: float | None = None
    asked_at_s: float = 0.0
    missing: tuple[MissingSpan, ...] = ()
    notes: tuple[str, ...] = ()
    prompt: str | None = None


class Desk:
    """Takes the questions of one session.

    Args:
        memory: On the device.
        long_term: Off the device; None: nothing is kept there.
        answerer: Asks the model.
        config: The whole configuration.
        state: The session's state as it is now.
        fork: Opens a cache that holds everything seen so far.
        lock: Guards state and memories.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        long_term: LongTermMemory | None,
        answerer: Answerer,
        config: HermesConfig,
        state: Callable[[], SessionState],
        fork: Fork,
        lock: threading.RLock,
    ) -> None:
        self.memory, self.long_term, self.config = memory, long_term, config
        self.model: ModelAdapter = memory.adapter
        self._answerer, self._get_state, self._fork, self._lock = answerer, state, fork, lock
        #: Why nothing can be seen at present; None: frames come.
        self.trouble: str | None = None
        self.pace = Pace()
        if long_term is not None:
            self.pace = Pace(search_share(long_term.heads, self.model.dims.num_layers))
            self._consultant = Consultant(memory, long_term, config.retrieval, self.pace)
            self.scanner = Scanner(memory, long_term, config.retrieval)

    @property
    def _state(self) -> SessionState:
        return self._get_state()

    def stream(
        self,
        question: str,
        *,
        prompt: str | None,
        route: Route | None,
        since_s: float | None,
        until_s: float | None,
        on_progress: Progress | None,
        now_s: float | None,
        deadline_s: float | None,
        overrides: Mapping[str, Any],
    ) -> AnswerStream:
        """See :meth:`StreamSession.ask_stream`."""
        started_s = time.perf_counter()
        if not question.strip():
            raise ValueError("question: expected some words, got none")
        if prompt is not None and not prompt.strip():
            raise ValueError("prompt: expected some words or None, got none")
        config = AnswerConfig.model_validate(self.config.answer.model_dump() | dict(overrides))
        if deadline_s is not None and math.isnan(deadline_s):
            raise ValueError("deadline_s: expected a number of seconds, got nan")
        with self._lock:
            clock = self.clock(now_s)
            blind = self._blind(clock.now_s)
        due_s = None if deadline_s is None else started_s + deadline_s
        asked = _Question(config, started_s, due_s, clock.now_s, prompt=prompt)
        if self.long_term is None:
            return self._from_device(question, self._of_now(asked, clock, blind))
        with self._lock:
            footage = self._footage(self.long_term)
            lost = [*self._lost(self.long_term), *blind]
        plan = plan_question(
            question,
            clock=clock,
            config=self.config.retrieval,
            route=route,
            since_s=since_s,
            until_s=until_s,
        )
        if not self._state.num_frames:
            return self._ready(question, NO_FOOTAGE, "no_footage")
        told, missing = covered(plan, clock, footage, lost)
        if told is not None:
            return self._ready(question, told.text, told.status, plan.route, told.missing)
        notes = (*plan.notes, *missing_notes(missing, clock))
        asked = replace(asked, missing=missing, notes=notes)
        if plan.route == "now":
            asked = self._of_now(asked, clock, blind)
        if plan.route == "scan" and prompt is None:
            text = self.model.scan_question(plan.text)
            if text is not None and not self.model.unknown_words(text):
                return self._scan(plan, text, clock, asked, on_progress)
        if plan.route == "scan":
            plan = replace(plan, route="recall")
        return self._from_memory(plan, asked)

    def _of_now(
        self, asked: _Question, clock: StreamClock, blind: Sequence[MissingSpan]
    ) -> _Question:
        """A question about the present, which may be some time after the newest frame."""
        notes, missing = stale(self._state.last_s, blind, clock)
        return replace(asked, notes=(*asked.notes, *notes), missing=(*asked.missing, *missing))

    def _from_device(self, question: str, asked: _Question) -> AnswerStream:
        """Answer from what is resident, where nothing else is kept."""
        told = self._unknown(question, asked.prompt)
        if told is not None:
            return told
        if not self._state.num_frames:
            return self._ready(question, NO_FOOTAGE, "no_footage")
        return self._answerer.stream(
            replace(self._request(question, asked), prompt=asked.prompt or "")
        )

    def _unknown(self, question: str, prompt: str | None = None) -> AnswerStream | None:
        unknown = self.model.unknown_words(question if prompt is None else prompt)
        if not unknown:
            return None
        words = ", ".join(repr(word) for word in unknown)
        return self._ready(question, f"This model does not know {words}.", "ok")

    def _request(self, question: str, asked: _Question) -> Request:
        state = self._state
        return Request(
            question,
            asked.config,
            state.name,
            asked.asked_at_s,
            asked.started_s,
            self._fork,
            notes=asked.notes,
            missing=asked.missing,
            note_prefill=self.pace.note_prefill,
        )

    def _from_memory(self, plan: Plan, asked: _Question) -> AnswerStream:
        """Answer from what is resident and what comes back."""
        prompt = self._prompt(plan, asked)
        told = self._unknown(plan.question, prompt)
        if told is not None:
            return told
        start_s, end_s = search_range(plan)
        search = Search(
            route=plan.route,
            prompt=self.model.question_ids(prompt, is_first=True),
            start_s=start_s,
            end_s=end_s,
            is_gated=plan.route == "recall" and not is_sure(plan),
            neighbour_frames=max_neighbours(plan, self.config.retrieval),
            is_instant=is_instant(plan),
            until_s=asked.until_s,
            check=self._check(plan),
        )

        def consult(cache: HierarchicalCache, table: FrameTable) -> Consulted:
            return self._consultant.consult(search, cache, table)

        request = replace(
            self._request(plan.question, asked),
            prompt=prompt,
            consult=None if plan.route == "now" else consult,
            keyframe=self._keyframe_name,
        )
        return self._answerer.stream(request)

    def _prompt(self, plan: Plan, asked: _Question) -> str:
        """What the model is asked; a time that was looked up is left out of the question alone."""
        text = self.model.present_question(plan.text) if plan.route == "time" else plan.text
        return text if asked.prompt is None else asked.prompt.replace(plan.question, text)

    def _check(self, plan: Plan) -> list[int] | None:
        """What tells frames that show the thing from look-alikes, as token ids."""
        text = self.model.scan_question(plan.text)
        if text is None or self.model.unknown_words(text):
            return None
        return self.model.question_ids(text, is_first=True)

    def _scan(
        self,
        plan: Plan,
        text: str,
        clock: StreamClock,
        asked: _Question,
        on_progress: Progress | None,
    ) -> AnswerStream:
        """Answer by asking about one frame after the other."""
        result: list[Answer] = []

        def pieces() -> Iterator[str]:
            start_s, end_s = search_range(plan)
            with self._fork() as (cache, table):
                found = self.scanner.scan(
                    text,
                    cache,
                    table,
                    start_s=start_s,
                    end_s=end_s,
                    is_first_enough=plan.scan_kind == "exists",
                    on_progress=on_progress,
                    until_s=asked.until_s,
                )
            holes = (*asked.missing, *found.missing)
            notes = asked.notes
            if not found.is_complete:
                looked = f"{found.asked} frames were asked about"
                note = f"The time ran out before everything was looked at: {looked}."
                notes = (*notes, note)
            answer = Answer(
                text=scan_text(plan, found, clock),
                status="partial" if holes or not found.is_complete else "ok",
                evidence=scan_evidence(
                    found, self._state.name, max(asked.config.evidence_spans, MAX_SCAN_SPANS)
                ),
                missing=holes,
                route="scan",
                stream=self._state.name,
                question=plan.question,
                asked_at_s=asked.asked_at_s,
                ttft_s=time.perf_counter() - asked.started_s,
                notes=notes,
            )
            yield answer.text
            result.append(answer)

        return AnswerStream(pieces(), result)

    # -- what is known of time -------------------------------------------------------------------

    def clock(self, now_s: float | None = None) -> StreamClock:
        """Times as they are now; a camera that is silent has a present of its own."""
        wall = self._state.wall_at_zero
        zero = None if wall is None else datetime.fromisoformat(wall)
        state = self._state
        present_s = state.last_s if now_s is None else max(state.last_s, now_s)
        return StreamClock(present_s, state.first_s, zero)

    def _footage(self, long_term: LongTermMemory) -> list[tuple[float, float]]:
        """Stretches of stream time that can be looked at."""
        spans = long_term.timeline.footage()
        newest = long_term.timeline.newest
        spans += [
            (record.pts_s, self.memory.frames.end_of(frame))
            for frame, record in self.memory.frames.items()
            if newest is None or frame >= newest.end_frame
        ]
        return [*spans, (self._state.last_s, self._state.last_s)]

    def _blind(self, now_s: float) -> list[MissingSpan]:
        """When nothing could be seen, up to the present, and why."""
        blind = [
            MissingSpan(start, min(end, now_s), reason)
            for start, end, reason in self._state.blind
            if start < now_s
        ]
        last_s = max([self._state.last_s, *(span.end_s for span in blind)])
        if self.trouble is not None and now_s > last_s:
            blind.append(MissingSpan(last_s, now_s, self.trouble))
        return blind

    def _lost(self, long_term: LongTermMemory) -> list[MissingSpan]:
        lost = [MissingSpan(start, end, "erased") for start, end in self._state.erased]
        for start, end, reason in long_term.chain.lost:
            lost.append(MissingSpan(start, end, "lost" if reason == "dropped" else reason))
        return lost

    def _keyframe_name(self, segment_id: int) -> str | None:
        long_term = self.long_term
        return (
            str(segment_id)
            if long_term is not None and long_term.has_pictures(segment_id)
            else None
        )

    def _ready(
        self,
        question: str,
        text: str,
        status: AnswerStatus,
        route: Route = "now",
        missing: tuple[MissingSpan, ...] = (),
    ) -> AnswerStream:
        """An answer that code gives, not the model."""
        answer = Answer(
            text,
            status,
            missing=missing,
            route=route,
            stream=self._state.name,
            question=question,
            asked_at_s=self._state.last_s,
            notes=(text,),
        )
        return AnswerStream(iter([text]), [answer])
