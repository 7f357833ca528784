"""Frames on their way from a source into the engine, in a thread that can be paused and stopped.

Knows sources and the engine; it knows nothing of pages and visitors.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from hermes_like.config import SourceConfig
from hermes_like.engine import Engine
from hermes_like.errors import HermesError
from hermes_like.frames import FrameFeed, sampled
from hermes_like.records import Frame, Image, SourceHealth
from hermes_like.sources import FrameSource
from hermes_like.timeline import MAX_FRAME_S

logger = logging.getLogger(__name__)

State = Literal["opening", "watching", "paused", "ended", "stopped", "failed"]
OpenSource = Callable[[SourceConfig], FrameSource]

PAUSED = "watching was paused"
SILENT = "no pictures came"
#: How often a wait looks whether it should give up.
_PATIENCE_S = 0.1
#: Newest pictures that evidence of the present is shown from, and their longest side in pixels.
_KEPT_FRAMES, _KEPT_SIDE = 64, 320
#: Arrivals over which frames per second are counted.
_RATE_FRAMES = 30


@dataclass(frozen=True, slots=True)
class Progress:
    """How far watching is.

    Attributes:
        state: See :data:`State`.
        stream_s: Stream time of the frame handed over last.
        duration_s: Length of the source, where it says one.
        num_frames: Frames handed over.
        fps: Frames per second handed over lately.
        lag_s: Seconds that the memory is behind the source; None: it reads as fast as it can.
        num_dropped: Frames that were lost.
        text: What went wrong, or what is waited for, in one sentence.
    """

    state: State = "opening"
    stream_s: float = 0.0
    duration_s: float | None = None
    num_frames: int = 0
    fps: float = 0.0
    lag_s: float | None = None
    num_dropped: int = 0
    text: str = ""

    @property
    def is_over(self) -> bool:
        """Whether no more frames will come."""
        return self.state in ("ended", "stopped", "failed")


class BrowserCamera(FrameSource):
    """Pictures that a browser sends; the newest one waits, older ones are dropped and counted."""

    is_live = True

    def __init__(self, name: str = "webcam") -> None:
        self.name = name
        self._changed = threading.Condition()
        self._waiting: Frame | None = None
        self._is_closed = False
        self._started_s: float | None = None
        self._num_frames = self._num_dropped = 0

    def push(self, image: Image) -> None:
        """Take a picture, uint8 ``[H, W, 3]``, that was made just now."""
        now_s = time.monotonic()
        image = image.copy()  # what the framework hands over may be read-only
        with self._changed:
            if self._is_closed:
                return
            if self._started_s is None:
                self._started_s = now_s
            if self._waiting is not None:
                self._num_dropped += 1
            self._waiting = Frame(
                image, self._num_frames, now_s - self._started_s, datetime.now().astimezone()
            )
            self._num_frames += 1
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Frame]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._waiting is not None)
                if self._is_closed:
                    return
                frame, self._waiting = self._waiting, None
            if frame is not None:
                yield frame

    def close(self) -> None:
        """End the iteration."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def num_dropped(self) -> int:
        """Pictures that were overtaken by newer ones."""
        return self._num_dropped


