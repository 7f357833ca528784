"""The sane rule, the same for all datasets: nothing dropped, nothing guessed.

What cannot be parsed, was not answered or could not be judged is wrong and counted apart.
"""

from __future__ import annotations

from hermes_like.evaluation.fields import letter_of
from hermes_like.evaluation.predictions import Prediction
from hermes_like.evaluation.scoring import letters, words
from hermes_like.evaluation.scoring.judge import Judgement
from hermes_like.evaluation.scoring.verdict import Verdict, is_hidden

#: Seconds between a proactive reply and its moment that still count as in time.
TOLERANCE_S = 2.0


def strict(prediction: Prediction, judgement: Judgement | None) -> Verdict:
    """Score one prediction; see the module."""
    if is_hidden(prediction):
        return Verdict(0.0, dropped="hidden")
    if prediction.kind == "choice":
        index = letters.strict(prediction.reply, prediction.options)
        is_right = index is not None and index == prediction.gold_index
        return _verdict(is_right, None if index is None else letter_of(index))
    if prediction.kind == "yes_no":
        said = words.yes_no(prediction.reply)
        return _verdict(said == prediction.gold, said)
    if prediction.kind == "count":
        count = words.number(prediction.reply)
        text = None if count is None else str(count)
        return _verdict(text == prediction.gold, text)
    if prediction.kind == "proactive":
        return _proactive(prediction)
    return free(prediction, judgement)


def free(prediction: Prediction, judgement: Judgement | None) -> Verdict:
    """Open questions: by the judge where there is one, else those whose answer is yes or no."""
    if judgement is not None:
        return Verdict(float(judgement.is_right is True), judgement.is_right is not None)
    gold = (prediction.gold or "").strip().strip(".!").casefold()
    if gold not in ("yes", "no"):
        return Verdict(0.0, dropped="unjudged")
    said = words.yes_no(prediction.reply)
    return _verdict(said == gold, said)


def is_in_time(prediction: Prediction) -> bool:
    """Whether the last time that was asked lies near the true moment."""
    if not prediction.polls or prediction.gold_s is None:
        return False
    return abs(prediction.polls[-1].at_s - prediction.gold_s) <= TOLERANCE_S


def _proactive(prediction: Prediction) -> Verdict:
    """In time, after a clear yes, and with the expected words."""
    last = words.yes_no(prediction.polls[-1].reply) if prediction.polls else None
    wanted = (prediction.gold or "").casefold()
    reply = letters.clean(prediction.reply or "").casefold()
    is_right = last == "yes" and is_in_time(prediction) and bool(wanted) and wanted in reply
    return _verdict(is_right, prediction.reply if last else None)


def _verdict(is_right: bool, parsed: str | None) -> Verdict:
    return Verdict(float(is_right and parsed is not None), parsed is not None, parsed=parsed)
