"""Figures of ``gpu_check``: printed as soon as they are there, and in a table at the end.

A run that is cut off still leaves every line it had printed, in the output and in ``rows.jsonl``.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from pipelines.reporting import print_table

#: A part may take this much more than its share before it is interrupted, and these seconds.
PATIENCE, GRACE_S = 1.5, 5.0


class PartOverrunError(Exception):
    """A part of the check has used its time up and more."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        part: Part of the check.
        name: What was measured.
        value: The median, or the only one; None: nothing could be measured, and ``note`` says why.
        unit: Of value, ceiling and target.
        ceiling: What the machine allows at best, by measured rates; None: not known.
        ceiling_of: What the ceiling is made of.
        target: What is promised; None: nothing is, here.
        is_most: Whether the value may be at most the target; else at least.
        note: Anything else a reader must know.
        parts: Pieces of the value, in its unit.
    """

    part: str
    name: str
    value: float | None
    unit: str
    ceiling: float | None = None
    ceiling_of: str = ""
    target: float | None = None
    is_most: bool = True
    note: str = ""
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """``pass``, ``miss``, or ``-`` where nothing is promised."""
        if self.target is None or self.value is None:
            return "-"
        is_met = self.value <= self.target if self.is_most else self.value >= self.target
        return "pass" if is_met else "miss"

    def as_json(self) -> dict[str, Any]:
        """For a line of JSON."""
        return {**asdict(self), "verdict": self.verdict}


class Clock:
    """The time of one part."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._end_s = seconds, time.perf_counter() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, negative when it is over."""
        return self._end_s - time.perf_counter()

    @property
    def is_over(self) -> bool:
        """Whether the part should come to its end."""
        return self.left_s <= 0

    def share(self, fraction: float) -> Clock:
        """A clock for a piece of what is left."""
        return Clock(max(0.0, self.left_s) * fraction)


class Recorder:
    """Takes rows, prints each as a line of JSON and appends it to a file.

    Args:
        path: The file, begun anew.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
        self._path = path
        self.rows: list[Row] = []
        self.failures: list[str] = []

    def add(self, row: Row) -> None:
        """Print and keep a row."""
        self.rows.append(row)
        line = json.dumps(row.as_json())
        print(line, flush=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def fail(self, part: str, error: BaseException) -> None:
        """Note that a part ended early."""
        self.failures.append(part)
        self.add(Row(part, "failed", None, "", note=f"{type(error).__name__}: {error}"))

    def cut(self, part: str, seconds: float) -> None:
        """Note that a part was interrupted."""
        self.add(Row(part, "cut", None, "", note=f"interrupted after more than {seconds:.0f} s"))

    def table(self) -> str:
        """Print everything as a table; returns it as Markdown."""
        columns = ["figure", "value", "at best", "made of", "target", "verdict", "note"]
        rows = [
            [
                f"{row.part}: {row.name}",
                _number(row.value, row.unit),
                _number(row.ceiling, row.unit),
                row.ceiling_of or "-",
                _number(row.target, row.unit),
                row.verdict,
                "; ".join(filter(None, (row.note, _parts(row.parts)))) or "-",
            ]
            for row in self.rows
            if row.name != "took"
        ]
        return print_table("GPU check", columns, rows)


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:,.4g} {unit}".strip()


def _parts(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in parts.items())


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise :class:`PartOverrunError` in the main thread when a block takes far too long."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise PartOverrunError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds * PATIENCE + GRACE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds_left(shares: Sequence[float], left_s: float) -> float:
    """Time of the next part: its share of what is left, so that unused time goes to later parts."""
    return max(0.0, left_s) * shares[0] / sum(shares)
