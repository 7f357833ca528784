"""Long-term memory of one stream: segments leave the device, and frames come back for a question.

It puts codec, tiers and index together and knows nothing of questions, routes or answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hermes_like.codec import CODECS, decode_layers, encode_layers
from hermes_like.codec.base import KeyValues
from hermes_like.codec.static_tokens import tokens_to_store
from hermes_like.config import HermesConfig
from hermes_like.errors import (
    CodecError,
    FingerprintError,
    SegmentUnavailableError,
    StorageError,
    TierFullError,
)
from hermes_like.freed import give_back
from hermes_like.index import SegmentIndex
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.merge import ReturnedTokens
from hermes_like.memory.provenance import FrameRecord
from hermes_like.memory.segment import Segment
from hermes_like.memory.single import encode_alone
from hermes_like.records import Image, MissingSpan, Tier
from hermes_like.retrieval.vectors import segment_vectors, usable_heads
from hermes_like.tiers.base import Keyframe, KeyframeRecord, SegmentHead, SegmentRecord
from hermes_like.tiers.chain import TierChain
from hermes_like.tiers.disk import DiskStore
from hermes_like.tiers.keyframes import decode_picture, encode_picture
from hermes_like.timeline import Timeline

logger = logging.getLogger(__name__)

#: Name of the session's state in the folder.
STATE_NAME = "session"


@dataclass(slots=True, eq=False)
class Fetched:
    """Frames that came back.

    Attributes:
        tokens: One per decoder layer, ids ascending.
        records: When each of the frames was.
        tiers: Where each of them was read from.
        approximate: Frames that were encoded again from a picture.
        missing: Stretches that could not be read.
    """

    tokens: list[ReturnedTokens]
    records: dict[int, FrameRecord] = field(default_factory=dict)
    tiers: dict[int, Tier] = field(default_factory=dict)
    approximate: set[int] = field(default_factory=set)
    missing: list[MissingSpan] = field(default_factory=list)


class LongTermMemory:
    """The past of one stream off the device.

    Args:
        memory: The stream's memory on the device; read for shapes, and used to encode pictures.
        chain: The tiers.
        config: Codec, retrieval heads, pictures.
        disk: The folder behind the chain, for the state of the session; None: no folder.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        chain: TierChain,
        config: HermesConfig,
        disk: DiskStore | None = None,
    ) -> None:
        self.memory, self.chain, self._disk = memory, chain, disk
        self.store, self.retrieval = config.store, config.retrieval
        self.adapter = memory.adapter
        self.heads = usable_heads(config.retrieval.heads, self.adapter.dims)
        self.groups = min(config.retrieval.vectors_per_frame, memory.tokens_per_frame)
        known = chain.heads()
        self.timeline = Timeline()
        self.timeline.add_all(known)
        self.index = SegmentIndex.build(
            known, num_heads=len(self.heads), head_dim=self.adapter.dims.head_dim
        )
        del known  # vectors are in the index now, and their RAM can be given back
        self._reserved_bytes = self._index_bytes = 0
        self._reserve()
        self._codec = CODECS.get(config.store.codec)()
        #: Time zone of the stream, for wall times.
        self.zone: tzinfo = UTC
        self.encode_s = 0.0
        self.written_bytes = 0

    # -- writing ---------------------------------------------------------------------------------

    def write(self, segment: Segment, embeddings: Sequence[Tensor] = ()) -> None:
        """Store a closed segment; returns before it is on the medium.

        Args:
            segment: Its blocks hold every token of its frames.
            embeddings: Vision tokens of its frames, ``[frames, tokens_per_frame, hidden]`` in
                pieces, by which still ones are told; empty: all tokens are stored.
        """
        started_s = time.perf_counter()
        stored = self._worth_storing(embeddings)
        head = self._head(segment, stored)
        blocks = [KeyValues(block.raw_keys, block.values) for block in segment.blocks]
        if stored is not None:
            keep = torch.from_numpy(head.token_cells.astype(np.int64))
            blocks = [KeyValues(b.raw_keys[:, keep], b.values[:, keep]) for b in blocks]
        layers = encode_layers(self._codec, blocks)
        self.encode_s += time.perf_counter() - started_s
        record = SegmentRecord(head, layers)
        self.written_bytes += record.num_bytes
        # Known first: where nothing can be kept, the chain says so at once, and it is forgotten.
        self.index.add(head)
        self.timeline.add(head)
        self.chain.put(record, self._pictures(segment, head))
        self._reserve()

    def _reserve(self) -> None:
        """Count what index, timeline and tables take against the cap of the host."""
        index_bytes = self.index.num_bytes
        if index_bytes > self._index_bytes + 2**20:  # it has moved to larger arrays
            self._index_bytes = index_bytes
            give_back()
        num_bytes = index_bytes + self.timeline.num_bytes + self.chain.table_bytes
        if self.chain.reserve_host(num_bytes - self._reserved_bytes):
            self._reserved_bytes = num_bytes

    def _worth_storing(self, embeddings: Sequence[Tensor]) -> Tensor | None:
        threshold = self.store.thin_threshold
        if threshold is None or not embeddings:
            return None
        return tokens_to_store(torch.cat(list(embeddings)), threshold)[0]

    def _head(self, segment: Segment, stored: Tensor | None) -> SegmentHead:
        per_frame = self.memory.tokens_per_frame
        count = len(segment.records)
        cells = np.arange(count * per_frame, dtype=np.uint32)
        if stored is not None:
            cells = cells[stored.flatten().cpu().numpy()]
        return SegmentHead(
            segment_id=segment.segment_id,
            first_frame=segment.first_frame,
            frame_times_s=tuple(record.pts_s for record in segment.records),
            end_s=segment.end_s,
            frame_walls_s=tuple(_seconds(record.wall_time) for record in segment.records),
            tokens_per_frame=per_frame,
            token_cells=cells,
            vectors=segment_vectors(
                segment.blocks,
                self.heads,
                num_frames=count,
                tokens_per_frame=per_frame,
                groups=self.groups,
            ),
            content_key=segment.content_key,
        )

    def _pictures(self, segment: Segment, head: SegmentHead) -> KeyframeRecord | None:
        if not segment.images:
            return None
        images = tuple(
            Keyframe(
                segment.first_frame + offset,
                encode_picture(
                    image,
                    self.store.keyframe_format,
                    self.store.keyframe_quality,
                    self.store.keyframe_side,
                ),
            )
            for offset, image in sorted(segment.images.items())
        )
        return KeyframeRecord(head, images)

    # -- reading ---------------------------------------------------------------------------------

    def fetch(self, frames: Mapping[int, Iterable[int]], deadline_s: float) -> Fetched:
        """Bring frames back, each with all of its tokens, also where its segment was thinned.

        Args:
            frames: Segment id to the frames wanted of it.
            deadline_s: Seconds after which the rest is reported missing.

        Returns:
            Tokens of all frames that could be read, in the order of time.
        """
        until_s = time.perf_counter() + deadline_s
        wanted = {segment: sorted(set(of)) for segment, of in sorted(frames.items())}
        nearest = {segment: self.chain.where(segment) for segment in wanted}
        self.chain.prefetch(list(wanted))
        result = Fetched([])
        parts: list[list[ReturnedTokens]] = []
        for segment_id, numbers in wanted.items():
            left_s = until_s - time.perf_counter()
            # Told before the prefetch, which moves segments up while they are read.
            tier = nearest[segment_id] or "source"
            part = self._fetch_segment(segment_id, numbers, max(0.0, left_s), tier, result)
            if part is not None:
                parts.append(part)
        result.tokens = self._joined(parts)
        return result

    def _fetch_segment(
        self, segment_id: int, frames: Sequence[int], left_s: float, tier: Tier, result: Fetched
    ) -> list[ReturnedTokens] | None:
        try:
            record, _ = self.chain.get(segment_id, left_s)
            tokens = self._decode(record, frames)
        except (SegmentUnavailableError, CodecError) as error:
            reason = error.reason if isinstance(error, SegmentUnavailableError) else "checksum"
            is_late = reason == "deadline" or left_s <= 0
            pictured = None if is_late else self._from_pictures(segment_id, result)
            span = self.timeline.get(segment_id)
            if pictured is None and span is not None:
                result.missing.append(MissingSpan(span.start_s, span.end_s, reason))
            return pictured
        for frame in frames:
            result.records[frame] = frame_record(record.head, frame, self.zone)
            result.tiers[frame] = tier
        return tokens

    def read_segment(
        self, segment_id: int, deadline_s: float | None = None
    ) -> tuple[SegmentHead, list[KeyValues]]:
        """Head and all stored tokens of a segment, per decoder layer.

        Raises:
            SegmentUnavailableError: It is not there, or cannot be trusted.
            CodecError: Its blocks cannot be decoded.
        """
        record, _ = self.chain.get(segment_id, deadline_s)
        return record.head, decode_layers(record.layers, self._devices, is_verified=True)

    # Records come from the encoder through RAM, or from the disk, which verifies what it reads.

    def _decode(self, record: SegmentRecord, frames: Sequence[int]) -> list[ReturnedTokens]:
        head, device = record.head, self.adapter.dims.device
        chosen, cells = _tokens_of(head, frames)
        ids = torch.from_numpy(cells + head.first_frame * head.tokens_per_frame).to(device)
        blocks = decode_layers(record.layers, self._devices, chosen, is_verified=True)
        return [ReturnedTokens(block.raw_keys, block.values, ids) for block in blocks]

    @property
    def _devices(self) -> list[torch.device]:
        """Where each layer keeps its keys and values."""
        dims = self.adapter.dims
        return [dims.device_of(layer) for layer in range(dims.num_layers)]

    def _from_pictures(self, segment_id: int, result: Fetched) -> list[ReturnedTokens] | None:
        """Encode the pictures of a segment again, each alone behind the prefix."""
        try:
            record = self.chain.pictures(segment_id)
        except SegmentUnavailableError:
            return None
        parts = []
        for picture in record.images:
            image = decode_picture(picture.data)
            shown = frame_record(record.head, picture.frame, self.zone)
            tokens = self.adapter.embed_frames([image])
            parts.append(encode_alone(self.memory, tokens, picture.frame, shown.pts_s))
            result.approximate.add(picture.frame)
            result.records[picture.frame] = shown
            result.tiers[picture.frame] = "source"
        return self._joined(parts)

    def _joined(self, parts: Sequence[list[ReturnedTokens]]) -> list[ReturnedTokens]:
        dims = self.adapter.dims
        if not parts:
            none = torch.empty(0, dtype=torch.int64, device=dims.device)
            empty = torch.empty(dims.num_kv_heads, 0, dims.head_dim, dtype=dims.dtype)
            there = [empty.to(device) for device in self._devices]
            return [ReturnedTokens(nothing, nothing, none) for nothing in there]
        return [
            ReturnedTokens(
                torch.cat([p.raw_keys for p in layer], 1).to(dims.dtype),
                torch.cat([p.values for p in layer], 1).to(dims.dtype),
                torch.cat([p.ids for p in layer]),
            )
            for layer in zip(*parts, strict=True)
        ]

    # -- forgetting ------------------------------------------------------------------------------

    def erase(self, segment_ids: Collection[int]) -> None:
        """Make segments unreadable in every tier, and their vectors with them."""
        self.on_evicted(segment_ids)
        self.chain.remove(segment_ids)
        self._reserve()

    def on_evicted(self, segment_ids: Collection[int]) -> None:
        """Forget times and vectors of segments that are nowhere any more."""
        self.index.remove(segment_ids)
        self.timeline.remove(segment_ids)

    def flush(self) -> None:
        """Wait until everything that was written is on its medium."""
        self.chain.flush()

    def close(self) -> None:
        """Flush, and let go of files and threads."""
        self.chain.close()

    # -- the state of the session ----------------------------------------------------------------

    @property
    def has_folder(self) -> bool:
        """Whether anything outlives the process."""
        return self._disk is not None

    @property
    def holds_memory(self) -> bool:
        """Whether there are segments, or the state of a session, from before."""
        return len(self.timeline) > 0 or self.get_state() is not None

    def put_state(self, data: bytes, *, must_replace: bool = False) -> None:
        """Write the state of the session, whole or not at all. A full disk is told in the log.

        At the cap the oldest keys and values on disk go for it, as they would for a segment.

        Args:
            data: The state.
            must_replace: Whether the state before may not stay where there is no room for both:
                it holds what was erased. Then it goes first.
        """
        assert self._disk is not None, "no folder"
        try:
            try:
                self._disk.put_blob(STATE_NAME, data)
            except TierFullError:
                if must_replace:
                    self._disk.remove_blob(STATE_NAME)
                self.chain.left_disk(self._disk.make_room(len(data)))
                self._disk.put_blob(STATE_NAME, data)
        except TierFullError as error:
            logger.warning("checkpoint not written: %s", error)

    def get_state(self) -> bytes | None:
        """The state that was written last; None if there is none, or it is damaged."""
        if self._disk is None:
            return None
        try:
            return self._disk.get_blob(STATE_NAME)
        except FingerprintError:
            raise
        except StorageError as error:
            if not len(self.timeline):
                raise  # nothing could be rebuilt, and a close would overwrite it
            logger.warning("checkpoint not read, the device state is rebuilt: %s", error)
            return None

    def put_note(self, name: str, data: bytes) -> None:
        """Keep a small named file of the caller's in the folder, whole or not at all.

        Raises:
            StorageError: No room, or the medium failed.
        """
        assert self._disk is not None, "no folder"
        self._disk.put_blob(name, data)

    def get_note(self, name: str) -> bytes | None:
        """What was kept under a name; None if there is nothing.

        Raises:
            StorageError: It is damaged, or of another model or key.
        """
        return None if self._disk is None else self._disk.get_blob(name)

    def has_pictures(self, segment_id: int) -> bool:
        """Whether a picture of a segment is stored."""
        return self.chain.has_pictures(segment_id)

    def picture(self, segment_id: int) -> Image:
        """The first stored picture of a segment, uint8 ``[H, W, 3]``.

        Raises:
            SegmentUnavailableError: There is none.
        """
        return decode_picture(self.chain.pictures(segment_id).images[0].data)

    def tier_bytes(self) -> dict[str, tuple[int, int, int]]:
        """Per tier used bytes, cap and segments."""
        stats = self.chain.stats()
        return {
            name: (tier.used_bytes, tier.cap_bytes, tier.segments)
            for name, tier in stats.tiers.items()
        }


