"""The seam between keys and values of one layer and the bytes that are stored for them.

A codec sees one block at a time: the un-rotated keys and the values of consecutive tokens in one
decoder layer. What comes out is self-describing, so that a reader needs the bytes alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class KeyValues:
    """Keys and values of consecutive tokens in one decoder layer.

    Attributes:
        raw_keys: ``[kv_heads, tokens, head_dim]``, un-rotated.
        values: ``[kv_heads, tokens, head_dim]``.
    """

    raw_keys: Tensor
    values: Tensor


class KVCodec(ABC):
    """Turns a block into bytes and back.

    Contract, held by ``tests/codec/test_contract.py`` for every registered codec: ``decode``
    returns the shapes and the dtype that were encoded; the error of every value is at most
    :meth:`error_bounds`; equal input gives equal bytes; any altered or missing byte raises
    :class:`~hermes_like.errors.CodecError`. Decoded data is never encoded again: callers keep and
    move the bytes.

    Attributes:
        name: Name in the registry and in the configuration.
        codec_id: Number in the header of a block; never reused.
        version: Version of the layout behind that number.
    """

    name: ClassVar[str]
    codec_id: ClassVar[int]
    version: ClassVar[int] = 1

    @abstractmethod
    def encode(self, block: KeyValues) -> bytes:
        """Return the block as self-describing bytes, checksum included.

        Args:
            block: float32, bfloat16 or float16, on any device.
        """

    @abstractmethod
    def error_bounds(self, block: KeyValues) -> KeyValues:
        """Return the declared most absolute error of every value, in the shapes of the block."""
