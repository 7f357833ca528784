"""Connections that follow a script, and a clock that jumps to where somebody waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from hermes_like.errors import SourceError
from hermes_like.records import Image
from hermes_like.sources.live.clock import Clock
from hermes_like.sources.live.connection import Arrival, Connection
from tests.sources.clip_factory import barcode

START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


class StepClock(Clock):
    """Time passes only while somebody waits for it, and then at once."""

    def __init__(self, wall: datetime = START) -> None:
        self.now_s = 1000.0
        self.origin = wall - timedelta(seconds=self.now_s)
        self.waits_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> datetime:
        return self.origin + timedelta(seconds=self.now_s)

    def set_wall(self, step_s: float) -> None:
        """Set the clock on the wall forwards or back."""
        self.origin += timedelta(seconds=step_s)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        if not event.is_set():
            self.waits_s.append(timeout_s)
            self.now_s += timeout_s
        return event.is_set()


class Picture:
    """A step that delivers a picture, ``gap_s`` after what came before."""

    def __init__(
        self,
        number: int,
        gap_s: float = 0.25,
        media_s: float | None = None,
        is_convertible: bool = True,
    ) -> None:
        self.number, self.gap_s, self.media_s = number, gap_s, media_s
        self.is_convertible = is_convertible

    def image(self) -> Image | None:
        return barcode(self.number) if self.is_convertible else None


class Script(Connection):
    """Delivers pictures, calls functions, raises errors, in order; then ends.

    Args:
        steps: Pictures, functions to call, errors to raise.
        clock: Waits for the gaps.
        hangs: Whether it waits to be closed at the end.
    """

    def __init__(
        self,
        steps: Sequence[Picture | Callable[[], object] | Exception],
        clock: Clock,
        hangs: bool = False,
    ) -> None:
        self.steps, self.clock, self.hangs = steps, clock, hangs
        self.closed = threading.Event()
        self.is_over = threading.Event()
        self.threads: set[int] = set()

    def arrivals(self) -> Iterator[Arrival]:
        try:
            for step in self.steps:
                self.threads.add(threading.get_ident())
                if isinstance(step, Exception):
                    raise step
                if not isinstance(step, Picture):
                    step()
                    continue
                if self.clock.wait(self.closed, step.gap_s):
                    return
                yield Arrival(step.media_s, step.image)
            if self.hangs:
                self.closed.wait()
        finally:
            self.is_over.set()

    def close(self) -> None:
        self.closed.set()


class Scripts:
    """Connections one after the other; when there are no more, none can be made."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = scripts
        self.num_attempts = 0

    def __call__(self) -> Connection:
        index = self.num_attempts
        self.num_attempts += 1
        if index < len(self.scripts):
            return self.scripts[index]
        return Script([SourceError("scripted: no more connections")], StepClock())


def contract_script(clock: Clock, num_frames: int, fps: float) -> Script:
    """Barcodes at even times."""
    pictures = [Picture(i, 0.0 if i == 0 else 1 / fps, i / fps) for i in range(num_frames)]
    return Script(pictures, clock)
