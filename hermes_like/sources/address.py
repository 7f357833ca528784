"""Addresses of cameras: what is connected to, and what may be shown of it.

User, password and secret-looking values never appear in a name, a message or a log. ``${VAR}`` in
an address stands for an environment variable, so that a password need not be written down; its
value may hold any character. This module opens nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from hermes_like.errors import SourceOpenError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_ESCAPE = re.compile(r"(%[0-9A-Fa-f]{2})")
_SECRET_VALUE = re.compile(
    r"(?<![A-Za-z])((?:user(?:name)?|login|pass(?:wd|word|phrase)?|pwd|psw|token|secret|sig(?:nature)?"
    r"|credentials?|auth|[a-z_-]*(?:api|access|auth|secret)[_-]?(?:key|token|id)|key)=)([^&/;#]*)",
    re.IGNORECASE,
)
_HIDDEN = "***"

#: Shorter secrets are not searched for in messages: replacing them would make nonsense of words.
_LEAST_SECRET_CHARS = 3


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """An address that was understood.

    Attributes:
        scheme: Lower case, such as ``rtsp``.
        url: Everything, percent-encoded; holds credentials and must not be shown.
        name: What may be shown.
        secrets: What must not be shown, in every spelling.
    """

    scheme: str
    url: str
    name: str
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Address({self.name!r})"

    def scrubbed(self, text: str) -> str:
        """Return a message without what must not be shown."""
        text = text.replace(self.url, self.name)
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text


def redacted(address: str) -> str:
    """Return an address without user, password and secret-looking values.

    What cannot be understood loses everything up to its last ``@``; anything else that is no
    address (a path, say) comes back as it is.
    """
    parts = _PARTS.fullmatch(address)
    if parts is None:
        return address
    scheme, authority, path, query, _ = (part or "" for part in parts.groups())
    if _misplaced_at(authority, path, query, parts.group(5) or ""):
        return f"{scheme}://{_HIDDEN}@{address.rpartition('@')[2]}"
    host = authority.rpartition("@")[2]
    return f"{scheme}://{host}{_SECRET_VALUE.sub(_hide, path + query)}"


def parse_address(reference: str, environment: Mapping[str, str] | None = None) -> Address:
    """Understand ``scheme://[user[:password]@]host[:port][/path][?query]``.

    In user and password, ``@ : %`` and spaces and letters beyond ASCII are encoded as needed.
    ``/``, ``?`` and ``#`` end the host for every reader, so they must be written ``%2F``, ``%3F``
    and ``%23`` or come from ``${VAR}``.

    Args:
        reference: The address.
        environment: Where ``${VAR}`` is looked up; None: the environment of the process.

    Raises:
        SourceOpenError: Names the character or the variable; never shows credentials.
    """
    environment = os.environ if environment is None else environment
    name = redacted(reference)
    values: list[str] = []

    def value_of(match: re.Match[str]) -> str:
        if match.group(1) not in environment:
            raise SourceOpenError(
                f"{name}: expected the environment variable {match.group(1)}, which is not set"
            )
        values.append(environment[match.group(1)])
        return quote(values[-1], safe="")

    parts = _PARTS.fullmatch(_VARIABLE.sub(value_of, reference))
    if parts is None:
        raise SourceOpenError(f"{name}: expected an address such as rtsp://host:554/path")
    scheme, authority, path, query, fragment = (part or "" for part in parts.groups())
    control = next((char for char in reference if ord(char) < 32 or ord(char) == 127), None)
    if control is not None:
        raise SourceOpenError(f"{name}: expected no control characters, got {control!r}")
    _refuse_separators(name, authority, path, query, fragment)
    credentials, at, host = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    url = (
        f"{scheme.lower()}://{_encoded(user)}{colon}{_encoded(password)}{at}{host}"
        f"{_encoded(path, safe='/:;,=+$!*()~@&')}{_encoded(query, safe='?/:;,=+$!*()~@&[]')}"
    )
    hidden = [user, password, *values]
    hidden += [match.group(2) for match in _SECRET_VALUE.finditer(path + query)]
    spellings = {form for text in hidden for form in (text, unquote(text), _encoded(text))}
    secrets = tuple(text for text in spellings if len(text) >= _LEAST_SECRET_CHARS)
    return Address(scheme.lower(), url, redacted(url), secrets)


def _refuse_separators(name: str, authority: str, path: str, query: str, fragment: str) -> None:
    """Refuse what ends the host too early, and hosts and ports that cannot be."""
    if _misplaced_at(authority, path, query, fragment):
        got = (path or query or fragment)[:1]
        raise SourceOpenError(
            f"{name}: {got!r} ends the host; in a user name or a password write "
            f"{quote(got, safe='')} (and an '@' behind the host %40), or use ${{VAR}}"
        )
    host = authority.rpartition("@")[2]
    port = host.rpartition("]")[2].rpartition(":")[2] if ":" in host.rpartition("]")[2] else ""
    if port and not (port.isascii() and port.isdigit() and int(port) < 65536):
        # What stands there may be half a password.
        raise SourceOpenError(
            f"{name.partition('://')[0]}://...: expected a port from 0 to 65535 behind the host"
        )


def _misplaced_at(authority: str, path: str, query: str, fragment: str) -> bool:
    """Whether an ``@`` stands where only credentials cut in two would put one."""
    is_open = "@" not in authority and ":" in authority
    return "@" in path or "@" in fragment or (is_open and "@" in query)


def _encoded(text: str, safe: str = "") -> str:
    """Percent-encode what is not encoded yet."""
    pieces = _ESCAPE.split(text)
    return "".join(p if _ESCAPE.fullmatch(p) else quote(p, safe=safe) for p in pieces)


def _hide(match: re.Match[str]) -> str:
    return match.group(1) + _HIDDEN
