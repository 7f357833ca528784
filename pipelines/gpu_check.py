"""In some minutes on one GPU: speed of every part of the memory, beside what the machine allows.

    pipelines/gpu_check.sh                                       finds or makes an environment first
    python -m pipelines.gpu_check --model random:llava-onevision-7b --minutes 8
    python -m pipelines.gpu_check --model random:llava-onevision-tiny --device cpu --minutes 1

Random weights of a true shape. Every part has a share of the time and prints each figure as a line
of JSON as soon as it has it, so that a run that is cut off still leaves what it measured; a table
comes at the end, and the last line is JSON. Promises hold for a 7B shape in bfloat16 on CUDA; the
verdict is ``-`` elsewhere. Reads are of int8 segments; "disk" has the page cache of the system
warm, "cold disk" has it dropped before every question.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from hermes_like.cli.plan_model import model_shape
from hermes_like.config import HermesConfig
from hermes_like.models import ModelAdapter, load_model
from hermes_like.models.loading import resolve_device, resolve_dtype
from hermes_like.presets import load_config, preset_path, with_settings
from pipelines.bench import preset_of_shape
from pipelines.gpu_check_machine import Machine, measure_codecs, measure_disk, measure_machine
from pipelines.gpu_check_rows import (
    Clock,
    PartOverrunError,
    Recorder,
    Row,
    interrupted_after,
    seconds_left,
)
from pipelines.gpu_check_stream import Check
from pipelines.gpu_check_ttft import measure_first_tokens
from pipelines.gpu_kernels import measure_kernels
from pipelines.reporting import print_header, print_json, save_config, write_tables

#: Part to its share of the time. What a part leaves goes to those behind it.
SHARES = {
    "machine": 6,
    "load": 14,
    "codecs": 12,
    "ingest": 18,
    "ttft": 24,
    "tpot": 4,
    "flat": 18,
    "kernels": 4,
}
GIB = 2**30
Work = Callable[[Clock], Iterator[Row]]


def promises_hold(model: str, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether targets are stated for a model, a number type and a device."""
    return model.endswith("-7b") and dtype == torch.bfloat16 and device.type == "cuda"


class Run:
    """All parts in their order; a part that fails leaves the figures of the others.

    Args:
        args: Command line.
        recorder: Takes the rows.
    """

    def __init__(self, args: argparse.Namespace, recorder: Recorder) -> None:
        self.args, self.recorder = args, recorder
        self.device = resolve_device(args.device)
        self.dtype = resolve_dtype(args.dtype, self.device)
        self.has_targets = promises_hold(args.model, self.dtype, self.device)
        self.machine = Machine()
        self.sizes = [int(size) for size in args.sizes.split(",")]
        self.folder = Path(tempfile.mkdtemp(prefix="memory_", dir=args.out))
        self.config = configuration(args, max(self.sizes))
        self.model: ModelAdapter | None = None
        self.check: Check | None = None

    def run(self) -> None:
        """Every part within its time."""
        works: dict[str, Work] = {
            "machine": lambda clock: measure_machine(self.machine, self.device, self.dtype),
            "load": self._load,
            "codecs": self._codecs,
            "ingest": self._ingest,
            "ttft": self._ttft,
            "tpot": lambda clock: self._checked().per_token(clock),
            "flat": self._flat,
            "kernels": self._kernels,
        }
        all_time = Clock(60 * self.args.minutes)
        shares = [SHARES[name] for name in works]
        try:
            for index, (name, work) in enumerate(works.items()):
                self._part(name, work, seconds_left(shares[index:], all_time.left_s))
        finally:
            if self.check is not None:
                self.check.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _part(self, name: str, work: Work, seconds: float) -> None:
        started = time.perf_counter()
        try:
            with interrupted_after(seconds):
                for row in work(Clock(seconds)):
                    self.recorder.add(row)
        except PartOverrunError:
            self.recorder.cut(name, seconds)
        except Exception as error:  # whatever it is, the parts behind this one go on
            self.recorder.fail(name, error)
        took_s = time.perf_counter() - started
        self.recorder.add(Row(name, "took", took_s, "s", note=f"of {seconds:.0f} s"))

    def _load(self, clock: Clock) -> Iterator[Row]:
        start = time.perf_counter()
        self.model = load_model(self.config.model)
        yield Row("load", "weights made in place", time.perf_counter() - start, "s")
        if self.device.type == "cuda":
            held = torch.cuda.memory_allocated(self.device) / 1e9
            peak = torch.cuda.max_memory_allocated(self.device) / 1e9
            yield Row("load", "device memory held", held, "GB", note=f"{peak:.3g} GB at the peak")
        self.check = Check(
            self.model, self.config, self.machine, self.folder, has_targets=self.has_targets
        )

    def _checked(self) -> Check:
        if self.check is None:
            raise RuntimeError("the model could not be loaded")
        return self.check

    def _codecs(self, clock: Clock) -> Iterator[Row]:
        dims = self._checked().model.dims
        return measure_codecs(self.machine, dims, self.config.memory.segment_frames, clock)

    def _ingest(self, clock: Clock) -> Iterator[Row]:
        return self._checked().ingest(max(self.sizes) + 4, clock)

    def _ttft(self, clock: Clock) -> Iterator[Row]:
        check = self._checked()
        assert check.session.long_term is not None
        check.session.long_term.chain.flush(clock.left_s / 4)
        yield from measure_disk(self.machine, self.folder)
        yield from measure_first_tokens(check, self.sizes, self.args.repeats, clock)

    def _flat(self, clock: Clock) -> Iterator[Row]:
        changes = {
            "store.host_bytes": min(2 * GIB, self.config.store.host_bytes),
            "store.disk_bytes": 0,
            "store.keyframe_bytes": 0,
        }
        config = with_settings(self.config, changes)
        return self._checked().flat(config, self.args.frames, clock)

    def _kernels(self, clock: Clock) -> Iterator[Row]:
        if self.device.type != "cuda" and not self.args.compile:
            note = "compiled on CUDA only; --compile does it here"
            yield Row("restore and rotate", "one compiled kernel", None, "GB/s", note=note)
            return
        dims = self._checked().model.dims
        tokens = self.config.memory.segment_frames * dims.tokens_per_frame
        shape = (dims.num_layers * dims.num_kv_heads, tokens, dims.head_dim)
        yield from measure_kernels(self.machine, shape, self.device)


