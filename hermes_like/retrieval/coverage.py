"""Whether a stretch of the stream can be answered from at all: decided by code, not by the model.

The module knows spans and reasons; it knows neither questions nor where bytes lie.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hermes_like.records import MissingSpan
from hermes_like.retrieval.clock import StreamClock, format_range

NEVER_SEEN: Final = "never seen"
ERASED: Final = "erased"
LOST: Final = "lost"
NOT_YET: Final = "not yet"

#: How each reason reads in an answer. Any other reason is told as it is.
_WORDING: Final = {
    NEVER_SEEN: "that time was never seen",
    ERASED: "it was erased",
    LOST: "it was lost",
    NOT_YET: "that time has not come yet",
}

Extent = Literal["fully", "partly", "none"]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a range there is footage of.

    Attributes:
        extent: ``fully``, ``partly`` or ``none``.
        missing: What there is no footage of, in order, with reasons.
    """

    extent: Extent
    missing: tuple[MissingSpan, ...] = ()


def coverage(
    spans_with_footage: Sequence[Span],
    lost: Sequence[MissingSpan],
    start_s: float | None,
    end_s: float | None,
    *,
    now_s: float | None = None,
    gap_s: float = 1.0,
) -> Coverage:
    """Compare a range with what there is footage of.

    Footage beats loss where they overlap (a segment that was encoded again). A moment, that is a
    range of no length, is fully covered when it lies in a span, ends included.

    Args:
        spans_with_footage: Stream times ``(start_s, end_s)``, in any order.
        lost: What was erased or lost, with reasons.
        start_s: Beginning of the range; None: where the earliest span begins.
        end_s: End of the range; None: now.
        now_s: Stream time of the newest frame; None: the end of the latest span.
        gap_s: Holes without a known reason that are no longer than this do not count (frames that
            came late or were left out).
    """
    footage = _merged(spans_with_footage)
    if not footage and not lost and start_s is None and end_s is None:
        return Coverage("none")
    known = [*footage, *((span.start_s, span.end_s) for span in lost)]
    if now_s is None:
        now_s = max((end for _, end in known), default=-math.inf)
    start_s = min((start for start, _ in known), default=0.0) if start_s is None else start_s
    end_s = max(start_s, now_s if end_s is None else end_s)
    causes = _disjoint(lost)
    if start_s == end_s:
        if any(start <= start_s <= end for start, end in footage):
            return Coverage("fully")
        return Coverage("none", tuple(_explain((start_s, end_s), causes, now_s)))
    holes = _subtract((start_s, end_s), footage)
    missing = _joined(
        part
        for hole in holes
        for part in _explain(hole, causes, now_s)
        if part.reason not in (NEVER_SEEN, NOT_YET) or part.end_s - part.start_s > gap_s
    )
    seen_s = (end_s - start_s) - sum(end - start for start, end in holes)
    if seen_s <= 0:
        return Coverage("none", tuple(missing or _explain((start_s, end_s), causes, now_s)))
    return Coverage("partly" if missing else "fully", tuple(missing))


def no_footage_text(missing: Sequence[MissingSpan], clock: StreamClock) -> str:
    """The answer, or the remark, about times of which there is no footage.

    Args:
        missing: As :func:`coverage` gives them; nothing at all reads as an empty memory.
        clock: Tells stream times and, where known, times on the clock.
    """
    if not missing:
        return "There is no footage yet."
    sentences = []
    for span in missing:
        start, end = format_range(span.start_s, span.end_s, clock)
        when = f"at {start}" if start == end else f"between {start} and {end}"
        sentences.append(f"There is no footage {when}: {_because(span, clock)}.")
    return " ".join(sentences)


def _because(span: MissingSpan, clock: StreamClock) -> str:
    if span.reason == NEVER_SEEN and span.end_s <= clock.first_s:
        return "that is before the stream began"
    return _WORDING.get(span.reason, span.reason.rstrip(".") or _WORDING[LOST])


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, joined where they touch."""
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] >= span[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _subtract(span: Span, others: Iterable[Span]) -> list[Span]:
    """What is left of a span without the others, which are in order and apart."""
    start, end = span
    left = []
    for other_start, other_end in others:
        if other_end <= start or other_start >= end:
            continue
        if other_start > start:
            left.append((start, other_start))
        start = max(start, other_end)
    if start < end:
        left.append((start, end))
    return left


def _disjoint(lost: Iterable[MissingSpan]) -> list[MissingSpan]:
    """Lost spans in order and apart; where two overlap, the earlier one gives the reason."""
    apart: list[MissingSpan] = []
    for span in sorted(lost, key=lambda span: (span.start_s, span.end_s)):
        start_s = max(span.start_s, apart[-1].end_s) if apart else span.start_s
        if start_s < span.end_s or start_s == span.start_s:
            apart.append(MissingSpan(start_s, span.end_s, span.reason))
    return apart


def _explain(hole: Span, causes: Sequence[MissingSpan], now_s: float) -> list[MissingSpan]:
    """Cut a hole into pieces with one reason each, in order.

    Args:
        hole: What there is no footage of; its ends may be equal.
        causes: Lost spans, in order and apart.
        now_s: From here on, the time has not come yet.
    """
    start, end = hole
    pieces: list[MissingSpan] = []
    for index in range(bisect_left(causes, start, key=lambda span: span.end_s), len(causes)):
        cause = causes[index]
        low, high = max(start, cause.start_s), min(end, cause.end_s)
        if cause.start_s > end:
            break
        if low > high or (low == high and hole[0] != hole[1]):
            continue
        pieces.extend(_unknown(start, low, now_s))
        pieces.append(MissingSpan(low, high, cause.reason))
        start = high
    if not pieces and hole[0] == hole[1]:
        return [MissingSpan(start, end, NOT_YET if start >= now_s else NEVER_SEEN)]
    return _joined([*pieces, *_unknown(start, end, now_s)])


def _unknown(start_s: float, end_s: float, now_s: float) -> list[MissingSpan]:
    """A stretch without footage and without a known cause, cut at the present."""
    pieces = []
    if start_s < min(end_s, now_s):
        pieces.append(MissingSpan(start_s, min(end_s, now_s), NEVER_SEEN))
    if max(start_s, now_s) < end_s:
        pieces.append(MissingSpan(max(start_s, now_s), end_s, NOT_YET))
    return pieces


def _joined(pieces: Iterable[MissingSpan]) -> list[MissingSpan]:
    """Neighbours with the same reason made one; the pieces come in order."""
    joined: list[MissingSpan] = []
    for piece in pieces:
        if joined and joined[-1].reason == piece.reason and joined[-1].end_s >= piece.start_s:
            last = joined.pop()
            piece = MissingSpan(last.start_s, max(last.end_s, piece.end_s), piece.reason)
        joined.append(piece)
    return joined
