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
        pattern: What is one token.
    """

    def __init__(self, vocab_size: int, pattern: str = r"\w+|[^\w\s]") -> None:
        self._vocab_size, self._pattern = vocab_size, pattern

    def encode(self, text: str) -> list[int]:
        """See :class:`TextCodec`."""
        parts = re.findall(self._pattern, text)
        return [zlib.crc32(part.encode()) % (self._vocab_size - 8) for part in parts]

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`TextCodec`; the ids themselves, since no word stands behind them."""
        return " ".join(f"<{i}>" for i in ids)


class ByteTokenizer:
    """UTF-8 bytes as ids, for tiny random models of tests.

    Args:
        special: Texts that are one token each; their ids follow the bytes.
    """

    def __init__(self, special: Sequence[str] = ()) -> None:
        self._ids = {text: 256 + number for number, text in enumerate(special)}

    def encode(self, text: str) -> list[int]:
        """See :class:`TextCodec`."""
        if not self._ids:
            return list(text.encode())
        parts = re.split("(" + "|".join(map(re.escape, self._ids)) + ")", text)
        ids: list[int] = []
        for part in parts:
            ids.extend([self._ids[part]] if part in self._ids else part.encode())
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See :class:`TextCodec`; ids that are no byte become a replacement character."""
        return b"".join(bytes([i]) if i < 256 else b"\xef\xbf\xbd" for i in ids).decode(
            errors="replace"
        )
