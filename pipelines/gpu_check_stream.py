"""A stream on the device under test: ingest, time per token, and bytes over many frames.

One session with a folder watches a stream, a stretch of it with pictures that are really encoded,
the rest with their vision tokens again. For ``pipelines/gpu_check.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hermes_like.config import HermesConfig
from hermes_like.consult import Consulted, Search
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.models import ModelAdapter
from hermes_like.records import Answer, Frame, Tier
from hermes_like.retrieval.base import Found, Hit
from hermes_like.session import StreamSession
from pipelines.ceilings import ceilings
from pipelines.gpu_check_machine import Machine, wait
from pipelines.gpu_check_rows import Clock, Row
from pipelines.long_jobs import anonymous_bytes
from pipelines.long_views import Watched
from pipelines.replay import numbered

QUESTION = "What is happening now?"
#: Promised for 7B in bfloat16: most of ingest, in percent.
MEMORY_PERCENT = 5.0
NUM_PICTURES = 32
#: Segments that are watched before the clock of ingest starts, and under it.
WARM_SEGMENTS, TIMED_SEGMENTS = 2, 6


class Sent(Watched):
    """A consultant that searches as ever; only what it found is replaced by given frames."""

    frames: Sequence[int] = ()

    def _find(self, search: Search, cache: HierarchicalCache) -> Found:
        super()._find(search, cache)
        segments = [(self.long_term.timeline.segment_of(frame), frame) for frame in self.frames]
        return Found(tuple(Hit(s.segment_id, frame, 1.0) for s, frame in segments if s is not None))


class Check:
    """One session on one model, and what is measured on it.

    Args:
        model: Whose memory is checked.
        config: Of the session with a folder.
        machine: Measured rates, for ceilings.
        folder: Empty.
        has_targets: Whether the promises hold for this model and device.
    """

    def __init__(
        self,
        model: ModelAdapter,
        config: HermesConfig,
        machine: Machine,
        folder: Any,
        *,
        has_targets: bool,
    ) -> None:
        self.model, self.config, self.machine, self.folder = model, config, machine, folder
        self.has_targets = has_targets
        rng = np.random.default_rng(5)
        self._pictures = list(rng.integers(0, 256, (NUM_PICTURES, 360, 640, 3), dtype=np.uint8))
        self._tokens: Tensor | None = None
        self._num = 0
        limits = ceilings(model)
        self._limits = limits
        self.weights_s = limits["weight_bytes_per_token"] / (machine.memory or float("inf"))
        self.session = StreamSession(model, config, folder=folder)
        assert self.session.long_term is not None
        self._sent = Sent(self.session.memory, self.session.long_term, config.retrieval)
        self.session._desk._consultant = self._sent

    def close(self) -> None:
        """Give everything back; what is in the folder stays."""
        self.session.close(save=False)

    @property
    def num_segments(self) -> int:
        """Closed segments."""
        return self._num // self.config.memory.segment_frames

    def target(self, value: float) -> float | None:
        """A promise, where promises hold."""
        return value if self.has_targets else None

    # -- watching --------------------------------------------------------------------------------

    def _observe(self, count: int, *, is_encoded: bool = True) -> None:
        for _ in range(count):
            picture = self._pictures[self._num % NUM_PICTURES]
            frame = Frame(picture, self._num, float(self._num))
            tokens = None
            if not is_encoded:
                assert self._tokens is not None
                tokens = self._tokens[self._num % len(self._tokens)]
            self._num += 1
            self.session.observe(frame, tokens)

    def ingest(self, num_segments: int, clock: Clock) -> Iterator[Row]:
        """Frames per second and where the time goes; then watch on to a number of segments."""
        device, frames = self.model.dims.device, self.config.memory.segment_frames
        chunk = self.config.memory.prefill_frames
        vision_s = self._vision_s(chunk, device)
        yield Row("ingest", "vision", 1e3 * vision_s, "ms a frame", note=f"{chunk} frames at once")
        self._observe(WARM_SEGMENTS * frames)
        wait(device)
        before, seen, start = self._work(), self._num, time.perf_counter()
        timed = clock.share(0.5)
        for _ in range(TIMED_SEGMENTS):
            self._observe(frames)
            if timed.is_over:
                break
        wait(device)
        wall_s, count = time.perf_counter() - start, self._num - seen
        after = self._work()
        work = {name: after[name] - before[name] for name in after}
        yield from self._ingest_rows(work, wall_s, count)
        start, seen = time.perf_counter(), self._num
        while self.num_segments < num_segments and not clock.is_over:
            self._observe(frames, is_encoded=False)
        wait(device)
        if self._num > seen:
            rate = (self._num - seen) / (time.perf_counter() - start)
            note = f"up to {self.num_segments} segments"
            yield Row("ingest", "without vision", rate, "frames/s", note=note)

    def _vision_s(self, chunk: int, device: torch.device) -> float:
        """Seconds a frame of encoding pictures; keeps their tokens for later frames."""
        self.model.embed_frames(self._pictures[:chunk])
        wait(device)
        start = time.perf_counter()
        made = [
            self.model.embed_frames(self._pictures[first : first + chunk])
            for first in range(0, NUM_PICTURES, chunk)
        ]
        wait(device)
        self._tokens = torch.cat(made)
        return (time.perf_counter() - start) / NUM_PICTURES

    def _work(self) -> dict[str, float]:
        stats = self.session.stats()
        return {
            "vision and prefill": stats.vision_s + stats.prefill_s,
            "scoring": stats.scoring_s,
            "compaction": stats.compaction_s,
            "storing": stats.store_s,
        }

    def _ingest_rows(self, work: dict[str, float], wall_s: float, count: int) -> Iterator[Row]:
        rest_s = wall_s - sum(work.values())
        shares = {name: 100 * value / wall_s for name, value in work.items()}
        shares["rest"] = 100 * rest_s / wall_s
        tokens = self.model.dims.tokens_per_frame
        floor_s = 2 * self._limits["decoder_weights"] * tokens / (self.machine.matmul or 1.0)
        yield Row(
            "ingest", "watching", count / wall_s, "frames/s", 1 / floor_s,
            "prefill at the rate of a matrix product", parts=shares, note=f"{count} frames",
        )  # fmt: skip
        memory = shares["scoring"] + shares["compaction"]
        for name, value in (
            ("memory work: scoring and compaction", memory),
            ("the same with encoding for the tiers", memory + shares["storing"]),
        ):
            target = self.target(MEMORY_PERCENT)
            yield Row("ingest", name, value, "%", target=target, parts=shares)

    # -- asking ----------------------------------------------------------------------------------

    def ask(self, frames: Sequence[int], tokens: int = 1) -> tuple[Answer, dict[int, Tier]]:
        """One question that brings given frames back, and the tier that each came from."""
        self._sent.frames, self._sent.last = frames, Consulted()
        answer = self.session.ask(
            QUESTION,
            route="recall" if frames else "now",
            max_tokens=tokens,
            min_tokens=tokens,
            keep_conversation=False,
        )
        return answer, self._sent.last.tiers

    def pend(self) -> float:
        """Let a whole chunk come; seconds that its last frame took, with which a question comes."""
        self._observe(self.config.memory.prefill_frames - 1)
        start = time.perf_counter()
        self._observe(1)
        return time.perf_counter() - start

    def per_token(self, clock: Clock) -> Iterator[Row]:
        """TPOT behind the present memory."""
        tokens = min(64, self.config.memory.answer_tokens)
        found = []
        while len(found) < 3 and not (found and clock.is_over):
            found.append(1e3 * self.ask((), tokens)[0].tpot_s)
        slots = sum(self.session.memory.cache.lengths)
        dims = self.model.dims
        read = 2 * dims.num_kv_heads * dims.head_dim * dims.dtype.itemsize * slots
        floor_s = self.weights_s + read / (self.machine.memory or float("inf"))
        yield Row(
            "tpot", f"answers of {tokens} tokens", median(found), "ms", 1e3 * floor_s,
            "weights and cache read once", note=f"{len(found)} answers",
        )  # fmt: skip

    # -- a long stream ---------------------------------------------------------------------------

    def flat(self, config: HermesConfig, num_frames: int, clock: Clock) -> Iterator[Row]:
        """Bytes on the device over many frames, whose vision tokens come again and again."""
        assert self._tokens is not None, "ingest comes before"
        step = config.memory.segment_frames
        marks: list[tuple[int, dict[str, int]]] = []
        start = time.perf_counter()
        with StreamSession(self.model, config) as session:
            for number in range(num_frames):
                session.observe(numbered(number), self._tokens[number % len(self._tokens)])
                is_end = (number + 1) % step == 0
                if is_end:
                    marks.append((number + 1, self._bytes_now(session)))
                if is_end and clock.is_over and len(marks) > 2:
                    break
            wait(self.model.dims.device)
        seen = marks[-1][0]
        note = f"{seen} of {num_frames} frames in {time.perf_counter() - start:.0f} s"
        settled = marks[len(marks) // 10 :]
        for name, first in settled[0][1].items():
            held = [found[name] for _, found in settled]
            is_promised = name != "RSS"
            yield Row(
                "flat", f"growth of {name}", (max(held) - first) / 2**20, "MiB",
                target=1.0 if is_promised else None,
                note=f"{note}; {first / 2**20:,.1f} MiB after {settled[0][0]}",
            )  # fmt: skip

    def _bytes_now(self, session: StreamSession) -> dict[str, int]:
        device = self.model.dims.device
        found = {"the cache": session.stats().device_bytes}
        if device.type == "cuda":
            found["allocated device memory"] = torch.cuda.memory_allocated(device)
        else:
            found["RSS"] = anonymous_bytes()
        return found
