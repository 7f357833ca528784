"""Stream time from presentation times that may be missing, jump back, or start anywhere.

Declared frame rates are hints (0, NaN and 90000 occur); measured times are trusted.
"""

from __future__ import annotations

import math

DEFAULT_FPS = 25.0
LEAST_FPS, MOST_FPS = 0.1, 480.0

#: A step back beyond this is a new time line (joined recordings), not jitter.
NEW_TIMELINE_S = 1.0


def sane_fps(declared: float | None) -> float:
    """Return the declared rate if it is plausible, in frames per second, else 25."""
    if declared is None or not math.isfinite(declared) or not LEAST_FPS <= declared <= MOST_FPS:
        return DEFAULT_FPS
    return float(declared)


class StreamClock:
    """Gives each frame a time in seconds that never decreases and never lies below 0.

    Args:
        declared_fps: Rate by the container, used only where a frame has no time of its own.
    """

    def __init__(self, declared_fps: float | None) -> None:
        self.frame_s = 1.0 / sane_fps(declared_fps)
        self.num_estimated = 0
        self.num_clamped = 0
        self.num_jumps = 0
        self.last_s: float | None = None
        self._offset_s = 0.0

    def tell(self, pts_s: float | None) -> float:
        """Return the time of the next frame from its own time, None if it has none."""
        last_s = self.last_s
        expected_s = 0.0 if last_s is None else last_s + self.frame_s
        if pts_s is None or not math.isfinite(pts_s):
            self.num_estimated += 1
            time_s = expected_s
        else:
            time_s = self._monotonic(pts_s + self._offset_s, expected_s)
        self.last_s = time_s
        return time_s

    def _monotonic(self, time_s: float, expected_s: float) -> float:
        floor_s = self.last_s or 0.0
        if time_s >= floor_s:
            return time_s
        if self.last_s is not None and time_s < floor_s - NEW_TIMELINE_S:
            self.num_jumps += 1
            self._offset_s += expected_s - time_s
            return expected_s
        self.num_clamped += 1
        return floor_s

    def notes(self) -> list[str]:
        """Plain sentences about what had to be repaired."""
        notes = []
        if self.num_estimated:
            fps = 1.0 / self.frame_s
            notes.append(
                f"{self.num_estimated} frames had no time of their own; {fps:g} per second assumed"
            )
        if self.num_clamped:
            notes.append(f"{self.num_clamped} frames came with a time before their predecessor's")
        if self.num_jumps:
            notes.append(f"the time line starts anew {self.num_jumps} times; frames were appended")
        return notes
