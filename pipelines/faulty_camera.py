"""Cameras that fail as cameras do: scripted connections for soak runs, drawn from a seed.

Everything below the connection seam is played; reconnecting, hand-over, times and states are the
real ones of a live source.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from hermes_like.config import HermesConfig
from hermes_like.errors import SourceError
from hermes_like.records import Image
from hermes_like.sources.live.clock import Clock
from hermes_like.sources.live.connection import Arrival, Connection
from hermes_like.sources.live.source import LiveSource
from hermes_like.sprites.source import picture_of
from hermes_like.sprites.stories import draw_story

#: What a connection comes to, and how often; ``refuse`` comes before the first picture.
FAULTS = {
    "drop": 0.25,
    "end": 0.15,
    "refuse": 0.15,
    "silence": 0.15,
    "freeze": 0.15,
    "jump": 0.1,
    "damage": 0.05,
}
#: A film is drawn once and shown in a circle.
FILM_FRAMES = 240


class Film:
    """Pictures of one camera, drawn in advance so that drawing is not what is measured."""

    def __init__(self, seed: int) -> None:
        story = draw_story(np.random.default_rng(seed), FILM_FRAMES, min_event_frames=4)
        self.pictures = [picture_of(story, index, seed) for index in range(FILM_FRAMES)]

    def __getitem__(self, index: int) -> Image:
        return self.pictures[index % len(self.pictures)]


class FaultyConnection(Connection):
    """One connection that goes well for a while and then fails in one way.

    Args:
        film: What is shown.
        rng: Draws how long it goes well and how it fails.
        clock: Paces the pictures, one per second.
        told: Called with the name of the fault when it happens.
        mean_s: Mean seconds until it fails.
    """

    def __init__(
        self,
        film: Film,
        rng: np.random.Generator,
        clock: Clock,
        told: Callable[[str], None],
        mean_s: float,
    ) -> None:
        self._film, self._rng, self._clock, self._told = film, rng, clock, told
        self._fault = str(rng.choice(list(FAULTS), p=list(FAULTS.values())))
        self._good_frames = 1 + int(rng.exponential(mean_s))
        self._first = int(rng.integers(FILM_FRAMES))
        self._closed = threading.Event()

    def arrivals(self) -> Iterator[Arrival]:
        """See :class:`Connection`."""
        media_s = float(self._rng.uniform(0, 1e5))
        if self._fault == "refuse":
            self._told("refuse")
            raise SourceError("connection refused")
        for step in range(self._good_frames):
            if self._pause(1.0):
                return
            yield self._arrival(media_s + step, self._first + step)
        self._told(self._fault)
        yield from self._fail(media_s + self._good_frames, self._first + self._good_frames)

    def _fail(self, media_s: float, place: int) -> Iterator[Arrival]:
        if self._fault == "drop":
            raise SourceError("connection reset by peer")
        if self._fault == "silence":
            self._pause(600.0)
        elif self._fault == "freeze":
            for step in range(120):
                if self._pause(1.0):
                    return
                yield self._arrival(media_s + step, place)
        elif self._fault == "jump":
            for step in range(30):
                if self._pause(1.0):
                    return
                yield self._arrival(step - 3600.0, place + step)
        elif self._fault == "damage":
            for step in range(30):
                if self._pause(1.0):
                    return
                self.num_damaged += 1
                self.num_decode_errors += 1
                yield Arrival(media_s + step, lambda: None)

    def _arrival(self, media_s: float, place: int) -> Arrival:
        image = self._film[place]
        return Arrival(media_s, lambda: image)

    def _pause(self, seconds: float) -> bool:
        return self._clock.wait(self._closed, seconds)

    def close(self) -> None:
        """See :class:`Connection`."""
        self._closed.set()


class FaultyCamera:
    """Opens live sources onto one scripted camera; the faults go on over all of them.

    Args:
        name: In messages.
        seed: Of pictures and faults.
        clock: Shared by all cameras of a run.
        mean_s: Mean seconds between two faults.
    """

    def __init__(self, name: str, seed: int, clock: Clock, mean_s: float = 90.0) -> None:
        self.name, self.clock, self.mean_s = name, clock, mean_s
        self.faults: Counter[str] = Counter()
        self._film = Film(seed)
        self._rng = np.random.default_rng([seed, 1])
        self._seed = seed

    def __call__(self, config: HermesConfig) -> LiveSource:
        """Open it; what :meth:`Monitor.add_stream` takes as a source."""
        return LiveSource(
            self.name,
            config.source,
            connect=self._connect,
            clock=self.clock,
            seed=self._seed,
        )

    def _connect(self) -> FaultyConnection:
        def told(fault: str) -> None:
            self.faults[fault] += 1

        return FaultyConnection(self._film, self._rng, self.clock, told, self.mean_s)
