"""Which decoded pictures can be trusted after damage.

A decoder conceals what it misses: the pictures after a damaged packet look valid and are smeared
until the next key frame. This module knows no decoder, only decode order and key flags.
"""

from __future__ import annotations

#: Streams without key frames exist (rolling refresh): nothing is awaited longer than this.
MAX_WAIT_FRAMES = 300


class KeyFrameGate:
    """Lets pictures pass until damage is reported, then again from the next key frame on.

    Attributes:
        num_damaged: Reports of damage.
        num_dropped: Pictures that were held back.
    """

    def __init__(self) -> None:
        self.num_damaged = 0
        self.num_dropped = 0
        self._is_waiting = False
        self._num_waited = 0
        self._damaged_order: int | None = None

    def wait(self) -> None:
        """Wait for a key frame: the stream was joined in the middle."""
        self._is_waiting = True
        self._num_waited = 0

    def damage(self, order: int | None) -> None:
        """Report a damaged packet or picture with its place in decode order, None if unknown."""
        self.num_damaged += 1
        if not self._is_waiting:
            self._damaged_order = order
        self.wait()

    def passes(self, is_key: bool, order: int | None = None) -> bool:
        """Whether a picture can be trusted; ``order``: place of its own packet in decode order."""
        if not self._is_waiting:
            return True
        if is_key or self._num_waited >= MAX_WAIT_FRAMES:
            self._is_waiting = False
            self._damaged_order = None
            return True
        damaged = self._damaged_order
        if order is not None and damaged is not None and order < damaged:
            return True
        self._num_waited += 1
        self.num_dropped += 1
        return False
