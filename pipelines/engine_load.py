"""Many streams on one model: frames per second, lag, and what a question waits while they run.

    python -m pipelines.engine_load --streams 1,4,16

For each number of streams: first nobody feeds and questions are asked (idle); then every stream is
fed as fast as it takes frames (full) and the same questions are asked; then each is fed one frame
per second, as cameras do (paced), and the lag from a frame's arrival until it is remembered is
taken. Ratios within one run count; absolute times depend on the machine. The last line is JSON.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from hermes_like.config import EngineConfig, HermesConfig
from hermes_like.engine import Engine
from hermes_like.models import load_model
from hermes_like.models.base import ModelAdapter
from hermes_like.presets import load_config
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from hermes_like.sources import open_source
from pipelines.reporting import bundled_model, print_header, print_json, print_table

QUESTION = "what is visible now ?"
FILM_FRAMES = 64


class Feeder:
    """Feeds one stream in a thread, in a circle over its film.

    Args:
        engine: Gets the frames.
        name: Of the stream.
        film: Shown again and again, times going on.
        pause_s: Between two frames; 0: as fast as they are taken.
        first: Running number of the first frame.
    """

    def __init__(
        self, engine: Engine, name: str, film: Sequence[Frame], pause_s: float, first: int
    ) -> None:
        self.num_frames = 0
        self.waited_s: list[float] = []
        self._stop = threading.Event()
        self._engine, self._name, self._film = engine, name, film
        self._pause_s, self._first = pause_s, first
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            index = self._first + self.num_frames
            frame = replace(self._film[index % len(self._film)], index=index, pts_s=float(index))
            arrived_s = time.monotonic() if self._pause_s == 0 else due_s
            while not self._engine.put(self._name, frame, 0.2):
                if self._stop.is_set():
                    return
            if self._pause_s:
                self._engine.drain(self._name)
                self.waited_s.append(time.monotonic() - arrived_s)
            self.num_frames += 1
            due_s += self._pause_s

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()


def ask_some(engine: Engine, names: Sequence[str], count: int) -> list[float]:
    """TTFT of questions about one stream after the other."""
    return [engine.ask(names[i % len(names)], QUESTION).ttft_s for i in range(count)]


def measure(
    model: ModelAdapter, config: HermesConfig, num_streams: int, seconds: float, questions: int
) -> dict[str, Any]:
    """One row of the table."""
    films = []
    for seed in range(num_streams):
        with open_source(f"sprites:seed={seed},frames={FILM_FRAMES}") as source:
            films.append(list(source))
    names = [f"stream{number}" for number in range(num_streams)]
    with Engine(model, config.engine) as engine:
        for name in names:
            engine.add(name, StreamSession(model, config, name=name))
        for name, film in zip(names, films, strict=True):
            for frame in film[:32]:
                engine.put(name, frame)
        for name in names:
            engine.drain(name)
        idle = ask_some(engine, names, questions)
        row = {"streams": num_streams, "ttft_idle_s": statistics.median(idle)}
        feeders = [
            Feeder(engine, name, film, 0.0, 32) for name, film in zip(names, films, strict=True)
        ]
        time.sleep(1.0)
        counts, started_s = [f.num_frames for f in feeders], time.monotonic()
        time.sleep(seconds)
        spent_s = time.monotonic() - started_s
        served = [f.num_frames - c for f, c in zip(feeders, counts, strict=True)]
        row |= {"frames_per_s": sum(served) / spent_s, "fewest_to_most": min(served) / max(served)}
        before, started_s = sum(f.num_frames for f in feeders), time.monotonic()
        busy = ask_some(engine, names, questions)
        asked_s = time.monotonic() - started_s
        row |= {
            "ttft_full_s": statistics.median(busy),
            "ttft_full_worst_s": max(busy),
            "frames_per_s_while_asked": (sum(f.num_frames for f in feeders) - before) / asked_s,
        }
        for feeder in feeders:
            feeder.stop()
        for name in names:
            engine.drain(name)
        paced = [
            Feeder(engine, name, film, 1.0, 32 + feeder.num_frames + 1)
            for name, film, feeder in zip(names, films, feeders, strict=True)
        ]
        time.sleep(seconds)
        for feeder in paced:
            feeder.stop()
        lags = [lag for feeder in paced for lag in feeder.waited_s]
        row |= {"lag_s": statistics.median(lags), "lag_worst_s": max(lags)}
        for name in names:
            engine.remove(name).close()
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each stretch")
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--batch-frames", type=int, default=EngineConfig().batch_frames)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config = load_config("sprites")
    engine = config.engine.model_copy(update={"batch_frames": options.batch_frames})
    config = config.model_copy(update={"engine": engine})
    model = load_model(config.model)
    rows = [
        measure(model, config, int(count), options.seconds, options.questions)
        for count in options.streams.split(",")
    ]
    where = print_header(
        "engine_load",
        {"model": bundled_model(), "batch_frames": options.batch_frames, "preset": "sprites"},
    )
    print_table("", list(rows[0]), [[_shown(value) for value in row.values()] for row in rows])
    print_json({**where, "batch_frames": options.batch_frames, "rows": rows})
    return 0


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
