"""RAM that was freed and stays with the process, because the C library keeps it for later."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import cast


def give_back() -> bool:
    """Return free pages to the system, where the C library can (glibc); takes milliseconds.

    Arrays that grow leave holes of their old size, which glibc does not return by itself: after a
    day of stream that is more than the arrays take.

    Returns:
        Whether there were any.
    """
    trim = _trim()
    return trim is not None and bool(trim(0))


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return cast(Callable[[int], int], found)
