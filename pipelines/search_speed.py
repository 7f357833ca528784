"""What a search costs beside busy processes, with NumPy's products shared among cores and not.

    python -m pipelines.search_speed

Searches the index of a day (86,400 frames, two vectors for each of four heads), first on a machine
left alone, then while as many other processes are busy as there are cores but one. ``shared`` is
what NumPy does by itself; the library cuts small products so that each stays on one core.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import hermes_like.index
from pipelines.calibrate_speed import DAY_FRAMES, speed
from pipelines.reporting import print_header, print_json, print_table

HEADS, HEAD_DIM, GROUPS = 4, 32, 2
BUSY = "while True: pass"


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Other processes that never rest."""
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
            stack.callback(process.kill)
        yield


def search_ms(num_frames: int, shared_product: int) -> float:
    """Milliseconds of a search through everything; products from this size on are shared."""
    with patch.object(hermes_like.index, "SHARED_PRODUCT", shared_product):
        return speed(HEADS, HEAD_DIM, GROUPS, num_frames)["search_all_median_ms"]


def main(argv: list[str] | None = None) -> int:
    """Measure and report; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=DAY_FRAMES)
    parser.add_argument("--busy", type=int, help="other processes; default: cores less one")
    args = parser.parse_args(argv)
    count = max(1, (os.cpu_count() or 1) - 1) if args.busy is None else args.busy
    facts = print_header("search beside busy processes", {"frames": args.frames, "busy": count})
    found: dict[str, dict[str, float]] = {}
    for name, num_busy in (("alone", 0), ("busy", count)):
        with busy_processes(num_busy):
            found[name] = {
                "shared_ms": search_ms(args.frames, 0),
                "ours_ms": search_ms(args.frames, hermes_like.index.SHARED_PRODUCT),
            }
    rows = [[name, *(f"{value:.1f}" for value in cells.values())] for name, cells in found.items()]
    print_table("search, ms, median of 15", ["machine", "shared", "ours"], rows)
    print_json({"pipeline": "search_speed", **facts, "found": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
