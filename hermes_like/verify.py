"""Whether frames that were found show what was asked about, and which to follow if they differ.

Retrieval over hours brings look-alikes beside the event. Each frame is asked alone, by yes or no,
whether it shows the thing; where some say yes and others no, those that no neighbour agrees with go
too. If the moments that are left give different answers, the one with most weight is followed. The
module knows neither how frames were found nor how they are merged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hermes_like.alone import AloneAsker, by_frame
from hermes_like.config import RetrievalConfig
from hermes_like.long_term import Fetched, LongTermMemory
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.merge import ReturnedTokens

#: Longest answer of one moment, in tokens; a longer one is compared by its beginning.
ANSWER_TOKENS = 8
#: Frames that are further apart than this belong to different moments.
GAP_FRAMES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What is left of the frames that were found.

    Attributes:
        kept: Frames that are brought back.
        asked: Frames that were asked about, each alone.
        notes: Sentences about what was left out.
    """

    kept: Fetched
    asked: int = 0
    notes: tuple[str, ...] = ()


class Verifier:
    """Checks what was found for one question.

    Args:
        memory: The stream's memory on the device.
        long_term: The stream's memory off the device; neighbours are read from it.
        config: ``verify_frames`` bounds how many frames are asked.
    """

    def __init__(
        self, memory: DeviceMemory, long_term: LongTermMemory, config: RetrievalConfig
    ) -> None:
        self.memory, self.long_term, self.config = memory, long_term, config
        self.adapter = memory.adapter
        self.max_frames = config.verify_frames
        self._rows = config.scan_batch

    def verify(
        self,
        prompt: Sequence[int],
        check: Sequence[int],
        places: Sequence[tuple[int, int]],
        fetched: Fetched,
        cache: HierarchicalCache,
        deadline_s: float,
    ) -> Verdict:
        """Leave out what does not show the thing, or is outvoted.

        Args:
            prompt: Token ids of the question with its template.
            check: Token ids of the yes-or-no question that goes with it.
            places: Segment and frame of all that was wanted, the best first.
            fetched: What came of it.
            cache: A fork; read, not changed.
            deadline_s: Seconds for reading neighbours.
        """
        ranked = [frame for _, frame in places if frame in fetched.records][: self.max_frames]
        moments = moments_of(ranked)
        if len(moments) < 2:
            return Verdict(fetched)
        asker = AloneAsker(self.memory, cache, check, self._rows)
        said = self._ask(asker, ranked, fetched)
        asked = len(said)
        if not any(said.values()):
            return Verdict(fetched, asked)  # nothing to go by
        showing = [m for m in moments if any(said[frame] for frame in m)]
        agreed = showing
        lone = [
            frame for m in showing for frame in m if sum(said[f] for f in m) < 2 and said[frame]
        ]
        if len(showing) > 1 and asked < self.max_frames:
            beside = self._neighbours(lone, self.max_frames - asked, deadline_s)
            nearby = self._ask(asker, sorted(beside.records), beside)
            asked += len(nearby)
            agreed = [m for m in showing if _is_confirmed(m, said, nearby)] or showing
        kept = agreed
        notes = _left_out(len(moments) - len(agreed), len(moments))
        if len(agreed) > 1:
            kept, outvoted = self._vote(prompt, agreed, ranked, fetched, cache)
            notes += outvoted
        if len(kept) == len(moments):
            return Verdict(fetched, asked, notes)
        frames = {frame for m in kept for frame in m}
        return Verdict(self._only(frames, fetched), asked, notes)

    def _ask(self, asker: AloneAsker, frames: Sequence[int], fetched: Fetched) -> dict[int, bool]:
        tokens = by_frame(fetched.tokens, frames, self.memory.tokens_per_frame)
        replies = asker.first_words(list(tokens.values()))
        return {
            frame: self.adapter.means_yes(reply)
            for frame, reply in zip(tokens, replies, strict=True)
        }

    def _neighbours(self, frames: Sequence[int], most: int, deadline_s: float) -> Fetched:
        """Frames on both sides of some frames, read from where they are stored."""
        wanted: dict[int, list[int]] = defaultdict(list)
        beside = dict.fromkeys(frame + step for frame in frames for step in (-1, 1))
        for frame in list(beside)[:most]:
            segment = self.long_term.timeline.segment_of(frame)
            if segment is not None and frame not in frames:
                wanted[segment.segment_id].append(frame)
        limit_s = max(0.0, min(deadline_s, self.config.deadline_s))
        return self.long_term.fetch(wanted, limit_s)

    def _vote(
        self,
        prompt: Sequence[int],
        moments: Sequence[list[int]],
        ranked: Sequence[int],
        fetched: Fetched,
        cache: HierarchicalCache,
    ) -> tuple[list[list[int]], tuple[str, ...]]:
        """Ask each moment the question itself; answers weigh by the rank of their frames."""
        asker = AloneAsker(self.memory, cache, prompt)
        weights: dict[str, float] = defaultdict(float)
        by_answer: dict[str, list[list[int]]] = defaultdict(list)
        for moment in moments:
            answer = asker.answer(self._tokens(set(moment), fetched), ANSWER_TOKENS)
            by_answer[answer].append(moment)
            weights[answer] += sum(1.0 / (1 + ranked.index(frame)) for frame in moment)
        best = max(weights, key=lambda answer: weights[answer])
        others = [repr(answer) for answer in weights if answer != best]
        if not others:
            return list(moments), ()
        note = f"Other moments that were found say {', '.join(others)}; they were outvoted."
        return by_answer[best], (note,)

    def _tokens(self, frames: set[int], fetched: Fetched) -> list[ReturnedTokens]:
        """Tokens of some frames together, per decoder layer, ascending."""
        split = by_frame(fetched.tokens, sorted(frames), self.memory.tokens_per_frame)
        return [
            ReturnedTokens(
                torch.cat([part.raw_keys for part in layer], dim=1),
                torch.cat([part.values for part in layer], dim=1),
                torch.cat([part.ids for part in layer]),
            )
            for layer in zip(*split.values(), strict=True)
        ]

    def _only(self, frames: set[int], fetched: Fetched) -> Fetched:
        return Fetched(
            self._tokens(frames, fetched),
            {f: record for f, record in fetched.records.items() if f in frames},
            {f: tier for f, tier in fetched.tiers.items() if f in frames},
            fetched.approximate & frames,
            fetched.missing,
        )


def moments_of(frames: Sequence[int]) -> list[list[int]]:
    """Frames grouped into moments, each ascending, without gaps wider than ``GAP_FRAMES``."""
    moments: list[list[int]] = []
    for frame in sorted(frames):
        if moments and frame - moments[-1][-1] <= GAP_FRAMES:
            moments[-1].append(frame)
        else:
            moments.append([frame])
    return moments


def _is_confirmed(moment: Sequence[int], said: dict[int, bool], nearby: dict[int, bool]) -> bool:
    """Whether two frames of a moment, or one and its neighbour, say yes."""
    yes = [frame for frame in moment if said[frame]]
    return len(yes) > 1 or any(nearby.get(f + step, False) for f in yes for step in (-1, 1))


def _left_out(count: int, found: int) -> tuple[str, ...]:
    if not count:
        return ()
    return (f"{count} of {found} moments that were found do not show it and were left out.",)
