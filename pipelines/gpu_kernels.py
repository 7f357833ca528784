"""A candidate: restoring and rotating keys in one kernel, beside the two steps of today.

    python -m pipelines.gpu_kernels --device cuda

Not used by the library. Positions are known only after frames that came back were merged by time,
so the cache rotates all keys at once behind the merge; a fused kernel would have to move there, and
is worth it only if this prints a clear gain. A compiler may contract a product and a sum, so its
result may differ in the last bit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import cache
from statistics import median

import torch
from torch import Tensor

from hermes_like.codec.affine import Affine
from hermes_like.memory.rotation import rotate
from pipelines.gpu_check_machine import Machine, times_s
from pipelines.gpu_check_rows import Row

Restore = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def restore_rotated(
    codes: Tensor, scale: Tensor, zero: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    """Codes to un-rotated and to rotated keys, as codec and cache do it one after the other.

    Args:
        codes: uint8 ``[heads, tokens, head_dim]``.
        scale: float32 ``[heads, 1, head_dim]``.
        zero: float32 ``[heads, 1, head_dim]``.
        cos: float32 ``[tokens, head_dim]``.
        sin: float32 ``[tokens, head_dim]``.

    Returns:
        Both bfloat16 ``[heads, tokens, head_dim]``.
    """
    raw = Affine(codes, scale, zero).restore(torch.bfloat16)
    return raw, rotate(raw, (cos, sin))


@cache
def compiled() -> Restore:
    """The same, compiled into one kernel at its first call.

    Raises:
        RuntimeError: At that call, where nothing can be compiled here.
    """
    made: Restore = torch.compile(_plain, fullgraph=True, dynamic=True)
    return made


def _plain(
    codes: Tensor, scale: Tensor, zero: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor]:
    """:func:`restore_rotated` without work in place, which a compiler would have to undo."""
    raw = (codes.to(torch.float32) * scale + zero).to(torch.bfloat16)
    x = raw.to(torch.float32)
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return raw, (x * cos + turned * sin).to(torch.bfloat16)


def example(shape: tuple[int, int, int], device: torch.device) -> tuple[Tensor, ...]:
    """Arguments of the right shapes."""
    heads, tokens, channels = shape
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    scale, zero = (torch.randn(heads, 1, channels, generator=generator) for _ in range(2))
    angle = torch.rand(tokens, channels // 2, generator=generator).repeat(1, 2) * 6
    return tuple(x.to(device) for x in (codes, scale.abs(), zero, angle.cos(), angle.sin()))


def measure_kernels(
    machine: Machine, shape: tuple[int, int, int], device: torch.device
) -> Iterator[Row]:
    """Both ways on keys of one shape, against reading codes and writing two results once."""
    args = example(shape, device)
    numbers = args[0].numel()
    moved = numbers * (1 + 2 + 2)
    ceiling = machine.memory / 1e9 if machine.memory else None
    for name, work in (("two steps", restore_rotated), ("one compiled kernel", compiled())):
        took_s = median(times_s(lambda w=work: w(*args), device, 5))  # type: ignore[misc]
        yield Row(
            "restore and rotate", name, moved / took_s / 1e9, "GB/s", ceiling, "device memory"
        )


def main(argv: list[str] | None = None) -> int:
    """Print both rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", default="112,3136,128", help="layers x heads, tokens, channels")
    args = parser.parse_args(argv)
    heads, tokens, channels = map(int, args.shape.split(","))
    for row in measure_kernels(Machine(), (heads, tokens, channels), torch.device(args.device)):
        print(f"{row.name}: {row.value:.3g} {row.unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
