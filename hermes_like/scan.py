"""Counting and listing: every candidate frame is asked alone, and agreement makes an event.

Over days of stream, retrieval finds exactly the few frames that were misread, so a single yes
proves little. Candidates are checked best first, several in one pass where the model can do that; a
yes is followed to both sides until the answer turns; what holds over the event's frames counts. How
many are asked in one pass does not change what is found. The module knows no wording of answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hermes_like.config import RetrievalConfig
from hermes_like.long_term import LongTermMemory
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.provenance import FrameTable
from hermes_like.retrieval import RETRIEVERS
from hermes_like.retrieval.base import Constraints, ResidentFrames
from hermes_like.retrieval.queries import question_queries
from hermes_like.scan_run import Event, ScanResult, ScanRun

__all__ = ["Event", "ScanResult", "Scanner"]


class Scanner:
    """Asks a yes-or-no question about many frames, each alone.

    Args:
        memory: The stream's memory on the device.
        long_term: The stream's memory off the device.
        config: How many candidates, how many in one pass, how much agreement, how long.
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
        until_s: float | None = None,
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
            until_s: Clock reading at which the answer is due; None: ``scan_deadline_s`` decides.
        """
        due_s = time.perf_counter() + self.config.scan_deadline_s
        due_s = due_s if until_s is None else min(due_s, until_s)
        run = ScanRun(
            self.memory, self.long_term, self.config, question, cache, table, until_s=due_s
        )
        if run.is_late():
            run.result.is_complete = False
            return run.result
        candidates = self._candidates(question, cache, start_s, end_s)
        fresh = run.unstored_frames(start_s, end_s)
        num_frames = self.long_term.timeline.count_between(start_s, end_s)
        if num_frames >= self.config.scan_sure_frames:
            run.min_frames = self.config.scan_min_frames
        queue = [*fresh, *candidates]
        rejected = 0
        for number, frame in enumerate(queue):
            if run.is_late():
                run.result.is_complete = False
                break
            if on_progress is not None:
                on_progress(number, len(queue))
            if run.is_settled(frame):
                continue
            # Not more than would be asked anyway if all of them said no.
            run.ask_ahead(queue[number:], self.config.scan_patience - rejected)
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
