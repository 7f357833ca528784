"""How a block lies in bytes: a header of 64 bytes, what is stored of the keys, then of the values.

    offset  bytes
         0      4  magic, ``HLKV``
         4      2  version of this layout
         6      1  codec
         7      1  version of the codec
         8      1  dtype of what was encoded
         9      1  scheme of the keys
        10      1  scheme of the values
        11      1  0
        12     16  heads, tokens, head_dim of the keys, head_dim of the values
        28      4  0
        32     16  bytes stored of the keys, of the values
        48      8  0
        56      8  xxh3-64 of all other bytes

Numbers are little-endian. Values begin at a multiple of 8 behind the header. This module knows no
arithmetic: what a scheme means is for the codec to say.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt
import torch
import xxhash
from torch import Tensor

from hermes_like.codec.base import Bytes
from hermes_like.errors import CodecError

MAGIC = b"HLKV"
VERSION = 1
ALIGNMENT = 8
HEADER_BYTES = 64

_FIELDS = struct.Struct("<4sH5Bx4I4x2Q8x")
_CHECKSUM = struct.Struct("<Q")
DTYPES: dict[int, torch.dtype] = {1: torch.float32, 2: torch.bfloat16, 3: torch.float16}
DTYPE_IDS = {dtype: number for number, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Header:
    """What a block says of itself; the fields follow their order in the bytes.

    Attributes:
        codec_id: Which codec wrote it.
        codec_version: Which version of that codec.
        dtype_id: Dtype of what was encoded, a key of ``DTYPES``.
        key_scheme: How keys are stored; a number that the codec knows.
        value_scheme: How values are stored.
        heads: Key and value heads.
        tokens: Tokens.
        key_dim: Channels of a key.
        value_dim: Channels of a value.
        key_bytes: Bytes stored of the keys.
        value_bytes: Bytes stored of the values.
    """

    codec_id: int
    codec_version: int
    dtype_id: int
    key_scheme: int
    value_scheme: int
    heads: int
    tokens: int
    key_dim: int
    value_dim: int
    key_bytes: int
    value_bytes: int

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of what was encoded."""
        return DTYPES[self.dtype_id]

    @property
    def key_shape(self) -> tuple[int, int, int]:
        """``[heads, tokens, head_dim]`` of the keys."""
        return self.heads, self.tokens, self.key_dim

    @property
    def value_shape(self) -> tuple[int, int, int]:
        """``[heads, tokens, head_dim]`` of the values."""
        return self.heads, self.tokens, self.value_dim

    @property
    def values_at(self) -> int:
        """Where the values begin, in bytes behind the header."""
        return -(-self.key_bytes // ALIGNMENT) * ALIGNMENT

    @property
    def block_bytes(self) -> int:
        """Bytes of the whole block."""
        return HEADER_BYTES + self.values_at + self.value_bytes


def pack(header: Header, keys: Tensor, values: Tensor) -> bytes:
    """Put a block together.

    Args:
        header: What it says of itself.
        keys: uint8 ``[key_bytes]``, on any device.
        values: uint8 ``[value_bytes]``, on the same device.

    Returns:
        The whole block; from an accelerator it comes in one copy.
    """
    padding = keys.new_zeros(header.values_at - header.key_bytes)
    return join(header, torch.cat((keys, padding, values)).cpu().numpy())


def join(header: Header, payload: npt.NDArray[np.uint8]) -> bytes:
    """Put the whole block together from what lies behind the header, uint8 ``[bytes]``."""
    fields = _FIELDS.pack(MAGIC, VERSION, *astuple(header))
    found = checksum(fields, payload.data)
    return b"".join((fields, _CHECKSUM.pack(found), payload.data))


def read_header(data: Bytes) -> Header:
    """Read the header; whether the bytes are whole and unaltered is for :func:`unpack` to say.

    Raises:
        CodecError: No block, or one of a version that this library does not know.
    """
    view = memoryview(data).cast("B")
    if len(view) < HEADER_BYTES or view[:4] != MAGIC:
        raise CodecError(
            f"expected a block of keys and values that begins with {MAGIC!r}, "
            f"got {len(view)} bytes that begin with {bytes(view[:4])!r}"
        )
    _, version, *fields = _FIELDS.unpack_from(view)
    if version != VERSION:
        raise CodecError(
            f"expected a block of layout version {VERSION}, got version {version}: "
            "a newer release of the library wrote it, or it was altered"
        )
    return Header(*fields)


def unpack(data: Bytes, *, is_verified: bool = False) -> tuple[Header, memoryview]:
    """Take a block apart and prove that not a bit of it has changed.

    Args:
        data: The block.
        is_verified: Somebody has proved it already, so that lengths and versions are enough.

    Returns:
        The header, and what lies behind it: keys from 0, values from ``header.values_at``.

    Raises:
        CodecError: No block, or one that is cut off, extended, altered or of an unknown version.
    """
    header = read_header(data)
    view = memoryview(data).cast("B")
    if len(view) != header.block_bytes:
        raise CodecError(f"expected a block of {header.block_bytes} bytes, got {len(view)} bytes")
    payload = view[HEADER_BYTES:]
    (stored,) = _CHECKSUM.unpack_from(view, _FIELDS.size)
    found = stored if is_verified else checksum(view[: _FIELDS.size], payload)
    if found != stored:
        raise CodecError(
            f"the block was altered: expected checksum {stored:016x}, got {found:016x}"
        )
    if header.dtype_id not in DTYPES:
        raise CodecError(
            f"expected a dtype among {sorted(DTYPES)}, got {header.dtype_id}: "
            "a newer release of the library wrote the block"
        )
    return header, payload


def to_tensor(payload: memoryview, device: torch.device | str | None = None) -> Tensor:
    """Copy bytes into a tensor, uint8 ``[bytes]``; one copy on the way to an accelerator."""
    target = torch.device(device or "cpu")
    staging = torch.empty(
        len(payload), dtype=torch.uint8, device="cpu", pin_memory=target.type == "cuda"
    )
    staging.numpy()[:] = np.frombuffer(payload, dtype=np.uint8)
    return staging.to(target, non_blocking=target.type == "cuda")


def checksum(fields: Bytes, payload: Bytes) -> int:
    """The xxh3-64 of a block: of its fields before the checksum, and of what lies behind it."""
    digest = xxhash.xxh3_64(fields)
    digest.update(payload)
    return digest.intdigest()
