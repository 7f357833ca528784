"""One training sample of the easy-VQA decoder, and samples padded into tensors.

What is lost of a stream, gaps in its positions and who sees whom are those of the sprites model's
training; a sample adds what is shown, what is asked, and where to look for the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hermes_like.sprites.tokenizer import ASSISTANT_ID, EOS_ID, PAD_ID, USER_ID
from pipelines.easyvqa_training.streams import (
    AskedQuestion,
    Kind,
    draw_kinds,
    draw_questions,
    question_ids,
)
from pipelines.easyvqa_training.words import encode
from pipelines.sprites_training.batches import pad, visibility
from pipelines.sprites_training.dropping import Hardships, VideoPlan, plan_video
from pipelines.sprites_training.network import MASKED, RowTarget
from pipelines.sprites_training.samples import IGNORED, SequenceBuilder

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]

GROUPS: Final = ("now", "what", "yes_no")
#: Name -> (layer, query heads, weight): heads that are taught where to look from the row that
#: predicts an answer; the last two look at the frames that decide it.
LOOKS: Final = {
    "named": (1, (0, 1), 0.5),
    "evidence_early": (3, (0, 1), 1.0),
    "evidence": (4, (0, 1), 1.0),
}
#: Tries at questions before a sample is closed.
MAX_TRIES: Final = 40


class TokenSource(Protocol):
    """Tokens of pictures of a kind, without any picture being drawn."""

    def tokens(self, kinds: Sequence[Kind], rng: np.random.Generator) -> FloatArray:
        """Tokens of one picture of each kind, float32 ``[frames, 4, dim]``."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What samples are made of.

    Attributes:
        hardships: Lost tokens and position gaps.
        question_tokens: Room for questions and answers.
        dialogue_share: Share of samples whose questions see earlier turns.
        newline_share: Share of samples with the vector that ends a video.
    """

    hardships: Hardships = field(default_factory=Hardships)
    question_tokens: int = 150
    dialogue_share: float = 0.15
    newline_share: float = 0.9


@dataclass(frozen=True, slots=True)
class Sample:
    """One stream with its questions; arrays have one entry per token unless said otherwise.

    Attributes:
        kinds: What each frame shows.
        plan: What happened to the video tokens.
        builder: Token ids, positions, times and dialogues.
        has_newline: Whether the last video token is the newline vector.
        asked: The questions.
        rows: For each question the token that predicts its answer; ``<eos>`` follows.
        named: For each question its tokens that name something.
    """

    kinds: list[Kind]
    plan: VideoPlan
    builder: SequenceBuilder
    has_newline: bool
    asked: list[AskedQuestion]
    rows: list[int]
    named: list[list[int]]


def build_sample(rng: np.random.Generator, num_frames: int, recipe: Recipe) -> Sample:
    """Draw a stream of ``num_frames`` frames with its losses, gaps and questions."""
    kinds = draw_kinds(rng, num_frames)
    plan = plan_video(rng, np.arange(num_frames), recipe.hardships)
    has_newline = bool(rng.random() < recipe.newline_share)
    builder = SequenceBuilder(plan, has_newline)
    seen = sorted(set(plan.frames[plan.survives].tolist()))
    limit = builder.length + recipe.question_tokens
    is_multi_turn = rng.random() < recipe.dialogue_share
    sample = Sample(kinds, plan, builder, has_newline, [], [], [])
    for asked in islice(draw_questions(rng, kinds, seen), MAX_TRIES):
        words = question_ids(asked, has_mark=bool(rng.random() < 0.9))
        if builder.length + len(words) + 4 > limit:
            break
        if not is_multi_turn or not sample.rows or rng.random() < 0.3:
            builder.start_dialogue()
        (answer,) = encode(asked.answer)
        start = builder.add([USER_ID, *words, ASSISTANT_ID, answer, EOS_ID])
        named = {index for word in asked.named for index in encode(word)}
        sample.asked.append(asked)
        sample.rows.append(start + 1 + len(words))
        sample.named.append([start + 1 + i for i, word in enumerate(words) if word in named])
    return sample


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of several samples; shapes begin with ``[batch, tokens]`` unless said otherwise.

    Attributes:
        ids: int64 token ids.
        features: ``[batch, tokens, dim]`` float32, filled where ``is_video``.
        is_video: Tokens that carry features.
        is_newline: Tokens that carry the newline vector.
        positions: int64.
        bias: ``[batch, 1, tokens, tokens]`` float32 for attention.
        answer_rows: ``[batch, answers]`` int64, padded with 0.
        answer_ids: ``[batch, answers]`` int64, padded with ``IGNORED``.
        groups: ``[batch, answers]`` int64, indices into ``GROUPS`` where the row predicts an answer
            and not ``<eos>``, else ``IGNORED``.
        targets: Attention targets.
        num_tokens: Tokens without padding.
    """

    ids: Tensor
    features: Tensor
    is_video: Tensor
    is_newline: Tensor
    positions: Tensor
    bias: Tensor
    answer_rows: Tensor
    answer_ids: Tensor
    groups: Tensor
    targets: list[RowTarget]
    num_tokens: int


