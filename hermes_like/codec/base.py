"""The seam between keys and values of one layer and the bytes that are stored for them.

A codec sees one block at a time: the un-rotated keys and the values of consecutive tokens in one
decoder layer. What comes out is self-describing, so that a reader needs the bytes alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, eq=False)
class KeyValues:
    """Keys and values of consecutive tokens in one decoder layer.

    Attributes:
        raw_keys: ``[kv_heads, tokens, head_dim]``, un-rotated.
        values: ``[kv_heads, tokens, head_dim]``; its head_dim may differ from that of the keys.
    """

    raw_keys: Tensor
    values: Tensor


class KVCodec(ABC):
    """Turns a block into bytes and back.

    Contract, held by ``tests/codec/test_contract.py`` for every registered codec: ``decode``
    returns the shapes and the dtype that were encoded; the error of every value is at most
    :meth:`error_bounds`; equal input gives equal bytes; any altered or missing byte raises
    :class:`~hermes_like.errors.CodecError`; leaving tokens out does not change the others. Decoded
    data is never encoded again: callers keep and move the bytes.

    Attributes:
        name: Name in the registry and in the configuration.
        codec_id: Number in the header of a block, 1 to 255; never reused.
        version: Version of the layout behind that number.
    """

    name: ClassVar[str]
    codec_id: ClassVar[int]
    version: ClassVar[int] = 1

    @abstractmethod
    def encode(self, block: KeyValues) -> bytes:
        """Return the block as self-describing bytes, checksum included.

        Args:
            block: float32, bfloat16 or float16, on any device; any number of tokens, 0 included.

        Raises:
            ValueError: Another dtype, or keys and values that do not belong together.
        """

    @abstractmethod
    def decode(self, data: Bytes, device: torch.device | str | None = None) -> KeyValues:
        """Return the block that :meth:`encode` made the bytes of.

        Args:
            data: What this codec wrote; :func:`hermes_like.codec.decode_block` picks the codec.
            device: Where the tensors shall be; None: the CPU.

        Raises:
            CodecError: Not a whole and unaltered block of this codec.
        """

    @abstractmethod
    def select_tokens(self, data: Bytes, keep: Tensor) -> bytes:
        """Leave tokens out of an encoded block; what is stored of the others does not change.

        Args:
            data: What this codec wrote.
            keep: bool ``[tokens]``.

        Raises:
            CodecError: Not a whole and unaltered block of this codec.
            ValueError: ``keep`` is of another dtype or length.
        """

    @abstractmethod
    def error_bounds(self, block: KeyValues) -> KeyValues:
        """Return the declared most absolute error of every value, float32 in the block's shapes."""
