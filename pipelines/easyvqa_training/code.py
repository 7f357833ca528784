"""The fixed feature code between the two halves of the easy-VQA model.

As in the sprites model: a picture is a sum of random vectors, one for its shape, one for its
colour and one for the pair. All four tokens of a frame carry the same sum, and the words that name
a shape or a colour begin as the same vectors.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from hermes_like.easyvqa.questions import COLORS, SHAPES

FloatArray = npt.NDArray[np.float32]

CODE_DIM = 128
CODE_SEED = 20_261_130
#: Scale of one fact, and of the pair against it.
FACT_SCALE = 0.25
PAIR_WEIGHT = 0.7


@cache
def _tables() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shapes ``[3, dim]``, colours ``[8, dim]``, pairs ``[3, 8, dim]``."""
    rng = np.random.default_rng(CODE_SEED)
    shape = rng.standard_normal((len(SHAPES), CODE_DIM)).astype(np.float32)
    color = rng.standard_normal((len(COLORS), CODE_DIM)).astype(np.float32)
    pair = rng.standard_normal((len(SHAPES), len(COLORS), CODE_DIM)).astype(np.float32)
    return shape, color, pair


@cache
def kind_codes() -> FloatArray:
    """The code of every kind of picture, ``[shapes, colors, dim]`` float32."""
    shape, color, pair = _tables()
    total = shape[:, None] + color[None] + PAIR_WEIGHT * pair
    codes: FloatArray = (FACT_SCALE * total).astype(np.float32)
    return codes


def word_codes() -> dict[str, FloatArray]:
    """Vectors that words share with pictures, ``[dim]`` float32 each."""
    shape, color, _ = _tables()
    rows = dict(zip((*SHAPES, *COLORS), (*shape, *color), strict=True))
    return {word: (FACT_SCALE * row).astype(np.float32) for word, row in rows.items()}
