"""A line of text from single keys, so that a view can go on being drawn while somebody types."""

from __future__ import annotations

import codecs
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_ENTER, _BACKSPACE, _CLEAR, _END, _ESCAPE = "\r\n", "\x7f\x08", "\x15", "\x04", "\x1b"
_MAX_LENGTH = 1000


class LineEditor:
    """Collects keys into lines. Knows backspace, Ctrl-U (clear) and Ctrl-D (end)."""

    def __init__(self) -> None:
        self.text = ""
        self.is_ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._escape = ""

    def feed(self, data: bytes) -> list[str]:
        """Take keys; returns the lines that they complete."""
        lines = []
        for key in self._decoder.decode(data):
            if self._is_in_escape(key):
                continue
            if key in _ENTER:
                lines.append(self.text)
                self.text = ""
            elif key in _BACKSPACE:
                self.text = self.text[:-1]
            elif key == _CLEAR:
                self.text = ""
            elif key == _END:
                self.is_ended = self.is_ended or not self.text
            elif key.isprintable() and len(self.text) < _MAX_LENGTH:
                self.text += key
        return [line.strip() for line in lines if line.strip()]

    def _is_in_escape(self, key: str) -> bool:
        """Whether a key belongs to the sequence of an arrow or function key, which is ignored."""
        if key == _ESCAPE:
            self._escape = key
            return True
        if not self._escape:
            return False
        is_first = len(self._escape) == 1
        self._escape += key
        if (is_first and key not in "[O") or (not is_first and key.isalpha()) or key == "~":
            self._escape = ""
        return True


@contextmanager
def single_keys() -> Iterator[int]:
    """Let stdin give keys as they are pressed; Ctrl-C still interrupts.

    Yields:
        The file descriptor to read from.
    """
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def pressed(descriptor: int, timeout_s: float) -> bytes:
    """Keys that were pressed, empty after the timeout."""
    if not select.select([descriptor], [], [], timeout_s)[0]:
        return b""
    # An end of input reads as Ctrl-D.
    return os.read(descriptor, 1024) or _END.encode()
