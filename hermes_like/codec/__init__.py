"""Codecs: how keys and values are stored off the device.

Bytes name their codec, so that a memory may hold blocks of several and be read without settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hermes_like.codec import layout
from hermes_like.codec.base import Bytes, KeyValues, KVCodec
from hermes_like.errors import CodecError
from hermes_like.registry import Registry

CODECS: Registry[type[KVCodec]] = Registry(
    "codec",
    {
        "raw": "hermes_like.codec.pair:RawCodec",
        "int8": "hermes_like.codec.pair:Int8Codec",
        "k8v4": "hermes_like.codec.pair:K8V4Codec",
        "int4": "hermes_like.codec.pair:Int4Codec",
    },
)


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """What a block says of itself.

    Attributes:
        codec: Name of the codec that wrote it.
        version: Version of that codec.
        dtype: Of what was encoded.
        key_shape: ``[kv_heads, tokens, head_dim]``.
        value_shape: ``[kv_heads, tokens, head_dim]``.
        num_bytes: Of the whole block.
    """

    codec: str
    version: int
    dtype: torch.dtype
    key_shape: tuple[int, int, int]
    value_shape: tuple[int, int, int]
    num_bytes: int


def decode_block(data: Bytes, device: torch.device | str | None = None) -> KeyValues:
    """Decode bytes of any registered codec.

    Args:
        data: What ``KVCodec.encode`` returned.
        device: Where the tensors shall be; None: the CPU.

    Raises:
        CodecError: Not a whole and unaltered block of a known codec and version.
    """
    return _codec_of(data)().decode(data, device)


def select_tokens(data: Bytes, keep: Tensor) -> bytes:
    """Leave tokens out of an encoded block, bit for bit: nothing is decoded or encoded again.

    ``decode_block(select_tokens(data, keep))`` equals ``decode_block(data)`` at the kept tokens.
    Scales per channel span the tokens that were encoded, and stay.

    Args:
        data: What ``KVCodec.encode`` returned.
        keep: bool ``[tokens]``.

    Raises:
        CodecError: Not a whole and unaltered block of a known codec and version.
        ValueError: ``keep`` is of another dtype or length.
    """
    return _codec_of(data)().select_tokens(data, keep)


def describe_block(data: Bytes) -> BlockInfo:
    """Say what a block holds, and prove that it is unaltered, without decoding it.

    Raises:
        CodecError: Not a whole and unaltered block of a known codec and version.
    """
    codec = _codec_of(data)
    header, _ = layout.unpack(data)
    return BlockInfo(
        codec.name,
        header.codec_version,
        header.dtype,
        header.key_shape,
        header.value_shape,
        header.block_bytes,
    )


def _codec_of(data: Bytes) -> type[KVCodec]:
    codec_id = layout.read_header(data).codec_id
    for name in CODECS.names():
        codec = CODECS.get(name)
        if codec.codec_id == codec_id:
            return codec
    layout.unpack(data)  # an altered number is an alteration, not an unknown codec
    raise CodecError(
        f"unknown codec number {codec_id} (expected one of: {', '.join(CODECS.names())}): "
        "a newer release of the library or a plug-in wrote the block"
    )


__all__ = [
    "CODECS",
    "BlockInfo",
    "KVCodec",
    "KeyValues",
    "decode_block",
    "describe_block",
    "select_tokens",
]
