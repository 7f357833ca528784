"""Readers of pictures that misbehave natively; opened by name in a process of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hermes_like.sources.live.connection import Arrival
from hermes_like.sources.live.pictures import Counts
from tests.sources.clip_factory import barcode


def read_fake(
    request: Mapping[str, Any], counts: Counts, is_alive: Callable[[], None]
) -> Iterator[Arrival]:
    """Two good pictures, then ``ending``: end, hang, crash or bug.

    ``deaf`` does not even open, ``late`` opens after a second, ``blank`` lives without pictures.
    """
    time.sleep({"deaf": 3600, "late": 1}.get(request["ending"], 0))
    is_alive()
    while request["ending"] == "blank":
        time.sleep(0.05)
        is_alive()
    for number in range(2):
        yield Arrival(number / 10, lambda number=number: barcode(number))
    if request["ending"] == "hang":
        time.sleep(3600)
    if request["ending"] == "crash":
        os.abort()
    if request["ending"] == "bug":
        raise ZeroDivisionError("geheim")
