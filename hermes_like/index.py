"""The vectors of the past, searchable: one small flat faiss index per retrieval head.

The index is a cache of the segment heads and is built from them. It knows no torch, no models and
no tiers. Scoring is exact and reads every row in range: a frame's score is a sum over heads of
maxima over question tokens, and the best rows of a sum are not found from the best rows of its
parts. A full scan is also the quickest way while the index is flat.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import faiss
import numpy as np
import numpy.typing as npt

from hermes_like.index_rows import (
    MAX_ROWS_PER_FRAME,
    SEGMENT_SHIFT,
    RowTable,
    check_finite,
    check_heads,
    row_ids,
)

if TYPE_CHECKING:
    from hermes_like.tiers.base import SegmentHead

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
DoubleArray = npt.NDArray[np.float64]

# Two pools of OpenMP threads beside torch's own only wait for each other.
faiss.omp_set_num_threads(1)

#: Rows scored at a time, so that a day of video needs no large temporary array.
_CHUNK_ROWS = 1 << 15
#: Segments copied at a time, so that those of a day pass through the processor's cache.
_CHUNK_SEGMENTS = 256
#: Multiplications of a product that OpenBLAS leaves to one core.
ONE_CORE_PRODUCT = 1 << 18
#: A product of fewer multiplications is cut into such parts. Shared among cores it is hardly
#: quicker where nothing else runs, and beside one busy process every share waits for its turn: the
#: search took three times as long, and beside a long job of lower priority ten times and more
#: (``python -m pipelines.search_speed``).
SHARED_PRODUCT = 1 << 27
_NONE_FOUND: IntArray = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Scorer:
    """A question as the index scores it.

    The score of a row is the sum over heads of ``max_t(weights[t] . key + offsets[t])``.

    Attributes:
        weights: float32 ``[tokens, heads, head_dim]``.
        offsets: float32 ``[tokens, heads]``.
    """

    weights: FloatArray
    offsets: FloatArray

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """Score rows ``[rows, heads, head_dim]``; returns float32 ``[rows]``."""
        total = np.zeros(vectors.shape[0], np.float32)
        for head in range(self.weights.shape[1]):
            total += self.head(head, vectors[:, head])
        return total

    def head(self, head: int, keys: FloatArray) -> FloatArray:
        """Scores of one head for ``[rows, head_dim]``; returns float32 ``[rows]``."""
        weights = np.ascontiguousarray(self.weights[:, head])
        per_part = max(1, ONE_CORE_PRODUCT // max(1, weights.size))
        if weights.size * keys.shape[0] >= SHARED_PRODUCT:
            per_part = max(1, keys.shape[0])
        best = np.empty(keys.shape[0], np.float32)
        whole = keys.shape[0] // per_part * per_part
        for part in (slice(0, whole), slice(whole, None)):
            rows = keys[part]
            if rows.shape[0]:
                parts = rows.reshape(-1, min(per_part, rows.shape[0]), rows.shape[1])
                scores: FloatArray = weights @ parts.transpose(0, 2, 1)
                scores += self.offsets[:, head, None]
                best[part] = scores.max(axis=1).reshape(-1)
        return best


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Frames and their scores, best first; each frame once, with its best row.

    Attributes:
        segments: int64 ``[frames]``.
        frames: int64 ``[frames]`` running numbers in the stream.
        scores: float32 ``[frames]``.
    """

    segments: IntArray
    frames: IntArray
    scores: FloatArray

    def __len__(self) -> int:
        return int(self.frames.shape[0])


