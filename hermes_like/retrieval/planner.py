"""What kind of question it is, and which time it speaks of. Pure: no model and no memory is asked.

A question is about the present (*now*), about something that was (*recall*), about a named time
(*time*), or about the whole past (*scan*: how many, when, which, was there ever). The rules are
words, so that every decision can be told in a sentence, ``Plan.reason``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from hermes_like.config import RetrievalConfig
from hermes_like.errors import ConfigError
from hermes_like.records import Route
from hermes_like.retrieval.clock import StreamClock
from hermes_like.retrieval.cues import Cues, Edge, ScanKind, find_cues
from hermes_like.retrieval.languages import Language, fold, language_of, normalise
from hermes_like.retrieval.time_ranges import TimeRange, place
from hermes_like.retrieval.time_words import Expression, find_expression

#: A longer question is read at both ends only, this many characters each.
_READ_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """How a question is to be answered.

    Attributes:
        route: Where to look.
        start_s: Beginning of the stream time to look in; None: open.
        end_s: Its end; None: open. The range may lie outside the stream.
        text: The question without its time expression, for models that know no dates.
        question: The question as it was asked.
        scan_kind: What a scan shall find out; None on other routes.
        edge: Whether the first or the last of all is asked for; a hint for ranking.
        is_moment: The range stands for one named point in time.
        point_s: That point, if it is not the middle of the range.
        notes: Plain sentences about how the question was read.
        reason: Which words decided the route.
        language: Language the question was read in.
    """

    route: Route
    start_s: float | None
    end_s: float | None
    text: str
    question: str
    scan_kind: ScanKind | None = None
    edge: Edge | None = None
    is_moment: bool = False
    notes: tuple[str, ...] = ()
    reason: str = ""
    language: Language = "en"
    point_s: float | None = None

    @property
    def asks_when(self) -> bool:
        """Whether the answer is a time."""
        return self.scan_kind == "when"

    @property
    def has_range(self) -> bool:
        """Whether only a part of the stream is meant."""
        return self.start_s is not None or self.end_s is not None


def plan_question(
    question: str,
    *,
    clock: StreamClock,
    config: RetrievalConfig,
    route: Route | None = None,
    since_s: float | None = None,
    until_s: float | None = None,
) -> Plan:
    """Decide how a question is answered.

    Args:
        question: Any text.
        clock: What is known about time.
        config: ``config.route`` decides where ``route`` is None and it is not ``auto``.
        route: Takes this route whatever the words say.
        since_s: Look at nothing before this stream time.
        until_s: Look at nothing after this stream time.

    Raises:
        ConfigError: ``since_s`` or ``until_s`` is not finite, or they are in the wrong order.
    """
    _check_limits(since_s, until_s)
    text = normalise(question)
    language = language_of(text)
    read = _both_ends(text)
    said, span, cut, words = _time_of(read, language, clock)
    if len(text) > len(read):
        cut = text if said is None else _cut_words(text, read, said)
    cues = find_cues(_both_ends(cut), fold(_both_ends(cut)), language)
    forced = route or (None if config.route == "auto" else config.route)
    has_limits = since_s is not None or until_s is not None
    chosen, reason = _auto_route(cues, span, words, has_limits)
    kind = cues.scan_kind
    if forced is not None:
        chosen, reason = forced, f"{forced}: as asked for"
    notes = span.notes if span else ()
    placed = span if span and span.is_placed else None
    if chosen == "now" and placed:
        notes = (*notes, f"The question is answered from the present; {words!r} is left out.")
        placed = None
    if chosen == "scan" and kind is None:
        kind = "list"
    plan = Plan(
        route=chosen,
        start_s=placed.start_s if placed else None,
        end_s=placed.end_s if placed else None,
        text=cut,
        question=question,
        scan_kind=kind if chosen == "scan" else None,
        edge=cues.edge if chosen != "now" else None,
        is_moment=placed is not None and placed.is_moment,
        point_s=placed.point_s if placed else None,
        notes=notes,
        reason=reason,
        language=language,
    )
    if forced == "time" and not plan.has_range and not has_limits:
        plan = replace(plan, notes=(*notes, "No time was named; the whole past is searched."))
    return plan if chosen == "now" else _limited(plan, since_s, until_s)


def _check_limits(since_s: float | None, until_s: float | None) -> None:
    for name, value in (("since_s", since_s), ("until_s", until_s)):
        if value is not None and not math.isfinite(value):
            raise ConfigError(f"{name}: expected a finite stream time in seconds, got {value}")
    if since_s is not None and until_s is not None and until_s < since_s:
        raise ConfigError(f"until_s: expected a time from since_s ({since_s}) on, got {until_s}")


def _auto_route(
    cues: Cues, span: TimeRange | None, words: str, has_limits: bool
) -> tuple[Route, str]:
    """The route by words, and the sentence that says why."""
    is_now = bool(cues.present) and not cues.past and span is None and not has_limits
    if cues.scan_kind in ("when", "list") and not (is_now and cues.now):
        return "scan", f"scan ({cues.scan_kind}): {cues.scan!r}"
    if is_now:
        return "now", f"now: {cues.present!r}"
    if cues.scan_kind and not (span and span.is_placed and span.is_moment):
        return "scan", f"scan ({cues.scan_kind}): {cues.scan!r}"
    if span and span.is_placed:
        return "time", f"time: {words!r}"
    if has_limits:
        return "time", "time: limits were given"
    return "recall", f"recall: {cues.past!r}" if cues.past else "recall: no other cue"


def _limited(plan: Plan, since_s: float | None, until_s: float | None) -> Plan:
    """Narrow the range by given limits; where they exclude it, the limits count."""
    if since_s is None and until_s is None:
        return plan
    start_s, end_s = _latest(plan.start_s, since_s), _earliest(plan.end_s, until_s)
    if start_s is not None and end_s is not None and start_s > end_s:
        note = "The time in the question lies outside the given limits; the limits count."
        return replace(
            plan, start_s=since_s, end_s=until_s, is_moment=False, notes=(*plan.notes, note)
        )
    return replace(plan, start_s=start_s, end_s=end_s)


def _latest(*times: float | None) -> float | None:
    return max((time for time in times if time is not None), default=None)


def _earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)


# -- the time in the text ----------------------------------------------------------------------


def _both_ends(text: str) -> str:
    """The text, or beginning and end of a very long one."""
    if len(text) <= 2 * _READ_CHARACTERS:
        return text
    return f"{text[:_READ_CHARACTERS]} … {text[-_READ_CHARACTERS:]}"


def _time_of(
    text: str, language: Language, clock: StreamClock
) -> tuple[Expression | None, TimeRange | None, str, str]:
    """Time expression, its place, the text without it, and its words."""
    folded = fold(text)
    is_past = bool(find_cues(text, folded, language).past)
    said = find_expression(folded, language, allows_future=not is_past)
    if said is None:
        return None, None, text, ""
    words = " ".join(text[start:end].strip() for start, end in said.cuts)
    is_bare = said.start is not None and said.start.is_bare and said.end is None
    if is_bare and not clock.has_wall and said.day is None and said.part is None:
        # "at 9" is no time where there is no clock to read it on.
        return None, None, text, ""
    return said, place(said, words, clock), _without(text, said.cuts), words


def _without(text: str, cuts: Iterable[tuple[int, int]]) -> str:
    """Text without some places, tidied; the whole text if nothing would be left of it."""
    kept, last = [], 0
    for start, end in cuts:
        kept.append(text[last:start])
        last = end
    kept.append(text[last:])
    rest = " ".join(" ".join(kept).split())
    rest = re.sub(r"(?<=[\w)\"'])\s(?=[?!.,;])", _spacing(text), rest)
    rest = re.sub(r",(?:\s?,)+", ",", rest)
    rest = re.sub(r"\s?,(?=\s?[?!.;])", "", rest)
    rest = rest.strip().lstrip(" ,;:.-").rstrip(" ,;:-")
    return rest if re.search(r"\w", rest) else text


def _spacing(text: str) -> str:
    """What the writer puts before the mark at the end: a space or nothing."""
    return " " if text[-2:-1].isspace() and text[-1] in "?!." else ""


def _cut_words(text: str, read: str, said: Expression) -> str:
    """The long text without the time words that were found at its ends."""
    shift = len(text) - len(read)
    cuts = [
        (start, end) if end <= _READ_CHARACTERS else (start + shift, end + shift)
        for start, end in said.cuts
        if end <= _READ_CHARACTERS or start >= _READ_CHARACTERS + 3
    ]
    return _without(text, cuts)
