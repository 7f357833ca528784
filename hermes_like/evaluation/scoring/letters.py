"""Which option a reply names: the sane rule, and the published ones with their faults.

Each function takes a reply and returns the place of an option or None. Knows neither datasets nor
how scores are averaged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hermes_like.evaluation.fields import letter_of

#: From a reply and the options to the place of one of them.
Parser = Callable[[str, Sequence[str]], int | None]

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
_CLOSED = re.compile(r"^.*</think>", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(r"<think>.*$", re.DOTALL | re.IGNORECASE)
_MARKUP = re.compile(r"[*_`]{1,3}")
_ALONE = re.compile(r"[(\[{]?\s*([A-Za-z])\s*[)\]}]?\s*[.:,;!]?")
_LEADING = re.compile(r"(?:[(\[]([A-Za-z])[)\]]|([A-Z])[.):](?![A-Za-z]\.)|([a-z])\))(?=\W|\s|$)")
_NAMED = (
    r"(?i:\b(?:{words})\b)(?:\s*(?i:is|was|would be|should be|will be))?(?:\s*[:=-])?"
    r"\s*(?i:option|choice|letter)?\s*[\"'(\[]*([A-Z])\b(?!['’\w])"
)
_ANSWER = re.compile(_NAMED.format(words="answer"))
_OPTION = re.compile(_NAMED.format(words="answer|option|choice"))
_ISOLATED = re.compile(r"(?<![\w'’])([A-Z])(?![\w'’])")
_SEVERAL = re.compile(r"\b[A-Z]\s*(?:,|/|&|\band\b|\bor\b)\s*[A-Z]\b")
#: Words that may follow a letter which is an answer: "B because ...".
_REASONS = ("because", "since", "as", "due")


def clean(reply: str) -> str:
    """The reply without what a model thought aloud and without marks of emphasis."""
    text = _OPEN.sub("", _CLOSED.sub("", _THOUGHT.sub("", reply)))
    return _MARKUP.sub("", text).strip()


def strict(reply: str | None, options: Sequence[str]) -> int | None:
    """The sane rule: one option, named without doubt; else None. Never a guess.

    In this order: a letter alone; a letter at the beginning with its bracket or stop; a letter
    behind "answer", "option" or "choice"; the text of exactly one option; one single letter that
    is no word of a sentence.
    """
    if reply is None or not (text := clean(reply)):
        return None
    alone = _ALONE.fullmatch(text)
    if alone is not None:
        return _place(alone.group(1), options)
    leading = _LEADING.match(text)
    if leading is not None:
        return _place(next(filter(None, leading.groups())), options)
    for pattern in (_ANSWER, _OPTION):
        named = {m.group(1) for m in pattern.finditer(text) if not _is_word(text, m.start(1))}
        if len(named) == 1:
            return _place(named.pop(), options)
    verbatim = _verbatim(text, options)
    if verbatim is not None:
        return verbatim
    if _SEVERAL.search(text):
        return None
    found = {
        match.group(1)
        for match in _ISOLATED.finditer(text)
        if _place(match.group(1), options) is not None and not _is_word(text, match.start())
    }
    return _place(found.pop(), options) if len(found) == 1 else None


def first_character(reply: str, options: Sequence[str]) -> int | None:
    """StreamingBench: the first character, as it stands."""
    return _exact(reply[:1], options)


def before_bracket(reply: str, options: Sequence[str]) -> int | None:
    """MLVU: everything before the first closing bracket (the prompt has opened one)."""
    return _exact(reply.split(")")[0], options)


def last_before_bracket(reply: str, options: Sequence[str]) -> int | None:
    """ReKV and its relatives: the character before a closing bracket, else the first one."""
    text = reply.strip()
    end = text.find(")")
    return _exact(text[end - 1 : end] if end > 0 else text[:1], options)


def first_capital(reply: str, options: Sequence[str], letters: str = "ABCD") -> int | None:
    """Video-MME, LongVideoBench: the first capital anywhere, once set phrases are taken off.

    "Based on ..." names B. The list of phrases lacks two commas in the published code, so that
    "The best option is" stays and does no harm here, as it holds no such capital.
    """
    text = reply.strip()
    for phrase in (
        "The best answer is",
        "The correct answer is",
        "The answer is",
        "The answer",
        "The best option isThe correct option is",
        "Best answer:Best option:",
    ):
        text = text.replace(phrase, "")
    match = re.search(f"[{letters}]", text)
    return None if match is None else _exact(match.group(), options)


def lone_letter(reply: str, options: Sequence[str]) -> int | None:
    """ODV-Bench: a leading ``a.``, else the first letter a to e that stands alone, in any case.

    The article "a" names A.
    """
    text = reply.strip().lower()
    match = re.match(r"([a-e])\.", text) or re.search(r"\b([a-e])\b", text)
    return None if match is None else _exact(match.group(1).upper(), options)


def _place(letter: str, options: Sequence[str]) -> int | None:
    index = ord(letter.upper()) - ord("A")
    return index if 0 <= index < len(options) else None


def _exact(text: str, options: Sequence[str]) -> int | None:
    """Place of exactly this letter; a letter beyond the options is no parse either."""
    letters = [letter_of(index) for index in range(len(options))]
    return letters.index(text) if text in letters else None


def _is_word(text: str, start: int) -> bool:
    """Whether a single capital at a place is a word of a sentence ("A man", "person C opens")."""
    after = re.match(r"[A-Z] +([a-z]+)", text[start:])
    return after is not None and after.group(1) not in _REASONS


def _verbatim(text: str, options: Sequence[str]) -> int | None:
    """The only option whose whole text stands in the reply, longer ones before parts of them."""
    plain = _plain(text)
    found = [
        (index, own)
        for index, own in enumerate(map(_plain, options))
        if own and re.search(rf"(?<!\w){re.escape(own)}(?!\w)", plain)
    ]
    longest = [
        index
        for index, own in found
        if not any(own != other and own in other for _, other in found)
    ]
    return longest[0] if len(longest) == 1 else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .")
