"""Blocks to encode: channels far off, as real keys have, and what makes codecs stumble."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hermes_like.codec import KeyValues

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def normal(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Gaussian numbers."""
    return torch.randn(shape, generator=generator).to(dtype)


def far_channels(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """A few channels with a large mean."""
    offsets = torch.randn(shape[-1], generator=generator) * 30
    offsets[2:] = 0
    return (torch.randn(shape, generator=generator) + offsets).to(dtype)


def spikes(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Small numbers with single ones up to the last that the dtype holds."""
    x = torch.randn(shape, generator=generator)
    rare = torch.rand(shape, generator=generator) < 0.02
    signs = torch.sign(torch.randn(shape, generator=generator))
    return torch.where(rare, signs * torch.finfo(dtype).max, x).to(dtype)


def subnormal(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Numbers around and below the least normal one."""
    return (torch.randn(shape, generator=generator) * torch.finfo(dtype).tiny).to(dtype)


def constant(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """One number everywhere."""
    return torch.randn(1, generator=generator).to(dtype).expand(shape)


def all_scales(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Orders of magnitude from the least to the largest number of the dtype."""
    info = torch.finfo(dtype)
    low, high = torch.log(torch.tensor([info.tiny, info.max], dtype=torch.float64)).tolist()
    powers = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    signs = torch.sign(torch.randn(shape, generator=generator))
    return (signs * powers.exp()).clamp(info.min, info.max).to(dtype)


KINDS: dict[str, Callable[[tuple[int, ...], torch.Generator, torch.dtype], Tensor]] = {
    made.__name__: made for made in (normal, far_channels, spikes, subnormal, constant, all_scales)
}


def block(
    kind: str,
    dtype: torch.dtype,
    heads: int = 2,
    tokens: int = 33,
    key_dim: int = 40,
    value_dim: int | None = None,
    seed: int = 0,
) -> KeyValues:
    """A block of one kind of numbers."""
    generator = torch.Generator().manual_seed(seed)
    make = KINDS[kind]
    return KeyValues(
        make((heads, tokens, key_dim), generator, dtype),
        make((heads, tokens, key_dim if value_dim is None else value_dim), generator, dtype),
    )


def assert_equal(found: KeyValues, expected: KeyValues) -> None:
    """Hold two blocks to be the same bit for bit, NaN included."""
    for a, b in zip(
        (found.raw_keys, found.values), (expected.raw_keys, expected.values), strict=True
    ):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        bits = torch.int32 if a.dtype == torch.float32 else torch.int16
        assert torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))


def assert_within_bounds(found: KeyValues, expected: KeyValues, bounds: KeyValues) -> None:
    """Hold the error of every number to what was declared, in double precision."""
    for name in ("raw_keys", "values"):
        x, y, bound = (getattr(b, name).double() for b in (expected, found, bounds))
        assert bound.shape == x.shape
        assert bool(torch.isfinite(y).all()), f"{name}: not finite"
        excess = (y - x).abs() - bound
        assert bool((excess <= 0).all()), f"{name}: {float(excess.max())} above the bound"
