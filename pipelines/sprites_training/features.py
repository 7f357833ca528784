"""Where the decoder's video features come from: the symbolic code, or a bank of tower outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hermes_like.sprites.world import Sprite
from pipelines.sprites_training.code import CODE_DIM, CODE_NOISE, frame_code

FloatArray = npt.NDArray[np.float32]
Sprites = tuple[Sprite, ...]


class FeatureSource(Protocol):
    """Features of the tokens of a video, without any picture being drawn."""

    dim: int

    def tokens(
        self,
        frames: Sequence[Sprites],
        token_frames: npt.NDArray[np.int64],
        rng: np.random.Generator,
    ) -> FloatArray:
        """Return ``[tokens, dim]`` float32.

        Args:
            frames: Sprites of each frame.
            token_frames: ``[tokens]``, frame of each token, ascending.
            rng: Source of noise, or of the choice among renderings.
        """
        ...


class CodeFeatures:
    """The code plus noise, half of it shared by the tokens of a frame."""

    dim = CODE_DIM

    def __init__(self, noise: float = CODE_NOISE) -> None:
        self.noise = noise

    def tokens(
        self,
        frames: Sequence[Sprites],
        token_frames: npt.NDArray[np.int64],
        rng: np.random.Generator,
    ) -> FloatArray:
        """See :class:`FeatureSource`."""
        codes = np.stack([frame_code(sprites) for sprites in frames])
        share = self.noise * np.sqrt(0.5)
        codes += share * rng.standard_normal(codes.shape, dtype=np.float32)
        own = rng.standard_normal((len(token_frames), CODE_DIM), dtype=np.float32)
        features: FloatArray = (codes[token_frames] + share * own).astype(np.float32)
        return features
