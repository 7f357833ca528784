"""What calibration needs of a stream: vectors of every head, and the queries of every question.

A stream passes once through a session with the preset's own memory; everything that is tried out
afterwards is arithmetic on what is recorded here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hermes_like.config import HermesConfig
from hermes_like.index import SegmentIndex
from hermes_like.models import ModelAdapter
from hermes_like.records import Frame
from hermes_like.retrieval.base import FloatArray, ResidentFrames
from hermes_like.retrieval.queries import question_queries
from hermes_like.retrieval.vectors import Heads, resident_frames, segment_vectors
from hermes_like.session import Segment, StreamSession
from hermes_like.sprites.source import SpritesSource
from hermes_like.tiers.base import SegmentHead
from pipelines.calibrate_streams import Asked, PlantedStream


@dataclass(frozen=True, slots=True, eq=False)
class AskedQuestion:
    """A question with all that a retriever sees of it.

    Attributes:
        asked: The question.
        queries: float32 ``[question tokens, heads, head_dim]``.
        resident: Whole resident frames, by vectors per frame.
    """

    asked: Asked
    queries: FloatArray
    resident: dict[int, ResidentFrames]

    def targets(self) -> set[int]:
        """Frames of its event that are not resident; empty for questions about the present."""
        event = self.asked.planted
        if event is None:
            return set()
        frames = set(range(event.start_frame, event.end_frame))
        return frames.difference(next(iter(self.resident.values())).frames.tolist())


@dataclass(frozen=True, slots=True, eq=False)
class RecordedStream:
    """One stream, recorded.

    Attributes:
        heads: Segment heads with the vectors of all heads, by vectors per frame.
        questions: In order.
    """

    heads: dict[int, list[SegmentHead]]
    questions: list[AskedQuestion]


def every_head(model: ModelAdapter) -> list[tuple[int, int]]:
    """All ``(layer, KV head)`` pairs of a model."""
    return [(i, k) for i in range(model.dims.num_layers) for k in range(model.dims.num_kv_heads)]


def record(
    model: ModelAdapter,
    config: HermesConfig,
    stream: PlantedStream,
    seed: int,
    groups: Sequence[int],
) -> RecordedStream:
    """Pass a stream of sprites through a session.

    Args:
        model: The model.
        config: Memory and policy.
        stream: What is shown and asked.
        seed: Of the pixels.
        groups: Numbers of vectors per frame to record.
    """
    with SpritesSource(stream.story, seed=seed) as source:
        return record_frames(model, config, source, stream.asked, groups)


def record_frames(
    model: ModelAdapter,
    config: HermesConfig,
    frames: Iterable[Frame],
    asked: Sequence[Asked],
    groups: Sequence[int],
) -> RecordedStream:
    """Pass frames through a session.

    Args:
        model: The model.
        config: Memory and policy.
        frames: One per second.
        asked: Questions in the order of asking.
        groups: Numbers of vectors per frame to record.
    """
    heads, per_frame = every_head(model), model.dims.tokens_per_frame
    recorded = RecordedStream({count: [] for count in groups}, [])

    def keep(segment: Segment) -> None:
        for count in groups:
            recorded.heads[count].append(head_of(segment, heads, per_frame, count))

    waiting = list(asked)
    with StreamSession(model, config, on_segment=keep) as session:
        for number, frame in enumerate(frames, start=1):
            session.observe(frame)
            while waiting and waiting[0].frame == number:
                recorded.questions.append(_ask(session, waiting.pop(0), heads, groups))
    return recorded


def head_of(segment: Segment, heads: Heads, tokens_per_frame: int, groups: int) -> SegmentHead:
    """The head of a segment of a stream with one frame per second."""
    ids = segment.blocks[0].ids
    first, num_frames = int(ids.min()) // tokens_per_frame, len(ids) // tokens_per_frame
    return SegmentHead(
        segment_id=segment.segment_id,
        first_frame=first,
        frame_times_s=tuple(float(first + offset) for offset in range(num_frames)),
        end_s=float(first + num_frames),
        frame_walls_s=(None,) * num_frames,
        tokens_per_frame=tokens_per_frame,
        token_cells=np.arange(num_frames * tokens_per_frame, dtype=np.uint32),
        vectors=segment_vectors(
            segment.blocks,
            heads,
            num_frames=num_frames,
            tokens_per_frame=tokens_per_frame,
            groups=groups,
        ),
        content_key=bytes(16),
    )


def _ask(
    session: StreamSession, asked: Asked, heads: Heads, groups: Sequence[int]
) -> AskedQuestion:
    model = session.model
    prompt = model.question_ids(asked.text, is_first=True)
    with session._fork() as (cache, _):  # what an answer sees, pending frames included
        queries = question_queries(session.memory, cache, prompt, heads)
        resident = {
            count: resident_frames(
                cache, heads, tokens_per_frame=model.dims.tokens_per_frame, groups=count
            )
            for count in groups
        }
    return AskedQuestion(asked, queries, resident)


def index_at(
    recorded: RecordedStream, frame: int, groups: int, chosen: Sequence[int]
) -> SegmentIndex:
    """The index as it was when some frames had been seen, of some heads by number."""
    heads = [
        replace(head, vectors=head.vectors[:, list(chosen)])
        for head in recorded.heads[groups]
        if head.first_frame + head.num_frames <= frame
    ]
    head_dim = recorded.heads[groups][0].vectors.shape[2]
    return SegmentIndex.build(heads, num_heads=len(chosen), head_dim=head_dim)
