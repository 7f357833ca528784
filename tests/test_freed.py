"""Freed RAM goes back to the system; in a process of its own, since the C library is shared."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from hermes_like import freed
from hermes_like.freed import give_back

SCRIPT = """
import gc
from hermes_like.freed import give_back

def resident_bytes():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss:")) * 1024

blocks = [bytearray(4000) for _ in range(20_000)]
for block in blocks:
    block[0] = 1
top = [bytearray(4000) for _ in range(10)]  # above the others: the heap cannot simply shrink
before = resident_bytes()
del blocks, block
gc.collect()
kept = resident_bytes()
assert give_back()
print(before - kept, before - resident_bytes())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_what_was_freed_goes_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    by_itself, given_back = map(int, done.stdout.split())
    assert by_itself < 20e6, "glibc alone would do, and nothing of ours is needed"
    assert given_back > 60e6


def test_it_is_no_error_where_it_cannot_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: object) -> object:
        raise OSError("no C library")

    monkeypatch.setattr(ctypes, "CDLL", nothing)
    freed._trim.cache_clear()
    try:
        assert give_back() is False
    finally:
        freed._trim.cache_clear()