def collate(samples: Sequence[Sample], source: TokenSource, rng: np.random.Generator) -> Batch:
    """Pad samples into one batch and give every frame the tokens of a picture of its kind."""
    lengths = torch.tensor([sample.builder.length for sample in samples])
    width = int(lengths.max())

    def padded(name: str, fill: int) -> Tensor:
        return pad([np.array(getattr(s.builder, name)) for s in samples], width, fill)

    ids = padded("ids", PAD_ID)
    times, evict_times = padded("times", 0), padded("evict_times", 0)
    visible = visibility(times, evict_times, padded("dialogues", 0), lengths)
    is_video = torch.zeros(ids.shape, dtype=torch.bool)
    is_newline = torch.zeros(ids.shape, dtype=torch.bool)
    tokens = [source.tokens(s.kinds, rng)[s.plan.frames, s.plan.places] for s in samples]
    features = torch.zeros(*ids.shape, tokens[0].shape[-1])
    for row, (sample, found) in enumerate(zip(samples, tokens, strict=True)):
        features[row, 1 : 1 + len(found)] = torch.from_numpy(found)
        is_video[row, 1 : 1 + len(found)] = True
        is_newline[row, sample.builder.num_video - 1] = sample.has_newline
    answers = [_answers(sample) for sample in samples]
    most = max(1, *(len(rows) for rows, _, _ in answers))
    return Batch(
        ids=ids,
        features=features,
        is_video=is_video,
        is_newline=is_newline,
        positions=padded("positions", 0),
        bias=torch.where(visible, 0.0, MASKED)[:, None],
        answer_rows=pad([rows for rows, _, _ in answers], most, 0),
        answer_ids=pad([words for _, words, _ in answers], most, IGNORED),
        groups=pad([groups for _, _, groups in answers], most, IGNORED),
        targets=[_target(samples, name, width) for name in LOOKS],
        num_tokens=int(lengths.sum()),
    )


def _answers(sample: Sample) -> tuple[IntArray, IntArray, IntArray]:
    """Rows, what follows them, and the group of the question where that is the answer."""
    rows, words, groups = [], [], []
    for asked, row in zip(sample.asked, sample.rows, strict=True):
        rows += [row, row + 1]
        words += [*encode(asked.answer), EOS_ID]
        groups += [GROUPS.index(asked.group), IGNORED]
    return np.array(rows, np.int64), np.array(words, np.int64), np.array(groups, np.int64)


def _target(samples: Sequence[Sample], name: str, width: int) -> RowTarget:
    layer, heads, weight = LOOKS[name]
    most = max(1, *(len(sample.rows) for sample in samples))
    wanted = np.zeros((len(samples), most, width), dtype=np.float32)
    for index, sample in enumerate(samples):
        for number, asked in enumerate(sample.asked):
            wanted[index, number, _looked_at(sample, number, asked, name)] = 1.0
    rows = pad([np.array(sample.rows, np.int64) for sample in samples], most, 0)
    return RowTarget(layer, heads, False, weight, rows, torch.from_numpy(wanted))


def _looked_at(sample: Sample, number: int, asked: AskedQuestion, name: str) -> list[int]:
    if name == "named":
        return sample.named[number]
    if not asked.evidence:
        return [0]  # <bos>: nothing fits
    frames = sample.plan.frames
    return (np.flatnonzero(np.isin(frames, asked.evidence)) + 1).tolist()
