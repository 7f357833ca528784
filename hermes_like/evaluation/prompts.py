"""What a model is asked: a question with its options, in the form that its dataset prescribes.

Published openings of several sentences are left out: they praise the model and change with every
harness. Knows no model and no chat template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hermes_like.evaluation.base import Dataset, Question, first_asked_s
from hermes_like.evaluation.fields import letter_of

#: Goes up with every change of the words below: results with other words are other results.
PROMPTS_VERSION: Final = 2

_LETTER_ONLY = "Respond with only the letter ({letters}) of the correct option."
_DIRECTLY = "Answer with the option's letter from the given choices directly."
_BRIEFLY = "Answer the question using a single word or phrase."


def prompt_of(name: str, question: Question, earlier: Sequence[Question] = ()) -> str:
    """The words to ask a question with.

    Args:
        name: Registered name of the dataset.
        question: What to ask.
        earlier: Questions whose true answers it may know; see :func:`told_before`.
    """
    return _told(earlier) + _FORMS[question.kind](name.split("-")[0], question)


def poll_prompt(question: Question) -> str:
    """The words to ask a proactive question with, until the reply is yes."""
    return (
        f"{question.text}\n"
        f'Is it the right time to output "{question.gold}"? You can only answer yes or no.'
    )


def told_before(dataset: Dataset, question: Question) -> tuple[Question, ...]:
    """Earlier questions of the same thread, where the protocol tells their true answers."""
    if question.conversation != "gold_history":
        return ()
    return _earlier(dataset, question)


def _earlier(dataset: Dataset, question: Question) -> tuple[Question, ...]:
    own = [other for other in dataset.questions if other.thread == question.thread]
    own.sort(key=lambda other: (first_asked_s(other), other.position))
    return tuple(own[: own.index(question)])


def said_before(
    dataset: Dataset, question: Question, replies: Mapping[str, str | None]
) -> tuple[Question, ...]:
    """Earlier questions of the same thread with the model's own replies in place of the truth.

    Args:
        dataset: That the question belongs to.
        question: A turn whose protocol tells what the model has said.
        replies: What it said so far, by question; turns without a reply are left out.
    """
    if question.conversation != "own_history":
        return ()
    return tuple(
        replace(other, gold=replies[other.question_id], gold_index=None)
        for other in _earlier(dataset, question)
        if replies.get(other.question_id) is not None
    )


def _told(earlier: Sequence[Question]) -> str:
    if not earlier:
        return ""
    lines = ["Questions about this video that were answered before:"]
    for question in earlier:
        place = "" if question.gold_index is None else f"{letter_of(question.gold_index)}. "
        at = "" if question.ask_s is None else f"At {_clock(question.ask_s)}: "
        options = "\n".join(_lettered(question.options))
        lines.append(f"{at}{question.text}\n{options}\nAnswer: {place}{question.gold}")
    return "\n\n".join(lines) + "\n\n"


def _choice(family: str, question: Question) -> str:
    form = _CHOICES.get(family, _lines)
    return form(question)


def _lines(question: Question) -> str:
    return "\n".join([question.text, *_lettered(question.options), _DIRECTLY])


def _bare(question: Question) -> str:
    """The bundled models know no letters: they answer in words, and they are looked for."""
    return question.text


def _streamingbench(question: Question) -> str:
    rule = _LETTER_ONLY.format(letters=_letters(question))
    options = "\n".join(_lettered(question.options))
    return f"{rule}\nQuestion: {question.text}\nOptions:\n{options}\nThe best option is:"


def _videomme(question: Question) -> str:
    rule = _LETTER_ONLY.format(letters=_letters(question))
    options = "\n".join(_lettered(question.options))
    return (
        "Select the best answer to the following multiple-choice question based on the video. "
        f"{rule}\n{question.text}\n{options}\nThe best answer is:"
    )


def _ovobench(question: Question) -> str:
    options = "; ".join(_lettered(question.options))
    return f"{question.text}\nOptions: {options};\nAnswer with the letter of the right option only."


def _brackets(question: Question) -> str:
    options = "\n".join(
        f"({letter_of(index)}) {text}" for index, text in enumerate(question.options)
    )
    return (
        f"Question: {question.text}\nOptions:\n{options}\n"
        "Only give the best option.\nBest option: ("
    )


def _cgbench(question: Question) -> str:
    options = "\n".join(_lettered(question.options))
    return (
        f"{question.text}\n{options}\n"
        'Reply with the letter of the right option as JSON in a code fence: {"result": "A"}'
    )


def _yes_no(family: str, question: Question) -> str:
    if question.category == "SSR":
        return f"Is the person now carrying out this step: {question.text}? Answer Yes or No."
    if question.category == "CRR":
        return (
            f"Question: {question.text}\nDoes what has been seen so far suffice to answer it? "
            "Answer Yes or No."
        )
    return f"{question.text}\nAnswer Yes or No."


def _count(family: str, question: Question) -> str:
    return f"How many times did they {question.text} so far? Answer with a number only."


def _open(family: str, question: Question) -> str:
    if family not in ("activitynet", "msvd"):
        return question.text
    text = question.text[:1].upper() + question.text[1:].rstrip("?")
    return f"{text}? {_BRIEFLY}"


def _proactive(family: str, question: Question) -> str:
    return f"{question.text}\nThe answer is:"


def _lettered(options: Sequence[str]) -> list[str]:
    return [f"{letter_of(index)}. {text}" for index, text in enumerate(options)]


def _letters(question: Question) -> str:
    """``A, B, C, or D``."""
    *most, last = [letter_of(index) for index in range(len(question.options))]
    return f"{', '.join(most)}, or {last}"


def _clock(at_s: float) -> str:
    minutes, seconds = divmod(int(at_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}"


_FORMS: Mapping[str, Callable[[str, Question], str]] = {
    "choice": _choice,
    "yes_no": _yes_no,
    "count": _count,
    "open": _open,
    "proactive": _proactive,
}
_CHOICES: Mapping[str, Callable[[Question], str]] = {
    "streamingbench": _streamingbench,
    "videomme": _videomme,
    "ovobench": _ovobench,
    "mlvu": _brackets,
    "mvbench": _brackets,
    "cgbench": _cgbench,
    "easyvqa": _bare,
    "sprites": _bare,
}
