"""The past for one question: look for frames, bring them back, put them where they belong in time.

Works on a fork of the device memory, which the answer then reads. Where time is short, less comes
back, the best first, and what was left out is told. It knows no wording of questions: whether and
how to look is decided by the plan it is given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from hermes_like.config import RetrievalConfig
from hermes_like.long_term import Fetched, LongTermMemory
from hermes_like.memory import provenance
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.merge import ReturnedTokens, isolate, merge
from hermes_like.memory.provenance import FrameTable
from hermes_like.pace import MARGIN, Pace
from hermes_like.records import MissingSpan, Tier
from hermes_like.retrieval import RETRIEVERS
from hermes_like.retrieval.base import Constraints, Found
from hermes_like.retrieval.queries import question_queries
from hermes_like.retrieval.vectors import resident_frames
from hermes_like.search import Consulted, Place, Search
from hermes_like.verify import Verifier

__all__ = ["Consultant", "Consulted", "Search"]


class Consultant:
    """Looks for the past of one stream.

    Args:
        memory: The stream's memory on the device.
        long_term: The stream's memory off the device.
        config: How the past is found.
        pace: What earlier questions took; None: nothing is known yet.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        long_term: LongTermMemory,
        config: RetrievalConfig,
        pace: Pace | None = None,
    ) -> None:
        self.memory, self.long_term, self.config = memory, long_term, config
        self.pace = Pace() if pace is None else pace
        self._retriever = RETRIEVERS.get("similarity" if long_term.heads else "none")(config)
        self._verifier = Verifier(memory, long_term, config)
        #: Whether the disk works while the question passes through the model. On a CPU both want
        #: the same cores.
        self.reads_ahead = memory.adapter.dims.device.type == "cuda"

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
        if search.until_s is not None and not self.pace.has_time_to_search(search.left_s):
            # How much would have been found is not known.
            result.left_out = self.max_frames
            result.remarks = ("There was no time to look for the past.",)
            self.pace.ease()
            self._without_past(search, cache, table, result)
            return result
        if self.reads_ahead:
            self._read_ahead(search)
        with _timed(result, "index"):
            found = self._find(search, cache)
        self.pace.note_search(result.parts_s["index"])
        result.margin = found.margin
        if search.is_gated and not found.beats(self.config.gate_margin):
            return replace(result, route="now")
        places = self._affordable(search, found, result)
        if not places:
            self._without_past(search, cache, table, result)
            return result
        fetched = self._fetch(search, places, result)
        if self._has_time_to_verify(search):
            fetched = self._verified(search, places, fetched, cache, result)
        started_s = time.perf_counter()
        with _timed(result, "merge"):
            self._insert(search, fetched, cache, table, result)
        took_s = result.parts_s["fetch"] + time.perf_counter() - started_s
        self.pace.note_frames(fetched.tiers.values(), took_s)
        return result

    def _read_ahead(self, search: Search) -> None:
        """Begin to bring to RAM what a question about a named time needs whatever is found."""
        if search.route == "time":
            segments = dict.fromkeys(s for s, _ in self._evenly(search, self.max_frames))
            self.long_term.chain.prefetch(segments)

    def _places(self, search: Search, found: Found, most: int) -> list[Place]:
        """Frames to bring back, the most wanted first."""
        chosen = dict.fromkeys(self._evenly(search, most) if search.route == "time" else ())
        room = 0 if search.is_instant else most - len(chosen)
        chosen |= dict.fromkeys((hit.segment_id, hit.frame) for hit in found.hits[:room])
        return list(chosen)

    def _affordable(self, search: Search, found: Found, result: Consulted) -> list[Place]:
        """Those of the wanted frames that there is time for; the others are told."""
        wanted = self._places(search, found, self.max_frames)
        if search.until_s is None or not wanted:
            return wanted
        tiers: list[Tier] = [self.long_term.chain.where(s) or "source" for s, _ in wanted]
        count = self.pace.count_fitting(tiers, search.left_s)
        if count == len(wanted):
            return wanted
        if not count:
            self.pace.ease()
        places = self._places(search, found, count) if count else []
        result.left_out = len(wanted) - len(places)
        result.remarks = (
            f"For lack of time {result.left_out} of {len(wanted)} frames that were found "
            "were left out.",
        )
        left_out = sorted(frame for _, frame in set(wanted) - set(places))
        result.missing = tuple(self._spans(left_out)) if search.route == "recall" else ()
        return places

    def _spans(self, frames: Sequence[int]) -> Iterator[MissingSpan]:
        """When frames were that there was no time for."""
        for frame in frames:
            times = self.long_term.timeline.segment_of(frame)
            if times is not None:
                edges = (*times.times_s, times.end_s)
                offset = frame - times.first_frame
                yield MissingSpan(edges[offset], edges[offset + 1], "deadline")

    def _fetch(self, search: Search, places: Sequence[Place], result: Consulted) -> Fetched:
        frames: dict[int, set[int]] = {}
        for segment_id, frame in places:
            frames.setdefault(segment_id, set()).add(frame)
        spare_s = search.left_s - self.pace.prefill_s
        with _timed(result, "fetch"):
            return self.long_term.fetch(frames, max(0.0, min(self.config.deadline_s, spare_s)))

    def _has_time_to_verify(self, search: Search) -> bool:
        """Whether there is something to check by, and time for the most that may be asked."""
        if search.check is None or search.route != "recall" or self._verifier.max_frames < 2:
            return False
        # Asking what was before or after something brings neighbours that do not show it.
        is_order = search.neighbour_frames is not None
        most_s = MARGIN * self.pace.prefill_s * (1 + self._verifier.max_frames)
        return not is_order and search.left_s > most_s

    def _verified(
        self,
        search: Search,
        places: Sequence[Place],
        fetched: Fetched,
        cache: HierarchicalCache,
        result: Consulted,
    ) -> Fetched:
        assert search.check is not None
        with _timed(result, "verify"):
            verdict = self._verifier.verify(
                search.prompt, search.check, places, fetched, cache, search.left_s
            )
        result.remarks = (*result.remarks, *verdict.notes)
        return verdict.kept

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

    def _evenly(self, search: Search, most: int) -> list[Place]:
        """Half of the frames that may come back, spread over the range whatever their scores."""
        frames = self.long_term.timeline.frames_between(search.start_s, search.end_s)
        count = min(len(frames), max(1, most // 2))
        if search.is_instant:
            frames = frames[-count:]
        return [frames[(2 * step + 1) * len(frames) // (2 * count)] for step in range(count)]

    def _insert(
        self,
        search: Search,
        fetched: Fetched,
        cache: HierarchicalCache,
        table: FrameTable,
        result: Consulted,
    ) -> None:
        result.missing = (*result.missing, *fetched.missing)
        if not fetched.records:
            self._without_past(search, cache, table, result)
            return
        if search.route == "time":
            newest = self.long_term.timeline.newest
            fresh = [
                frame
                for frame in _frames_between(table, search.start_s, search.end_s)
                if newest is None or frame >= newest.end_frame
            ]
            tokens = _joined(fetched.tokens, self._resident(cache, fresh))
            isolate(cache, tokens, self.memory.scheme, self.memory.compactor.num_prefix)
            result.added_tokens = int(fetched.tokens[0].ids.shape[0])
        else:
            result.added_tokens = merge(cache, fetched.tokens, self.memory.scheme)
        for frame, record in fetched.records.items():
            if frame not in table:
                table.put(frame, record)
        result.tiers, result.approximate = fetched.tiers, fetched.approximate

    def _without_past(
        self, search: Search, cache: HierarchicalCache, table: FrameTable, result: Consulted
    ) -> None:
        """Answer from what is resident; about a named time, from what is resident of that time."""
        if search.route != "time":
            return
        tokens = self._resident(cache, _frames_between(table, search.start_s, search.end_s))
        if all(layer.ids.shape[0] for layer in tokens):
            isolate(cache, tokens, self.memory.scheme, self.memory.compactor.num_prefix)
        elif result.missing or result.left_out:
            # What is shown now must not answer for another time.
            reasons = sorted({span.reason for span in result.missing if span.reason != "deadline"})
            why = f"could not be read: {', '.join(reasons)}" if reasons else "was not read in time"
            result.told = f"What is stored of that time {why}."

    def _resident(self, cache: HierarchicalCache, frames: Sequence[int]) -> list[ReturnedTokens]:
        """What the device holds of some frames, layer by layer."""
        tokens = []
        for slots in cache.layers:
            of = provenance.frames_of(slots.ids, self.memory.tokens_per_frame)
            keep = torch.isin(of, of.new_tensor(frames))
            raw, values = slots.take(keep)
            tokens.append(ReturnedTokens(raw[0], values[0], slots.ids[keep]))
        return tokens


def _frames_between(table: FrameTable, start_s: float | None, end_s: float | None) -> list[int]:
    """Frames of a table that are shown in a stretch of stream time."""
    low = -math.inf if start_s is None else start_s
    high = math.inf if end_s is None else end_s
    return [
        frame
        for frame, record in table.items()
        if record.pts_s < high and (record.pts_s >= low or table.end_of(frame) > low)
    ]


def _joined(one: Sequence[ReturnedTokens], other: Sequence[ReturnedTokens]) -> list[ReturnedTokens]:
    """Tokens of both, layer by layer; those of the other are newer."""
    return [
        ReturnedTokens(
            torch.cat([a.raw_keys, b.raw_keys], dim=1),
            torch.cat([a.values, b.values], dim=1),
            torch.cat([a.ids, b.ids]),
        )
        for a, b in zip(one, other, strict=True)
    ]


@contextmanager
def _timed(result: Consulted, part: str) -> Iterator[None]:
    started_s = time.perf_counter()
    yield
    result.parts_s[part] = time.perf_counter() - started_s
