"""Vision tokens that are computed once and read by many sessions, through their ordinary door.

This module knows neither stories nor questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hermes_like.records import Frame, Image


class Replay:
    """A model whose vision tokens were computed before: the same numbers for many sessions.

    A picture given to it is a :func:`numbered` one: it only says which frame it is.

    Args:
        model: The model that answers everything else.
        tokens: ``[frames, tokens_per_frame, hidden]``; frame numbers are taken modulo ``frames``.
    """

    def __init__(self, model: object, tokens: Tensor) -> None:
        self._model, self._tokens = model, tokens

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def embed_frames(self, images: Sequence[Image]) -> Tensor:
        """Look the vision tokens up."""
        numbers = [int.from_bytes(image.tobytes(), "big") for image in images]
        with torch.inference_mode():
            return self._tokens[torch.tensor(numbers) % self._tokens.shape[0]]


def numbered(index: int) -> Frame:
    """A frame for :class:`Replay`, one per second: its single pixel spells its number."""
    pixel = np.frombuffer(index.to_bytes(3, "big"), dtype=np.uint8)
    return Frame(pixel.reshape(1, 1, 3), index, float(index))
