"""Names of plug-ins, resolved lazily: naming one implementation does not import the others."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Generic, TypeVar, cast

from hermes_like.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """A table from names to implementations of one seam.

    Args:
        kind: What is registered, in words, for messages ("retention policy").
        entries: Name to ``"module:attribute"``; the module is imported on first use.
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._entries: dict[str, str | T] = dict(entries)

    def names(self) -> list[str]:
        """All registered names, sorted."""
        return sorted(self._entries)

    def register(self, name: str, item: T) -> T:
        """Add an implementation at run time, and return it.

        Raises:
            ConfigError: The name is taken.
        """
        if name in self._entries:
            raise ConfigError(f"{self.kind} {name!r} is already registered")
        self._entries[name] = item
        return item

    def get(self, name: str) -> T:
        """Return the implementation registered under ``name``.

        Raises:
            ConfigError: Unknown name; the message lists the nearest and all valid names.
        """
        try:
            entry = self._entries[name]
        except KeyError:
            raise ConfigError(unknown_name(self.kind, name, self.names())) from None
        if isinstance(entry, str):
            module_name, attribute = entry.split(":")
            entry = cast(T, getattr(importlib.import_module(module_name), attribute))
            self._entries[name] = entry
        return entry


def unknown_name(kind: str, name: str, valid: list[str]) -> str:
    """Message for a name that is not among the valid ones, with the nearest one if there is any."""
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}{hint} (expected one of: {', '.join(valid)})"
