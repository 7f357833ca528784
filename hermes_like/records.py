"""Records that travel between the stations. They know nothing of torch, decoders or models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Band = Literal["shallow", "middle", "deep"]
Level = Literal["short", "mid", "long"]
Tier = Literal["device", "host", "disk", "remote", "source"]
Route = Literal["now", "recall", "time", "scan"]
AnswerStatus = Literal["ok", "partial", "no_footage"]
SourceState = Literal["connecting", "online", "stale", "offline", "disabled"]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One decoded picture.

    Attributes:
        image: ``[H, W, 3]`` uint8 RGB.
        index: Running number of the frame in its source before sampling, from 0.
        pts_s: Presentation time in seconds from the start of the stream, non-decreasing.
        wall_time: Time on the clock (timezone-aware), if the source knows it.
    """

    image: Image
    index: int
    pts_s: float
    wall_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A stretch of the stream that an answer rests on.

    Attributes:
        stream: Name of the stream.
        segment_id: Segment that holds the strongest frame of the span.
        start_s: Stream time of the first frame of the span, in seconds.
        end_s: Stream time at which the span ends (start of the next frame), in seconds.
        wall_time: Time on the clock of ``start_s``, if known.
        score: Share of the attention mass on video tokens that falls into the span, 0 to 1.
        tier: Where the tokens were read from.
        keyframe: Reference of a stored picture of the span, if there is one.
    """

    stream: str
    segment_id: int
    start_s: float
    end_s: float
    wall_time: datetime | None
    score: float
    tier: Tier = "device"
    keyframe: str | None = None


@dataclass(frozen=True, slots=True)
class MissingSpan:
    """A stretch of stream time that should have been consulted and could not be."""

    start_s: float
    end_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one question.

    Attributes:
        text: The answer in words.
        status: ``ok``, ``partial`` (something in ``missing`` could not be read) or ``no_footage``.
        evidence: Spans the answer rests on, strongest first.
        missing: Spans that could not be consulted.
        route: How the past was consulted; ``now`` reads only what is resident on the device.
        stream: Name of the stream.
        question: The question as it was asked.
        asked_at_s: Stream time at which it was asked.
        num_tokens: Generated tokens, end-of-answer token excluded.
        ttft_s: Seconds from the question to the first text, pending frames included.
        tpot_s: Mean seconds per generated token after the first (0 with a single token).
        notes: Plain sentences about the question, such as words the model does not know.
        parts_s: Seconds of TTFT per part of finding the past: ``index``, ``fetch``, ``merge``.
        parts: Answers of the single streams, where several were asked.
    """

    text: str
    status: AnswerStatus
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[MissingSpan, ...] = ()
    route: Route = "now"
    stream: str = "stream"
    question: str = ""
    asked_at_s: float = 0.0
    num_tokens: int = 0
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    notes: tuple[str, ...] = field(default=())
    parts_s: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How a live source is doing at one moment.

    Attributes:
        state: ``connecting`` (never had a frame), ``online``, ``stale`` (connected, and silent or
            frozen), ``offline`` (the connection is lost or cannot be made) or ``disabled``.
        silent_s: Seconds since the last frame arrived; None before the first.
        fps: Frames that arrived per second, lately.
        lag_s: Seconds between arrival and hand-over of the frame handed over last.
        num_frames: Frames that arrived.
        num_dropped: Frames that were not handed over, by reason: ``handoff`` (the consumer was
            slow), ``damaged``, ``frozen``.
        num_decode_errors: Packets that could not be decoded.
        num_reconnects: Connections made after the first.
        is_frozen: Whether frames arrive and show the same picture.
        cause: What went wrong last, without credentials; empty if nothing did.
    """

    state: SourceState
    silent_s: float | None = None
    fps: float = 0.0
    lag_s: float = 0.0
    num_frames: int = 0
    num_dropped: Mapping[str, int] = field(default_factory=dict)
    num_decode_errors: int = 0
    num_reconnects: int = 0
    is_frozen: bool = False
    cause: str = ""


@dataclass(frozen=True, slots=True)
class LayerStats:
    """What one decoder layer holds on the device, in tokens.

    ``prefix + short + mid + summary`` is the number of occupied slots.

    Attributes:
        layer_index: Decoder layer, from 0.
        band: Depth of the layer.
        prefix: Protected tokens before the video.
        short: Tokens of the newest frames that compaction has not touched yet.
        mid: Older tokens that survived compaction.
        summary: Tokens that stand for evicted ones.
        num_frames: Different frames with at least one token.
        oldest_s: Stream time of the oldest token, None when there is none.
    """

    layer_index: int
    band: Band
    prefix: int
    short: int
    mid: int
    summary: int
    num_frames: int
    oldest_s: float | None

    @property
    def slots(self) -> int:
        """Occupied slots."""
        return self.prefix + self.short + self.mid + self.summary


@dataclass(frozen=True, slots=True)
class SessionStats:
    """State of a session at one moment.

    Attributes:
        stream: Name of the stream.
        stream_s: Stream time of the newest frame.
        num_frames: Frames observed.
        num_segments: Segments closed (compactions run).
        device_tokens: The promised cap of slots per layer; None: unlimited policy.
        peak_slots: Most slots that any layer has held so far, questions and answers included.
        device_bytes: Bytes of all tensors of the cache.
        expected_bytes: The same by arithmetic from slots and shapes.
        layers: One entry per decoder layer.
        vision_s: Seconds spent on vision tokens.
        prefill_s: Seconds spent on prefill.
        scoring_s: Seconds spent on scoring tokens.
        compaction_s: Seconds spent on smoothing, selecting, gathering and re-indexing.
        store_s: Seconds spent on encoding segments for the tiers.
        tiers: Per tier off the device ``(used_bytes, cap_bytes, segments)``.
        store_state: ``ok``, ``full``, ``failed``, ``closed`` or ``off``.
    """

    stream: str
    stream_s: float
    num_frames: int
    num_segments: int
    device_tokens: int | None
    peak_slots: int
    device_bytes: int
    expected_bytes: int
    layers: tuple[LayerStats, ...]
    vision_s: float
    prefill_s: float
    scoring_s: float
    compaction_s: float
    store_s: float = 0.0
    tiers: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    store_state: str = "off"
