"""Where the decoder's video features come from: the symbolic code, or a bank of tower outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hermes_like.sprites.world import COLORS, SHAPES, Sprite
from pipelines.sprites_training.code import (
    CODE_DIM,
    CODE_NOISE,
    FACT_SCALE,
    PAIR_WEIGHT,
    frame_codes,
    tables,
)

FloatArray = npt.NDArray[np.float32]
Sprites = tuple[Sprite, ...]


class FeatureSource(Protocol):
    """Features of the tokens of a video, without any picture being drawn."""

    dim: int

    def tokens(
        self,
        frames: Sequence[Sprites],
        token_frames: npt.NDArray[np.int64],
        token_places: npt.NDArray[np.int64],
        rng: np.random.Generator,
    ) -> FloatArray:
        """Return ``[tokens, dim]`` float32.

        Args:
            frames: Sprites of each frame.
            token_frames: ``[tokens]``, frame of each token, ascending.
            token_places: ``[tokens]``, place of each token in its frame.
            rng: Source of noise, or of the choice among renderings.
        """
        ...


#: Share of videos in which one kind of sprite looks a little wrong.
CONFUSED_SHARE = 0.2


def confuse_pairs(
    features: FloatArray,
    frames: Sequence[Sprites],
    token_frames: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> None:
    """In some videos, bend the pair part of one kind's code towards another pair, in place.

    The tower does so with shape-colour pairs it never saw; the decoder should then still trust
    shape and colour on their own. Only frames with a single sprite are bent.
    """
    kinds = sorted({(s[0].shape, s[0].color) for s in frames if len(s) == 1})
    if not kinds or rng.random() >= CONFUSED_SHARE:
        return
    shape, color = kinds[int(rng.integers(len(kinds)))]
    pair = tables().pair
    row, column = SHAPES.index(shape), COLORS.index(color)
    other = pair[row, int(rng.integers(len(COLORS)))]
    if rng.random() < 0.5:
        other = pair[int(rng.integers(len(SHAPES))), column]
    bend = FACT_SCALE * PAIR_WEIGHT * float(rng.random()) * (other - pair[row, column])
    is_kind = [len(s) == 1 and (s[0].shape, s[0].color) == (shape, color) for s in frames]
    features[np.array(is_kind)[token_frames]] += bend


class CodeFeatures:
    """The code plus noise, half of it shared by the tokens of a frame."""

    dim = CODE_DIM

    def __init__(self, noise: float = CODE_NOISE) -> None:
        self.noise = noise

    def tokens(
        self,
        frames: Sequence[Sprites],
        token_frames: npt.NDArray[np.int64],
        token_places: npt.NDArray[np.int64],
        rng: np.random.Generator,
    ) -> FloatArray:
        """See :class:`FeatureSource`."""
        codes = frame_codes(frames)
        share = self.noise * np.sqrt(0.5)
        codes += share * rng.standard_normal((len(codes), 1, CODE_DIM), dtype=np.float32)
        own = rng.standard_normal((len(token_frames), CODE_DIM), dtype=np.float32)
        features: FloatArray = (codes[token_frames, token_places] + share * own).astype(np.float32)
        return features
