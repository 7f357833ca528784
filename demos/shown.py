"""What a visitor's page shows already: the same is not sent again, and drawings are not hurried.

A drawing costs as much as several frames of watching, so it may take a small share of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from demos import views
from demos.snapshots import Snapshot
from hermes_like.records import Evidence

#: Least seconds between two drawings of the memory, and how many times its own cost is waited.
DRAW_EVERY_S, SHARE = 2.0, 8.0


class Shown:
    """Belongs to one page."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._drawn: tuple[int, tuple[Evidence, ...]] | None = None
        self._next_s = 0.0

    def changed(self, name: str, value: Any, make: Callable[[Any], Any] = lambda v: v) -> Any:
        """What to send for a value; nothing if the page has it."""
        if name in self._values and self._values[name] == value:
            return gr.skip()
        self._values[name] = value
        return make(value)

    def memory(self, snapshot: Snapshot | None, hits: Sequence[Evidence]) -> Any:
        """The drawing of a memory, if it is time for another one."""
        key = (id(snapshot), tuple(hits))
        if key == self._drawn:
            return gr.skip()
        started_s = time.monotonic()
        are_hits_new = self._drawn is None or self._drawn[1] != key[1]
        if started_s < self._next_s and not are_hits_new:
            return gr.skip()
        drawn = views.memory(snapshot, hits)
        self._drawn = key
        now_s = time.monotonic()
        self._next_s = now_s + max(DRAW_EVERY_S, SHARE * (now_s - started_s))
        return drawn
