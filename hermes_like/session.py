"""The life of one stream: the only place that knows the order of the stations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from hermes_like import vision
from hermes_like.answer import NO_FOOTAGE, Answerer, AnswerStream, Request
from hermes_like.config import AnswerConfig, HermesConfig
from hermes_like.errors import SessionStateError
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory, KVBlock
from hermes_like.memory.provenance import FrameTable
from hermes_like.models.base import ModelAdapter
from hermes_like.policies import POLICIES
from hermes_like.records import Answer, Frame, SessionStats


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A closed stretch of the stream with its keys and values, before compaction touches them.

    Attributes:
        segment_id: Running number.
        start_s: Stream time of its first frame.
        end_s: Stream time of its last frame.
        blocks: One per decoder layer.
    """

    segment_id: int
    start_s: float
    end_s: float
    blocks: tuple[KVBlock, ...]


class StreamSession:
    """One video stream, remembered under a budget and open to questions at any moment.

    Args:
        model: From :func:`hermes_like.models.load_model`; may be shared between sessions.
        config: The whole configuration; ``config.model`` is not read here.
        name: Name of the stream, reported with answers.
        on_segment: The write-through point: called with every closed segment.

    Raises:
        BudgetError: ``memory.device_tokens`` is too small for the model and the reserves.
        ConfigError: Unknown policy.

    Example:
        >>> with StreamSession(load_model("sprites")) as session:
        ...     for frame in frames:
        ...         session.observe(frame)
        ...     print(session.ask("what is visible now ?").text)
    """

    def __init__(
        self,
        model: ModelAdapter,
        config: HermesConfig | None = None,
        *,
        name: str = "stream",
        on_segment: Callable[[Segment], None] | None = None,
    ) -> None:
        self.model, self.config, self.name = model, config or HermesConfig(), name
        policy = POLICIES.get(self.config.policy.name)(self.config.policy)
        self.memory = DeviceMemory(model, policy, self.config.memory)
        self._answerer = Answerer(self.memory, self.config.memory)
        self._on_segment = on_segment
        self._lock = threading.RLock()
        self._pending: list[Frame] = []
        self._num_frames = self._num_segments = 0
        self._last_s = self._segment_start_s = 0.0
        self._vision_s = 0.0
        self._is_closed = False

    # -- watching --------------------------------------------------------------------------------

    def observe(self, frame: Frame) -> None:
        """Take in the next frame.

        Args:
            frame: ``image`` uint8 ``[H, W, 3]`` RGB; ``pts_s`` not before the last frame's.

        Raises:
            SessionStateError: The session is closed.
            ValueError: Wrong shape or number type, or time runs backwards.
        """
        with self._lock:
            self._require_open()
            self._check(frame)
            if self._num_frames % self.config.memory.segment_frames == 0:
                self._segment_start_s = frame.pts_s
            self._pending.append(frame)
            self._num_frames += 1
            self._last_s = frame.pts_s
            if len(self._pending) == self.config.memory.prefill_frames:
                self._prefill_pending()
            if self._num_frames % self.config.memory.segment_frames == 0:
                self._close_segment()

    def _check(self, frame: Frame) -> None:
        image = frame.image
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
            raise ValueError(
                f"frame {frame.index}: expected uint8 [H, W, 3], "
                f"got {image.dtype} {list(image.shape)}"
            )
        if not frame.pts_s >= (self._last_s if self._num_frames else 0.0):
            raise ValueError(
                f"frame {frame.index}: expected pts_s of at least {self._last_s}, got {frame.pts_s}"
            )

    def _embed_pending(self) -> vision.VisionTokens:
        start = time.perf_counter()
        tokens = vision.embed(self.model, self._pending, self._num_segments)
        self._vision_s += time.perf_counter() - start
        return tokens

    def _prefill_pending(self) -> None:
        chunk = self._embed_pending()
        self._pending = []
        self.memory.append_frames(chunk.tokens, chunk.records)

    def _close_segment(self) -> None:
        if self._on_segment is not None:
            self._on_segment(self._segment())
        self._num_segments += 1
        self.memory.compact()

    def _segment(self) -> Segment:
        size = self.config.memory.segment_frames
        first = self._num_frames - size
        blocks = tuple(
            self.memory.block(layer, first, size) for layer in range(self.model.dims.num_layers)
        )
        return Segment(self._num_segments, self._segment_start_s, self._last_s, blocks)

    # -- asking ----------------------------------------------------------------------------------

    def ask(self, question: str, **overrides: Any) -> Answer:
        """Answer a question about everything seen so far.

        Args:
            question: In words.
            overrides: Fields of :class:`~hermes_like.config.AnswerConfig`, for this question only.

        Returns:
            Text, evidence and timings. With nothing seen yet its status is ``no_footage``.

        Raises:
            SessionStateError: The session is closed.
            BudgetError: The question is longer than its reserve.
        """
        stream = self.ask_stream(question, **overrides)
        for _ in stream:
            pass
        return stream.answer

    def ask_stream(self, question: str, **overrides: Any) -> AnswerStream:
        """Like :meth:`ask`, with the text as it comes."""
        self._require_open()
        started_s = time.perf_counter()
        if not question.strip():
            raise ValueError("question: expected some words, got none")
        unknown = self.model.unknown_words(question)
        if unknown:
            words = ", ".join(repr(word) for word in unknown)
            return self._ready(question, f"This model does not know {words}.", "ok")
        if not self._num_frames:
            return self._ready(question, NO_FOOTAGE, "no_footage")
        config = AnswerConfig.model_validate(self.config.answer.model_dump() | overrides)
        return self._answerer.stream(
            Request(question, config, self.name, self._last_s, started_s, self._fork)
        )

    def _ready(self, question: str, text: str, status: Any) -> AnswerStream:
        """An answer that code gives, not the model."""
        answer = Answer(
            text,
            status,
            stream=self.name,
            question=question,
            asked_at_s=self._last_s,
            notes=(text,),
        )
        return AnswerStream(iter([text]), [answer])

    @contextmanager
    def _fork(self) -> Iterator[tuple[HierarchicalCache, FrameTable]]:
        """The memory as it is now, with pending frames, to be thrown away."""
        with self._lock:
            self._require_open()
            opened = self.memory.cache.fork()
            cache = opened.__enter__()
            table = self.memory.frames.copy()
            if self._pending:
                chunk = self._embed_pending()
                self.memory.append_frames(chunk.tokens, chunk.records, cache=cache)
                for offset, record in enumerate(chunk.records):
                    table.add(self.memory.num_frames + offset, record)
        try:
            yield cache, table
        finally:
            with self._lock:
                opened.__exit__(None, None, None)

    def reset_conversation(self) -> None:
        """Forget earlier questions and answers; the video memory stays."""
        self._answerer.conversation.turns.clear()

    # -- state -----------------------------------------------------------------------------------

    def stats(self) -> SessionStats:
        """What is held, where the time went, and whether the caps were kept."""
        with self._lock:
            clock = self.memory.clock
            return SessionStats(
                stream=self.name,
                stream_s=self._last_s,
                num_frames=self._num_frames,
                num_segments=self._num_segments,
                device_tokens=self.memory.budget.device_tokens,
                peak_slots=self.memory.cache.peak_slots,
                device_bytes=self.memory.cache.num_bytes,
                expected_bytes=self.memory.expected_bytes(),
                layers=self.memory.layer_stats(),
                vision_s=self._vision_s,
                prefill_s=clock.prefill_s,
                scoring_s=clock.scoring_s,
                compaction_s=clock.compaction_s,
            )

    def close(self) -> None:
        """End the session and give its memory back. Safe to call twice."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._pending = []
                self.memory.release()

    def _require_open(self) -> None:
        if self._is_closed:
            raise SessionStateError(f"session {self.name!r} is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
