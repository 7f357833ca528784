"""How one tensor ``[heads, tokens, head_dim]`` is stored: as it is, or in 8 or 4 bits.

A scheme lays a tensor out in a few sections. Those with a token axis can be thinned without a look
at the numbers. The table ``SCHEMES`` gives each scheme the number it has in a header.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from hermes_like.codec import affine

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Section:
    """One array among the bytes of a tensor.

    Attributes:
        shape: Its shape.
        dtype: Its dtype.
        has_tokens: Whether its axis 1 is that of the tokens.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    has_tokens: bool = True

    @property
    def num_bytes(self) -> int:
        """Bytes it takes."""
        return prod(self.shape) * self.dtype.itemsize


class Scheme(ABC):
    """One way of storing a tensor."""

    @abstractmethod
    def sections(self, shape: Shape, dtype: torch.dtype) -> tuple[Section, ...]:
        """What is stored of a tensor, in order."""

    @abstractmethod
    def arrays(self, x: Tensor) -> tuple[Tensor, ...]:
        """The sections of a tensor."""

    @abstractmethod
    def restore(self, arrays: Sequence[Tensor], shape: Shape, dtype: torch.dtype) -> Tensor:
        """The tensor that the sections stand for."""

    @abstractmethod
    def error_bounds(self, x: Tensor) -> Tensor:
        """Most absolute error of every number, float32 in the shape of ``x``."""

    def num_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Bytes that are stored of a tensor."""
        return sum(section.num_bytes for section in self.sections(shape, dtype))

    def encode(self, x: Tensor) -> Tensor:
        """The tensor as uint8 ``[bytes]``, on its device."""
        return _join(self.arrays(x))

    def encode_rows(self, x: Tensor, rows: int) -> Tensor:
        """Encode tensors that lie side by side along the heads: uint8 ``[rows, bytes]``.

        Args:
            x: ``[rows * heads, tokens, head_dim]``.
            rows: How many there are.
        """
        arrays = [array.reshape(rows, array.numel() // rows) for array in self.arrays(x)]
        return torch.cat([array.view(torch.uint8) for array in arrays], dim=1)

    def decode(self, stored: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Undo :meth:`encode`."""
        return self.restore(self._split(stored, shape, dtype), shape, dtype)

    def select(self, stored: Tensor, shape: Shape, dtype: torch.dtype, keep: Tensor) -> Tensor:
        """Leave tokens out of what is stored.

        Args:
            stored: uint8 ``[bytes]``.
            shape: Of the tensor before.
            dtype: Of the tensor.
            keep: bool ``[tokens]``.
        """
        sections = self.sections(shape, dtype)
        arrays = self._split(stored, shape, dtype)
        return _join(
            [
                array[:, keep] if section.has_tokens else array
                for section, array in zip(sections, arrays, strict=True)
            ]
        )

    def _split(self, stored: Tensor, shape: Shape, dtype: torch.dtype) -> list[Tensor]:
        sections = self.sections(shape, dtype)
        parts = torch.split(stored, [section.num_bytes for section in sections])
        return [p.view(s.dtype).view(s.shape) for p, s in zip(parts, sections, strict=True)]


def _join(arrays: Sequence[Tensor]) -> Tensor:
    return torch.cat([array.contiguous().view(-1).view(torch.uint8) for array in arrays])


