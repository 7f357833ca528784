"""A question to an answer: prefill behind a fork of the memory, own decode loop, roll-back.

Asking never changes what is remembered: everything happens in a fork that is dropped at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hermes_like.config import AnswerConfig, MemoryConfig
from hermes_like.consult import Consulted
from hermes_like.errors import BudgetError, SessionStateError
from hermes_like.evidence import EvidenceCollector, deep_heads
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.provenance import FrameTable
from hermes_like.models.base import ModelAdapter
from hermes_like.records import Answer, Evidence, MissingSpan
from hermes_like.sampling import Sampler

NO_FOOTAGE = "No footage has been seen yet."


@dataclass(slots=True)
class Conversation:
    """Earlier turns, as token ids. They are seen by later questions and never enter the memory."""

    turns: list[tuple[str, list[int]]] = field(default_factory=list)

    def prompt(self, adapter: ModelAdapter, question: str, history_tokens: int) -> list[int]:
        """Token ids of as many of the latest turns as fit, and of the question."""
        turns = list(self.turns)
        while True:
            ids: list[int] = []
            for index, (asked, answered) in enumerate(turns):
                ids += adapter.question_ids(asked, is_first=index == 0)
                ids += [*answered, *adapter.turn_end_ids()]
            if len(ids) <= history_tokens:
                return ids + adapter.question_ids(question, is_first=not turns)
            turns = turns[1:]


class AnswerStream:
    """An answer that is being generated: iterate over pieces of text, then read ``answer``.

    Closing it early (or leaving the ``with`` block) stops generation and drops the fork.
    """

    def __init__(self, pieces: Iterator[str], result: list[Answer]) -> None:
        self._pieces, self._result = pieces, result

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop generating."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    @property
    def answer(self) -> Answer:
        """The finished answer.

        Raises:
            SessionStateError: The stream has not been read to its end.
        """
        if not self._result:
            raise SessionStateError("AnswerStream.answer: read the stream to its end first")
        return self._result[0]


@dataclass(slots=True)
class Request:
    """What one question needs to know of its session.

    Attributes:
        question: As the user wrote it.
        config: How to generate.
        stream: Name of the stream.
        asked_at_s: Stream time of the newest frame.
        started_s: Clock reading when the question came, for TTFT.
        fork: Opens a cache that holds everything seen so far, pending frames included, and the
            table of its frames.
        notes: Sentences to go with the answer.
        missing: What there is no footage of in the time that the question is about.
        prompt: The question as the model gets it; empty: as the user wrote it.
        consult: Brings the past into the fork, changing cache and table; None: nothing comes back.
        note_prefill: Told how many seconds the question's own pass took.
        keyframe: Names the stored picture of a segment, if there is one.
    """

    question: str
    config: AnswerConfig
    stream: str
    asked_at_s: float
    started_s: float
    fork: Callable[[], AbstractContextManager[tuple[HierarchicalCache, FrameTable]]]
    notes: tuple[str, ...] = ()
    missing: tuple[MissingSpan, ...] = ()
    prompt: str = ""
    consult: Callable[[HierarchicalCache, FrameTable], Consulted] | None = None
    note_prefill: Callable[[float], None] = lambda seconds: None
    keyframe: Callable[[int], str | None] = lambda segment_id: None

    @property
    def asked(self) -> str:
        """What the model is asked."""
        return self.prompt or self.question


class Answerer:
    """Answers questions over the memory of one stream.

    Args:
        memory: The stream's memory.
        limits: Slots reserved for question, history and answer.
    """

    def __init__(self, memory: DeviceMemory, limits: MemoryConfig) -> None:
        self.memory, self.limits = memory, limits
        self.adapter = memory.adapter
        self.conversation = Conversation()

    def stream(self, request: Request) -> AnswerStream:
        """Start an answer; nothing is computed before the first piece is read."""
        result: list[Answer] = []
        return AnswerStream(self._pieces(request, result), result)

    def _pieces(self, request: Request, result: list[Answer]) -> Iterator[str]:
        prompt, max_tokens = self._prompt(request)
        timing = _Timing(request.started_s)
        decoded: list[int] = []
        spans: tuple[Evidence, ...] = ()
        with request.fork() as (cache, table):
            consulted = request.consult(cache, table) if request.consult else Consulted()
            if consulted.told is not None:
                yield from timing.watch(iter([consulted.told]))
                text = consulted.told
            else:
                evidence = self._collector()
                started_s = time.perf_counter()
                logits = self._prefill(cache, prompt, evidence)
                request.note_prefill(time.perf_counter() - started_s)
                tokens = self._decode(cache, logits, request.config, max_tokens, evidence, decoded)
                yield from timing.watch(
                    _text_pieces(self.adapter, tokens, decoded, request.config.stop)
                )
                text = _cut(self.adapter.decode_text(decoded), request.config.stop)[0].strip()
                spans = evidence.spans(
                    table,
                    stream=request.stream,
                    most=request.config.evidence_spans,
                    tiers=consulted.tiers,
                )
        if request.config.keep_conversation and consulted.told is None:
            self.conversation.turns.append((request.asked, decoded))
        result.append(_answer(request, consulted, text, spans, timing, len(decoded)))

    def _prompt(self, request: Request) -> tuple[list[int], int]:
        """Token ids behind the video, and the most tokens of the answer."""
        alone = len(self.adapter.question_ids(request.asked, is_first=True))
        if self.memory.budget.device_tokens is not None and alone > self.limits.question_tokens:
            raise BudgetError(
                f"the question has {alone} tokens with its template, "
                f"expected at most memory.question_tokens = {self.limits.question_tokens}"
            )
        max_tokens = request.config.max_tokens or self.limits.answer_tokens
        if self.memory.budget.device_tokens is not None and max_tokens > self.limits.answer_tokens:
            raise BudgetError(
                f"answer.max_tokens: expected at most memory.answer_tokens = "
                f"{self.limits.answer_tokens}, got {max_tokens}"
            )
        history = self.limits.history_tokens if request.config.keep_conversation else 0
        return self.conversation.prompt(self.adapter, request.asked, history), max_tokens

    def _collector(self) -> EvidenceCollector:
        heads = self.adapter.evidence_heads
        if heads is None:
            heads = deep_heads(self.memory.compactor.bands, self.adapter.dims.num_heads)
        return EvidenceCollector(heads, self.adapter.dims.tokens_per_frame)

    def _prefill(
        self, cache: HierarchicalCache, prompt: Sequence[int], evidence: EvidenceCollector
    ) -> Tensor:
        embeds = torch.cat([self.adapter.video_end(), self.adapter.embed_text(prompt)])
        return self._extend(cache, embeds, evidence)

    def _extend(
        self, cache: HierarchicalCache, embeds: Tensor, evidence: EvidenceCollector
    ) -> Tensor:
        """Run text tokens through the fork, reading the last row's attention."""
        ids = -1 - cache.layers[0].length - torch.arange(embeds.shape[0], device=embeds.device)
        probe = evidence.probe()
        logits = self.memory.extend(cache, embeds, ids, probe=probe, logits=True)
        evidence.add(probe, cache)
        return logits

    def _decode(
        self,
        cache: HierarchicalCache,
        logits: Tensor,
        config: AnswerConfig,
        max_tokens: int,
        evidence: EvidenceCollector,
        decoded: list[int],
    ) -> Iterator[int]:
        """Generate tokens into ``decoded``, yielding after each one."""
        sampler = Sampler(config, self.adapter.eos_ids)
        while len(decoded) < max_tokens:
            token = sampler.next(logits, decoded)
            if token in self.adapter.eos_ids:
                return
            decoded.append(token)
            yield token
            if len(decoded) < max_tokens:
                logits = self._extend(cache, self.adapter.embed_text([token]), evidence)


