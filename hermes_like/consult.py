"""The past for one question: look for frames, bring them back, put them where they belong in time.

Works on a fork of the device memory, which the answer then reads. It knows no wording: whether and
how to look is decided by the plan it is given.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hermes_like.config import RetrievalConfig
from hermes_like.long_term import Fetched, LongTermMemory
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.merge import isolate, merge
from hermes_like.memory.provenance import FrameTable
from hermes_like.records import MissingSpan, Route, Tier
from hermes_like.retrieval import RETRIEVERS
from hermes_like.retrieval.base import Constraints, Found
from hermes_like.retrieval.queries import question_queries
from hermes_like.retrieval.vectors import resident_frames


@dataclass(slots=True, eq=False)
class Consulted:
    """What came of looking for the past.

    Attributes:
        route: The route that was taken in the end.
        tiers: Where each frame that came back was read from.
        approximate: Frames that were encoded again from a picture.
        missing: Stretches that should have been read and could not be.
        added_tokens: Tokens that were put into the fullest layer.
        margin: How far the best hit beat what is resident.
        parts_s: Seconds per part: ``index``, ``fetch`` (reading and decoding), ``merge``.
    """

    route: Route = "now"
    tiers: dict[int, Tier] = field(default_factory=dict)
    approximate: set[int] = field(default_factory=set)
    missing: tuple[MissingSpan, ...] = ()
    added_tokens: int = 0
    margin: float = 0.0
    parts_s: dict[str, float] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that belong to the answer."""
        if not self.approximate:
            return ()
        count = len(self.approximate)
        return (f"{count} of the frames were encoded again from stored pictures.",)


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for.

    Attributes:
        route: ``recall``: hits are merged with what is resident, by time; ``time``: the range is
            read alone.
        prompt: Token ids of the question with its template.
        start_s: Stream time from which on to look; None: from the beginning.
        end_s: Stream time up to which to look; None: up to now.
        is_gated: Whether a hit must beat what is resident to be fetched.
        neighbour_frames: Frames on each side that come with a hit; None: as configured.
        is_instant: Read the end of the range, frame by frame, instead of spreading over it.
    """

    route: Route
    prompt: Sequence[int]
    start_s: float | None = None
    end_s: float | None = None
    is_gated: bool = False
    neighbour_frames: int | None = None
    is_instant: bool = False


class Consultant:
    """Looks for the past of one stream.

    Args:
        memory: The stream's memory on the device.
        long_term: The stream's memory off the device.
        config: How the past is found.
    """

    def __init__(
        self, memory: DeviceMemory, long_term: LongTermMemory, config: RetrievalConfig
    ) -> None:
        self.memory, self.long_term, self.config = memory, long_term, config
        self._retriever = RETRIEVERS.get("similarity" if long_term.heads else "none")(config)

    @property
    def max_frames(self) -> int:
        """Frames that may come back: bounded by the configuration and by the reserved slots."""
        fitting = self.config.retrieved_tokens // self.memory.tokens_per_frame
        return min(self.config.max_frames, fitting)

    def consult(self, search: Search, cache: HierarchicalCache, table: FrameTable) -> Consulted:
        """Bring back what the search finds.

        Args:
            search: What to look for.
            cache: A fork; changed in place when something comes back.
            table: A copy of the frame table; gets the frames that come back.
        """
        if not self.max_frames:
            return Consulted()
        result = Consulted(route=search.route)
        with _timed(result, "index"):
            found = self._find(search, cache)
        result.margin = found.margin
        if search.is_gated and not found.beats(self.config.gate_margin):
            return replace(result, route="now")
        frames = self._evenly(search) if search.route == "time" else {}
        room = 0 if search.is_instant else self.max_frames - sum(map(len, frames.values()))
        for hit in found.hits[:room]:
            frames.setdefault(hit.segment_id, set()).add(hit.frame)
        if not frames:
            return result
        with _timed(result, "fetch"):
            fetched = self.long_term.fetch(frames, self.config.deadline_s)
        with _timed(result, "merge"):
            self._insert(search, fetched, cache, table, result)
        return result

    def _find(self, search: Search, cache: HierarchicalCache) -> Found:
        heads = self.long_term.heads
        if not heads:
            return Found()
        queries = question_queries(self.memory, cache, search.prompt, heads)
        resident = resident_frames(
            cache,
            heads,
            tokens_per_frame=self.memory.tokens_per_frame,
            groups=self.long_term.groups,
        )
        neighbours = (
            self.config.neighbour_frames
            if search.neighbour_frames is None
            else search.neighbour_frames
        )
        constraints = Constraints(
            max_frames=self.max_frames,
            start_s=search.start_s,
            end_s=search.end_s,
            neighbour_frames=neighbours,
            gap_frames=self.config.gap_frames,
        )
        return self._retriever.find(queries, self.long_term.index, constraints, resident)

    def _evenly(self, search: Search) -> dict[int, set[int]]:
        """Half of the frames that may come back, spread over the range whatever their scores."""
        frames = self.long_term.timeline.frames_between(search.start_s, search.end_s)
        count = min(len(frames), max(1, self.max_frames // 2))
        chosen: dict[int, set[int]] = {}
        if search.is_instant:
            frames = frames[-count:]
        for step in range(count):
            segment_id, frame = frames[(2 * step + 1) * len(frames) // (2 * count)]
            chosen.setdefault(segment_id, set()).add(frame)
        return chosen

    def _insert(
        self,
        search: Search,
        fetched: Fetched,
        cache: HierarchicalCache,
        table: FrameTable,
        result: Consulted,
    ) -> None:
        result.missing = tuple(fetched.missing)
        if not fetched.records:
            return
        if search.route == "time":
            isolate(cache, fetched.tokens, self.memory.scheme, self.memory.compactor.num_prefix)
            result.added_tokens = int(fetched.tokens[0].ids.shape[0])
        else:
            result.added_tokens = merge(cache, fetched.tokens, self.memory.scheme)
        for frame, record in fetched.records.items():
            if frame not in table:
                table.put(frame, record)
        result.tiers, result.approximate = fetched.tiers, fetched.approximate


@contextmanager
def _timed(result: Consulted, part: str) -> Iterator[None]:
    started_s = time.perf_counter()
    yield
    result.parts_s[part] = time.perf_counter() - started_s
