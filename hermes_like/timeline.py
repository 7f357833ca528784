"""When every stored frame was: the small table that time questions and losses are answered from."""

from __future__ import annotations

import bisect
import math
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from hermes_like.tiers.base import SegmentHead

#: Bytes of one segment in the table beside its times, by measurement.
SEGMENT_OVERHEAD_BYTES = 360
#: Bytes of the time of one frame there.
FRAME_TIME_BYTES = 32
#: A frame stands for at most this much stream time; what follows is a hole in the footage.
MAX_FRAME_S = 10.0


@dataclass(frozen=True, slots=True)
class SegmentTimes:
    """Frames of one segment.

    Attributes:
        segment_id: Running number.
        first_frame: Running number of its first frame.
        times_s: Stream time of each frame.
        end_s: Stream time at which the last one gives way to the next.
    """

    segment_id: int
    first_frame: int
    times_s: tuple[float, ...]
    end_s: float

    @property
    def start_s(self) -> float:
        """Stream time of the first frame."""
        return self.times_s[0]

    @property
    def end_frame(self) -> int:
        """Running number of the frame behind its last one."""
        return self.first_frame + len(self.times_s)

    @property
    def frames(self) -> range:
        """Running numbers of its frames."""
        return range(self.first_frame, self.end_frame)

    def spans(self) -> list[tuple[float, float]]:
        """Stretches that are covered, in order; long silences between frames are not."""
        spans: list[tuple[float, float]] = []
        for start, following in zip(self.times_s, (*self.times_s[1:], self.end_s), strict=True):
            end = min(following, start + MAX_FRAME_S)
            if spans and spans[-1][1] >= start:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        return spans


#: The fields of :class:`SegmentTimes`. A day has tens of thousands of segments: plain tuples of
#: numbers are made quickly, and Python's search for cycles leaves them alone.
_Times = tuple[int, int, tuple[float, ...], float]
_FIRST_FRAME: Final = 1
_TIMES_S: Final = 2
_END_S: Final = 3


def _times_of(head: SegmentHead) -> _Times:
    return head.segment_id, head.first_frame, head.frame_times_s, head.end_s


