"""One answer made of the answers of several streams. Knows records only."""

from __future__ import annotations

from collections.abc import Sequence

from hermes_like.records import Answer, AnswerStatus


def joint_answer(question: str, answers: Sequence[Answer]) -> Answer:
    """Return an answer that names each stream; the single ones are its ``parts``.

    Its evidence is that of all of them, each stream's strongest first.
    """
    rounds = max((len(answer.evidence) for answer in answers), default=0)
    return Answer(
        text="\n".join(f"{answer.stream}: {answer.text}" for answer in answers),
        status=_status(answers),
        evidence=tuple(
            answer.evidence[place]
            for place in range(rounds)
            for answer in answers
            if place < len(answer.evidence)
        ),
        missing=tuple(span for answer in answers for span in answer.missing),
        route=answers[0].route,
        stream=", ".join(answer.stream for answer in answers),
        question=question,
        asked_at_s=max(answer.asked_at_s for answer in answers),
        num_tokens=sum(answer.num_tokens for answer in answers),
        ttft_s=answers[0].ttft_s,
        tpot_s=max(answer.tpot_s for answer in answers),
        notes=tuple(f"{a.stream}: {note}" for a in answers for note in a.notes),
        parts=tuple(answers),
    )


def _status(answers: Sequence[Answer]) -> AnswerStatus:
    """``ok`` if all are, ``no_footage`` if nobody saw anything, else ``partial``."""
    statuses = {answer.status for answer in answers}
    return statuses.pop() if len(statuses) == 1 else "partial"
