"""Days of several failing cameras in accelerated time: does anything grow?

    python -m pipelines.soak --minutes 1           what runs with the tests
    make soak                                      an hour

A monitor with memories on disk watches scripted cameras (``faulty_camera.py``) on a clock that runs
faster. Meanwhile questions are asked, stretches are erased, cameras are taken away and brought
back, and the whole monitor is stopped and started again. RSS, threads, file handles and disk are
sampled; caps are checked at every sample. The last line printed is JSON; the exit status is 1 if
something grew, a cap was passed or a question failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hermes_like.config import HermesConfig
from hermes_like.errors import HermesError
from hermes_like.models import load_model
from hermes_like.models.base import ModelAdapter
from hermes_like.monitor import Monitor, MonitorEvent
from hermes_like.presets import load_config, with_settings
from hermes_like.sources.live.clock import ScaledClock
from pipelines.faulty_camera import FaultyCamera
from pipelines.reporting import bundled_model, print_header, print_json, print_table

QUESTIONS = (
    "what is visible now ?",
    "was there a red star ?",
    "how often was there a blue ring ?",
    "what was visible ten minutes ago ?",
    "what color was the star ?",
)
#: Small caps, so that a run of minutes reaches them.
SETTINGS: dict[str, Any] = {
    "store.host_bytes": 8 * 2**20,
    "store.disk_bytes": 24 * 2**20,
    "store.keyframe_bytes": 4 * 2**20,
    "store.min_free_bytes": 0,
    "store.retention_s": 7200.0,
    "source.stale_s": 5.0,
    "source.silence_s": 20.0,
    "source.freeze_s": 30.0,
    "source.reconnect_most_s": 30.0,
}
#: RSS may differ this much between the third and the last quarter of a run: in the first half,
#: memories fill up to their caps and their age.
MOST_GROWTH = 0.05
MOST_GROWTH_BYTES = 24 * 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the process and its folders."""

    at_s: float
    rss_bytes: int
    threads: int
    handles: int
    disk_bytes: int
    host_bytes: int
    frames: int


def take_sample(started_s: float, monitor: Monitor, folder: Path) -> Sample:
    """Look at process, folders and tiers."""
    infos = monitor.streams()
    return Sample(
        at_s=time.monotonic() - started_s,
        rss_bytes=rss_bytes(),
        threads=threading.active_count(),
        handles=len(os.listdir("/proc/self/fd")),
        disk_bytes=allocated_bytes(folder),
        host_bytes=sum(info.stats.tiers["host"][0] for info in infos),
        frames=sum(info.stats.num_frames for info in infos),
    )


