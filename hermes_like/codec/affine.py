"""Affine quantisation of a group of numbers: ``x ~ zero + code * scale``, code a small integer.

``zero`` is the least number of the group and ``scale`` its range over the highest code, both
float32: float16 scales turn large numbers into infinities. All arithmetic is in float32, step by
step, so that a CPU and an accelerator come to the same bytes. The module knows no layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_F32 = torch.finfo(torch.float32)
#: Numbers beyond half of what float32 holds are left alone: their range would overflow.
LARGEST = _F32.max / 2


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """Codes with what turns them into numbers.

    Attributes:
        codes: uint8, in the shape of what was quantised.
        scale: float32, broadcast against the codes; 0 where a whole group is one number.
        zero: float32, in the shape of ``scale``.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor

    def restore(self, dtype: torch.dtype) -> Tensor:
        """The numbers that the codes stand for."""
        return self.codes.to(torch.float32).mul_(self.scale).add_(self.zero).to(dtype)


def is_quantisable(x: Tensor) -> Tensor:
    """Whether all numbers are finite and their range can be expressed: bool ``[]``."""
    low, high = torch.aminmax(x)
    # A comparison with NaN is false.
    return (low.float() >= -LARGEST) & (high.float() <= LARGEST)


def is_quantisable_each(tensors: Sequence[Tensor]) -> list[bool]:
    """:func:`is_quantisable` of many tensors, on any devices, with one wait per device."""
    found = {index: is_quantisable(x) for index, x in enumerate(tensors) if x.numel()}
    answers = [True] * len(tensors)
    for device in dict.fromkeys(answer.device for answer in found.values()):
        there = [index for index, answer in found.items() if answer.device == device]
        told = torch.stack([found[index] for index in there]).tolist()
        for index, answer in zip(there, told, strict=True):
            answers[index] = answer
    return answers


def scale_and_zero(x: Tensor, dim: int, bits: int) -> tuple[Tensor, Tensor]:
    """Scale and zero of groups of float32 along one dimension, which stays with size 1."""
    # Twice as quick on a CPU as torch.aminmax, which does not vectorise along a dimension.
    low, high = torch.amin(x, dim, keepdim=True), torch.amax(x, dim, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    # Below the smallest normal number a scale has no precision left; such a group is one number.
    return torch.where(scale < _F32.tiny, torch.zeros_like(scale), scale), low


def quantise(x: Tensor, dim: int, bits: int) -> Affine:
    """Quantise groups along one dimension.

    Args:
        x: Finite floating-point numbers, at least one.
        dim: The dimension that a group runs along.
        bits: Of a code, at most 8.
    """
    numbers = x.to(torch.float32, copy=True)  # one copy, in which all the rest is done
    scale, zero = scale_and_zero(numbers, dim, bits)
    divisor = torch.where(scale == 0, torch.full_like(scale, torch.inf), scale)
    codes = numbers.sub_(zero).div_(divisor).round_().to(torch.uint8)
    return Affine(codes, scale, zero)


def error_bounds(x: Tensor, dim: int, bits: int) -> Tensor:
    """Most absolute error of every number: half a step and what float arithmetic rounds.

    Returns:
        float32 in the shape of ``x``.
    """
    numbers, info = x.to(torch.float32), torch.finfo(x.dtype)
    scale, zero = scale_and_zero(numbers, dim, bits)
    reach = torch.amax(numbers, dim, keepdim=True) - zero
    step = torch.where(scale == 0, reach, scale / 2)
    rounding = _F32.eps * (4 * reach + zero.abs()) + _F32.tiny * _F32.eps
    bounds: Tensor = (step + rounding).expand(x.shape)
    if x.dtype != torch.float32:
        # Rounding to the target: half a unit in the last place, of subnormal numbers too.
        bounds = bounds + (numbers.abs() + bounds) * (info.eps / 2) + info.tiny * info.eps / 2
    return bounds


def pack_nibbles(codes: Tensor) -> Tensor:
    """Put two codes below 16 into a byte, along the last axis: ``[..., n]`` to ``[..., n / 2]``."""
    if codes.shape[-1] % 2:
        codes = functional.pad(codes, (0, 1))
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_nibbles(packed: Tensor, size: int) -> Tensor:
    """Undo :func:`pack_nibbles`; ``size`` is the number of codes on the last axis."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)[..., :size]
