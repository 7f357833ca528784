"""Logs for the command line: one line of JSON per record if asked for, credentials never.

The library logs to ``hermes_like.*`` through the standard module and sets nothing up when it is
imported. A program that embeds it attaches handlers of its own, and may use the parts from here.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any, Final, TextIO

from hermes_like.errors import ConfigError

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
#: What stands where a secret stood.
HIDDEN: Final = "***"
#: Values nested deeper than this are told as text; something may contain itself.
MAX_DEPTH: Final = 6

_SECRET: Final = (
    "passw(?:or)?d|passphrase|passcode|pwd|secret|api[-_]?key|access[-_]?key|private[-_]?key|"
    "(?:access|auth|refresh|session|bearer)[-_]?token"
)
_QUERY_SECRET: Final = f"{_SECRET}|pass|token|key|auth|sig|signature|session|sid|usr|user|username"


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _hide_in_word(match: re.Match[str]) -> str:
    """Searched by hand: a pattern would take quadratic time for what a stranger may send."""
    word = match.group()
    for slashes, at in (("//", "@"), ("%2f%2f", "%40")):
        start, end = word.lower().find(slashes), word.rfind(at)
        if 0 <= start < end:
            word = f"{word[: start + len(slashes)]}{HIDDEN}{word[end:]}"
    return word


#: What is hidden, in this order, and what is left of it. A password may hold any character, so
#: where it ends is guessed late rather than early.
_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    # A quoted address, up to its last @; the password may hold spaces.
    (_rule(r"""(?<=['"])([a-z][a-z0-9+.-]*://)[^'"\n]*@"""), rf"\1{HIDDEN}@"),
    # Up to the last @ of the word, also where an address stands inside another one.
    (_rule(r"\S+"), _hide_in_word),
    # A password with spaces; digits alone behind the colon are a port.
    (_rule(r"""//[^\s/:@]+:(?!\d+(?:[/?#\s'",)\]]|$))[^\n@]{0,128}@"""), f"//{HIDDEN}@"),
    # Headers of HTTP and RTSP.
    (
        _rule(
            r"(\bauthorization['\"]?\s*[:=]\s*['\"]?)"
            r"(?:digest\s[^\n]*|(?:basic\s+|bearer\s+)?[^\s'\"]+)"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\b(Bearer\s+)[\w.~+/=-]{8,}"), rf"\1{HIDDEN}"),
    # Parameters of an address, and words that are secrets wherever they stand.
    (
        _rule(rf"((?:[?&;]|%3f|%26)[\w.-]*?(?:{_QUERY_SECRET})(?:=|%3d))[^\s&;'\"<>]+"),
        rf"\1{HIDDEN}",
    ),
    (
        _rule(rf"((?<![a-z])(?:{_SECRET})['\"]?\s*[=:]\s*['\"]?)[^\s&;,'\"<>]+"),
        rf"\1{HIDDEN}",
    ),
)
#: Names of fields whose values are secrets; ``device_tokens`` is none.
_SECRET_FIELD: Final = _rule(rf"(?:^|[_.-])(?:{_SECRET}|token|authorization|credentials?)$")
#: What every record has; anything else was given by ``extra``.
_STANDARD: Final = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
_OWN: Final = ("time", "level", "logger", "message", "exception", "stack")

_Plain = str | int | float | bool | None | list["_Plain"] | dict[str, "_Plain"]


def redact(text: str) -> str:
    """Return a text without the credentials in it.

    Hidden are ``user:password`` in addresses of any scheme, values of parameters and fields that
    are called like secrets, and authorization headers. When in doubt, more is hidden.
    """
    for pattern, left in _RULES:
        text = pattern.sub(left, text)
    return text


class CredentialFilter(logging.Filter):
    """Takes credentials out of records: message, arguments, extra fields, traces.

    Belongs on a handler; on a logger it would not see what the loggers below it send.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place; it always passes."""
        try:
            message = record.getMessage()
        except Exception:  # a wrong call in the code that logs must not end that code
            told = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
            message = f"{told} (its arguments do not fit)"
            record.msg, record.args = message, ()
        if redact(message) != message:
            record.msg, record.args = redact(message), ()
        elif record.args:
            record.args = _redacted_args(record.args)
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        if record.stack_info:
            record.stack_info = redact(record.stack_info)
        for name, value in _extras(record).items():
            if isinstance(value, str):
                record.__dict__[name] = HIDDEN if _SECRET_FIELD.search(name) else redact(value)
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line.

    ``time`` (ISO 8601 with offset), ``level``, ``logger``, ``message``, then the fields given by
    ``extra``, then ``exception`` and ``stack`` where there are any. Credentials are hidden whether
    or not there is a filter.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of ASCII, without a line end."""
        moment = datetime.fromtimestamp(record.created).astimezone()
        fields: dict[str, _Plain] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name, value in _extras(record).items():
            key = f"{name}_" if name in _OWN else name
            fields[key] = HIDDEN if _SECRET_FIELD.search(name) else _plain(value)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            fields["exception"] = redact(record.exc_text)
        if record.stack_info:
            fields["stack"] = redact(record.stack_info)
        return json.dumps(fields)


class _CommandLineHandler(logging.StreamHandler[TextIO]):
    """The one handler of :func:`configure_logging`, so that it can be found again."""


def configure_logging(
    level: str = "warning", *, as_json: bool = False, stream: TextIO | None = None
) -> None:
    """Send logs to a stream. For programs, not for libraries; may be called again.

    Args:
        level: The least level of the library's own records that is told: ``debug``, ``info``,
            ``warning``, ``error`` or ``critical``. Other libraries tell warnings and worse.
        as_json: One JSON object per line instead of plain text.
        stream: Where to; None: standard error.

    Raises:
        ConfigError: Unknown level.
    """
    if level.lower() not in LEVELS:
        raise ConfigError(f"log level: expected one of {', '.join(LEVELS)}, got {level!r}")
    handler = _CommandLineHandler(stream)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else plain)
    handler.addFilter(CredentialFilter())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _CommandLineHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.getLogger("hermes_like").setLevel(level.upper())


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _redacted_args(args: tuple[object, ...] | Mapping[str, object]) -> Any:
    """Arguments without credentials: a format may have shown a part of them only."""
    if isinstance(args, Mapping):
        return {key: redact(arg) if isinstance(arg, str) else arg for key, arg in args.items()}
    return tuple(redact(arg) if isinstance(arg, str) else arg for arg in args)


def _plain(value: object, depth: int = 0) -> _Plain:
    """A value as JSON knows it, without credentials; what JSON does not know becomes text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        return {
            redact(str(key)): HIDDEN if _SECRET_FIELD.search(str(key)) else _plain(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset) and depth < MAX_DEPTH:
        return [_plain(item, depth + 1) for item in value]
    try:
        return redact(str(value))
    except Exception:  # a field that cannot be told must not cost the record
        return f"<{type(value).__name__}>"