def rss_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def allocated_bytes(folder: Path) -> int:
    """Blocks that all files below a folder take."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total


class Soak:
    """One run.

    Args:
        model: Shared by all monitors of the run.
        config: Of every stream.
        cameras: What is watched, by name.
        folder: Gets the memories.
        seed: Draws what is done and when.
    """

    def __init__(
        self,
        model: ModelAdapter,
        config: HermesConfig,
        cameras: dict[str, FaultyCamera],
        folder: Path,
        seed: int,
    ) -> None:
        self.model, self.config, self.cameras, self.folder = model, config, cameras, folder
        self.rng = np.random.default_rng(seed)
        self.samples: list[Sample] = []
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self._events_lock = threading.Lock()
        self.started_s = time.monotonic()

    def run(self, seconds: float, sample_s: float, restarts: int) -> None:
        """Watch for a while, in so many stretches with a restart between them."""
        self.started_s = time.monotonic()
        for stretch in range(restarts + 1):
            until_s = self.started_s + seconds * (stretch + 1) / (restarts + 1)
            with Monitor(
                self.model, self.folder, config=self.config, on_event=self._note
            ) as monitor:
                for name, camera in self.cameras.items():
                    monitor.add_stream(name, camera)
                self._watch(monitor, until_s, sample_s)
            self.counts["restarts"] += stretch < restarts
        left = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        if left:
            self.problems.append(f"threads left behind: {left}")

    def _watch(self, monitor: Monitor, until_s: float, sample_s: float) -> None:
        next_s = time.monotonic()
        while time.monotonic() < until_s:
            if time.monotonic() >= next_s:
                self._sample(monitor)
                next_s += sample_s
            self._do_something(monitor)
            time.sleep(0.2)

    def _note(self, event: MonitorEvent) -> None:
        with self._events_lock:
            self.events[event.kind] += 1
            if event.kind == "failure":
                self.problems.append(f"{event.stream}: {event.text}")

    def _sample(self, monitor: Monitor) -> None:
        sample = take_sample(self.started_s, monitor, self.folder)
        self.samples.append(sample)
        for name in self.cameras:
            used, cap = allocated_bytes(self.folder / name), self.config.store.disk_bytes
            if used > cap:
                self.problems.append(f"{name}: {used} bytes on disk, the cap is {cap}")
        for info in monitor.streams():
            used, cap, _ = info.stats.tiers["host"]
            if used > cap:
                self.problems.append(f"{info.name}: {used} bytes in RAM, the cap is {cap}")
            if info.stats.peak_slots > (info.stats.device_tokens or sys.maxsize):
                self.problems.append(f"{info.name}: {info.stats.peak_slots} slots on the device")
            if info.failure:
                self.problems.append(f"{info.name}: {info.failure}")

    def _do_something(self, monitor: Monitor) -> None:
        drawn = self.rng.random()
        name = str(self.rng.choice(list(self.cameras)))
        try:
            if drawn < 0.30:
                question = str(self.rng.choice(QUESTIONS))
                stream = None if drawn < 0.05 else name
                answer = monitor.ask(question, stream=stream, deadline_s=2.0)
                self.counts[f"answers {answer.status}"] += 1
            elif drawn < 0.31:
                monitor.erase(timedelta(seconds=600), timedelta(seconds=300), stream=name)
                self.counts["erased stretches"] += 1
            elif drawn < 0.315:
                monitor.remove_stream(name, forget=bool(self.rng.random() < 0.3))
                monitor.add_stream(name, self.cameras[name])
                self.counts["cameras taken away and brought back"] += 1
        except HermesError as error:
            self.problems.append(f"{type(error).__name__}: {error}")

    def report(self) -> dict[str, Any]:
        """What happened, and whether anything grew."""
        quarter = len(self.samples) // 4
        early, late = self.samples[2 * quarter : 3 * quarter], self.samples[-quarter:]
        growth = {}
        for field in ("rss_bytes", "threads", "handles", "disk_bytes"):
            before, after = (
                statistics.median(getattr(sample, field) for sample in part)
                for part in (early, late)
            )
            growth[field] = {"third quarter": before, "last quarter": after}
            if not is_flat(field, before, after):
                self.problems.append(f"{field} grew from {before:.0f} to {after:.0f}")
        return {
            "frames": sum(s.frames for s in self.samples[-1:]),
            "faults": dict(sum((c.faults for c in self.cameras.values()), Counter())),
            "events": dict(self.events),
            "counts": dict(self.counts),
            "growth": growth,
            "peak": {
                field: max(getattr(sample, field) for sample in self.samples)
                for field in ("rss_bytes", "threads", "handles", "disk_bytes", "host_bytes")
            },
            "problems": self.problems,
        }


def is_flat(field: str, before: float, after: float) -> bool:
    """Whether a figure has not grown; disk is held by its caps, which are checked at each look."""
    if field == "disk_bytes":
        return True
    if field == "rss_bytes":
        return after - before <= max(MOST_GROWTH_BYTES, MOST_GROWTH * before)
    # A camera that connects, or an answer on its way, has a thread and a handle of its own.
    return after - before <= 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cameras", type=int, default=4)
    parser.add_argument("--speed", type=float, default=5.0, help="stream seconds per second")
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="keeps samples.json there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config = with_settings(load_config("sprites"), SETTINGS)
    model = load_model(config.model)
    clock = ScaledClock(options.speed)
    names = [f"cam{number}" for number in range(1, options.cameras + 1)]
    cameras = {
        name: FaultyCamera(name, options.seed + place, clock) for place, name in enumerate(names)
    }
    folder = Path(tempfile.mkdtemp(prefix="hermes_like_soak_"))
    try:
        soak = Soak(model, config, cameras, folder, options.seed)
        seconds = options.minutes * 60
        soak.run(seconds, sample_s=max(0.5, seconds / 400), restarts=options.restarts)
        report = soak.report()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    where = print_header(
        "soak",
        {
            "minutes": options.minutes,
            "cameras": f"{options.cameras}, {options.speed:g} seconds of stream in a second",
            "model": bundled_model(),
        },
    )
    print_report(report)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        samples = [asdict(sample) for sample in soak.samples]
        (options.out / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
    print_json({**where, "minutes": options.minutes, **report})
    return 1 if report["problems"] else 0


def print_report(report: dict[str, Any]) -> None:
    """The report as tables."""
    rows = []
    for field, parts in report["growth"].items():
        scale, unit = (2**20, " MiB") if field.endswith("bytes") else (1, "")
        values = [*parts.values(), report["peak"][field]]
        rows.append([field.removesuffix("_bytes"), *(f"{v / scale:.0f}{unit}" for v in values)])
    print_table("median of", ["", "third quarter", "last quarter", "peak"], rows)
    for title in ("faults", "events", "counts"):
        told = ", ".join(f"{name} {count}" for name, count in sorted(report[title].items()))
        print(f"{title}: {told}")
    for problem in report["problems"][:20]:
        print(f"PROBLEM: {problem}")
    print(f"{len(report['problems'])} problems")


if __name__ == "__main__":
    sys.exit(main())
