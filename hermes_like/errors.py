"""Every error the library raises on purpose.

    HermesError                    something in the world is not as it should be
    ├── ConfigError                a key, a value or a combination that cannot work
    ├── SourceError                pixels cannot be had
    │   ├── SourceOpenError        the source cannot be opened, or holds no pictures
    │   └── SourceStalledError     the source was open and stopped answering
    ├── ModelError                 weights or a tokenizer cannot be used
    │   └── ModelNotFoundError     nothing was found under the given name
    └── BudgetError                a promised cap does not leave room for the request

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


class BudgetError(HermesError):
    """A promised cap does not leave room for what was asked."""


class SessionStateError(RuntimeError):
    """The calling code used an object in a state that does not allow it."""
