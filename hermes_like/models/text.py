"""Text to token ids and back, behind one small protocol."""

from __future__ import annotations

import re
import zlib
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


class HashTokenizer:
    """One id per word or mark, by hash, for large random models.

    Words mean nothing there, but prompts get about as many tokens as a trained tokenizer gives
    plain English, which is what timings depend on.

    Args:
        vocab_size: Ids are below this.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        """See :class:`TextCodec`."""
        parts = re.findall(r"\w+|[^\w\s]", text)
        return [zlib.crc32(part.encode()) % (self._vocab_size - 8) for part in parts]

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`TextCodec`; the ids themselves, since no word stands behind them."""
        return " ".join(f"<{i}>" for i in ids)


class ByteTokenizer:
    """UTF-8 bytes as ids, for tiny random models of tests."""

    def encode(self, text: str) -> list[int]:
        """See :class:`TextCodec`."""
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`TextCodec`; ids that are no byte become a replacement character."""
        return b"".join(bytes([i]) if i < 256 else b"\xef\xbf\xbd" for i in ids).decode(
            errors="replace"
        )
