"""The seam of everything that holds segments off the device, and what a segment is there.

Bytes only: a tier knows neither torch nor codecs nor models. A segment is put once, encoded once,
and moved as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from hermes_like.records import Tier as TierName

FloatArray = npt.NDArray[np.float32]


class Outline(Protocol):
    """Which segment, and when: what a table of a whole day keeps of every one of them."""

    @property
    def segment_id(self) -> int:
        """Running number in its stream."""

    @property
    def start_s(self) -> float:
        """Stream time of its first frame."""

    @property
    def end_s(self) -> float:
        """Stream time at which its last frame gives way to the next one."""

    @property
    def is_whole(self) -> bool:
        """Whether every token of it is stored; thinning leaves some out."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentHead:
    """What is known of a segment without its keys and values.

    A few kilobytes, most of them vectors. Tiers in RAM keep it with the segment; a tier on a medium
    keeps the :class:`Outline` and reads the rest when it is asked for.

    Attributes:
        segment_id: Running number in its stream, from 0.
        first_frame: Running number of its first frame in the stream.
        frame_times_s: Stream time of each frame, in seconds, ascending.
        end_s: Stream time at which its last frame gives way to the next one.
        frame_walls_s: Wall time of each frame as seconds since 1970 UTC; None where unknown.
        tokens_per_frame: Vision tokens of a whole frame.
        token_cells: uint32 ``[tokens]``, ascending: which tokens are stored, each as
            ``frame_in_segment * tokens_per_frame + cell``; thinning leaves some out.
        vectors: float32 ``[frames * groups, heads, head_dim]``, frame-major, what the index
            searches: the mean un-rotated key of each group of tokens of a frame at each retrieval
            head; ``[frames, 0, 0]`` without retrieval heads.
        content_key: 16 bytes or more: hash of the frames' pixels, chained over the stream.
        is_approximate: Whether the keys and values were re-encoded from keyframes.
    """

    segment_id: int
    first_frame: int
    frame_times_s: tuple[float, ...]
    end_s: float
    frame_walls_s: tuple[float | None, ...]
    tokens_per_frame: int
    token_cells: npt.NDArray[np.uint32]
    vectors: FloatArray
    content_key: bytes
    is_approximate: bool = False

    @property
    def start_s(self) -> float:
        """Stream time of the first frame."""
        return self.frame_times_s[0]

    @property
    def num_frames(self) -> int:
        """Frames of the segment."""
        return len(self.frame_times_s)

    @property
    def is_whole(self) -> bool:
        """Whether every token of the segment is stored."""
        return len(self.token_cells) == self.num_frames * self.tokens_per_frame


