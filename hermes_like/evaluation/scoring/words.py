"""Replies without options: yes or no, whole numbers, and likeness of words."""

from __future__ import annotations

import re
from collections import Counter

from hermes_like.evaluation.scoring.letters import clean

_NAMES = "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_NUMBERS = {name: number for number, name in enumerate(_NAMES.split("|"))}
_ARTICLES = frozenset({"a", "an", "the"})


def yes_no(reply: str | None) -> str | None:
    """``yes`` or ``no`` if the reply begins with it or holds just one of them, else None."""
    if reply is None:
        return None
    said = re.findall(r"\b(yes|no)\b", clean(reply).casefold())
    if not said:
        return None
    begins = re.match(r"\W*(yes|no)\b", clean(reply).casefold())
    if begins is not None:
        return begins.group(1)
    return said[0] if len(set(said)) == 1 else None


def number(reply: str | None) -> int | None:
    """The only whole number of a reply, in digits or as a word up to twelve; else None."""
    if reply is None:
        return None
    text = clean(reply).casefold()
    found = {int(digits) for digits in re.findall(r"(?<![\d.,])\d+(?![\d]|[.,]\d)", text)}
    if not found:
        found = {_NUMBERS[word] for word in re.findall(r"[a-z]+", text) if word in _NUMBERS}
    return found.pop() if len(found) == 1 else None


def exact_match(reply: str | None, gold: str) -> bool:
    """Whether both hold the same words, articles and punctuation aside."""
    return reply is not None and _words(clean(reply)) == _words(gold)


def token_f1(reply: str | None, gold: str) -> float:
    """Harmonic mean of the shares of words that reply and true answer have in common."""
    if reply is None:
        return 0.0
    said, true = Counter(_words(clean(reply))), Counter(_words(gold))
    common = (said & true).total()
    if not common:
        return 0.0
    precision, recall = common / said.total(), common / true.total()
    return 2 * precision * recall / (precision + recall)


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.casefold()) if word not in _ARTICLES]
