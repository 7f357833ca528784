"""Sources that misbehave on purpose. Some are opened by name in a child process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator

import numpy as np

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError
from hermes_like.records import Frame
from hermes_like.sources.base import Wanted
from hermes_like.sources.owned import OwnedSource

NUM_GOOD_FRAMES = 3


class FakeSource(OwnedSource):
    """Good frames, 0.1 s apart, then ``ending`` happens: end, error, sleep, crash or endless.

    ``slow`` takes ``reference``'s number of seconds for each frame.
    """

    def __init__(self, ending: str, config: SourceConfig | None = None) -> None:
        super().__init__(f"fake:{ending}", config or SourceConfig())
        self.ending = ending
        self.num_made = 0
        self.was_released = threading.Event()

    def _release(self) -> None:
        self.was_released.set()

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        while self.ending == "endless" or self.num_made < NUM_GOOD_FRAMES:
            index = self.num_made
            self.num_made += 1
            if wanted(index / 10):
                yield self._frame(np.full((8, 8, 3), index % 256, np.uint8), index, index / 10)
        if self.ending == "error":
            raise SourceError("fake:error: the disk fell over at 0.3 s")
        if self.ending == "bug":
            raise ZeroDivisionError("a bug in the reader")
        if self.ending == "sleep":
            time.sleep(3600)
        if self.ending == "crash":
            os.abort()


def open_fake(reference: str, config: SourceConfig) -> FakeSource:
    """Opener for the child process; ``never`` does not even open."""
    if reference == "never":
        time.sleep(3600)
    return FakeSource(reference, config)
