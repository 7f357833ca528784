"""Samples padded into tensors, and who may see whom.

A token sees itself and what came before it, if that belongs to the video or to the same dialogue
and was not evicted before the token's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hermes_like.sprites.tokenizer import PAD_ID
from pipelines.sprites_training.features import FeatureSource, confuse_pairs
from pipelines.sprites_training.network import MASKED, RowTarget
from pipelines.sprites_training.samples import IGNORED, SIDE_HEADS, Sample

#: Name -> (layer, heads, whether the weights are a distribution, weight).
TARGETS: dict[str, tuple[int, tuple[int, ...], bool, float]] = {
    "before": (1, (0, 1), True, 0.3),
    "slots": (2, (0, 1), False, 0.5),
    "previous": (2, (2, 3), False, 1.5),
    "same_shape": (3, (0, 1), True, 1.5),
    "same_color": (3, (2, 3), True, 1.5),
    "first": (4, (0, 1), False, 1.0),
    "count": (5, (0, 1), True, 2.0),
    "second_early": (5, (2, 3), False, 0.5),
    "second": (6, (0, 1), False, 1.0),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of several samples; shapes start with ``[batch, tokens]`` unless said otherwise.

    Attributes:
        ids: int64 token ids.
        features: ``[batch, tokens, hidden]`` float32, filled where ``is_video``.
        is_video: Tokens that carry features.
        is_newline: Tokens that carry the newline vector.
        positions: int64.
        bias: ``[batch, 1, tokens, tokens]`` float32 for attention.
        answer_rows: ``[batch, answers]`` int64, padded with 0.
        answer_ids: ``[batch, answers]`` int64, padded with ``IGNORED``.
        answer_questions: ``[batch, answers]`` int64, number of the question within the batch.
        question_types: ``[questions]`` int64 of the whole batch.
        targets: Attention targets.
        side: Labels of the side heads.
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
    answer_questions: Tensor
    question_types: Tensor
    targets: list[RowTarget]
    side: dict[str, Tensor]
    num_tokens: int


def visibility(times: Tensor, evict_times: Tensor, dialogues: Tensor, lengths: Tensor) -> Tensor:
    """Return who sees whom, ``[batch, tokens, tokens]`` bool.

    Args:
        times: ``[batch, tokens]`` int64, frame time of each token.
        evict_times: ``[batch, tokens]`` int64, first time that no longer sees the token.
        dialogues: ``[batch, tokens]`` int64, 0 for the video.
        lengths: ``[batch]`` int64; padding behind sees only itself.
    """
    index = torch.arange(times.shape[1])
    causal = index[:, None] >= index[None, :]
    not_evicted = evict_times[:, None, :] > times[:, :, None]
    own = (dialogues[:, None, :] == 0) | (dialogues[:, None, :] == dialogues[:, :, None])
    is_real = (index[None, :] < lengths[:, None])[:, None, :]
    visible = causal & not_evicted & own & is_real
    return visible | (index[:, None] == index[None, :])


def collate(
    samples: Sequence[Sample],
    source: FeatureSource,
    rng: np.random.Generator,
    *,
    is_training: bool = False,
) -> Batch:
    """Pad samples into one batch and look up the features of their frames.

    Args:
        samples: What to pad.
        source: Where features come from.
        rng: Source of noise and of the choice among renderings.
        is_training: Whether some sprites are made to look a little wrong.
    """
    lengths = torch.tensor([len(sample.ids) for sample in samples])
    width = int(lengths.max())

    def padded(name: str, fill: int) -> Tensor:
        return pad([getattr(sample, name) for sample in samples], width, fill)

    ids = padded("ids", PAD_ID)
    times, evict_times = padded("times", 0), padded("evict_times", 0)
    visible = visibility(times, evict_times, padded("dialogues", 0), lengths)
    features = torch.zeros(*ids.shape, source.dim)
    is_video = torch.zeros(ids.shape, dtype=torch.bool)
    is_newline = torch.zeros(ids.shape, dtype=torch.bool)
    for row, sample in enumerate(samples):
        frames = list(sample.story.frames())
        tokens = source.tokens(frames, sample.frames, sample.places, rng)
        if is_training:
            confuse_pairs(tokens, frames, sample.frames, rng)
        features[row, 1 : 1 + len(tokens)] = torch.from_numpy(tokens)
        is_video[row, 1 : 1 + len(tokens)] = True
        is_newline[row, sample.num_video - 1] = sample.has_newline
    offsets = np.cumsum([0, *(len(sample.question_types) for sample in samples)])
    answers = max(len(sample.answer_rows) for sample in samples)
    return Batch(
        ids=ids,
        features=features,
        is_video=is_video,
        is_newline=is_newline,
        positions=padded("positions", 0),
        bias=torch.where(visible, 0.0, MASKED)[:, None],
        answer_rows=pad([sample.answer_rows for sample in samples], answers, 0),
        answer_ids=pad([sample.answer_ids for sample in samples], answers, IGNORED),
        answer_questions=pad(
            [s.answer_questions + o for s, o in zip(samples, offsets, strict=False)], answers, 0
        ),
        question_types=torch.from_numpy(np.concatenate([s.question_types for s in samples])),
        targets=[_row_target(samples, name, width) for name in TARGETS],
        side={name: pad([s.side[name] for s in samples], width, IGNORED) for name in SIDE_HEADS},
        num_tokens=int(lengths.sum()),
    )


def _row_target(samples: Sequence[Sample], name: str, width: int) -> RowTarget:
    layer, heads, is_exact, weight = TARGETS[name]
    source = name.removesuffix("_early")
    targets = [sample.targets[source] for sample in samples]
    count = max(1, max(len(target.rows) for target in targets))
    rows = np.zeros((len(samples), count), dtype=np.int64)
    wanted = np.zeros((len(samples), count, width), dtype=np.float32)
    for index, target in enumerate(targets):
        rows[index, : len(target.rows)] = target.rows
        wanted[index, : len(target.rows), : target.wanted.shape[1]] = target.wanted
    return RowTarget(
        layer, heads, is_exact, weight, torch.from_numpy(rows), torch.from_numpy(wanted)
    )


def pad(arrays: Sequence[npt.NDArray[np.int64]], width: int, fill: int) -> Tensor:
    """Stack arrays ``[n_i]`` of different length into int64 ``[arrays, width]``."""
    out = np.full((len(arrays), width), fill, dtype=np.int64)
    for row, array in enumerate(arrays):
        out[row, : len(array)] = array
    return torch.from_numpy(out)