class SegmentIndex:
    """Exact search over the vectors of one stream. Calls may come from several threads.

    Args:
        num_heads: Retrieval heads, in the order of ``SegmentHead.vectors``.
        head_dim: Channels per head.

    Example:
        >>> index = SegmentIndex.build(tier.heads(), num_heads=2, head_dim=32)
        >>> index.top(scorer, 8, start_s=0.0, end_s=3600.0).frames
    """

    def __init__(self, num_heads: int, head_dim: int) -> None:
        if num_heads < 0 or head_dim < 1:
            raise ValueError(
                f"expected 0 or more heads of 1 or more channels, got {num_heads} of {head_dim}"
            )
        self.num_heads, self.head_dim = num_heads, head_dim
        self._lock = threading.RLock()
        # Rows are known by their place, which they have in common with the table of rows.
        self._indexes = [faiss.IndexFlatIP(head_dim) for _ in range(num_heads)]
        self._rows = RowTable()
        self._segments: dict[int, int] = {}
        self._sums: DoubleArray = np.zeros((num_heads, head_dim))
        self._capacity = 0

    @classmethod
    def build(cls, heads: Iterable[SegmentHead], *, num_heads: int, head_dim: int) -> SegmentIndex:
        """An index over these segments, added in the order of their ids."""
        index = cls(num_heads, head_dim)
        index.add_all(sorted(heads, key=lambda head: head.segment_id))
        return index

    # -- what is in it ---------------------------------------------------------------------------

    def __len__(self) -> int:
        """Frames in the index."""
        with self._lock:
            return sum(self._segments.values())

    def __contains__(self, segment_id: object) -> bool:
        with self._lock:
            return segment_id in self._segments

    @property
    def num_rows(self) -> int:
        """Vectors per head."""
        with self._lock:
            return len(self._rows)

    @property
    def num_bytes(self) -> int:
        """Bytes taken, spare room that growing has left included."""
        with self._lock:
            vectors = self.num_heads * self._capacity * 4 * self.head_dim
            return vectors + self._rows.num_bytes + self._sums.nbytes

    def mean(self) -> DoubleArray:
        """Mean of all rows, ``[heads, head_dim]``; zeros where there are none."""
        with self._lock:
            return self._sums / max(1, len(self._rows))

    def sample(self, count: int) -> FloatArray:
        """At most ``count`` rows, evenly spread over the stream, ``[rows, heads, head_dim]``."""
        with self._lock:
            num_rows = len(self._rows)
            rows = np.linspace(0, num_rows - 1, min(count, num_rows)).round().astype(np.int64)
            parts = [self._keys(number)[rows] for number in range(self.num_heads)]
        if not parts:
            return np.zeros((rows.shape[0], 0, self.head_dim), np.float32)
        return np.stack(parts, axis=1)

    # -- writing ---------------------------------------------------------------------------------

    def add(self, head: SegmentHead) -> None:
        """Make a segment findable. Raises like :meth:`add_all`."""
        self.add_all([head])

    def add_all(self, heads: Sequence[SegmentHead]) -> None:
        """Make segments findable; all of them, or none where an error is raised.

        Raises:
            ValueError: A segment is there already, or its vectors do not fit the index.
        """
        if not heads or not self.num_heads:
            return
        with self._lock:
            for head in heads:
                if head.segment_id in self._segments:
                    raise ValueError(f"segment {head.segment_id}: it is in the index already")
            check_heads(heads, self.num_heads, self.head_dim)
            sums, ids = _sums(heads), row_ids(heads)
            check_finite(sums, heads)
            # One array for all retrieval heads: most of the time goes into fresh pages of memory.
            keys = np.empty((ids.shape[0], self.head_dim), np.float32)
            for number, index in enumerate(self._indexes):
                np.concatenate([head.vectors[:, number] for head in heads], out=keys)
                index.add(keys)
            for head in heads:
                self._segments[head.segment_id] = head.num_frames
            self._rows.add(heads, ids)
            self._sums += sums
            if len(self._rows) > self._capacity:  # how std::vector grows
                self._capacity = max(2 * (len(self._rows) - len(ids)), len(self._rows))

    def remove(self, segment_ids: Collection[int]) -> None:
        """Take segments out, vectors and all. Unknown ids are ignored."""
        with self._lock:
            known = [segment for segment in set(segment_ids) if segment in self._segments]
            if not known:
                return
            is_gone = np.isin(self._rows.ids >> SEGMENT_SHIFT, known)
            rows = np.flatnonzero(is_gone)
            for number, index in enumerate(self._indexes):
                gone = self._keys(number)[rows]
                self._sums[number] -= gone.sum(axis=0, dtype=np.float64)
                removed = index.remove_ids(faiss.IDSelectorBatch(rows))
                assert removed == len(rows), "the index and its table of rows do not agree"
            self._rows.keep(~is_gone)
            for segment in known:
                del self._segments[segment]
            if not self._segments:  # no rounding of what was removed stays behind
                self._sums[:] = 0.0

    # -- reading ---------------------------------------------------------------------------------

    def _keys(self, head: int) -> FloatArray:
        """The rows of a head, ``[rows, head_dim]``: faiss's own storage, valid under the lock."""
        index = self._indexes[head]
        if not index.ntotal:
            return np.zeros((0, self.head_dim), np.float32)
        view: FloatArray = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * self.head_dim)
        return view.reshape(-1, self.head_dim)

    def top(
        self,
        scorer: Scorer,
        count: int | None = None,
        *,
        start_s: float | None = None,
        end_s: float | None = None,
        exclude: Collection[int] = (),
        only: Collection[int] | None = None,
    ) -> Ranking:
        """The frames that fit best.

        Args:
            scorer: The question.
            count: Most frames; None: all.
            start_s: Frames that end before or at this stream time are not scored.
            end_s: Frames that start at or after this stream time are not scored.
            exclude: Running numbers of frames that are not scored.
            only: Running numbers of frames that are scored, if known; None: all.

        Returns:
            Frames by descending score; the earlier first where scores are equal.
        """
        with self._lock:
            rows = self._rows.select(start_s, end_s, exclude, only)
            scores = self._scores(scorer, rows).sum(axis=0)
            frames, ids = self._rows.frames[rows], self._rows.ids[rows]
        return _ranking(scores, frames, ids, count)

    def top_of_each(
        self,
        scorer: Scorer,
        count: int,
        *,
        start_s: float | None = None,
        end_s: float | None = None,
        exclude: Collection[int] = (),
    ) -> tuple[list[Ranking], float | None]:
        """The frames that fit best by each head on its own; the arguments are those of :meth:`top`.

        Returns:
            One ranking per head, and the best score of any frame over all heads together; None
            where no frame is in range.
        """
        with self._lock:
            rows = self._rows.select(start_s, end_s, exclude, None)
            scores = self._scores(scorer, rows)
            frames, ids = self._rows.frames[rows], self._rows.ids[rows]
        best = float(scores.sum(axis=0).max()) if rows.shape[0] else None
        return [_ranking(of_head, frames, ids, count) for of_head in scores], best

    def _scores(self, scorer: Scorer, rows: IntArray) -> FloatArray:
        """Scores of some rows by head, ``[heads, rows]``, chunk by chunk."""
        scores = np.zeros((self.num_heads, rows.shape[0]), np.float32)
        for head in range(self.num_heads):
            keys = self._keys(head)
            for start in range(0, rows.shape[0], _CHUNK_ROWS):
                part = rows[start : start + _CHUNK_ROWS]
                is_run = part[-1] - part[0] + 1 == part.shape[0]
                chosen = keys[part[0] : part[-1] + 1] if is_run else keys[part]
                scores[head, start : start + _CHUNK_ROWS] = scorer.head(head, chosen)
        return scores


