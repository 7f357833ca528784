"""Values of annotation rows: times, options and true answers in all their spellings.

Knows no dataset. Every function says what it took a strange value for; whether that is worth a
finding is for the reader.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_LETTERED = re.compile(r"\s*[(\[]?([A-Z])(?:[)\]]\.?|[.:、])\s*", re.ASCII)
_OPTION_COLUMN = re.compile(r"option[ _]?(\d+)")
_INLINE = re.compile(r"^\s*\(?([A-H])[.)]\s*(.+?)\s*$", re.MULTILINE)
_MISSING = frozenset({"", "n/a", "nan", "none"})


def seconds(value: Any) -> tuple[float, str | None]:
    """A time in seconds, and a remark if its spelling is odd.

    Takes numbers, ``"83"``, ``"1:23"``, ``"00:01:23"`` and ``"00:01:23.400"``. Parts are weighted
    from the right, as the official parsers do, so that ``"00:12450"`` is 12450 seconds; such a
    spelling gets a remark.

    Raises:
        ValueError: It is no time, or negative.
    """
    if isinstance(value, bool) or value is None:
        raise ValueError(f"expected a time, got {value!r}")
    if isinstance(value, int | float):
        return _not_negative(float(value), value), None
    text = str(value).strip().strip("[]")
    parts = text.split(":")
    if len(parts) > 3 or not all(re.fullmatch(r"\s*\d+(\.\d+)?\s*", part) for part in parts):
        raise ValueError(f"expected seconds, M:SS or H:MM:SS, got {value!r}")
    numbers = [float(part) for part in parts]
    total = sum(number * 60**power for power, number in enumerate(reversed(numbers)))
    is_odd = any(number >= 60 for number in numbers[1:]) or (
        len(parts) > 1 and any(len(part.strip().split(".")[0]) > 2 for part in parts)
    )
    remark = f"{value!r} read as {total:g} s" if is_odd else None
    return _not_negative(total, value), remark


def option_texts(value: Any) -> list[str]:
    """Options as a plain list, whatever holds them: a list, or a string that spells one.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError(f"expected a list of options, got {value[:60]!r}") from error
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ValueError(f"expected a list of options, got {type(value).__name__}")
    return ["" if text is None else str(text) for text in value]


def option_columns(row: Mapping[str, Any]) -> list[str]:
    """Options from columns ``option0``, ``option 0`` or ``option_0``, without the empty ones."""
    found = []
    for name, value in row.items():
        match = _OPTION_COLUMN.fullmatch(str(name))
        if match and value is not None and str(value).strip().lower() not in _MISSING:
            found.append((int(match.group(1)), str(value)))
    return [text for _, text in sorted(found)]


def inline_options(text: str) -> tuple[str, list[str]]:
    """Split a question that carries its options in lines ``(A) ...`` into text and options."""
    found = list(_INLINE.finditer(text))
    letters = "".join(match.group(1) for match in found)
    if len(found) < 2 or letters != "ABCDEFGH"[: len(letters)]:
        return text, []
    return text[: found[0].start()].strip(), [match.group(2) for match in found]


def bare_options(texts: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Take the letters off options that carry them, and say what had to be repaired.

    Letters are taken off where at least two options carry the one that their place calls for, so
    that neither ``C. elegans`` nor ``A. Lincoln`` among bare options loses its beginning.

    Returns:
        The texts, and remarks: empty options left out, pieces without a letter joined to the
        option before, letters that repeat or are out of order.
    """
    remarks = []
    kept = [text.strip() for text in texts if text.strip()]
    if len(kept) < len(texts):
        remarks.append(f"{len(texts) - len(kept)} empty option(s) left out")
    letters = [match.group(1) if (match := _LETTERED.match(text)) else None for text in kept]
    num_right = _num_in_place(letters)
    if num_right < 2:
        if num_right == 1 and letters[0] == "A" and len(kept) > 1:
            remarks.append(f"{kept[0]!r} may carry a letter; left as it is")
        return tuple(kept), remarks
    joined: list[str] = []
    spelled: list[str] = []
    for text, letter in zip(kept, letters, strict=True):
        if letter is None and len(kept) > 4 and joined:
            joined[-1] = f"{joined[-1]} {text}"
            remarks.append(f"{text!r} has no letter; joined to the option before")
            continue
        joined.append(text if letter is None else _LETTERED.sub("", text, count=1).strip())
        spelled.append(letter or letter_of(len(joined) - 1))
    if spelled != [letter_of(index) for index in range(len(spelled))]:
        remarks.append(f"letters {' '.join(spelled)}; options counted by place")
    return tuple(joined), remarks


def letter_of(index: int) -> str:
    """``A`` for 0, ``B`` for 1 and so on."""
    return chr(ord("A") + index)


def index_of_letter(value: Any) -> int:
    """0 for ``A``; the rest of the text behind the letter does not matter (``"A. yes"``).

    Raises:
        ValueError: It does not begin with a letter of its own.
    """
    text = str(value).strip()
    match = re.match(r"\(?([A-Za-z])(?![A-Za-z])", text)
    if match is None:
        raise ValueError(f"expected the letter of an option, got {value!r}")
    return ord(match.group(1).upper()) - ord("A")


def index_of_text(options: Sequence[str], answer: Any) -> tuple[int, str | None]:
    """Place of the option that reads like the answer, and a remark where that is in doubt.

    Raises:
        ValueError: None does.
    """
    wanted = str(answer)
    for same in (str.strip, _loosely):
        places = [i for i, text in enumerate(options) if same(text) == same(wanted)]
        if places:
            is_unclear = len(places) > 1
            return places[0], f"{wanted!r} stands {len(places)} times" if is_unclear else None
    raise ValueError(f"answer {wanted!r} is none of the options")


def spans(value: Any) -> tuple[tuple[float, float], ...]:
    """Pairs of seconds from ``[[s, e], ...]``, ``[s, e]`` or nothing."""
    if not isinstance(value, list | tuple) or not value:
        return ()
    pairs = [value] if not isinstance(value[0], list | tuple) else value
    return tuple((float(pair[0]), float(pair[1])) for pair in pairs if len(pair) == 2)


def _num_in_place(letters: Sequence[str | None]) -> int:
    return sum(letter == letter_of(index) for index, letter in enumerate(letters))


def _loosely(text: str) -> str:
    return " ".join(text.split()).strip(" .").casefold()


def _not_negative(number: float, value: Any) -> float:
    if not 0 <= number < math.inf:
        raise ValueError(f"expected a time from 0 on, got {value!r}")
    return number
