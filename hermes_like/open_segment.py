"""The segment that is being filled: frames that wait for prefill, pictures that will be kept.

Knows frames, vision tokens and the numbering of segments; nothing of tiers, answers or sessions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from torch import Tensor

from hermes_like import vision
from hermes_like.memory.devices import wait_for
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.segment import Segment
from hermes_like.models.base import ModelAdapter
from hermes_like.records import Frame, Image


class OpenSegment:
    """What belongs to the current segment and is not part of any memory yet.

    Args:
        model: Makes vision tokens of frames that came without.
        segment_frames: Frames of a whole segment.
        kept_offsets: Frames of which a picture is kept, by their place in the segment.
        keeps_embeddings: Whether vision tokens are kept up to the end of the segment.

    Attributes:
        frames: Taken in and not prefilled yet.
        images: Pictures that will be kept, by place in the segment.
        embeddings: Vision tokens of prefilled frames, ``[frames, tokens_per_frame, hidden]`` in
            pieces.
        vision_s: Seconds spent on vision tokens.
    """

    def __init__(
        self,
        model: ModelAdapter,
        segment_frames: int,
        kept_offsets: Collection[int],
        *,
        keeps_embeddings: bool,
    ) -> None:
        self._model, self._segment_frames = model, segment_frames
        self._kept_offsets, self._keeps_embeddings = frozenset(kept_offsets), keeps_embeddings
        self.frames: list[Frame] = []
        self.images: dict[int, Image] = {}
        self.embeddings: list[Tensor] = []
        self.vision_s = 0.0
        self._tokens: list[Tensor | None] = []

    def add(self, frame: Frame, tokens: Tensor | None, num_frames: int) -> None:
        """Take in a frame.

        Args:
            frame: Comes after those before it.
            tokens: Its vision tokens ``[tokens_per_frame, hidden]``; None: made when needed.
            num_frames: Frames of the stream before it.
        """
        offset = num_frames % self._segment_frames
        if offset in self._kept_offsets:
            self.images[offset] = frame.image
        self.frames.append(frame)
        self._tokens.append(tokens)

    def put(self, frames: list[Frame], images: dict[int, Image]) -> None:
        """Put back what a checkpoint held."""
        self.frames, self.images, self.embeddings = frames, images, []
        self._tokens = [None] * len(frames)

    def embed(self, segment_id: int) -> vision.VisionTokens:
        """Vision tokens of the frames that wait, each made once."""
        started_s = time.perf_counter()
        unknown = [index for index, tokens in enumerate(self._tokens) if tokens is None]
        if unknown:
            made = self._model.embed_frames([self.frames[index].image for index in unknown])
            for index, tokens in zip(unknown, made, strict=True):
                self._tokens[index] = tokens
        known = [tokens for tokens in self._tokens if tokens is not None]
        chunk = vision.tokens_of(known, self.frames, segment_id)
        wait_for(self._model.dims.devices)  # else its time would count as prefill
        self.vision_s += time.perf_counter() - started_s
        return chunk

    def note_prefilled(self, chunk: vision.VisionTokens) -> None:
        """The frames that waited are in the device memory now."""
        self.frames, self._tokens = [], []
        if self._keeps_embeddings:
            times_s = [record.pts_s for record in chunk.records]
            self.embeddings.append(self._model.stamp(chunk.tokens, times_s))

    def clear(self) -> None:
        """Begin the next segment, or drop everything."""
        self.put([], {})

    # -- as a segment ----------------------------------------------------------------------------

    def close(
        self, memory: DeviceMemory, num_frames: int, segment_id: int, content_key: bytes
    ) -> Segment | None:
        """The segment that ends now, from behind what was erased of it; None: all of it was."""
        end = num_frames
        aligned = end - self._segment_frames
        gone = [frame for frame in range(aligned, end) if frame not in memory.frames]
        first = gone[-1] + 1 if gone else aligned
        if first == end:
            return None
        return Segment(
            segment_id=segment_id,
            first_frame=first,
            records=tuple(memory.frames[frame] for frame in range(first, end)),
            end_s=memory.frames.end_of(end - 1),
            blocks=tuple(
                memory.block(layer, first, end - first)
                for layer in range(self._model.dims.num_layers)
            ),
            images={
                aligned + offset - first: image
                for offset, image in self.images.items()
                if aligned + offset >= first
            },
            content_key=content_key,
        )

    # -- forgetting ------------------------------------------------------------------------------

    def start_of_erasure(
        self, memory: DeviceMemory, num_frames: int, start_s: float, end_s: float
    ) -> float:
        """From when on the open segment goes, where a stretch touches it; infinity where not.

        What is on the device goes whole, as stored segments do; frames that wait go one by one.
        """
        first, table = self._first(num_frames), memory.frames
        times = [(r.pts_s, table.end_of(frame)) for frame, r in table.items() if frame >= first]
        if any(start < end_s and end > start_s for start, end in times):
            return times[0][0]
        waiting = zip(self.frames, self._ends(), strict=True)
        return min(
            (f.pts_s for f, e in waiting if f.pts_s < end_s and e > start_s), default=math.inf
        )

    def forget(self, memory: DeviceMemory, num_frames: int, start_s: float, end_s: float) -> None:
        """Frames and pictures that lie in an erased stretch turn black, or go."""

        def blank(frame: Frame, until_s: float) -> Frame:
            is_gone = frame.pts_s < end_s and until_s > start_s
            return replace(frame, image=np.zeros_like(frame.image)) if is_gone else frame

        first, kept = self._first(num_frames), {}
        for offset, image in self.images.items():
            is_known = first + offset in memory.frames
            if is_known and not start_s <= memory.frames[first + offset].pts_s < end_s:
                kept[offset] = image
        embeddings = self.embeddings
        self.put(list(map(blank, self.frames, self._ends())), kept)
        self.embeddings = embeddings

    def _first(self, num_frames: int) -> int:
        return num_frames - num_frames % self._segment_frames

    def _ends(self) -> list[float]:
        """When each waiting frame gives way to the next; the newest one does not yet."""
        return [*(frame.pts_s for frame in self.frames[1:]), math.inf][: len(self.frames)]
