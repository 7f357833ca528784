"""A session behind a pipe, for harnesses that live in another environment: JSON lines in and out.

    {"open": "talk.mp4"}                     {"opened": "talk.mp4"}
    {"ask": "who speaks ?", "at_s": 12.5}    {"text": "...", "at_s": 12.5, "last_frame_s": 12.0}
    {"ask": "and at the end ?"}              {"text": "...", "at_s": null, "last_frame_s": 61.0}
    {"close": true}                          {"closed": true}

One video at a time, its questions in order of time; what cannot be done is answered with
``{"error": "..."}`` and the next line is read. Knows sessions; knows no harness.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from hermes_like.errors import DatasetError, HermesError
from hermes_like.evaluation.base import Video
from hermes_like.evaluation.footage import EPSILON_S, footage
from hermes_like.evaluation.scratch import in_ram
from hermes_like.evaluation.settings import RunSettings
from hermes_like.evaluation.worker import identity_of
from hermes_like.models.base import ModelAdapter
from hermes_like.records import Frame
from hermes_like.session import StreamSession


class PipeServer:
    """Answers messages, one after the other.

    Args:
        model: Loaded.
        settings: How to watch and to answer.
    """

    def __init__(self, model: ModelAdapter, settings: RunSettings) -> None:
        self.model, self.settings = model, settings
        self._opened = ExitStack()
        self._session: StreamSession | None = None
        self._frames: Iterator[Frame] = iter(())
        self._next: Frame | None = None
        self._num_frames, self._last_s = 0, -math.inf

    def hello(self) -> dict[str, Any]:
        """The first line, before any message."""
        config_hash = self.settings.hash_with(identity_of(self.model))
        return {"ready": config_hash, "model": self.model.name, "protocol": 1}

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one message."""
        try:
            match message:
                case {"open": str(path)}:
                    return self._open(Path(path), message.get("fps"))
                case {"ask": str(question)}:
                    return self._ask(question, message.get("at_s"), message.get("max_tokens"))
                case {"close": True}:
                    self.close()
                    return {"closed": True}
            raise DatasetError(f"expected open, ask or close, got {sorted(message)}")
        except (HermesError, ValueError, TypeError) as error:
            return {"error": str(error)}

    def close(self) -> None:
        """Let go of the video and forget it; safe to call twice."""
        self._session, self._next = None, None
        self._opened.close()

    def _open(self, path: Path, fps: float | None) -> dict[str, Any]:
        self.close()
        config = self.settings.config
        video = Video(path.name, path.name, path, fps=fps)
        with ExitStack() as stack:
            self._frames = stack.enter_context(footage(video, 0.0, config.source))
            session = stack.enter_context(in_ram(self.model, config, path.name))
            self._num_frames, self._last_s = 0, -math.inf
            self._next = next(self._frames, None)
            # From here on it stays open.
            self._opened, self._session = stack.pop_all(), session
        return {"opened": str(path)}

    def _ask(self, question: str, at_s: float | None, max_tokens: int | None) -> dict[str, Any]:
        session = self._session
        if session is None:
            raise DatasetError("ask: no video is open")
        until_s = math.inf if at_s is None else float(at_s)
        if self._last_s > until_s + EPSILON_S:
            raise DatasetError(
                f"ask: asked at {until_s:g} s, and a frame of {self._last_s:g} s has been seen: "
                "ask in order of time, or open the video again"
            )
        while self._next is not None and self._next.pts_s <= until_s + EPSILON_S:
            session.observe(self._next)
            self._num_frames, self._last_s = self._num_frames + 1, self._next.pts_s
            self._next = next(self._frames, None)
        limits: dict[str, Any] = (
            {} if max_tokens is None else {"max_tokens": self._within(max_tokens)}
        )
        answer = session.ask(question, route=self.settings.route, keep_conversation=False, **limits)
        return {
            "text": answer.text,
            "at_s": at_s,
            "frames_seen": self._num_frames,
            "last_frame_s": self._last_s if self._num_frames else None,
            "route": answer.route,
            "status": answer.status,
            "evidence": [[span.start_s, span.end_s] for span in answer.evidence],
            "ttft_s": answer.ttft_s,
            "num_tokens": answer.num_tokens,
        }

    def _within(self, max_tokens: int) -> int:
        """A harness asks for what it allows; more than there is room for is cut to that."""
        return max(1, min(int(max_tokens), self.settings.config.memory.answer_tokens))


def serve(server: PipeServer, requests: TextIO, replies: TextIO) -> None:
    """Read messages until the input ends."""
    _say(replies, server.hello())
    try:
        for line in requests:
            try:
                message = json.loads(line)
            except ValueError as error:
                _say(replies, {"error": f"expected a line of JSON: {error}"})
                continue
            is_object = isinstance(message, dict)
            told = server.answer(message) if is_object else {"error": "expected a JSON object"}
            _say(replies, told)
    finally:
        server.close()


def _say(replies: TextIO, message: Mapping[str, Any]) -> None:
    replies.write(json.dumps(message, ensure_ascii=False) + "\n")
    replies.flush()
