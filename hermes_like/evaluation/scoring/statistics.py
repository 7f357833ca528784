"""Averages over cells and their intervals by drawing whole videos again.

Questions about one video are not independent, so the video is what is drawn. Knows numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: From weights of the videos ``[draws, videos]`` to one figure per draw ``[draws]``.
Figure = Callable[[Array], Array]

RESAMPLES = 2000
SEED = 0
_CHUNK = 250
#: Of the normal distribution, two-sided 95 %.
_Z = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Cells:
    """Sums over the questions of each video in each row of a table.

    Attributes:
        names: Of the rows, ``[cells]``.
        sums: ``[videos, cells]`` scores.
        counts: ``[videos, cells]`` questions in the denominator.
    """

    names: tuple[str, ...]
    sums: Array
    counts: Array

    def means(self, weights: Array) -> Array:
        """``[draws, cells]``: mean of every cell, NaN where it is empty."""
        return _divide(weights @ self.sums, weights @ self.counts)

    def cell(self, index: int) -> Figure:
        """Mean of one cell."""
        part = Cells(
            (self.names[index],), self.sums[:, index : index + 1], self.counts[:, index : index + 1]
        )
        return part.micro

    def micro(self, weights: Array) -> Array:
        """Mean over all questions."""
        return _divide(weights @ self.sums.sum(axis=1), weights @ self.counts.sum(axis=1))

    def macro(self, weights: Array) -> Array:
        """Unweighted mean over the cells that hold questions."""
        return mean_over(self.means(weights))


def mean_over(values: Array) -> Array:
    """``[draws, n]`` to ``[draws]``: mean of those that are no NaN."""
    known = ~np.isnan(values)
    return _divide(np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1).astype(float))


def point(figure: Figure, num_videos: int) -> float | None:
    """The figure itself; None where it has no questions."""
    value = float(figure(np.ones((1, num_videos)))[0])
    return None if np.isnan(value) else value


def draws(num_videos: int, resamples: int = RESAMPLES, seed: int = SEED) -> Iterator[Array]:
    """How often each video is drawn: chunks of ``[draws, videos]``, the same for the same seed."""
    generator = np.random.default_rng(seed)
    even = np.full(num_videos, 1 / num_videos)
    for begin in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - begin)
        yield generator.multinomial(num_videos, even, size=size).astype(np.float64)


def intervals(
    figures: Sequence[Figure], num_videos: int, resamples: int = RESAMPLES, seed: int = SEED
) -> list[tuple[float, float] | None]:
    """95 % percentile intervals of several figures from the same draws.

    None where a single video leaves nothing to draw from, or a figure has no questions.
    """
    if num_videos < 2 or not figures:
        return [None] * len(figures)
    drawn = [
        [figure(weights) for figure in figures] for weights in draws(num_videos, resamples, seed)
    ]
    found: list[tuple[float, float] | None] = []
    for index in range(len(figures)):
        values = np.concatenate([chunk[index] for chunk in drawn])
        values = values[~np.isnan(values)]
        if not len(values):
            found.append(None)
            continue
        low, high = np.quantile(values, (0.025, 0.975))
        found.append((float(low), float(high)))
    return found


def wilson(share: float, num: int) -> tuple[float, float]:
    """Interval of a proportion; wide where a bootstrap of equal values would have no width."""
    centre = (share + _Z**2 / (2 * num)) / (1 + _Z**2 / num)
    spread = share * (1 - share) / num + _Z**2 / (4 * num**2)
    half = _Z * float(np.sqrt(spread)) / (1 + _Z**2 / num)
    return max(0.0, centre - half), min(1.0, centre + half)


def _divide(sums: Array, counts: Array) -> Array:
    result: Array = np.full(np.broadcast(sums, counts).shape, np.nan)
    np.divide(sums, counts, out=result, where=counts > 0)
    return result
