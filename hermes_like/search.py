"""What is looked for in the past for one question, and what came of it.

Records that travel between the desk, the consultant and the answer. They decide nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hermes_like.records import MissingSpan, Route, Tier


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
        parts_s: Seconds per part: ``index``, ``fetch`` (reading and decoding), ``merge``, and
            ``verify`` where what was found disagreed.
        left_out: Frames that there was no time for.
        told: What code answers where there is nothing to show the model.
        remarks: Sentences about what was done with what was found.
    """

    route: Route = "now"
    tiers: dict[int, Tier] = field(default_factory=dict)
    approximate: set[int] = field(default_factory=set)
    missing: tuple[MissingSpan, ...] = ()
    added_tokens: int = 0
    margin: float = 0.0
    parts_s: dict[str, float] = field(default_factory=dict)
    left_out: int = 0
    told: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether something that should have been read was not."""
        return bool(self.missing) or self.left_out > 0 or self.told is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that belong to the answer."""
        if not self.approximate:
            return self.remarks
        count = len(self.approximate)
        return (
            *self.remarks,
            f"{count} of the frames were encoded again from stored pictures.",
        )


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
        until_s: Clock reading (``time.perf_counter``) at which the first text should come; None:
            only ``deadline_s`` of the configuration bounds the reading.
        check: A yes-or-no question by which frames that were found can be told from look-alikes;
            None: there is none.
    """

    route: Route
    prompt: Sequence[int]
    start_s: float | None = None
    end_s: float | None = None
    is_gated: bool = False
    neighbour_frames: int | None = None
    is_instant: bool = False
    until_s: float | None = None
    check: Sequence[int] | None = None

    @property
    def left_s(self) -> float:
        """Seconds until the first text should come."""
        return math.inf if self.until_s is None else self.until_s - time.perf_counter()


#: A frame of the past: its segment and its running number.
Place = tuple[int, int]
