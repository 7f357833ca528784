"""The published rule of each dataset, its faults included, so that numbers compare with papers.

Where a rule drops replies from the denominator, guesses, or takes a word for a letter, so does
this one; ``FAULTS`` says it in words, and every report prints them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial

from hermes_like.evaluation.fields import letter_of
from hermes_like.evaluation.predictions import Prediction
from hermes_like.evaluation.scoring import letters, words
from hermes_like.evaluation.scoring.judge import Judgement
from hermes_like.evaluation.scoring.strict import free, is_in_time
from hermes_like.evaluation.scoring.verdict import Rule, Verdict, is_hidden

#: By family (the name of a dataset up to the first hyphen, or the whole of it).
FAULTS: Mapping[str, str] = {
    "streamingbench": "first character only; unanswered questions leave the denominator",
    "ovobench": "a letter, Yes or No counts wherever it stands in the reply (Because names B)",
    "odvbench": "the article 'a' names A; empty replies leave the denominator",
    "videomme": "the first capital A to D anywhere; replies without one leave the denominator",
    "mlvu": "everything before the first ')' must be the letter",
    "egoschema": "a reply without a letter is handed in as A",
    "longvideobench": "the first capital A to E anywhere; without one, a random option (seeded)",
    "cgbench": 'only {"result": "X"} counts; other replies leave the denominator',
    "mvbench": "a part of the letter in brackets is enough, so that an empty reply is right",
    "qaego4d": "the character before ')', else the first one",
    "rekv": "the character before ')', else the first one",
    "rvs": "by the judge where there is one; its failures leave the denominator",
    "svbench": "not the published judge (six scores per chain): export the submission for that",
    "activitynet": "exact match of the words without a judge",
    "msvd": "exact match of the words without a judge",
}


def family(dataset: str) -> str:
    """Which published rule a dataset follows: ``ovobench`` for ``ovobench-forward``."""
    return dataset.split("-")[0]


def has_rule(dataset: str) -> bool:
    """Whether anybody has published how a dataset is scored."""
    return family(dataset) in FAULTS


def official(prediction: Prediction, judgement: Judgement | None) -> Verdict:
    """Score one prediction by the rule of its dataset; see the module."""
    if is_hidden(prediction):
        return Verdict(0.0, dropped="hidden")
    name = family(prediction.dataset)
    if prediction.kind == "open":
        return _open(prediction, judgement, name)
    if prediction.kind == "proactive":
        return _proactive(prediction)
    if prediction.kind in ("yes_no", "count"):
        return _forward(prediction)
    return _CHOICE.get(name, _CHOICE["rekv"])(prediction, judgement)


def _parsed(
    prediction: Prediction, _: Judgement | None, *, parser: letters.Parser, drops: str = ""
) -> Verdict:
    """By a letter parser. ``drops``: ``empty`` or ``unparsed`` replies leave the denominator."""
    reply = prediction.reply or ""
    if drops and not reply:
        return Verdict(0.0, is_parsed=False, dropped="rule")
    index = parser(reply, prediction.options)
    if index is None and drops == "unparsed":
        return Verdict(0.0, is_parsed=False, dropped="rule")
    return _chosen(prediction, index)


def _chosen(prediction: Prediction, index: int | None, *, is_parsed: bool = True) -> Verdict:
    if index is None:
        return Verdict(0.0, is_parsed=False)
    is_right = index == prediction.gold_index
    return Verdict(float(is_right), is_parsed, parsed=letter_of(index))


def _contained(prediction: Prediction, _: Judgement | None) -> Verdict:
    """OVO-Bench: the true letter anywhere, in this case."""
    reply = prediction.reply or ""
    own = [letter_of(index) for index in range(len(prediction.options))]
    gold = prediction.gold_index
    is_right = gold is not None and letter_of(gold) in reply
    said = [letter for letter in own if letter in reply]
    return Verdict(float(is_right), bool(said), parsed="".join(said) or None)


def _first_word(prediction: Prediction, _: Judgement | None) -> Verdict:
    """MVBench: the first word and ``(b)``, one of them part of the other, in any case."""
    line = (prediction.reply or "").strip().split("\n")[0]
    # The prompt of the published code ends with the opening bracket.
    text = line if line.startswith("(") else f"({line}"
    word = text.lower().split(" ")[0]
    if prediction.gold_index is None:
        return Verdict(0.0, bool(line))
    gold = f"({letter_of(prediction.gold_index).lower()})"
    return Verdict(float(word.replace(".", "") in gold or gold in word), bool(line), parsed=word)


def _or_first(prediction: Prediction, _: Judgement | None) -> Verdict:
    """EgoSchema: every question must be handed in, so what is not parsed becomes option A."""
    index = letters.strict(prediction.reply, prediction.options)
    return _chosen(prediction, index or 0, is_parsed=index is not None)


def _or_random(prediction: Prediction, _: Judgement | None) -> Verdict:
    """LongVideoBench: a random option where no letter is found, the same one every time."""
    parser = partial(letters.first_capital, letters="ABCDE")
    index = parser(prediction.reply or "", prediction.options)
    if index is not None:
        return _chosen(prediction, index)
    digest = hashlib.sha256(prediction.question_id.encode()).digest()
    guess = int.from_bytes(digest[:8], "big") % len(prediction.options)
    return _chosen(prediction, guess, is_parsed=False)


def _result(reply: str, options: Sequence[str]) -> int | None:
    """CG-Bench: the letter in ``{"result": "X"}``, wherever the object stands."""
    for text in reversed(re.findall(r"\{[^{}]*\}", reply)):
        try:
            value = json.loads(text).get("result")
        except (ValueError, AttributeError):
            continue
        if isinstance(value, str) and len(value.strip()) == 1:
            index = ord(value.strip().upper()) - ord("A")
            return index if 0 <= index < len(options) else None
    return None


def _forward(prediction: Prediction) -> Verdict:
    """OVO-Bench: all digits in a row; or Yes and No anywhere, so that both together are right."""
    reply = prediction.reply or ""
    if prediction.kind == "count":
        digits = "".join(re.findall(r"\d+", reply))
        return Verdict(float(digits == prediction.gold), bool(digits), parsed=digits or None)
    is_yes = "Yes" in reply or reply == "Y"
    is_no = "No" in reply or reply == "N"
    is_right = is_yes if prediction.gold == "yes" else is_no
    return Verdict(float(is_right), is_yes or is_no, parsed=words.yes_no(reply))


def _proactive(prediction: Prediction) -> Verdict:
    """StreamingBench: in time by two seconds, and the expected words within the reply."""
    if not prediction.polls:
        return Verdict(0.0, is_parsed=False, dropped="rule")
    is_right = is_in_time(prediction) and (prediction.gold or "") in (prediction.reply or "")
    return Verdict(float(is_right), parsed=prediction.reply)


def _open(prediction: Prediction, judgement: Judgement | None, name: str) -> Verdict:
    if judgement is not None:
        if judgement.is_right is None:
            return Verdict(0.0, is_parsed=False, dropped="rule")
        return Verdict(float(judgement.is_right))
    if name in ("activitynet", "msvd"):
        is_right = words.exact_match(prediction.reply, prediction.gold or "")
        return Verdict(float(is_right), bool(prediction.reply), parsed=prediction.reply)
    return free(prediction, None)


_CHOICE: Mapping[str, Rule] = {
    "streamingbench": partial(_parsed, parser=letters.first_character, drops="empty"),
    "ovobench": _contained,
    "odvbench": partial(_parsed, parser=letters.lone_letter, drops="empty"),
    "videomme": partial(_parsed, parser=letters.first_capital, drops="unparsed"),
    "mlvu": partial(_parsed, parser=letters.before_bracket),
    "egoschema": _or_first,
    "longvideobench": _or_random,
    "cgbench": partial(_parsed, parser=_result, drops="unparsed"),
    "mvbench": _first_word,
    "rekv": partial(_parsed, parser=letters.last_before_bracket),
    "qaego4d": partial(_parsed, parser=letters.last_before_bracket),
}