def configuration(args: argparse.Namespace, most_frames: int) -> HermesConfig:
    """The preset of the model, with room for the frames that come back and for a long answer."""
    preset = args.preset or preset_of_shape(args.model.removeprefix("random:"))
    base = load_config(preset, {"model.name": args.model}, {})
    per_frame = model_shape(base.model).tokens_per_frame
    answer_tokens = max(64, base.memory.answer_tokens)
    more = most_frames * per_frame - base.retrieval.retrieved_tokens
    more += answer_tokens - base.memory.answer_tokens
    free = shutil.disk_usage(args.out).free
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return with_settings(
        base,
        {
            "model.device": args.device,
            "model.dtype": args.dtype,
            "memory.device_tokens": args.device_tokens or base.memory.device_tokens + max(0, more),
            "memory.answer_tokens": answer_tokens,
            "retrieval.max_frames": most_frames,
            "retrieval.retrieved_tokens": most_frames * per_frame,
            "retrieval.deadline_s": 60.0,
            "store.codec": "int8",
            "store.host_bytes": min(24 * GIB, ram // 4),
            "store.disk_bytes": min(40 * GIB, free // 2),
            "store.min_free_bytes": min(GIB, free // 8),
            "answer.keep_conversation": False,
        },
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="random:llava-onevision-7b", help="random:<shape>")
    parser.add_argument("--preset", help="default: the model's own")
    parser.add_argument("--device", default="auto", help="auto | cpu | cuda")
    parser.add_argument("--dtype", default="auto", help="auto | float32 | bfloat16 | float16")
    parser.add_argument("--device-tokens", type=int, help="default: the preset's, and more")
    parser.add_argument("--minutes", type=float, default=7.0, help="for all parts together")
    parser.add_argument("--sizes", default="8,16,64", help="frames that come back")
    parser.add_argument("--frames", type=int, default=10_000, help="of the long stream")
    parser.add_argument("--repeats", type=int, default=5, help="questions of each kind")
    parser.add_argument("--threads", type=int, help="default: torch's own choice")
    parser.add_argument("--compile", action="store_true", help="compile a kernel on a CPU too")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu_check"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and report; 1 where a part failed."""
    args = parse(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    started = time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(args.out / "rows.jsonl")
    run = Run(args, recorder)
    facts: dict[str, Any] = {
        "model": f"{args.model}, random weights; {run.dtype}, {run.device}",
        "preset": str(preset_path(args.preset or preset_of_shape(args.model[len("random:") :]))),
        "resolved config": str(save_config(run.config, args.out / "gpu_check.yaml")),
        "device_tokens": run.config.memory.device_tokens,
        "minutes": args.minutes,
        "repeats": args.repeats,
        "targets": "7B, bfloat16, CUDA" if run.has_targets else "none for this model and device",
    }
    where = print_header("GPU check", facts)
    run.run()
    write_tables([recorder.table()], args.out / "tables.md")
    wall_s = round(time.perf_counter() - started, 1)
    verdicts = [row.verdict for row in recorder.rows]
    print(f"targets: {verdicts.count('pass')} passed, {verdicts.count('miss')} missed")
    result = {"pipeline": "gpu_check", **where, **facts, "wall_s": wall_s}
    rows = [row.as_json() for row in recorder.rows]
    print_json({**result, "failed": recorder.failures, "rows": rows})
    return 1 if recorder.failures else 0


if __name__ == "__main__":
    sys.exit(main())
