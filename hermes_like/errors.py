"""Every error the library raises on purpose.

    HermesError                    something in the world is not as it should be
    ├── ConfigError                a key, a value or a combination that cannot work
    ├── SourceError                pixels cannot be had
    │   ├── SourceOpenError        the source cannot be opened, or holds no pictures
    │   └── SourceStalledError     the source was open and stopped answering
    ├── ModelError                 weights or a tokenizer cannot be used
    │   └── ModelNotFoundError     nothing was found under the given name
    ├── BudgetError                a promised cap does not leave room for the request
    └── StorageError               a memory folder, or something in it, cannot be used
        ├── CodecError             bytes that are no block of a known codec, or were altered
        ├── FingerprintError       the memory was written by another model or another format
        ├── MemoryLockedError      another process writes to the folder
        ├── TierFullError          a tier has no room, and nothing in it may go
        └── SegmentUnavailableError  a segment is gone, or cannot be trusted

    SessionStateError              misuse by the caller: asking a closed session, for example

Messages say what was expected and what came, and name the file or the key.
"""

from __future__ import annotations


class HermesError(Exception):
    """Root of everything that can go wrong without a mistake in the calling code."""


class ConfigError(HermesError):
    """A configuration key, value or combination that cannot work."""


class SourceError(HermesError):
    """Pixels cannot be had from a source."""


class SourceOpenError(SourceError):
    """The source cannot be opened, or it holds no pictures."""


class SourceStalledError(SourceError):
    """The source was open and stopped answering within its time limit."""


class ModelError(HermesError):
    """A model or its tokenizer cannot be used."""


class ModelNotFoundError(ModelError):
    """No model was found under the given name or folder."""


class DatasetError(HermesError):
    """Annotations, predictions or a set of them cannot be used."""


class BudgetError(HermesError):
    """A promised cap does not leave room for what was asked."""


class StorageError(HermesError):
    """A memory folder, or something in it, cannot be used."""


class CodecError(StorageError):
    """Bytes that are no block of a known codec, or were altered."""


class FingerprintError(StorageError):
    """The memory was written by another model or in another format."""


class MemoryLockedError(StorageError):
    """Another process writes to the folder."""


class TierFullError(StorageError):
    """A tier has no room, and nothing in it may go."""


class SegmentUnavailableError(StorageError):
    """A segment is gone, or cannot be trusted.

    Attributes:
        segment_id: Which one.
        reason: ``absent``, ``checksum``, ``fingerprint``, ``io_error``, ``deadline`` or ``erased``.
    """

    def __init__(self, segment_id: int, reason: str, detail: str = "") -> None:
        super().__init__(f"segment {segment_id}: {reason}" + (f" ({detail})" if detail else ""))
        self.segment_id = segment_id
        self.reason = reason


class SessionStateError(RuntimeError):
    """The calling code used an object in a state that does not allow it."""
