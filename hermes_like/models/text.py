"""Text to token ids and back, behind one small protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class TextCodec(Protocol):
    """What an adapter needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids of text that may hold special tokens by name."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""


class HubTokenizer:
    """A tokenizer of the transformers library; adds no special tokens of its own."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """See :class:`TextCodec`."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`TextCodec`."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def vocabulary(self) -> set[str]:
        """All words of a word-level tokenizer."""
        return set(self.tokenizer.get_vocab())


class ByteTokenizer:
    """UTF-8 bytes as ids, for models with random weights, whose words mean nothing anyway."""

    def encode(self, text: str) -> list[int]:
        """See :class:`TextCodec`."""
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`TextCodec`; ids that are no byte become a replacement character."""
        return b"".join(bytes([i]) if i < 256 else b"\xef\xbf\xbd" for i in ids).decode(
            errors="replace"
        )
