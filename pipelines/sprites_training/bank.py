"""A bank of real tower features, looked up by what a frame shows.

Frames with one sprite have several renderings of every content. Frames with two have too many
contents: their features are the code plus the residual of a rendered frame with sprites in the
same zones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from hermes_like.sprites.world import Sprite
from pipelines.sprites_training.checkpoint import load_state, save_state
from pipelines.sprites_training.code import CODE_DIM, frame_code

FloatArray = npt.NDArray[np.float32]
Sprites = tuple[Sprite, ...]


class BankFeatures:
    """Features of rendered frames.

    Args:
        contents: What each rendered frame shows.
        features: ``[frames, 4, dim]`` float32, the tower's output.
    """

    dim = CODE_DIM

    def __init__(self, contents: Sequence[Sprites], features: FloatArray) -> None:
        self.features = features
        self._exact: dict[Sprites, list[int]] = defaultdict(list)
        self._residuals: dict[tuple[str, ...], list[FloatArray]] = defaultdict(list)
        for index, sprites in enumerate(contents):
            if len(sprites) < 2:
                self._exact[sprites].append(index)
            else:
                residual = features[index] - frame_code(sprites)
                self._residuals[_zones(sprites)].append(residual)

    @classmethod
    def load(cls, path: Path) -> BankFeatures:
        """Read a bank written by :func:`save_bank`."""
        state = load_state(path)
        contents = [tuple(Sprite(*fields) for fields in frame) for frame in state["contents"]]
        return cls(contents, state["features"].float().numpy())

    def tokens(
        self,
        frames: Sequence[Sprites],
        token_frames: npt.NDArray[np.int64],
        token_places: npt.NDArray[np.int64],
        rng: np.random.Generator,
    ) -> FloatArray:
        """See :class:`~pipelines.sprites_training.features.FeatureSource`."""
        whole = np.stack([self._frame(sprites, rng) for sprites in frames])
        tokens: FloatArray = whole[token_frames, token_places]
        return tokens

    def _frame(self, sprites: Sprites, rng: np.random.Generator) -> FloatArray:
        if len(sprites) < 2:
            renderings = self._exact[sprites]
            return self.features[renderings[int(rng.integers(len(renderings)))]]
        residuals = self._residuals[_zones(sprites)]
        chosen = residuals[int(rng.integers(len(residuals)))]
        feature: FloatArray = (frame_code(sprites) + chosen).astype(np.float32)
        return feature


def save_bank(path: Path, contents: Sequence[Sprites], features: FloatArray) -> None:
    """Write a bank, features in half precision."""
    fields = [[(s.shape, s.color, s.zone, s.digit) for s in sprites] for sprites in contents]
    save_state(path, {"contents": fields, "features": torch.from_numpy(features).half()})


def _zones(sprites: Sprites) -> tuple[str, ...]:
    return tuple(sorted(sprite.zone for sprite in sprites))
