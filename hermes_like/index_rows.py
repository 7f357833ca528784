"""The rows of the index of the past: their ids, and which frame and time each stands for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from hermes_like.tiers.base import SegmentHead

IntArray = npt.NDArray[np.int64]
DoubleArray = npt.NDArray[np.float64]

#: An id is ``segment << 22 | frame in segment << 10 | row in frame``: 63 bits, ascending in time.
FRAME_SHIFT, SEGMENT_SHIFT = 10, 22
MAX_ROWS_PER_FRAME = 1 << FRAME_SHIFT
_MAX_FRAMES = 1 << (SEGMENT_SHIFT - FRAME_SHIFT)
_MAX_SEGMENTS = 1 << (63 - SEGMENT_SHIFT)


def row_ids(heads: Sequence[SegmentHead]) -> IntArray:
    """Ids of the rows of some segments, one segment after the other, int64 ``[rows]``."""
    rows = np.array([head.vectors.shape[0] for head in heads], np.int64)
    frames = np.array([len(head.frame_times_s) for head in heads], np.int64)
    segments = np.array([head.segment_id for head in heads], np.int64)
    per_frame = np.repeat(rows // frames, rows)
    places = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    ids: IntArray = np.repeat(segments << SEGMENT_SHIFT, rows)
    ids |= (places // per_frame) << FRAME_SHIFT | places % per_frame
    return ids


def check_heads(heads: Sequence[SegmentHead], num_heads: int, head_dim: int) -> None:
    """Refuse segments that no index of this shape can hold.

    Raises:
        ValueError: One is there twice, its vectors have another shape or are not finite, or its
            numbers do not fit into an id.
    """
    seen: set[int] = set()
    kinds: dict[tuple[tuple[int, ...], int], SegmentHead] = {}
    for head in heads:
        if head.segment_id in seen:
            raise ValueError(f"segment {head.segment_id}: expected once, it is there already")
        if not 0 <= head.segment_id < _MAX_SEGMENTS:
            raise ValueError(f"segment {head.segment_id}: expected an id below {_MAX_SEGMENTS}")
        seen.add(head.segment_id)
        kinds.setdefault((head.vectors.shape, len(head.frame_times_s)), head)
    for head in kinds.values():  # all segments of a stream are of one or two shapes
        name = f"segment {head.segment_id}"
        if head.vectors.ndim != 3 or head.vectors.shape[1:] != (num_heads, head_dim):
            raise ValueError(
                f"{name}: expected vectors [rows, {num_heads}, {head_dim}], "
                f"got {list(head.vectors.shape)}"
            )
        num_rows = head.vectors.shape[0]
        if not num_rows or not head.num_frames or num_rows % head.num_frames:
            raise ValueError(
                f"{name}: expected the same number of vectors for each of {head.num_frames} "
                f"frames, got {num_rows}"
            )
        if head.num_frames > _MAX_FRAMES or num_rows // head.num_frames > MAX_ROWS_PER_FRAME:
            raise ValueError(
                f"{name}: expected at most {_MAX_FRAMES} frames and {MAX_ROWS_PER_FRAME} vectors "
                "per frame"
            )


def check_finite(sums: DoubleArray, heads: Sequence[SegmentHead]) -> None:
    """Refuse vectors that are not numbers; by their sum, which is needed anyway, since opening a
    day of stream waits for it: no sum is finite of which a part is not.

    Raises:
        ValueError: The message names the segment.
    """
    if not np.isfinite(sums).all():
        wrong = next(head for head in heads if not np.isfinite(head.vectors).all())
        raise ValueError(f"segment {wrong.segment_id}: expected finite vectors")


class RowTable:
    """What each row of the index is; arrays grow by doubling."""

    def __init__(self) -> None:
        self._length = 0
        self._ids: IntArray = np.zeros(0, np.int64)
        self._frames: IntArray = np.zeros(0, np.int64)
        self._starts_s: DoubleArray = np.zeros(0)
        self._ends_s: DoubleArray = np.zeros(0)

    def __len__(self) -> int:
        return self._length

    @property
    def ids(self) -> IntArray:
        """Id of each row."""
        return self._ids[: self._length]

    @property
    def frames(self) -> IntArray:
        """Running number of the frame of each row."""
        return self._frames[: self._length]

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays, spare room included."""
        return sum(
            array.nbytes for array in (self._ids, self._frames, self._starts_s, self._ends_s)
        )

    def add(self, heads: Sequence[SegmentHead], ids: IntArray) -> None:
        """Append the rows of some segments; ``ids`` are those of all of them."""
        start, end = self._length, self._length + ids.shape[0]
        if end > self._ids.shape[0]:
            self._resize(max(end, 2 * self._ids.shape[0]))
        frames = np.array([len(head.frame_times_s) for head in heads])
        per_frame = np.array([head.vectors.shape[0] for head in heads]) // frames
        repeats = np.repeat(per_frame, frames)
        offsets = np.arange(frames.sum()) - np.repeat(np.cumsum(frames) - frames, frames)
        firsts = np.array([head.first_frame for head in heads])
        times = [*chain.from_iterable(head.frame_times_s for head in heads), 0.0]
        ends = np.array(times[1:])
        ends[np.cumsum(frames) - 1] = [head.end_s for head in heads]
        self._ids[start:end] = ids
        self._frames[start:end] = np.repeat(np.repeat(firsts, frames) + offsets, repeats)
        self._starts_s[start:end] = np.repeat(np.array(times[:-1]), repeats)
        self._ends_s[start:end] = np.repeat(ends, repeats)
        self._length = end

    def _resize(self, capacity: int) -> None:
        for name in ("_ids", "_frames", "_starts_s", "_ends_s"):
            old = getattr(self, name)
            new = np.zeros(capacity, old.dtype)
            new[: self._length] = old[: self._length]
            setattr(self, name, new)

    def keep(self, is_kept: npt.NDArray[np.bool_]) -> None:
        """Drop the other rows; the order of the rest stays, as it does in faiss."""
        rows = np.flatnonzero(is_kept)
        for array in (self._ids, self._frames, self._starts_s, self._ends_s):
            array[: rows.shape[0]] = array[rows]
            array[rows.shape[0] :] = 0
        self._length = rows.shape[0]

    def select(
        self,
        start_s: float | None,
        end_s: float | None,
        exclude: Collection[int],
        only: Collection[int] | None,
    ) -> IntArray:
        """Rows in a range of stream time, less those of excluded or unwanted frames."""
        chosen = np.ones(self._length, np.bool_)
        if start_s is not None:
            chosen &= self._ends_s[: self._length] > start_s
        if end_s is not None:
            chosen &= self._starts_s[: self._length] < end_s
        if exclude:
            chosen &= ~np.isin(self.frames, list(exclude))
        if only is not None:
            chosen &= np.isin(self.frames, list(only))
        return np.flatnonzero(chosen)
