"""Which decoded pictures can be trusted after damage.

A decoder conceals what it misses: the pictures after a damaged packet look valid and are smeared
until the next key frame. This module knows no decoder, only decode order and key flags.
"""

from __future__ import annotations

#: Streams without key frames exist (rolling refresh): nothing is awaited longer than this.
MAX_WAIT_FRAMES = 300


class KeyFrameGate:
    """Lets pictures pass until damage is reported, then again from the next key frame on.

    It begins closed, so that a stream joined in the middle waits for its first key frame. ``order``
    is always the place of a packet in decode order, None where it is not known.

    Attributes:
        num_damaged: Reports of damage.
        num_dropped: Pictures held back, and packets that gave none because of damage.
    """

    def __init__(self) -> None:
        self.num_damaged = 0
        self.num_dropped = 0
        self._is_waiting = True
        self._num_waited = 0
        self._since: int | None = 0
        self._num_dropped_before = 0

    def damage(self, order: int | None) -> None:
        """Report a damaged packet or picture."""
        self.num_damaged += 1
        self._num_waited = 0
        if not self._is_waiting:
            self._is_waiting = True
            self._since = order
            self._num_dropped_before = self.num_dropped

    def passes(self, is_key: bool, order: int | None) -> bool:
        """Whether a picture can be trusted."""
        if not self._is_waiting:
            return True
        if is_key or self._num_waited >= MAX_WAIT_FRAMES:
            self.settle(order)
            self._is_waiting = False
            return True
        if order is not None and self._since is not None and order < self._since:
            return True
        self._num_waited += 1
        self.num_dropped += 1
        return False

    def settle(self, order: int | None) -> None:
        """Count exactly what was lost in the current wait: all packets up to ``order``."""
        if self._is_waiting and order is not None and self._since is not None:
            self.num_dropped = self._num_dropped_before + max(order - self._since, 0)