@dataclass(frozen=True, slots=True, eq=False)
class SegmentRecord:
    """One segment with its keys and values, as bytes.

    Attributes:
        head: What the segment is.
        layers: One block per decoder layer, as a codec made it. Read-only.
    """

    head: SegmentHead
    layers: tuple[bytes | memoryview, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of the blocks and of the vectors."""
        return sum(len(layer) for layer in self.layers) + self.head.vectors.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Keyframe:
    """One picture of a segment.

    Attributes:
        frame: Running number of the frame in the stream.
        data: A JPEG or WebP file.
    """

    frame: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True, eq=False)
class KeyframeRecord:
    """The pictures of a segment, with all that is needed to find it and encode it again."""

    head: SegmentHead
    images: tuple[Keyframe, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of the pictures and of the vectors."""
        return sum(len(image.data) for image in self.images) + self.head.vectors.nbytes


class KeyframeStore(ABC):
    """Holds the pictures of segments under a byte cap of their own, with what finds them again.

    The same contract as :class:`Tier`, for :class:`KeyframeRecord`.
    """

    cap_bytes: int

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Bytes taken now, overhead included."""

    @abstractmethod
    def put(self, record: KeyframeRecord) -> None:
        """Store the pictures of a segment. Raises like :meth:`Tier.put`."""

    @abstractmethod
    def get(self, segment_id: int) -> KeyframeRecord:
        """Return the pictures of a segment, verified. Raises like :meth:`Tier.get`."""

    @property
    def table_bytes(self) -> int:
        """See :attr:`Tier.table_bytes`."""
        return 0

    @abstractmethod
    def outlines(self) -> Sequence[Outline]:
        """Which segments have pictures, by id; see :meth:`Tier.outlines`."""

    @abstractmethod
    def heads(self) -> Sequence[SegmentHead]:
        """Heads of the segments with pictures, by segment id; see :meth:`Tier.heads`."""

    @abstractmethod
    def remove(self, segment_ids: Collection[int]) -> None:
        """Erase the pictures and heads of segments."""

    @abstractmethod
    def evict(self, num_bytes: int) -> Sequence[int]:
        """Drop the oldest until ``num_bytes`` more fit; returns their ids."""

    @abstractmethod
    def __contains__(self, segment_id: object) -> bool: ...


class Tier(ABC):
    """Holds segments under a byte cap.

    Contract, held by ``tests/tiers/test_contract.py`` for every tier: ``used_bytes`` never passes
    ``cap_bytes``, at no moment; what ``get`` returns is bit for bit what was put, or it raises; a
    segment that was removed cannot be got. Calls may come from several threads.

    Attributes:
        name: Which medium this is.
    """

    name: ClassVar[TierName]
    cap_bytes: int

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Bytes taken now, overhead included."""

    @abstractmethod
    def put(self, record: SegmentRecord) -> None:
        """Store a segment; when the call returns, the segment is there or the call raised.

        Raises:
            TierFullError: No room. The caller decides what goes (:meth:`remove`) and tries again.
            StorageError: The medium failed; nothing that was stored before is lost.
        """

    def rewrite(self, record: SegmentRecord) -> None:
        """Store a smaller form of a segment that is there, in its place.

        At no moment is there none of the two, and the cap holds while there are both.

        Raises:
            TierFullError: No room for the smaller one beside the larger one, which stays.
            StorageError: The medium failed; the larger one stays.
        """
        self.put(record)

    @abstractmethod
    def get(self, segment_id: int) -> SegmentRecord:
        """Return a segment, verified.

        Raises:
            SegmentUnavailableError: It is not there or cannot be trusted; never wrong bytes.
        """

    @property
    def table_bytes(self) -> int:
        """RAM that the tier takes to know where its segments are, about; 0 for a tier in RAM, which
        counts that with its segments.
        """
        return 0

    @abstractmethod
    def outlines(self) -> Sequence[Outline]:
        """Which segments are stored, by id. Never waits for a medium."""

    @abstractmethod
    def heads(self) -> Sequence[SegmentHead]:
        """Heads of the stored segments, by segment id.

        May read each of them from the medium. One that cannot be read is left out; :meth:`get`
        finds out why.
        """

    @abstractmethod
    def remove(self, segment_ids: Collection[int]) -> None:
        """Erase segments: afterwards neither bytes nor vectors of them can be found in the tier.

        Unknown ids are ignored. May be slow: files that hold an erased segment are written to.
        """

    @abstractmethod
    def evict(self, num_bytes: int) -> Sequence[int]:
        """Drop the oldest segments until ``num_bytes`` more fit, the cheap way; returns their ids.

        A tier may drop more than asked for (whole volumes), and nothing where it is empty.
        """

    @abstractmethod
    def __contains__(self, segment_id: object) -> bool: ...

    def flush(self) -> None:  # noqa: B027  (RAM has nothing to flush)
        """Bring everything that was put to the medium."""

    def close(self) -> None:  # noqa: B027
        """Flush and let go of files, threads and buffers. Safe to call twice."""

    def check(self) -> None:
        """Prove the accounting; for tests.

        Raises:
            AssertionError: The message names the invariant.
        """
        assert self.used_bytes <= self.cap_bytes, f"{self.name}: cap passed"