class AsItIs(Scheme):
    """Every number as it is; for codec ``raw`` and for what cannot be quantised."""

    def sections(self, shape: Shape, dtype: torch.dtype) -> tuple[Section, ...]:
        """The tensor itself."""
        return (Section(shape, dtype),)

    def arrays(self, x: Tensor) -> tuple[Tensor, ...]:
        """The tensor itself."""
        return (x,)

    def restore(self, arrays: Sequence[Tensor], shape: Shape, dtype: torch.dtype) -> Tensor:
        """The tensor itself."""
        return arrays[0]

    def error_bounds(self, x: Tensor) -> Tensor:
        """Zero."""
        return torch.zeros_like(x, dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class PerChannel(Scheme):
    """One scale per channel, over the tokens of the block: a few channels of keys are far off.

    Attributes:
        bits: 8 or 4.
    """

    bits: int

    def sections(self, shape: Shape, dtype: torch.dtype) -> tuple[Section, ...]:
        """Scale, zero, codes."""
        heads, tokens, channels = shape
        scale = Section((heads, 1, channels), torch.float32, has_tokens=False)
        return scale, scale, Section((heads, tokens, _row_bytes(channels, self.bits)), torch.uint8)

    def arrays(self, x: Tensor) -> tuple[Tensor, ...]:
        """Scale, zero, codes."""
        found = affine.quantise(x, 1, self.bits)
        return found.scale, found.zero, _pack(found.codes, self.bits)

    def restore(self, arrays: Sequence[Tensor], shape: Shape, dtype: torch.dtype) -> Tensor:
        """Codes to numbers."""
        scale, zero, packed = arrays
        return affine.Affine(_unpack(packed, shape[2], self.bits), scale, zero).restore(dtype)

    def error_bounds(self, x: Tensor) -> Tensor:
        """Half a step of the channel."""
        return affine.error_bounds(x, 1, self.bits)


@dataclass(frozen=True, slots=True)
class PerToken(Scheme):
    """One scale per token and head, or per group of neighbouring channels.

    Attributes:
        bits: 8 or 4.
        group: Channels that share a scale; None: all of a head. The last group may be smaller.
    """

    bits: int
    group: int | None = None

    def sections(self, shape: Shape, dtype: torch.dtype) -> tuple[Section, ...]:
        """Scale, zero, codes."""
        heads, tokens, channels = shape
        scale = Section((heads, tokens, self._num_groups(channels), 1), torch.float32)
        return scale, scale, Section((heads, tokens, _row_bytes(channels, self.bits)), torch.uint8)

    def arrays(self, x: Tensor) -> tuple[Tensor, ...]:
        """Scale, zero, codes."""
        found = affine.quantise(self._groups(x), -1, self.bits)
        codes = found.codes.flatten(-2)[..., : x.shape[-1]]
        return found.scale, found.zero, _pack(codes, self.bits)

    def restore(self, arrays: Sequence[Tensor], shape: Shape, dtype: torch.dtype) -> Tensor:
        """Codes to numbers."""
        scale, zero, packed = arrays
        codes = self._groups(_unpack(packed, shape[2], self.bits))
        return affine.Affine(codes, scale, zero).restore(dtype).flatten(-2)[..., : shape[2]]

    def error_bounds(self, x: Tensor) -> Tensor:
        """Half a step of the group."""
        bounds = affine.error_bounds(self._groups(x), -1, self.bits)
        return bounds.flatten(-2)[..., : x.shape[-1]]

    def _size(self, channels: int) -> int:
        return max(1, min(self.group or channels, channels))

    def _num_groups(self, channels: int) -> int:
        return -(-channels // self._size(channels))

    def _groups(self, x: Tensor) -> Tensor:
        """``[heads, tokens, groups, size]``; copies of the last channel fill the last group up."""
        channels = x.shape[-1]
        size = self._size(channels)
        missing = -channels % size
        if missing:
            last = x[..., -1:].expand(*x.shape[:-1], missing)
            x = torch.cat((x, last), dim=-1)
        return x.reshape(*x.shape[:-1], self._num_groups(channels), size)


def _row_bytes(channels: int, bits: int) -> int:
    return -(-channels * bits // 8)


def _pack(codes: Tensor, bits: int) -> Tensor:
    return codes if bits == 8 else affine.pack_nibbles(codes)


def _unpack(packed: Tensor, size: int, bits: int) -> Tensor:
    return packed if bits == 8 else affine.unpack_nibbles(packed, size)


AS_IT_IS = 0
KEYS_8, VALUES_8, KEYS_4, VALUES_4 = 1, 2, 3, 4
#: Number in a header to scheme; a number is never given to another scheme.
SCHEMES: dict[int, Scheme] = {
    AS_IT_IS: AsItIs(),
    KEYS_8: PerChannel(8),
    VALUES_8: PerToken(8),
    KEYS_4: PerChannel(4),
    VALUES_4: PerToken(4, group=32),
}