def _tokens_of(head: SegmentHead, frames: Sequence[int]) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """Which stored tokens show some frames, and which cells of the segment they stand for.

    Where a place was left out because it looked as before, the last stored token of that place
    stands for it, in each of the frames: whoever looks at one of them alone sees all of it.
    """
    of_frame, of_place = np.divmod(head.token_cells.astype(np.int64), head.tokens_per_frame)
    chosen, shown = [], []
    for frame in frames:
        offset = frame - head.first_frame
        latest = np.full(head.tokens_per_frame, -1)
        seen = np.flatnonzero(of_frame <= offset)
        latest[of_place[seen]] = seen  # ascending, so the latest one stays
        places = np.flatnonzero(latest >= 0)
        chosen.append(latest[places])
        shown.append(offset * head.tokens_per_frame + places)
    return torch.from_numpy(np.concatenate(chosen)), np.concatenate(shown)


def frame_record(head: SegmentHead, frame: int, zone: tzinfo = UTC) -> FrameRecord:
    """When a frame of a stored segment was; wall times are stored without a zone."""
    offset = frame - head.first_frame
    times = head.frame_times_s
    wall_s = head.frame_walls_s[offset]
    return FrameRecord(
        pts_s=times[offset],
        wall_time=None if wall_s is None else datetime.fromtimestamp(wall_s, zone),
        segment_id=head.segment_id,
        end_s=times[offset + 1] if offset + 1 < len(times) else head.end_s,
    )


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
