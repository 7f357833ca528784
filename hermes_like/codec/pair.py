"""Codecs that store keys by one scheme and values by another.

Keys are quantised per channel and values per token. A tensor that a scheme cannot hold (NaN,
infinities, numbers near the end of float32) or that is empty is stored as it is; the header says
so for keys and values apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from hermes_like.codec import layout
from hermes_like.codec.affine import is_quantisable
from hermes_like.codec.base import Bytes, KeyValues, KVCodec
from hermes_like.codec.schemes import (
    AS_IT_IS,
    KEYS_4,
    KEYS_8,
    SCHEMES,
    VALUES_4,
    VALUES_8,
    Scheme,
)
from hermes_like.errors import CodecError


class PairCodec(KVCodec):
    """What the codecs of this module share.

    Attributes:
        key_scheme: Number of the scheme of keys that can be quantised.
        value_scheme: Number of the scheme of values that can be quantised.
    """

    key_scheme: ClassVar[int]
    value_scheme: ClassVar[int]

    @torch.no_grad()
    def encode(self, block: KeyValues) -> bytes:
        """See the seam; on an accelerator all work but the checksum is done there."""
        _check(block)
        key_scheme, value_scheme = self._schemes(block)
        keys = SCHEMES[key_scheme].encode(block.raw_keys)
        values = SCHEMES[value_scheme].encode(block.values)
        header = self._header(block, key_scheme, value_scheme, keys.numel(), values.numel())
        return layout.pack(header, keys, values)

    def encode_alike(
        self, blocks: Sequence[KeyValues], schemes: tuple[int, int]
    ) -> tuple[list[layout.Header], Tensor]:
        """Encode blocks of one shape, dtype and device side by side along the heads.

        Args:
            blocks: At least one.
            schemes: Of the keys and of the values of all of them.

        Returns:
            The header of each, and uint8 ``[blocks, bytes]``, what lies behind it; on the device.

        Raises:
            ValueError: A block cannot be encoded by any codec.
        """
        for block in blocks:
            _check(block)
        keys = SCHEMES[schemes[0]].encode_rows(torch.cat([b.raw_keys for b in blocks]), len(blocks))
        values = SCHEMES[schemes[1]].encode_rows(torch.cat([b.values for b in blocks]), len(blocks))
        header = self._header(blocks[0], *schemes, keys.shape[1], values.shape[1])
        padding = keys.new_zeros(len(blocks), header.values_at - header.key_bytes)
        return [header] * len(blocks), torch.cat((keys, padding, values), dim=1)

    def _header(
        self, block: KeyValues, key_scheme: int, value_scheme: int, key_bytes: int, value_bytes: int
    ) -> layout.Header:
        heads, tokens, key_dim = block.raw_keys.shape
        return layout.Header(
            codec_id=self.codec_id,
            codec_version=self.version,
            dtype_id=layout.DTYPE_IDS[block.raw_keys.dtype],
            key_scheme=key_scheme,
            value_scheme=value_scheme,
            heads=heads,
            tokens=tokens,
            key_dim=key_dim,
            value_dim=block.values.shape[2],
            key_bytes=key_bytes,
            value_bytes=value_bytes,
        )

    def decode(self, data: Bytes, device: torch.device | str | None = None) -> KeyValues:
        """See the seam; the small form travels to the device and is decoded there."""
        header, payload = self.open(data)
        stored_keys, stored_values = _parts(header, layout.to_tensor(payload, device))
        keys, values = _schemes_of(header)
        return KeyValues(
            keys.decode(stored_keys, header.key_shape, header.dtype),
            values.decode(stored_values, header.value_shape, header.dtype),
        )

    def select_tokens(self, data: Bytes, keep: Tensor) -> bytes:
        """See the seam; scales per channel stay, also where a left-out token had set them."""
        header, payload = self.open(data)
        if keep.dtype != torch.bool or keep.shape != (header.tokens,):
            raise ValueError(
                f"keep: expected bool [{header.tokens}], got {keep.dtype} {list(keep.shape)}"
            )
        keep = keep.cpu()
        stored_keys, stored_values = _parts(header, layout.to_tensor(payload))
        keys, values = _schemes_of(header)
        kept_keys = keys.select(stored_keys, header.key_shape, header.dtype, keep)
        kept_values = values.select(stored_values, header.value_shape, header.dtype, keep)
        shorter = replace(
            header,
            tokens=int(keep.sum()),
            key_bytes=kept_keys.numel(),
            value_bytes=kept_values.numel(),
        )
        return layout.pack(shorter, kept_keys, kept_values)

    @torch.no_grad()
    def error_bounds(self, block: KeyValues) -> KeyValues:
        """See the seam: half a step, and the rounding of float32 and of the block's dtype."""
        _check(block)
        keys, values = (SCHEMES[number] for number in self._schemes(block))
        return KeyValues(keys.error_bounds(block.raw_keys), values.error_bounds(block.values))

    def _schemes(self, block: KeyValues) -> tuple[int, int]:
        """The scheme of the keys and that of the values."""
        wanted = (self.key_scheme, self.value_scheme)
        tensors = (block.raw_keys, block.values)
        if wanted == (AS_IT_IS, AS_IT_IS) or not all(t.numel() for t in tensors):
            return AS_IT_IS, AS_IT_IS
        can = torch.stack([is_quantisable(t) for t in tensors]).tolist()
        return (wanted[0] if can[0] else AS_IT_IS), (wanted[1] if can[1] else AS_IT_IS)

    def open(self, data: Bytes, *, is_verified: bool = False) -> tuple[layout.Header, memoryview]:
        """Prove that bytes are a whole and unaltered block of this codec, and take them apart.

        Args:
            data: The block.
            is_verified: See :func:`hermes_like.codec.layout.unpack`.

        Returns:
            The header, and what lies behind it: keys from 0, values from ``header.values_at``.

        Raises:
            CodecError: They are not.
        """
        header, payload = layout.unpack(data, is_verified=is_verified)
        if header.codec_id != self.codec_id or header.codec_version != self.version:
            raise CodecError(
                f"expected a block of codec {self.name!r} (number {self.codec_id}) version "
                f"{self.version}, got number {header.codec_id} version {header.codec_version}"
            )
        sizes = tuple(
            scheme.num_bytes(shape, header.dtype)
            for scheme, shape in zip(
                _schemes_of(header), (header.key_shape, header.value_shape), strict=True
            )
        )
        if sizes != (header.key_bytes, header.value_bytes):
            raise CodecError(
                f"expected {sizes[0]} bytes of keys and {sizes[1]} of values, "
                f"got {header.key_bytes} and {header.value_bytes}"
            )
        return header, payload


