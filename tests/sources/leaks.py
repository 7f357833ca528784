"""What must not be left behind: threads, processes, sockets and pipes."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def children() -> set[int]:
    """Processes that this one has started and that are still there, as zombies too."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= {int(pid) for pid in (task / "children").read_text().split()}
        except FileNotFoundError:  # a thread that has ended
            continue
    return found


def handles() -> set[str]:
    """Sockets and pipes that are open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the listing itself
            continue
        if target.startswith(("socket:", "pipe:")):
            found.add(target)
    return found


def _state() -> tuple[set[threading.Thread], set[int], set[str]]:
    return set(threading.enumerate()), children(), handles()


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if anything is left at the end that was not there at the beginning."""
    gc.collect()
    before = _state()
    yield
    deadline = time.monotonic() + 1.0
    while True:
        gc.collect()
        left = [now - then for now, then in zip(_state(), before, strict=True)]
        if not any(left):
            return
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.02)
