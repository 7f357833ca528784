"""Counting and listing: every candidate frame is asked alone, and agreement makes an event.

Over days of stream, retrieval finds exactly the few frames that were misread, so a single yes
proves little. Candidates are checked one after the other, best first; a yes is followed to both
sides until the answer turns; what holds over the event's frames counts. The module knows no wording
of answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from hermes_like.config import RetrievalConfig
from hermes_like.long_term import LongTermMemory
from hermes_like.memory import provenance
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.merge import ReturnedTokens, isolate
from hermes_like.memory.provenance import FrameRecord, FrameTable
from hermes_like.records import MissingSpan, Tier
from hermes_like.retrieval import RETRIEVERS
from hermes_like.retrieval.base import Constraints, ResidentFrames
from hermes_like.retrieval.queries import question_queries

#: A reply to a yes-or-no question is read up to this many tokens.
REPLY_TOKENS = 4


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


class Scanner:
    """Asks a yes-or-no question about one frame after the other.

    Args:
        memory: The stream's memory on the device.
        long_term: The stream's memory off the device.
        config: How many candidates, how much agreement, how long.
    """

    def __init__(
        self, memory: DeviceMemory, long_term: LongTermMemory, config: RetrievalConfig
    ) -> None:
        self.memory, self.long_term, self.config = memory, long_term, config
        self.adapter = memory.adapter
        self._retriever = RETRIEVERS.get("similarity" if long_term.heads else "none")(config)

    def scan(
        self,
        question: str,
        cache: HierarchicalCache,
        table: FrameTable,
        *,
        start_s: float | None = None,
        end_s: float | None = None,
        is_first_enough: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> ScanResult:
        """Find all events.

        Args:
            question: Answered by yes or no from one frame.
            cache: A fork; read, not changed.
            table: Records of the frames in the fork.
            start_s: Stream time from which on to look.
            end_s: Stream time up to which to look.
            is_first_enough: Stop at the first event.
            on_progress: Told how many frames were asked, and how many there are at most.
        """
        run = _Run(
            self, question, cache, table, until_s=time.perf_counter() + self.config.scan_deadline_s
        )
        candidates = self._candidates(question, cache, start_s, end_s)
        fresh = run.unstored_frames(start_s, end_s)
        num_frames = self.long_term.timeline.count_between(start_s, end_s)
        if num_frames >= self.config.scan_sure_frames:
            run.min_frames = self.config.scan_min_frames
        rejected = 0
        for number, frame in enumerate([*fresh, *candidates]):
            if run.is_late:
                run.result.is_complete = False
                break
            if on_progress is not None:
                on_progress(number, len(fresh) + len(candidates))
            if run.is_settled(frame):
                continue
            if run.follow(frame):
                rejected = 0
                if is_first_enough and run.events():
                    break
            elif frame not in fresh:
                rejected += 1
                if rejected >= self.config.scan_patience:
                    break
        run.result.events = run.events()
        return run.result

    def _candidates(
        self,
        question: str,
        cache: HierarchicalCache,
        start_s: float | None,
        end_s: float | None,
    ) -> list[int]:
        heads = self.long_term.heads
        if not heads:
            return [f for _, f in self.long_term.timeline.frames_between(start_s, end_s)]
        prompt = self.adapter.question_ids(question, is_first=True)
        queries = question_queries(self.memory, cache, prompt, heads)
        nothing = ResidentFrames.none(len(heads), self.adapter.dims.head_dim)
        constraints = Constraints(self.config.scan_candidates, start_s=start_s, end_s=end_s)
        found = self._retriever.find(queries, self.long_term.index, constraints, nothing)
        return [hit.frame for hit in found.hits]


class _Run:
    """One scan: what was asked already, and what the replies were."""

    def __init__(
        self,
        scanner: Scanner,
        question: str,
        cache: HierarchicalCache,
        table: FrameTable,
        *,
        until_s: float,
    ) -> None:
        self.scanner, self.memory, self.adapter = scanner, scanner.memory, scanner.adapter
        self.cache, self.table, self.until_s = cache, table, until_s
        self.prompt = self.adapter.question_ids(question, is_first=True)
        self.result = ScanResult()
        self.min_frames = 1
        self.replies: dict[int, bool] = {}
        self.records: dict[int, FrameRecord] = {}
        self.tiers: dict[int, Tier] = {}
        self._tokens: dict[int, list[ReturnedTokens]] = {}

    @property
    def is_late(self) -> bool:
        """Whether the deadline has come."""
        return time.perf_counter() > self.until_s

    def unstored_frames(self, start_s: float | None, end_s: float | None) -> list[int]:
        """Frames of the open segment: on the device and nowhere else."""
        timeline = self.scanner.long_term.timeline
        newest = timeline.newest
        return [
            frame
            for frame, record in self.table.items()
            if (newest is None or frame >= newest.end_frame)
            and (start_s is None or (record.end_s or record.pts_s) >= start_s)
            and (end_s is None or record.pts_s < end_s)
        ]

    def is_settled(self, frame: int) -> bool:
        """Whether the frame was asked already."""
        return frame in self.replies

    def follow(self, frame: int) -> bool:
        """Ask a frame and, after a yes, its neighbours on both sides until one says no."""
        if not self.says_yes(frame):
            return False
        for step in (-1, 1):
            other = frame + step
            while not self.is_late and self.says_yes(other):
                other += step
        return True

    def says_yes(self, frame: int) -> bool:
        """The model's reply about one frame; no where it cannot be read."""
        if frame not in self.replies:
            tokens = self._frame_tokens(frame)
            self.replies[frame] = tokens is not None and self._ask(tokens)
        return self.replies[frame]

    def _frame_tokens(self, frame: int) -> list[ReturnedTokens] | None:
        timeline = self.scanner.long_term.timeline
        segment = timeline.segment_of(frame)
        if segment is None:
            return self._resident(frame)
        if frame not in self._tokens:
            self._tokens.clear()  # neighbours come from the same segment; older ones are done with
            numbers = range(segment.first_frame, segment.end_frame)
            left_s = max(0.0, self.until_s - time.perf_counter())
            fetched = self.scanner.long_term.fetch({segment.segment_id: numbers}, left_s)
            self.result.missing += fetched.missing
            self.records.update(fetched.records)
            self.tiers.update(fetched.tiers)
            for number in fetched.records:
                self._tokens[number] = _of_frame(fetched.tokens, number, self.memory)
        return self._tokens.get(frame)

    def _resident(self, frame: int) -> list[ReturnedTokens] | None:
        """Tokens of a frame that is whole on the device."""
        if frame not in self.table:
            return None
        everything = [
            ReturnedTokens(slots.raw_keys[0], slots.values[0], slots.ids)
            for slots in self.cache.layers
        ]
        tokens = _of_frame(everything, frame, self.memory)
        if any(t.ids.shape[0] < self.memory.tokens_per_frame for t in tokens):
            return None
        self.records[frame], self.tiers[frame] = self.table[frame], "device"
        return tokens

    @torch.inference_mode()
    def _ask(self, tokens: list[ReturnedTokens]) -> bool:
        """Ask about a frame alone: prefix, its tokens, the question."""
        self.result.asked += 1
        adapter, memory = self.adapter, self.memory
        with self.cache.fork() as alone:
            isolate(alone, tokens, memory.scheme, memory.compactor.num_prefix)
            embeds = torch.cat([adapter.video_end(), adapter.embed_text(self.prompt)])
            reply: list[int] = []
            while len(reply) < REPLY_TOKENS:
                ids = (
                    -1
                    - alone.layers[0].length
                    - torch.arange(embeds.shape[0], device=embeds.device)
                )
                token = int(memory.extend(alone, embeds, ids, logits=True).argmax())
                if token in adapter.eos_ids:
                    break
                reply.append(token)
                if adapter.decode_text(reply).strip():
                    break  # the first word decides
                embeds = adapter.embed_text([token])
        return adapter.means_yes(adapter.decode_text(reply))

    def events(self) -> list[Event]:
        """Runs of frames that said yes, where enough of their frames agree."""
        events = []
        for run in _runs(sorted(frame for frame, said in self.replies.items() if said)):
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


def _of_frame(
    tokens: Sequence[ReturnedTokens], frame: int, memory: DeviceMemory
) -> list[ReturnedTokens]:
    chosen = [provenance.frames_of(t.ids, memory.tokens_per_frame) == frame for t in tokens]
    return [
        ReturnedTokens(t.raw_keys[:, keep], t.values[:, keep], t.ids[keep])
        for t, keep in zip(tokens, chosen, strict=True)
    ]


def _runs(frames: Sequence[int]) -> list[list[int]]:
    """Ascending numbers, split where they are not consecutive."""
    runs: list[list[int]] = []
    for frame in frames:
        if runs and frame == runs[-1][-1] + 1:
            runs[-1].append(frame)
        else:
            runs.append([frame])
    return runs