def _schemes_of(header: layout.Header) -> tuple[Scheme, Scheme]:
    for number in (header.key_scheme, header.value_scheme):
        if number not in SCHEMES:
            raise CodecError(
                f"expected a scheme among {sorted(SCHEMES)}, got {number}: "
                "a newer release of the library wrote the block"
            )
    return SCHEMES[header.key_scheme], SCHEMES[header.value_scheme]


def _parts(header: layout.Header, payload: Tensor) -> tuple[Tensor, Tensor]:
    start = header.values_at
    return payload[: header.key_bytes], payload[start : start + header.value_bytes]


def _check(block: KeyValues) -> None:
    keys, values = block.raw_keys, block.values
    if keys.dtype not in layout.DTYPE_IDS or values.dtype != keys.dtype:
        raise ValueError(
            "expected keys and values of one dtype, float32, bfloat16 or float16, "
            f"got {keys.dtype} and {values.dtype}"
        )
    if keys.dim() != 3 or values.dim() != 3 or keys.shape[:2] != values.shape[:2]:
        raise ValueError(
            "expected keys and values [heads, tokens, head_dim] of the same heads and tokens, "
            f"got {list(keys.shape)} and {list(values.shape)}"
        )


class RawCodec(PairCodec):
    """Every number as it is."""

    name = "raw"
    codec_id = 1
    key_scheme, value_scheme = AS_IT_IS, AS_IT_IS


class Int8Codec(PairCodec):
    """Keys and values in 8 bits: about 1 % error of attention outputs."""

    name = "int8"
    codec_id = 2
    key_scheme, value_scheme = KEYS_8, VALUES_8


class K8V4Codec(PairCodec):
    """Keys in 8 bits, values in 4: attention looks at the right tokens and sees them blurred."""

    name = "k8v4"
    codec_id = 3
    key_scheme, value_scheme = KEYS_8, VALUES_4


class Int4Codec(PairCodec):
    """Keys and values in 4 bits. Small models break on 4-bit keys: measure before use."""

    name = "int4"
    codec_id = 4
    key_scheme, value_scheme = KEYS_4, VALUES_4
