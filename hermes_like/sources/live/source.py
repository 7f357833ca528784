"""A live source: frames when they come, for days, over whatever connection can be had."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator
from datetime import datetime

from hermes_like.config import SourceConfig
from hermes_like.errors import SessionStateError
from hermes_like.records import Frame, SourceHealth
from hermes_like.sources.base import FrameSource, Wanted
from hermes_like.sources.live.clock import Clock
from hermes_like.sources.live.connection import Connect
from hermes_like.sources.live.reader import LiveReader
from hermes_like.sources.owned import every_frame

logger = logging.getLogger(__name__)

#: How long ``close`` waits for the owner thread.
CLOSE_WAIT_S = 1.5


class LiveSource(FrameSource):
    """Frames of a camera or of anything else that has a present.

    A thread starts with the first call of ``select`` or ``iter`` and connects; a connection that
    fails or ends is followed by another, after a pause that doubles, until ``close``. Errors in the
    code of a connection or of ``wanted`` (anything but ``SourceError``) end the source and reach
    the consumer.

    Frames carry stream time since ``start`` and a wall time. ``wanted`` is asked in the owner
    thread; only wanted frames become pixels, and only those can be seen to be frozen.

    Args:
        name: What may be shown: no credentials.
        config: The fields that begin with "live:", ``start_time`` and ``read_ahead_frames``.
        connect: Makes the next connection; called in the owner thread, must be quick.
        clock: Another clock than the system's.
        seed: Seed of the jitter between attempts; None: from the system.
        is_lasting: Whether there is another connection after one that is over. Otherwise the
            iteration ends with the first one, or raises what broke it.
        waits_for_consumer: Whether a slow consumer is waited for; for what does not run away.
        not_before_s: Newest stream time of a resumed memory; the first frame comes after it.
    """

    is_live = True

    def __init__(
        self,
        name: str,
        config: SourceConfig | None = None,
        *,
        connect: Connect,
        clock: Clock | None = None,
        seed: int | None = None,
        is_lasting: bool = True,
        waits_for_consumer: bool = False,
        not_before_s: float | None = None,
    ) -> None:
        self.name = name
        self.config = config or SourceConfig()
        #: May be set until the source is iterated.
        self.not_before_s = not_before_s
        self.clock = clock or Clock()
        self._reader = LiveReader(
            name, self.config, connect, self.clock, seed, is_lasting, waits_for_consumer
        )
        self._claim, self._starting = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._reader.stop)

    def __repr__(self) -> str:
        return f"<LiveSource {self.name}: {self.health().state}>"

    def __iter__(self) -> Iterator[Frame]:
        return self.select(every_frame)

    def select(self, wanted: Wanted) -> Iterator[Frame]:
        """Connect, and yield the frames whose time is wanted.

        Raises:
            SessionStateError: The source was iterated before.
        """
        if not self._claim.acquire(blocking=False):
            raise SessionStateError(f"{self.name}: a source is read once; open it again")
        if self.not_before_s is not None:
            self._reader.times.start_after(self.not_before_s)
        with self._starting:
            self._thread = threading.Thread(
                target=self._reader.run, args=(wanted,), name=f"camera {self.name}", daemon=True
            )
            self._thread.start()
        return self._delivered()

    def _delivered(self) -> Iterator[Frame]:
        while (frame := self._reader.take()) is not None:
            yield frame

    def health(self) -> SourceHealth:
        """How the source is doing now; may be called from any thread, also after ``close``."""
        return self._reader.health()

    def disable(self) -> None:
        """Let go of the connection and pause; the iteration waits."""
        self._reader.disable(True)

    def enable(self) -> None:
        """Go on after ``disable``."""
        self._reader.disable(False)

    def close(self) -> None:
        """End the connection, the thread and the iteration, within two seconds."""
        self._reader.stop()
        with self._starting:
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(CLOSE_WAIT_S)
        if thread.is_alive():
            logger.warning("%s: the reader did not stop yet; a native call hangs", self.name)

    @property
    def start(self) -> datetime:
        """Wall time of stream second 0: ``config.start_time``, or when the source was opened."""
        return self._reader.times.start

    @property
    def num_dropped(self) -> int:
        """Frames that came and were not handed over, for whatever reason."""
        return sum(self.health().num_dropped.values())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Plain sentences about what had to be repaired."""
        num_jumps = self._reader.times.num_jumps
        if not num_jumps:
            return ()
        return (f"{self.name}: the clock of the sender jumped {num_jumps} times",)
