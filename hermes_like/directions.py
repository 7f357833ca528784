"""Where a question goes: from its plan to what is searched, scanned, or answered by code.

Decides, and words the answers that code gives. It runs no model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hermes_like.config import RetrievalConfig
from hermes_like.models.base import ModelAdapter
from hermes_like.records import AnswerStatus, Evidence, MissingSpan
from hermes_like.retrieval.clock import StreamClock, format_range, format_stream
from hermes_like.retrieval.coverage import coverage, no_footage_text
from hermes_like.retrieval.planner import Plan
from hermes_like.scan import Event, ScanResult
from hermes_like.timeline import MAX_FRAME_S

#: A named moment no wider than this is one frame; a wider one ("at nine") is a range.
INSTANT_S = 20.0
#: Seconds of footage that are read before a named moment.
LEAD_S = 4.0
#: Most stretches without footage that are told in words; ``Answer.missing`` has all of them.
MAX_TOLD_SPANS = 3


@dataclass(frozen=True, slots=True)
class CodeAnswer:
    """An answer that needs no model."""

    text: str
    status: AnswerStatus
    missing: tuple[MissingSpan, ...] = ()


def covered(
    plan: Plan,
    clock: StreamClock,
    footage: Sequence[tuple[float, float]],
    lost: Sequence[MissingSpan],
) -> tuple[CodeAnswer | None, tuple[MissingSpan, ...]]:
    """Compare the plan's range with the footage.

    Returns:
        An answer if there is none at all, and what is missing of the range otherwise.
    """
    if not plan.has_range:
        # A count over the whole past is wrong where a part of it is gone; other answers may rest on
        # what is left.
        return None, tuple(lost) if plan.route == "scan" else ()
    found = coverage(footage, lost, plan.start_s, plan.end_s, now_s=clock.now_s)
    if found.extent == "none":
        text = no_footage_text(found.missing, clock)
        return CodeAnswer(text, "no_footage", found.missing), found.missing
    return None, found.missing


def missing_notes(missing: Sequence[MissingSpan], clock: StreamClock) -> tuple[str, ...]:
    """What to tell with an answer about times of which a part was not seen."""
    notes = [no_footage_text([span], clock) for span in missing[:MAX_TOLD_SPANS]]
    if len(missing) > MAX_TOLD_SPANS:
        notes.append(f"{len(missing) - MAX_TOLD_SPANS} more stretches are missing.")
    return tuple(notes)


def stale(
    last_s: float, blind: Sequence[MissingSpan], clock: StreamClock
) -> tuple[tuple[str, ...], tuple[MissingSpan, ...]]:
    """What to tell with an answer about the present when the newest frame is old.

    Args:
        last_s: Stream time of the newest frame.
        blind: When nothing could be seen, and why.
        clock: Knows the present.

    Returns:
        Notes, and since when there is nothing to see where the reason is known.
    """
    age_s = clock.now_s - last_s
    if age_s <= MAX_FRAME_S:
        return (), ()
    seen, _ = format_range(last_s, last_s, clock)
    note = f"The newest frame is {format_stream(age_s)} (h:mm:ss) old, from {seen}"
    reasons = [span for span in blind if span.end_s > last_s]
    if not reasons:
        return (f"{note}; what happened since then was never seen.",), ()
    told = "; ".join(dict.fromkeys(span.reason.rstrip(".") for span in reasons))
    missing = tuple(replace(span, start_s=max(span.start_s, last_s)) for span in reasons)
    return (f"{note}; since then: {told}.",), missing


def search_range(plan: Plan) -> tuple[float | None, float | None]:
    """Stream times to look in; a named moment gets what led up to it, so that it comes last."""
    if not is_instant(plan):
        return plan.start_s, plan.end_s
    assert plan.start_s is not None
    assert plan.end_s is not None
    moment_s = (plan.start_s + plan.end_s) / 2 if plan.point_s is None else plan.point_s
    moment_s = min(max(moment_s, plan.start_s), plan.end_s)
    return max(plan.start_s, moment_s - LEAD_S), math.nextafter(moment_s, math.inf)


def is_instant(plan: Plan) -> bool:
    """Whether the question names a moment so closely that one frame shows it."""
    if not plan.is_moment or plan.start_s is None or plan.end_s is None:
        return False
    return plan.end_s - plan.start_s <= INSTANT_S


def is_sure(plan: Plan) -> bool:
    """Whether a word of the question speaks of the past; else a hit has to earn its fetch."""
    return not plan.reason.endswith("no other cue")


def scan_text(plan: Plan, result: ScanResult, clock: StreamClock) -> str:
    """The answer that a scan gives, in words."""
    events = result.events
    if plan.scan_kind == "count":
        return str(len(events))
    if plan.scan_kind == "exists":
        return "yes" if events else "no"
    if not events:
        return "never"
    return "; ".join(_when(event, clock) for event in events)


def _when(event: Event, clock: StreamClock) -> str:
    span = f"{format_stream(event.start_s)} to {format_stream(event.end_s)}"
    wall = clock.to_wall(event.start_s)
    return span if wall is None else f"{span} ({wall:%Y-%m-%d %H:%M:%S})"


def scan_evidence(result: ScanResult, stream: str, most: int) -> tuple[Evidence, ...]:
    """The events as evidence, in the order of time."""
    return tuple(
        Evidence(
            stream=stream,
            segment_id=event.segment_id,
            start_s=event.start_s,
            end_s=event.end_s,
            wall_time=event.record.wall_time,
            score=1.0,
            tier=event.tier,
        )
        for event in result.events[:most]
    )


def scan_question(adapter: ModelAdapter, plan: Plan) -> str | None:
    """What each candidate is asked; None where the model cannot be asked about a single frame."""
    return adapter.scan_question(plan.text)


def max_neighbours(plan: Plan, config: RetrievalConfig) -> int | None:
    """Frames on each side that come with a hit; None: as configured.

    What came before or after something lies beside it, so questions about order bring neighbours.
    """
    words = set(plan.text.lower().split())
    is_order = bool(words & {"after", "before", "followed", "next", "preceded", "nach", "vor"})
    return max(config.neighbour_frames, config.order_frames) if is_order else None
