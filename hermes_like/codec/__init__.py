"""Codecs: how keys and values are stored off the device.

Bytes name their codec, so that a memory may hold blocks of several and be read without settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from hermes_like.codec import layout
from hermes_like.codec.base import Bytes, KeyValues, KVCodec
from hermes_like.codec.encoding import encode_layers
from hermes_like.codec.layers import as_indices, decode_run, runs_of, taken
from hermes_like.codec.pair import PairCodec
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


def decode_layers(
    blocks: Sequence[Bytes],
    devices: Sequence[torch.device] | torch.device | str | None = None,
    keep: Tensor | None = None,
    *,
    is_verified: bool = False,
) -> list[KeyValues]:
    """Decode all layers of a segment, or some of their tokens.

    ``decode_layers([data], device, keep)`` equals ``decode_block(data, device)`` at ``keep``, bit
    for bit. Only the wanted tokens travel to the device, in their encoded form, neighbouring layers
    in one copy; on CUDA the copies run beside the computing stream, and the call returns before
    they have ended. Every block is verified whole, unless somebody has done so.

    Args:
        blocks: What ``KVCodec.encode`` returned, one per layer.
        devices: Where the tensors of each layer, or of all, shall be; None: the CPU.
        keep: int64 ``[tokens]``, which tokens, in any order, repeated or not; None: all.
        is_verified: The blocks are as they were written: they never left this process, or a tier
            has verified them. For a few frames of a large segment the proof takes longer than
            everything else.

    Raises:
        CodecError: One is not a whole and unaltered block of a known codec and version.
        ValueError: ``keep`` names a token that a block does not have, or is of another dtype.
    """
    if devices is None or isinstance(devices, str | torch.device):
        devices = [torch.device(devices or "cpu")] * len(blocks)
    chosen = None if keep is None else as_indices(keep)
    of = [_codec_of(data) for data in blocks]
    decoded: list[KeyValues] = []
    for codec, group in groupby(zip(of, blocks, devices, strict=True), key=lambda one: one[0]):
        coder = codec()
        if isinstance(coder, PairCodec):
            opened = (
                (*coder.open(data, is_verified=is_verified), device) for _, data, device in group
            )
            for device, run in runs_of(opened, chosen):
                decoded += decode_run(run, device, chosen)
        else:
            decoded += [taken(coder.decode(data, device), chosen) for _, data, device in group]
    return decoded


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
    "decode_layers",
    "describe_block",
    "encode_layers",
    "select_tokens",
]