class Watching:
    """One source being watched.

    Args:
        name: Seat of the session in the engine.
        engine: Gets the frames.
        open_source: Called in the watching thread.
        config: Sampling and the rest of ``source``.
        as_it_plays: Hand a recording over at the pace at which it plays, not as fast as possible.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        open_source: OpenSource,
        config: SourceConfig,
        *,
        as_it_plays: bool = False,
    ) -> None:
        self._name, self._engine, self._config = name, engine, config
        self._open_source, self._as_it_plays = open_source, as_it_plays
        self._session = engine.session(name)
        self._state: State = "opening"
        self._text = ""
        self._source: FrameSource | None = None
        self._feed: FrameFeed | None = None
        self._stopping, self._running = threading.Event(), threading.Event()
        self._running.set()
        self._lock = threading.Lock()
        self._stream_s = self._behind_s = 0.0
        self._last_s: float | None = None
        self._was_paused = False
        self._num_frames = 0
        self._arrivals: deque[float] = deque(maxlen=_RATE_FRAMES)
        self._kept: deque[tuple[float, Image]] = deque(maxlen=_KEPT_FRAMES)
        self._thread = threading.Thread(target=self._run, name=f"watch {name}", daemon=True)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def pause(self) -> None:
        """Take no frames until :meth:`resume`; a camera is let go."""
        self._running.clear()
        self._was_paused = True
        disable = getattr(self._source, "disable", None)
        if disable is not None:
            disable()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        enable = getattr(self._source, "enable", None)
        if enable is not None:
            enable()
        self._running.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Let go of the source and wait for the thread. Safe to call twice."""
        self._stopping.set()
        self._running.set()
        with self._lock:
            feed, source = self._feed, self._source
        if feed is not None:
            feed.close()
        elif source is not None:
            source.close()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # -- what is seen ----------------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """Whether the source has a present; False until it is open."""
        return self._source is not None and self._source.is_live

    def progress(self) -> Progress:
        """How far it is."""
        source, state = self._source, self._state
        if state == "watching" and not self._running.is_set():
            state = "paused"
        feed, health = self._feed, self._health()
        return Progress(
            state=state,
            stream_s=self._stream_s,
            duration_s=None if source is None else source.duration_s,
            num_frames=self._num_frames,
            fps=0.0 if state != "watching" else self._fps(),
            lag_s=self._lag_s(health),
            num_dropped=0 if feed is None else feed.num_dropped,
            text=self._text or self._trouble(health, state),
        )

    def picture(self, start_s: float, end_s: float) -> Image | None:
        """A kept picture of a stretch of stream time, ``[H, W, 3]`` uint8; None: none is kept."""
        kept = [image for pts_s, image in list(self._kept) if start_s <= pts_s < end_s]
        return kept[len(kept) // 2] if kept else None

    def forget(self, start_s: float, end_s: float) -> None:
        """Drop the kept pictures of a stretch of stream time."""
        left = [kept for kept in list(self._kept) if not start_s <= kept[0] < end_s]
        self._kept = deque(left, maxlen=_KEPT_FRAMES)

    @property
    def newest(self) -> Image | None:
        """The newest picture, ``[H, W, 3]`` uint8."""
        return self._kept[-1][1] if self._kept else None

    def _health(self) -> SourceHealth | None:
        health = getattr(self._source, "health", None)
        return None if health is None else health()

    def _lag_s(self, health: SourceHealth | None) -> float | None:
        if health is not None:
            return health.lag_s
        return self._behind_s if self._as_it_plays or self.is_live else None

    def _trouble(self, health: SourceHealth | None, state: State) -> str:
        if health is None or state != "watching" or health.state == "online":
            return ""
        told = {
            "connecting": "The camera has not been reached yet.",
            "offline": "The camera is offline.",
            "stale": "The camera sends nothing.",
            "disabled": "Watching is paused.",
        }[health.state]
        return f"{told} {health.cause}".strip()

    def _fps(self) -> float:
        arrivals = list(self._arrivals)
        if len(arrivals) < 2 or time.monotonic() - arrivals[-1] > 5.0:
            return 0.0
        return (len(arrivals) - 1) / max(arrivals[-1] - arrivals[0], 1e-9)

    # -- frames ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._watch()
        except HermesError as error:
            self._end("failed", str(error))
        except Exception as error:  # shown to the visitor; the others go on
            logger.exception("watching failed")
            self._end("failed", f"{type(error).__name__}: {error}")
        else:
            self._end("stopped" if self._stopping.is_set() else "ended", "")

    def _end(self, state: State, text: str) -> None:
        if state == "ended" and self._name in self._engine.names:
            self._engine.drain(self._name)
        self._text, self._state = text, state

    def _watch(self) -> None:
        source = self._open_source(self._config)
        with self._lock:
            self._source = source
        try:
            if self._stopping.is_set():
                return
            with sampled(source, self._config) as feed:
                with self._lock:
                    self._feed = feed
                self._state = "watching"
                began_s: float | None = None
                for frame in feed:
                    waited_s = self._wait_while_paused(source)
                    if self._stopping.is_set():
                        return
                    now_s = time.monotonic()
                    began_s = now_s - frame.pts_s if began_s is None else began_s + waited_s
                    if not self._hand_over(frame, source, began_s + frame.pts_s):
                        return
        finally:
            source.close()

    def _wait_while_paused(self, source: FrameSource) -> float:
        """Seconds for which watching was paused before this frame."""
        if self._running.is_set() or source.is_live:
            return 0.0
        started_s = time.monotonic()
        self._running.wait()
        return time.monotonic() - started_s

    def _hand_over(self, frame: Frame, source: FrameSource, due_s: float) -> bool:
        """Give a frame to the engine; False: nobody takes frames any more."""
        if source.is_live and not self._running.is_set():
            return True  # pictures of a paused camera are not looked at
        if self._as_it_plays and not source.is_live:
            while (early_s := due_s - time.monotonic()) > 0:
                if self._stopping.wait(min(early_s, _PATIENCE_S)):
                    return False
        self._note_hole(frame, source)
        while not self._engine.put(self._name, frame, _PATIENCE_S):
            if self._stopping.is_set() or self._name not in self._engine.names:
                return False
        now_s = time.monotonic()
        self._behind_s = max(0.0, now_s - due_s)
        self._stream_s = self._last_s = frame.pts_s
        self._num_frames += 1
        self._arrivals.append(now_s)
        self._kept.append((frame.pts_s, _shrunk(frame.image)))
        return True

    def _note_hole(self, frame: Frame, source: FrameSource) -> None:
        last_s, fps = self._last_s, self._config.sample_fps
        longest_s = max(MAX_FRAME_S, 3.0 / fps if fps else 0.0)
        if source.is_live and last_s is not None and frame.pts_s - last_s > longest_s:
            self._engine.drain(self._name)
            self._session.note_blind(last_s, frame.pts_s, PAUSED if self._was_paused else SILENT)
        self._was_paused = False


def _shrunk(image: Image) -> Image:
    step = -(-max(image.shape[:2]) // _KEPT_SIDE)
    return image[::step, ::step].copy()
