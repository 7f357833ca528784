"""What the machine gives at best, and what the codecs make of it, for ``gpu_check``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from hermes_like.codec import CODECS, KeyValues, decode_layers, encode_layers, layout
from hermes_like.models import ModelDims
from pipelines.ceilings import memory_bandwidth
from pipelines.codecs import codecs
from pipelines.gpu_check_rows import Clock, Row

_COPY_BYTES = 256 << 20
_SMALL_COPY_BYTES = 32 << 20
_READ_BYTES = 1 << 30
_CHUNK_BYTES = 8 << 20
_REPEATS = 5


@dataclass(slots=True)
class Machine:
    """Measured rates, bytes and operations per second; 0: not measured yet.

    Attributes:
        memory: Device memory read once.
        matmul: Matrix product in the model's number type.
        link: Page-locked RAM to the device.
        checksum: xxh3 of one thread.
        disk_warm: Sequential reads that hit the page cache.
        disk_cold: Sequential reads behind a dropped page cache.
    """

    memory: float = 0.0
    matmul: float = 0.0
    link: float = 0.0
    checksum: float = 0.0
    disk_warm: float = 0.0
    disk_cold: float = 0.0


def wait(device: torch.device) -> None:
    """Wait for an accelerator."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def best_s(work: Callable[[], object], device: torch.device, repeats: int = _REPEATS) -> float:
    """The best of a few tries behind an untimed one."""
    return min(times_s(work, device, repeats))


def times_s(work: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Seconds of each try behind an untimed one; waits for the device before and after."""
    work()
    times = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return times


def measure_machine(machine: Machine, device: torch.device, dtype: torch.dtype) -> Iterator[Row]:
    """Fill in the rates of device, link and processor."""
    part, is_cuda = "machine", device.type == "cuda"
    machine.memory = memory_bandwidth(device)
    yield Row(part, "device memory, read once", machine.memory / 1e9, "GB/s")
    side = 8192 if is_cuda else 512
    a = torch.randn(side, side, device=device).to(dtype)
    machine.matmul = 2 * side**3 / best_s(lambda: a @ a, device)
    yield Row(part, f"matrix product of {side}, {dtype}", machine.matmul / 1e12, "TFLOP/s")
    size = _COPY_BYTES if is_cuda else _SMALL_COPY_BYTES
    plain = torch.ones(size, dtype=torch.uint8)
    there = torch.empty(size, dtype=torch.uint8, device=device)
    if is_cuda:
        pinned = plain.pin_memory()
        machine.link = size / best_s(lambda: there.copy_(pinned, non_blocking=True), device)
        yield Row(part, "page-locked RAM to device", machine.link / 1e9, "GB/s")
        back = size / best_s(lambda: pinned.copy_(there, non_blocking=True), device)
        yield Row(part, "device to page-locked RAM", back / 1e9, "GB/s")
        pageable = size / best_s(lambda: there.copy_(plain), device)
        yield Row(part, "pageable RAM to device", pageable / 1e9, "GB/s")
    else:
        machine.link = size / best_s(lambda: there.copy_(plain), device)
        yield Row(part, "RAM to RAM", machine.link / 1e9, "GB/s", note="there is no link")
    data = plain.numpy().data
    machine.checksum = size / best_s(lambda: layout.checksum(b"", data), torch.device("cpu"))
    yield Row(part, "checksum, one thread", machine.checksum / 1e9, "GB/s")


def measure_disk(machine: Machine, folder: Path) -> Iterator[Row]:
    """Read what volumes hold, behind a dropped page cache and again."""
    volumes = sorted(folder.rglob("*.vol"), key=lambda path: path.stat().st_size)
    if not volumes:
        yield Row("machine", "raw reads", None, "GB/s", note="no volume was written")
        return
    drop_page_cache(folder)
    machine.disk_cold = _read_rate(volumes[::-1])
    yield Row("machine", "raw reads, page cache dropped", machine.disk_cold / 1e9, "GB/s")
    machine.disk_warm = _read_rate(volumes[::-1])
    yield Row("machine", "raw reads, page cache warm", machine.disk_warm / 1e9, "GB/s")


def _read_rate(paths: list[Path]) -> float:
    buffer, done = bytearray(_CHUNK_BYTES), 0
    start = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while done < _READ_BYTES and (count := file.readinto(buffer)):
                done += count
    return done / (time.perf_counter() - start)


def drop_page_cache(folder: Path) -> None:
    """Ask the system to forget what it has of the volumes; what was written is forced out first."""
    for path in folder.rglob("*.vol"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def measure_codecs(
    machine: Machine, dims: ModelDims, segment_frames: int, clock: Clock
) -> Iterator[Row]:
    """Encode a segment of all layers, decode it whole, and decode one frame of it."""
    device, per_frame = dims.device, dims.tokens_per_frame
    tokens = segment_frames * per_frame
    generator = torch.Generator().manual_seed(0)
    shape = (dims.num_kv_heads, tokens, dims.head_dim)
    noise = torch.randn(shape, generator=generator).to(device, dims.dtype)
    blocks = [KeyValues(noise, noise.flip(1)) for _ in range(dims.num_layers)]
    num_bytes = tokens * dims.kv_bytes_per_token
    frame = torch.arange(per_frame) + (segment_frames // 2) * per_frame
    for name in codecs():
        if clock.is_over:
            return
        codec = CODECS.get(name)()
        data = encode_layers(codec, blocks)
        size = sum(map(len, data))
        note = f"{size / num_bytes:.3f} of the bytes"
        floor_s = size / machine.link + size / machine.checksum
        at_best = num_bytes / floor_s / 1e9
        made_of = "link and checksum"
        for what, work, expected in (
            ("encode a segment", lambda c=codec: encode_layers(c, blocks), at_best),
            ("decode a segment", lambda d=data: decode_layers(d, device), at_best),
        ):
            rate = num_bytes / median(times_s(work, device, 3)) / 1e9  # type: ignore[arg-type]
            yield Row(f"codec {name}", what, rate, "GB/s", expected, made_of, note=note)
        took_s = median(times_s(lambda d=data: decode_layers(d, device, frame), device, 3))  # type: ignore[misc]
        floor_s = size / segment_frames / machine.link + size / machine.checksum
        yield Row(
            f"codec {name}", "decode one frame of it", 1e3 * took_s, "ms", 1e3 * floor_s, made_of
        )
