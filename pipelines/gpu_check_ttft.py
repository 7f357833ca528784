"""Time to the first token with given frames from device, RAM and disk, for ``gpu_check``.

Frames come *together*, in as few segments as hold them, or *apart*, each from a segment of its own,
which is the worst case: from the disk a segment is read and verified whole. What is promised is
measured first, so that a run that is cut has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from hermes_like.plan import block_bytes
from pipelines.gpu_check_machine import drop_page_cache
from pipelines.gpu_check_rows import Clock, Row
from pipelines.gpu_check_stream import Check
from pipelines.ttft import empty_host

Place = Literal["device", "host", "disk", "cold disk"]
Layout = Literal["together", "apart"]
#: Promised for 7B in bfloat16 with nothing pending, in milliseconds.
TARGETS_MS = {("device", 0): 30.0, ("host", 16): 60.0, ("disk", 64): 150.0}
#: Questions of each kind behind a dropped page cache, which may take seconds.
COLD_REPEATS = 1


@dataclass(frozen=True, slots=True)
class Case:
    """What comes back for a question.

    Attributes:
        place: From where.
        size: How many frames.
        layout: How they lie in segments.
        is_pending: Whether a whole chunk waits when the question comes.
    """

    place: Place
    size: int = 0
    layout: Layout = "together"
    is_pending: bool = False

    @property
    def name(self) -> str:
        """For the table."""
        of = f"{self.size} frames from {self.place}, {self.layout}" if self.size else "resident"
        return of + (", a chunk pending" if self.is_pending else "")


def cases(sizes: Sequence[int]) -> list[Case]:
    """All cases, those with a promise first and the slowest last."""
    promised = [Case("device"), *(Case(p, n) for (p, n) in TARGETS_MS if n in sizes)]  # type: ignore[arg-type]
    layouts: tuple[Layout, ...] = ("together", "apart")
    places: tuple[Place, ...] = ("host", "disk")
    usual = [Case(p, n, how) for how in layouts for p in places for n in sizes]
    pending = [Case(c.place, c.size, c.layout, True) for c in (Case("device"), *usual)]
    cold = [Case("cold disk", n, how) for how in layouts for n in sizes]
    return list(dict.fromkeys([*promised, *usual, *pending, *cold]))


def measure_first_tokens(
    check: Check, sizes: Sequence[int], repeats: int, clock: Clock
) -> Iterator[Row]:
    """A row for every case, also for one that could not be measured."""
    check.ask(())  # warm-up
    long_term = check.session.long_term
    assert long_term is not None
    is_written = long_term.chain.flush(max(1.0, clock.left_s / 4))
    for case in cases(sizes):
        frames = _choose(check, case)
        if clock.is_over:
            yield _left_out(case, "no time was left")
        elif len(frames) < case.size:
            yield _left_out(case, f"only {len(frames)} such frames are stored")
        elif case.place.endswith("disk") and not is_written:
            yield _left_out(case, "not all segments were written in time")
        else:
            yield _measure(check, case, frames, repeats, clock)


def _left_out(case: Case, why: str) -> Row:
    return Row("ttft", case.name, None, "ms", note=why)


def _choose(check: Check, case: Case) -> list[int]:
    """Old frames: the first ones of the stream, or one in the middle of each segment."""
    step = check.config.memory.segment_frames
    if case.layout == "together":
        return list(range(min(case.size, check.num_segments * step)))
    return [n * step + step // 2 for n in range(min(case.size, check.num_segments))]


def _measure(check: Check, case: Case, frames: Sequence[int], repeats: int, clock: Clock) -> Row:
    found: list[float] = []
    parts: list[dict[str, float]] = []
    came_from: dict[str, int] = {}
    if case.place == "host":
        check.ask(frames)  # brings the segments to RAM
    for _ in range(COLD_REPEATS if case.place == "cold disk" else repeats):
        if case.place.endswith("disk"):
            empty_host(check.session)
        if case.place == "cold disk":
            drop_page_cache(check.folder)
        waited_s = check.pend() if case.is_pending else 0.0
        answer, tiers = check.ask(frames)
        found.append(1e3 * (waited_s + answer.ttft_s))
        parts.append({name: 1e3 * value for name, value in answer.parts_s.items()})
        for tier in tiers.values():
            came_from[tier] = came_from.get(tier, 0) + 1
        if clock.is_over:
            break
    floor_s, made_of = _floor_s(check, case, frames)
    target = None if case.is_pending else TARGETS_MS.get((case.place, case.size))
    expected = {case.place.removeprefix("cold "): len(frames) * len(found)} if frames else {}
    notes = [f"{len(found)} questions"]
    notes += ["the ceiling leaves the chunk out"] if case.is_pending else []
    notes += [f"came from {came_from}, expected {expected}"] if came_from != expected else []
    return Row(
        "ttft", case.name, median(found), "ms", 1e3 * floor_s, made_of,
        None if target is None else check.target(target),
        note="; ".join(notes),
        parts={name: median(one[name] for one in parts) for name in parts[0]},
    )  # fmt: skip


def _floor_s(check: Check, case: Case, frames: Sequence[int]) -> tuple[float, str]:
    """At best: weights once, wanted bytes over the link; from disk, segments read and verified."""
    floor_s, made_of = check.weights_s, "weights"
    if not frames:
        return floor_s, made_of
    dims, step, machine = check.model.dims, check.config.memory.segment_frames, check.machine
    segments = len({frame // step for frame in frames})
    tokens = step * dims.tokens_per_frame
    whole = dims.num_layers * block_bytes(
        check.config.store.codec, dims.num_kv_heads, tokens, dims.head_dim, dims.dtype.itemsize
    )
    floor_s += whole / step * len(frames) / machine.link
    made_of = "weights, link"
    rate = {"disk": machine.disk_warm, "cold disk": machine.disk_cold}.get(case.place, 0.0)
    if rate:
        floor_s += segments * whole * (1 / rate + 1 / machine.checksum)
        return floor_s, f"{made_of}, raw reads, checksum"
    return floor_s, made_of