def _sums(heads: Sequence[SegmentHead]) -> DoubleArray:
    """Sums over the vectors of all segments, ``[heads, head_dim]``."""
    total: DoubleArray = np.zeros(heads[0].vectors.shape[1:])
    for first in range(0, len(heads), _CHUNK_SEGMENTS):
        part = np.concatenate([head.vectors for head in heads[first : first + _CHUNK_SEGMENTS]])
        total += part.sum(axis=0, dtype=np.float64)
    return total


def _ranking(scores: FloatArray, frames: IntArray, ids: IntArray, count: int | None) -> Ranking:
    """Frames by the best of their rows, best first."""
    if count is not None:
        rows_per_frame = 1 + int((ids & (MAX_ROWS_PER_FRAME - 1)).max(initial=0))
        ranked = _best(scores, count * rows_per_frame)
    else:
        ranked = np.argsort(-scores, kind="stable")
    _, first = np.unique(frames[ranked], return_index=True)
    ranked = ranked[np.sort(first)][:count]
    return Ranking(ids[ranked] >> SEGMENT_SHIFT, frames[ranked], scores[ranked])


def _best(scores: FloatArray, count: int) -> IntArray:
    """Indices of the greatest scores, best first, the earlier first where they are equal."""
    if count >= scores.shape[0]:
        everything: IntArray = np.argsort(-scores, kind="stable")
        return everything
    if count < 1:
        return _NONE_FOUND
    bound = np.partition(scores, -count)[-count]
    chosen: IntArray = np.flatnonzero(scores >= bound)
    order = np.argsort(-scores[chosen], kind="stable")
    return chosen[order]
