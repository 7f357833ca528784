"""The thread that owns a live source: it connects, reads, hands over, and begins again.

Everything native happens in this one thread or in a process that it started. Knows connections by
their seam only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import cast

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError
from hermes_like.records import Frame, SourceHealth
from hermes_like.sources.base import Wanted
from hermes_like.sources.live.arrival_clock import ArrivalClock
from hermes_like.sources.live.backoff import BackOff
from hermes_like.sources.live.clock import Clock
from hermes_like.sources.live.connection import Arrival, Connect, Connection
from hermes_like.sources.live.freeze import FreezeWatch
from hermes_like.sources.live.handoff import Handoff
from hermes_like.sources.live.health_book import HealthBook

logger = logging.getLogger(__name__)

_ENDED = "the other side ended the stream"


class LiveReader:
    """State and main loop of the owner thread; see :class:`LiveSource` for the arguments."""

    def __init__(
        self,
        name: str,
        config: SourceConfig,
        connect: Connect,
        clock: Clock,
        seed: int | None,
        is_lasting: bool,
        waits_for_consumer: bool,
    ) -> None:
        max_frames = config.read_ahead_frames if config.handoff == "queue" else 1
        self.name = name
        self.clock = clock
        self.times = ArrivalClock(clock, config.start_time)
        self.handoff = Handoff(max_frames, waits_for_consumer)
        self._connect = connect
        self._is_lasting = is_lasting
        self._book = HealthBook(config.stale_s)
        self._freeze = FreezeWatch(config.freeze_s)
        self._back_off = BackOff(config.reconnect_first_s, config.reconnect_most_s, seed)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._connection: Connection | None = None
        self._is_stopped = self._is_disabled = False
        self._index = 0

    def health(self) -> SourceHealth:
        """How things stand."""
        return self._book.tell(self.clock.monotonic(), self.handoff.num_dropped)

    def stop(self) -> None:
        """End the thread, whatever it waits for, and the iteration."""
        with self._lock:
            self._is_stopped = True
            connection = self._connection
        self._wake.set()
        self.handoff.stop()
        if connection is not None:
            connection.close()

    def disable(self, is_disabled: bool) -> None:
        """Let go of the connection and wait, or go on."""
        with self._lock:
            self._is_disabled = is_disabled
            connection = self._connection
        self._book.disable(is_disabled)
        self._wake.set()
        if is_disabled and connection is not None:
            connection.close()

    def take(self) -> Frame | None:
        """Wait for the next frame; None at the end."""
        item = self.handoff.take()
        if item is None:
            return None
        frame, arrived_s = item
        self._book.handed_over(max(self.clock.monotonic() - arrived_s, 0.0))
        return frame

    def run(self, wanted: Wanted) -> None:
        """The thread: until stopped, or until a source that does not last is over."""
        error: BaseException | None = None
        try:
            while self._wait_until_enabled():
                failure = self._use_connection(wanted)
                if self._is_interrupted():
                    continue
                if not self._is_lasting:
                    error = failure
                    break
                self._pause()
        except BaseException as caught:  # handed to the consumer, whatever it is
            error = caught
        self.handoff.finish(error)

    def _is_interrupted(self) -> bool:
        return self._is_stopped or self._is_disabled

    def _wait_until_enabled(self) -> bool:
        """Wait while the source is disabled; whether to go on."""
        while self._is_disabled and not self._is_stopped:
            self._wake.wait()
            self._wake.clear()
        return not self._is_stopped

    def _pause(self) -> None:
        pause_s = self._back_off.next_s()
        self._wake.clear()
        if not self._is_interrupted():
            self.clock.wait(self._wake, pause_s)

    def _use_connection(self, wanted: Wanted) -> SourceError | None:
        """Connect and read until it is over; return what went wrong, if anything."""
        connection = self._connect()
        with self._lock:
            if self._is_interrupted():
                return None
            self._connection = connection
        self._book.begin(connection)
        self.times.join()
        failure: SourceError | None = None
        try:
            self._read(connection.arrivals(), wanted)
        except SourceError as error:
            failure = error
        finally:
            with self._lock:
                self._connection = None
            connection.close()
            self._report_end(failure)
        return failure

    def _read(self, arrivals: Iterator[Arrival], wanted: Wanted) -> None:
        with closing(cast("Generator[Arrival, None, None]", arrivals)):
            for arrival in arrivals:
                if self._is_interrupted():
                    return
                arrived_s = self.clock.monotonic()
                if self._book.arrived(arrived_s):
                    self._back_off.reset()
                    logger.info("%s: connected", self.name)
                self._consider(arrival, arrived_s, wanted)

    def _consider(self, arrival: Arrival, arrived_s: float, wanted: Wanted) -> None:
        """Hand a picture over if it is wanted, can be converted and is not frozen."""
        pts_s = self.times.tell(arrival.media_s, arrived_s, arrival.age_s)
        index = self._index
        self._index += 1
        if not wanted(pts_s):
            return
        image = arrival.to_image()
        if image is None:
            self._book.unconverted()
            return
        is_frozen = self._freeze.sees(image, arrived_s)
        self._book.looked(is_frozen)
        if not is_frozen:
            frame = Frame(image, index, pts_s, self.times.wall_time(pts_s))
            self.handoff.put(frame, arrived_s)

    def _report_end(self, failure: SourceError | None) -> None:
        if self._is_interrupted():
            self._book.end(None)
            return
        was_online = self.health().state in {"online", "stale"}
        cause = _ENDED if failure is None else str(failure).removeprefix(f"{self.name}: ")
        is_news = was_online or cause != self.health().cause
        self._book.end(cause if failure is not None or self._is_lasting else None)
        if self._is_lasting:
            level = logging.WARNING if is_news else logging.DEBUG
            logger.log(level, "%s: no connection: %s", self.name, cause)
