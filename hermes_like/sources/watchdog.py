"""A reader in a child process that can be killed, for native calls that never return.

The parent pulls: it waits for one message at a time, and only that wait is measured, so a slow
consumer is never mistaken for a stalled reader. Messages are JSON; pixels follow as raw bytes.

As with every spawned process, a script that opens a source this way at its top level needs the
``if __name__ == "__main__"`` guard.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, cast

import numpy as np

from hermes_like import errors
from hermes_like.config import SourceConfig
from hermes_like.errors import HermesError, SourceError, SourceStalledError
from hermes_like.records import Frame
from hermes_like.sources.base import FrameSource, Wanted
from hermes_like.sources.owned import OwnedSource

#: Time for the child to start and import, before the watchdog's own limit begins.
START_S = 60.0
_END_S = 1.0
_YES, _NO = b"y", b"n"

Opener = Callable[[str, SourceConfig], FrameSource]


class WatchdogSource(OwnedSource):
    """Any source that ``opener`` can open, read in a child process.

    Args:
        reference: What to open.
        config: ``watchdog_s`` is the longest silence, in seconds, 10 if None.
        opener: ``"module:function"`` that opens the reference in the child.

    Raises:
        SourceOpenError: As the child's source raises it.
        SourceStalledError: Opening took longer than allowed; the child was killed.
    """

    def __init__(
        self, reference: str, config: SourceConfig, opener: str = "hermes_like.sources:open_source"
    ) -> None:
        super().__init__(reference, config)
        self._limit_s = config.watchdog_s or 10.0
        context = multiprocessing.get_context("spawn")
        self._pipe, childs_end = context.Pipe()
        inner = config.model_copy(update={"watchdog_s": None}).model_dump_json()
        self._process = context.Process(
            target=_serve, args=(childs_end, opener, reference, inner), daemon=True
        )
        self._process.start()
        childs_end.close()
        weakref.finalize(self, _end_process, self._process)
        self._inner_dropped = 0
        self._inner_warnings: tuple[str, ...] = ()
        try:
            self._receive(START_S)
            opened = self._receive(self._limit_s)
        except BaseException:
            self.close()
            raise
        self._duration_s: float | None = opened["duration_s"]

    @property
    def duration_s(self) -> float | None:
        """Declared length in seconds."""
        return self._duration_s

    @property
    def num_dropped(self) -> int:
        """Frames that the child's source could not deliver."""
        return self._inner_dropped

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences of the child's source so far."""
        return self._inner_warnings

    def close(self) -> None:
        """Kill the child, which also ends a wait for it in another thread."""
        self._closed.set()
        _end_process(self._process)
        super().close()

    def _release(self) -> None:
        _end_process(self._process)
        self._pipe.close()

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        while True:
            message = self._receive(self._limit_s)
            if message["kind"] == "end":
                return
            if message["kind"] == "offer":
                self._pipe.send_bytes(_YES if wanted(message["pts_s"]) else _NO)
                continue
            image = np.empty(message["shape"], dtype=np.uint8)
            self._pipe.recv_bytes_into(image.reshape(-1))
            yield self._frame(image, message["index"], message["pts_s"])

    def _receive(self, limit_s: float) -> dict[str, Any]:
        """Wait for the next message.

        Raises:
            SourceStalledError: Nothing came in time; the child is killed.
            SourceError: The child reported an error or died.
        """
        try:
            if not self._pipe.poll(limit_s):
                _end_process(self._process)
                raise SourceStalledError(
                    f"{self.name}: the reader did not answer for {limit_s:g} s; it was ended"
                )
            message = cast("dict[str, Any]", json.loads(self._pipe.recv_bytes()))
        except (EOFError, ConnectionError) as error:
            if self._closed.is_set():
                return {"kind": "end"}
            self._process.join(_END_S)
            code = self._process.exitcode
            raise SourceError(f"{self.name}: the reader process died (exit code {code})") from error
        self._inner_dropped = message.get("num_dropped", self._inner_dropped)
        self._inner_warnings = tuple(message.get("warnings", self._inner_warnings))
        if message["kind"] == "error":
            raise getattr(errors, message["type"])(message["text"])
        return message


def _end_process(process: BaseProcess) -> None:
    """Kill and reap; harmless if done before."""
    process.kill()
    process.join(_END_S)


def _serve(pipe: Connection, opener: str, reference: str, config_json: str) -> None:
    """The child: open, offer each frame's time, send the pixels of those that are wanted."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        _send(pipe, "ready")
        _serve_frames(pipe, opener, reference, SourceConfig.model_validate_json(config_json))
    except (EOFError, ConnectionError):
        return


def _serve_frames(pipe: Connection, opener: str, reference: str, config: SourceConfig) -> None:
    source: FrameSource | None = None

    def is_wanted(pts_s: float) -> bool:
        _send(pipe, "offer", source, pts_s=pts_s)
        return pipe.recv_bytes() == _YES

    try:
        module_name, function_name = opener.split(":")
        open_it: Opener = getattr(importlib.import_module(module_name), function_name)
        source = open_it(reference, config)
        with source:
            _send(pipe, "opened", source, duration_s=source.duration_s)
            for frame in source.select(is_wanted):
                shape = frame.image.shape
                _send(pipe, "frame", source, shape=shape, index=frame.index, pts_s=frame.pts_s)
                pipe.send_bytes(np.ascontiguousarray(frame.image).reshape(-1).data)
            _send(pipe, "end", source)
    except HermesError as error:
        _send(pipe, "error", source, type=type(error).__name__, text=str(error))


def _send(pipe: Connection, kind: str, source: FrameSource | None = None, **fields: Any) -> None:
    message = {"kind": kind, **fields}
    if source is not None:
        message |= {"num_dropped": source.num_dropped, "warnings": source.warnings}
    pipe.send_bytes(json.dumps(message).encode())


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
