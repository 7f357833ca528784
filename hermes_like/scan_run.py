"""The course of one scan: frames asked about, what was said, and the events that agreement makes.

Decides nothing about which frames come and when to stop; that is ``scan.py``.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hermes_like.alone import AloneAsker, FrameTokens, by_frame
from hermes_like.config import RetrievalConfig
from hermes_like.long_term import LongTermMemory
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.merge import ReturnedTokens
from hermes_like.memory.provenance import FrameRecord, FrameTable
from hermes_like.records import MissingSpan, Tier

#: Frames of the first pass; each further one has twice as many, up to ``scan_batch``: a question
#: whether something was ever there is mostly settled by the best few.
FIRST_BATCH = 2


@dataclass(frozen=True, slots=True)
class Event:
    """One stretch in which the thing was seen.

    Attributes:
        first_frame: Running number of its first frame.
        last_frame: Running number of its last frame.
        start_s: Stream time at which it begins.
        end_s: Stream time at which it ends.
        segment_id: Segment of its first frame.
        tier: Where the first frame was read from.
        record: Record of the first frame.
    """

    first_frame: int
    last_frame: int
    start_s: float
    end_s: float
    segment_id: int
    tier: Tier
    record: FrameRecord


@dataclass(slots=True, eq=False)
class ScanResult:
    """What a scan found.

    Attributes:
        events: In the order of time.
        is_complete: False: the deadline came first.
        asked: Frames that were asked about.
        missing: Stretches that could not be read.
    """

    events: list[Event] = field(default_factory=list)
    is_complete: bool = True
    asked: int = 0
    missing: list[MissingSpan] = field(default_factory=list)


class ScanRun:
    """One scan: what was asked already, and what the replies were.

    Args:
        memory: The stream's memory on the device.
        long_term: The stream's memory off the device.
        config: How many frames in one pass, and when one event becomes another.
        question: Answered by yes or no from one frame.
        cache: A fork; read, not changed.
        table: Records of the frames in the fork.
        until_s: Clock reading at which the scan is due.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        long_term: LongTermMemory,
        config: RetrievalConfig,
        question: str,
        cache: HierarchicalCache,
        table: FrameTable,
        *,
        until_s: float,
    ) -> None:
        self.memory, self.long_term = memory, long_term
        self.cache, self.table, self.until_s = cache, table, until_s
        prompt = memory.adapter.question_ids(question, is_first=True)
        self._asker = AloneAsker(self.memory, cache, prompt, config.scan_batch)
        self._means_yes = memory.adapter.means_yes
        self._split = config.scan_split
        self._looks: dict[int, Tensor] = {}
        self._batch = FIRST_BATCH
        self._frame_s = 0.0
        self.result = ScanResult()
        self.min_frames = 1
        #: What was said about each frame that was asked, and of which of them it counts: a pass may
        #: hold frames that are not reached in the end.
        self.replies: dict[int, bool] = {}
        self.settled: set[int] = set()
        self.records: dict[int, FrameRecord] = {}
        self.tiers: dict[int, Tier] = {}

    def is_late(self) -> bool:
        """Whether another frame would be asked about behind the deadline."""
        return time.perf_counter() + self._frame_s > self.until_s

    def unstored_frames(self, start_s: float | None, end_s: float | None) -> list[int]:
        """Frames of the open segment: on the device and nowhere else."""
        newest = self.long_term.timeline.newest
        return [
            frame
            for frame, record in self.table.items()
            if (newest is None or frame >= newest.end_frame)
            and (start_s is None or (record.end_s or record.pts_s) >= start_s)
            and (end_s is None or record.pts_s < end_s)
        ]

    def is_settled(self, frame: int) -> bool:
        """Whether the frame was decided about already."""
        return frame in self.settled

    def ask_ahead(self, queue: Sequence[int], most: int) -> None:
        """Ask about the next frames in one pass, and about the neighbours of those that say yes.

        Args:
            queue: Frames in the order in which they will be decided about.
            most: Frames that may be asked.
        """
        if queue[0] in self.replies:
            return
        size = max(1, min(self._batch, self._asker.max_rows, most))
        if self._frame_s:
            left_s = self.until_s - time.perf_counter()
            size = max(1, min(size, int(left_s / self._frame_s)))
        self._batch *= 2
        asked, coming = _next_unasked(queue, self.replies, size)
        self._prefetch(coming)
        self._ask(asked)
        edge = [(frame, step) for frame in asked if self.replies[frame] for step in (-1, 1)]
        while edge and self._asker.max_rows > 1 and not self.is_late():
            beside = [(frame + step, step) for frame, step in edge]
            self._ask(dict.fromkeys(frame for frame, _ in beside if frame not in self.replies))
            edge = [(frame, step) for frame, step in beside if self.replies[frame]]

    def _prefetch(self, frames: Iterable[int]) -> None:
        """Begin to read what the next pass will want, while this one runs."""
        found = (self.long_term.timeline.segment_of(frame) for frame in frames)
        wanted = dict.fromkeys(segment.segment_id for segment in found if segment is not None)
        self.long_term.chain.prefetch(list(wanted))

    def follow(self, frame: int) -> bool:
        """Decide about a frame and, after a yes, its neighbours on both sides until one says no."""
        if not self.says_yes(frame):
            return False
        for step in (-1, 1):
            other = frame + step
            while not self.is_late() and self.says_yes(other):
                other += step
        return True

    def says_yes(self, frame: int) -> bool:
        """The model's reply about one frame; no where it cannot be read."""
        if frame not in self.replies:
            self._ask([frame])
        self.settled.add(frame)
        return self.replies[frame]

    def _ask(self, frames: Iterable[int]) -> None:
        """Ask about frames; those that cannot be read say no."""
        numbers = list(frames)
        started_s = time.perf_counter()
        found = self._gather(numbers)
        self.replies.update(dict.fromkeys(numbers, False))
        replies = self._asker.first_words(list(found.values()))
        for frame, reply in zip(found, replies, strict=True):
            self.replies[frame] = self._means_yes(reply)
            if self.replies[frame] and self._split is not None:
                # Un-rotated keys of the first layer depend on the token alone, not on its past.
                self._looks[frame] = found[frame][0].raw_keys.flatten().float()
        self.result.asked += len(found)
        if numbers:
            self._frame_s = (time.perf_counter() - started_s) / len(numbers)

    def _gather(self, frames: Sequence[int]) -> dict[int, FrameTokens]:
        """Tokens of those frames that can be read."""
        found: dict[int, FrameTokens] = {}
        stored: dict[int, list[int]] = defaultdict(list)
        for frame in frames:
            segment = self.long_term.timeline.segment_of(frame)
            if segment is not None:
                stored[segment.segment_id].append(frame)
            elif (tokens := self._resident(frame)) is not None:
                found[frame] = tokens
        if stored:
            fetched = self.long_term.fetch(stored, max(0.0, self.until_s - time.perf_counter()))
            self.result.missing += [m for m in fetched.missing if m not in self.result.missing]
            self.records.update(fetched.records)
            self.tiers.update(fetched.tiers)
            came = [frame for frame in frames if frame in fetched.records]
            found.update(by_frame(fetched.tokens, came, self.memory.tokens_per_frame))
        return found

    def _resident(self, frame: int) -> FrameTokens | None:
        """Tokens of a frame that is whole on the device."""
        if frame not in self.table:
            return None
        everything = [
            ReturnedTokens(slots.raw_keys[0], slots.values[0], slots.ids)
            for slots in self.cache.layers
        ]
        tokens = by_frame(everything, [frame], self.memory.tokens_per_frame)[frame]
        if any(t.ids.shape[0] < self.memory.tokens_per_frame for t in tokens):
            return None
        self.records[frame], self.tiers[frame] = self.table[frame], "device"
        return tokens

    def events(self) -> list[Event]:
        """Runs of frames that said yes, where enough of their frames agree."""
        events = []
        said_yes = sorted(frame for frame in self.settled if self.replies[frame])
        for run in _runs(said_yes, self._is_cut):
            if len(run) < self.min_frames:
                continue
            first, last = self.records[run[0]], self.records[run[-1]]
            events.append(
                Event(
                    first_frame=run[0],
                    last_frame=run[-1],
                    start_s=first.pts_s,
                    end_s=last.pts_s if last.end_s is None else last.end_s,
                    segment_id=first.segment_id,
                    tier=self.tiers[run[0]],
                    record=first,
                )
            )
        return events

    def _is_cut(self, frame: int) -> bool:
        """Whether a frame looks so unlike the one before it that another event begins."""
        if self._split is None:
            return False
        one, other = self._looks[frame - 1], self._looks[frame]
        if one.shape != other.shape:
            return False  # thinned: a token that is stored once has not changed
        return float(torch.cosine_similarity(one, other, dim=0)) < self._split


def _next_unasked(
    queue: Sequence[int], replies: dict[int, bool], size: int
) -> tuple[list[int], list[int]]:
    """The next frames without a reply, and as many after those."""
    unasked: dict[int, None] = {}
    for frame in queue:
        if frame not in replies:
            unasked[frame] = None
        if len(unasked) == 2 * size:
            break
    frames = list(unasked)
    return frames[:size], frames[size:]


def _runs(frames: Sequence[int], is_cut: Callable[[int], bool]) -> list[list[int]]:
    """Ascending numbers, split where they are not consecutive or the second one begins anew."""
    runs: list[list[int]] = []
    for frame in frames:
        if runs and frame == runs[-1][-1] + 1 and not is_cut(frame):
            runs[-1].append(frame)
        else:
            runs.append([frame])
    return runs
