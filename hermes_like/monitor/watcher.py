"""One stream being watched: a thread that carries frames from a source into the engine.

It notes holes in the footage with their reasons, and tells when the state of the source changes. It
knows nothing of questions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from hermes_like.config import HermesConfig
from hermes_like.engine import Engine
from hermes_like.errors import HermesError, SessionStateError, SourceError, StorageError
from hermes_like.frames import FrameFeed, sampled
from hermes_like.monitor.events import MonitorEvent
from hermes_like.records import Frame, SourceHealth, SourceState
from hermes_like.session import StreamSession
from hermes_like.sources import FrameSource
from hermes_like.sources.live.source import LiveSource
from hermes_like.timeline import MAX_FRAME_S

logger = logging.getLogger(__name__)

#: Opens the source; given the configuration with the start of the stream filled in.
OpenSource = Callable[[HermesConfig], FrameSource]

NOT_RUNNING, NOTHING_CAME = "nothing was watching", "no frames came"
_REASONS: dict[SourceState, str] = {
    "connecting": "the camera was not reached yet",
    "offline": "the camera was offline",
    "stale": "the camera sent nothing",
    "disabled": "watching was paused",
}
FROZEN = "the picture was frozen"
#: How often a full inbox looks whether it should give up.
_PATIENCE_S = 0.2


class Watcher:
    """Watches one stream until it ends or is stopped.

    Args:
        name: Of the stream.
        open_source: Called in the watching thread.
        engine: Gets the frames; holds the session under the same name.
        config: Of the stream.
        tell: Told what happens.
    """

    def __init__(
        self,
        name: str,
        open_source: OpenSource,
        engine: Engine,
        config: HermesConfig,
        tell: Callable[[MonitorEvent], None],
    ) -> None:
        self.name, self.config = name, config
        self._open_source, self._engine, self._tell = open_source, engine, tell
        self.session: StreamSession = engine.session(name)
        self._source: FrameSource | None = None
        self._feed: FrameFeed | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._is_over = False
        self._cause = ""
        self._told: SourceState = "connecting"
        stats = self.session.stats()
        #: Stream time up to which the memory reached when watching began.
        self._seen_s = stats.stream_s if stats.num_frames else None
        self._num_frames = 0
        self._last_arrival_s: float | None = None
        self._last_pts_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch {name}", daemon=True)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Let go of the source; returns within two seconds. Safe to call twice."""
        self._stopping.set()
        with self._lock:
            feed, source = self._feed, self._source
        if feed is not None:
            feed.close()
        elif source is not None:
            source.close()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; whether it came."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_over(self) -> bool:
        """Whether no more frames will come."""
        return self._is_over

    def set_enabled(self, is_enabled: bool) -> None:
        """Pause or go on; a recording cannot be paused here.

        Raises:
            SourceError: The source is not live.
        """
        source = self._source
        if not isinstance(source, LiveSource):
            raise SourceError(f"{self.name}: only a live source can be paused")
        source.enable() if is_enabled else source.disable()

    # -- states ----------------------------------------------------------------------------------

    def health(self) -> SourceHealth:
        """How the source is doing."""
        source = self._source
        if isinstance(source, LiveSource) and not self._is_over:
            return source.health()
        state: SourceState = "connecting" if source is None else "online"
        if self._is_over:
            state = "disabled"
        if self._cause:
            state = "offline"
        arrival_s = self._last_arrival_s
        return SourceHealth(
            state=state,
            silent_s=None if arrival_s is None else time.monotonic() - arrival_s,
            num_frames=self._num_frames,
            num_dropped={} if source is None else {"damaged": source.num_dropped},
            cause=self._cause,
        )

    def tick(self) -> None:
        """Look at the source and tell if its state has changed; called now and then."""
        health = self.health()
        if health.state != "online" and not self._is_over:
            self.session.trouble = FROZEN if health.is_frozen else _REASONS[health.state]
        if health.state != self._told:
            self._told = health.state
            text = health.state + (f": {health.cause}" if health.cause else "")
            self._tell(MonitorEvent("state", self.name, text, health=health))

    def keep_house(self) -> None:
        """Forget what is older than the configuration allows; called now and then."""
        if self.config.store.retention_s is None:
            return
        try:
            self.session.enforce_retention(self.now_s())
        except StorageError as error:
            self._tell(MonitorEvent("failure", self.name, f"what is too old stays: {error}"))
        except SessionStateError:
            return  # the stream is being taken away

    def now_s(self) -> float | None:
        """Stream time of the present, for a live source with a clock; else None."""
        source = self._source
        clock = self.session.clock()
        if not (isinstance(source, LiveSource) and clock.has_wall) or self._is_over:
            return None
        return max(clock.now_s, clock.to_stream(source.clock.wall()))

    # -- frames ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._watch()
        except HermesError as error:
            self._end("failure", str(error))
        except Exception as error:  # told, and the other streams go on
            logger.exception("stream %s: watching failed", self.name)
            self._end("failure", f"{type(error).__name__}: {error}")
        else:
            self._end("ended", "the recording has ended")

    def _end(self, kind: Literal["failure", "ended"], text: str) -> None:
        if self._stopping.is_set():
            self._is_over = True
            return
        self._engine.drain(self.name)  # over means: remembered to its end
        if kind == "failure":
            self._cause = text
        self._is_over = True
        self._tell(MonitorEvent(kind, self.name, text))

    def _watch(self) -> None:
        source = self._open()
        with self._lock:
            self._source = source
        try:
            if self._stopping.is_set():
                return
            self._note_absence()
            with sampled(source, self.config.source) as feed:
                with self._lock:
                    self._feed = feed
                for frame in feed:
                    if self._stopping.is_set() or not self._take(frame):
                        return
        finally:
            source.close()

    def _open(self) -> FrameSource:
        """Open the source so that its times go on where the memory ends."""
        clock = self.session.clock()
        start = self.config.source.start_time or clock.wall_at_zero
        update = {"start_time": start}
        config = self.config.model_copy(
            update={"source": self.config.source.model_copy(update=update)}
        )
        source = self._open_source(config)
        if isinstance(source, LiveSource) and self._seen_s is not None:
            source.not_before_s = self._seen_s
        return source

    def _take(self, frame: Frame) -> bool:
        """Hand a frame over; False: nobody takes frames any more."""
        self._num_frames += 1
        self._last_arrival_s = time.monotonic()
        is_live = isinstance(self._source, LiveSource)
        if not is_live and self._seen_s is not None and frame.pts_s <= self._seen_s:
            return True  # a recording that was watched up to here before
        last_s = self._seen_s if self._last_pts_s is None else self._last_pts_s
        if last_s is not None and frame.pts_s - last_s > self._longest_pause_s:
            self._engine.drain(self.name)
            self._note_hole(last_s, frame.pts_s, self.session.trouble or NOTHING_CAME)
        if not is_live or self.health().state == "online":
            self.session.trouble = None
        while not self._engine.put(self.name, frame, _PATIENCE_S):
            if self._stopping.is_set() or self.name not in self._engine.names:
                return False
        self._last_pts_s = frame.pts_s
        return True

    @property
    def _longest_pause_s(self) -> float:
        """Time between two frames that is no hole yet."""
        fps = self.config.source.sample_fps
        return max(MAX_FRAME_S, 3.0 / fps if fps else 0.0)

    def _note_absence(self) -> None:
        """What lies between the end of the memory and now went by while nobody watched."""
        now_s, last_s = self.now_s(), self._seen_s
        if now_s is not None and last_s is not None and now_s - last_s > self._longest_pause_s:
            self._note_hole(last_s, now_s, NOT_RUNNING)

    def _note_hole(self, start_s: float, end_s: float, reason: str) -> None:
        self.session.note_blind(start_s, end_s, reason)
        text = f"no footage for {end_s - start_s:.0f} s: {reason}"
        self._tell(MonitorEvent("gap", self.name, text, span_s=(start_s, end_s)))

    def close_hole(self) -> None:
        """At the end: note how long nothing has been seen, so that later answers know why."""
        now_s, last_s = self.now_s(), self._last_pts_s
        if now_s is None or last_s is None or self.session.trouble is None:
            return
        if now_s - last_s > self._longest_pause_s:
            self.session.note_blind(last_s, now_s, self.session.trouble)