def _answer(
    request: Request,
    consulted: Consulted,
    text: str,
    spans: Sequence[Evidence],
    timing: _Timing,
    num_tokens: int,
) -> Answer:
    """The finished record."""
    missing = (*request.missing, *consulted.missing)
    return Answer(
        text=text,
        status="partial" if missing or consulted.is_partial else "ok",
        evidence=tuple(replace(span, keyframe=request.keyframe(span.segment_id)) for span in spans),
        missing=missing,
        route=consulted.route,
        stream=request.stream,
        question=request.question,
        asked_at_s=request.asked_at_s,
        num_tokens=num_tokens,
        ttft_s=timing.ttft_s,
        tpot_s=timing.tpot_s(num_tokens),
        notes=(*request.notes, *consulted.notes),
        parts_s=consulted.parts_s,
    )


class _Timing:
    """TTFT and TPOT of one answer."""

    def __init__(self, started_s: float) -> None:
        self._started_s = started_s
        self._first_s: float | None = None
        self._last_s = started_s

    def watch(self, pieces: Iterator[str]) -> Iterator[str]:
        """Pass pieces on, noting when they came."""
        for piece in pieces:
            self._last_s = time.perf_counter()
            if self._first_s is None:
                self._first_s = self._last_s
            yield piece
        if self._first_s is None:
            self._first_s = self._last_s = time.perf_counter()

    @property
    def ttft_s(self) -> float:
        """Seconds from the question to the first text."""
        return (self._first_s or self._last_s) - self._started_s

    def tpot_s(self, num_tokens: int) -> float:
        """Mean seconds per token after the first."""
        if num_tokens < 2 or self._first_s is None:
            return 0.0
        return (self._last_s - self._first_s) / (num_tokens - 1)


def _text_pieces(
    adapter: ModelAdapter, tokens: Iterator[int], decoded: list[int], stop: Sequence[str]
) -> Iterator[str]:
    """New text after each token; ends at a stop text, which is cut off."""
    shown = ""
    for _ in tokens:
        text, is_stopped = _cut(adapter.decode_text(decoded), stop)
        safe = text if is_stopped else _without_partial(text, stop)
        if len(safe) > len(shown) and safe.startswith(shown):
            yield safe[len(shown) :]
            shown = safe
        if is_stopped:
            return
    text = _cut(adapter.decode_text(decoded), stop)[0]
    if len(text) > len(shown):
        yield text[len(shown) :]


def _cut(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Text before the first stop text, and whether there was one."""
    places = [place for place in (text.find(s) for s in stop if s) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)


def _without_partial(text: str, stop: Sequence[str]) -> str:
    """Text less an unfinished character or the beginning of a stop text at its end."""
    text = text.rstrip("\ufffd")
    for size in range(max((len(s) for s in stop), default=0), 0, -1):
        if any(len(s) > size and text.endswith(s[:size]) for s in stop):
            return text[:-size]
    return text