class Timeline:
    """Times of all segments of one stream. Calls may come from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: dict[int, _Times] = {}
        self._order: list[int] = []
        self._num_frames = 0
        #: What :meth:`footage` says; None: to be found out anew.
        self._footage: list[tuple[float, float]] | None = []

    def __len__(self) -> int:
        return len(self._segments)

    def __contains__(self, segment_id: object) -> bool:
        return segment_id in self._segments

    @property
    def num_frames(self) -> int:
        """Frames in the table."""
        return self._num_frames

    @property
    def num_bytes(self) -> int:
        """About how much RAM the table takes."""
        per_segment, per_frame = SEGMENT_OVERHEAD_BYTES, FRAME_TIME_BYTES
        return per_segment * len(self._segments) + per_frame * self._num_frames

    def add(self, head: SegmentHead) -> None:
        """Note a segment; one that is there already is replaced."""
        times = _times_of(head)
        with self._lock:
            before = self._segments.get(head.segment_id)
            is_newest = not self._order or head.segment_id > self._order[-1]
            if is_newest and self._footage is not None:
                _join(self._footage, SegmentTimes(*times).spans())
            else:
                self._footage = None
            if before is None:
                bisect.insort(self._order, head.segment_id)
            else:
                self._num_frames -= len(before[_TIMES_S])
            self._segments[head.segment_id] = times
            self._num_frames += len(times[_TIMES_S])

    def add_all(self, heads: Iterable[SegmentHead]) -> None:
        """Note many segments at once; those that are there already are replaced."""
        times = {head.segment_id: _times_of(head) for head in heads}
        with self._lock:
            self._segments.update(times)
            self._footage = None
            self._order = sorted(self._segments)
            self._num_frames = sum(len(times[_TIMES_S]) for times in self._segments.values())

    def remove(self, segment_ids: Collection[int]) -> None:
        """Forget segments; unknown ids are ignored."""
        with self._lock:
            gone = {i: self._segments.pop(i) for i in segment_ids if i in self._segments}
            self._num_frames -= sum(len(times[_TIMES_S]) for times in gone.values())
            are_oldest = self._order[: len(gone)] == sorted(gone)
            if are_oldest:
                del self._order[: len(gone)]
            elif gone:
                self._order = [i for i in self._order if i not in gone]
            if gone:
                self._footage = self._trimmed() if are_oldest else None

    def _trimmed(self) -> list[tuple[float, float]] | None:
        """The footage behind the oldest segment's beginning."""
        if self._footage is None or not self._order:
            return None if self._order else []
        first_s = self._segments[self._order[0]][_TIMES_S][0]
        left = self._footage[bisect.bisect_right(self._footage, first_s, key=lambda s: s[1]) :]
        return [(max(left[0][0], first_s), left[0][1]), *left[1:]] if left else None

    def get(self, segment_id: int) -> SegmentTimes | None:
        """Times of one segment."""
        found = self._segments.get(segment_id)
        return None if found is None else SegmentTimes(*found)

    @property
    def newest(self) -> SegmentTimes | None:
        """The newest segment in the table."""
        with self._lock:
            return SegmentTimes(*self._segments[self._order[-1]]) if self._order else None

    @property
    def first_s(self) -> float:
        """Stream time of the oldest frame; 0 without any."""
        with self._lock:
            return self._segments[self._order[0]][_TIMES_S][0] if self._order else 0.0

    def segment_of(self, frame: int) -> SegmentTimes | None:
        """The segment that holds a frame; None if it is not in the table."""
        with self._lock:
            place = bisect.bisect_right(
                self._order, frame, key=lambda i: self._segments[i][_FIRST_FRAME]
            )
            if not place:
                return None
            found = SegmentTimes(*self._segments[self._order[place - 1]])
            return found if frame < found.end_frame else None

    def between(self, start_s: float | None, end_s: float | None) -> list[SegmentTimes]:
        """Segments that touch a stretch of stream time, ascending."""
        low = -math.inf if start_s is None else start_s
        high = math.inf if end_s is None else end_s
        with self._lock:
            # Segment ids ascend with time, so the first that ends behind ``low`` can be bisected.
            first = bisect.bisect_right(self._order, low, key=lambda i: self._segments[i][_END_S])
            last = bisect.bisect_left(
                self._order, high, key=lambda i: self._segments[i][_TIMES_S][0]
            )
            return [SegmentTimes(*self._segments[i]) for i in self._order[first : max(first, last)]]

    def behind(self, frame: int) -> list[SegmentTimes]:
        """Segments that hold a frame or a later one, ascending."""
        with self._lock:
            first = bisect.bisect_right(self._order, frame, key=self._end_frame)
            return [SegmentTimes(*self._segments[i]) for i in self._order[first:]]

    def _end_frame(self, segment_id: int) -> int:
        _, first_frame, times_s, _ = self._segments[segment_id]
        return first_frame + len(times_s)

    def frames_between(self, start_s: float | None, end_s: float | None) -> list[tuple[int, int]]:
        """``(segment_id, frame)`` of every frame shown in a stretch of stream time, ascending."""
        low = -math.inf if start_s is None else start_s
        high = math.inf if end_s is None else end_s
        found = []
        for segment in self.between(start_s, end_s):
            ends = (*segment.times_s[1:], segment.end_s)
            for offset, (start, end) in enumerate(zip(segment.times_s, ends, strict=True)):
                if end > low and start < high:
                    found.append((segment.segment_id, segment.first_frame + offset))
        return found

    def count_between(self, start_s: float | None, end_s: float | None) -> int:
        """Frames of the segments that touch a stretch of stream time."""
        return sum(len(segment.times_s) for segment in self.between(start_s, end_s))

    def footage(self) -> list[tuple[float, float]]:
        """Stretches of stream time that are covered, in order, joined where they touch."""
        with self._lock:
            if self._footage is None:
                self._footage = []
                for segment_id in self._order:
                    _join(self._footage, SegmentTimes(*self._segments[segment_id]).spans())
            return list(self._footage)


def _join(spans: list[tuple[float, float]], later: Iterable[tuple[float, float]]) -> None:
    """Put later stretches behind earlier ones, joined where they touch."""
    for start, end in later:
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
