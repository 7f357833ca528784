"""What can be configured: frozen models, one per station. Reading files is ``presets.py``."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

#: Corners ``(x, y)``, 0 to 1 from the left and from the top.
Polygon = tuple[tuple[float, float], ...]


class Station(BaseModel):
    """Base of all station configurations: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelConfig(Station):
    """Which base model answers, and where it runs."""

    name: str = Field(
        "sprites",
        description="sprites | easyvqa | random:<shape> | local folder | Hugging Face name",
    )
    revision: str | None = Field(None, description="branch, tag or commit of a hub model")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto: float32 on a CPU, bfloat16 on an accelerator"
    )
    device: str = Field(
        "auto",
        description="auto | cpu | cuda | cuda:1 | mps (set PYTORCH_ENABLE_MPS_FALLBACK=1)",
    )
    device_map: str | None = Field(
        None,
        description="null: one device | auto: as few as hold it | balanced: all | "
        "0-13=cuda:0,14-27=cuda:1",
    )
    attention: Literal["sdpa", "flash", "eager"] = Field(
        "sdpa",
        description="sdpa: torch chooses a kernel | flash: torch's flash kernels (CUDA, 16 bits) | "
        "eager: the definition, for comparison",
    )
    frame_pixels: int | None = Field(
        None, ge=784, description="qwen: most pixels of a frame; null: 144 tokens, 252 x 448 or so"
    )
    frame_shape: tuple[int, int] = Field(
        (9, 16), description="qwen: height to width of the pictures; others get black borders"
    )


class SourceConfig(Station):
    """How pixels become frames."""

    reader: Literal["auto", "pyav", "decord", "opencv"] = Field(
        "auto", description="auto: PyAV, then the others where PyAV cannot open the file"
    )
    sample_fps: float | None = Field(
        1.0, gt=0, le=1000, description="frames per second of stream time; null: every frame"
    )
    skip_duplicates: bool = Field(False, description="leave out frames nearly equal to the last")
    duplicate_threshold: float = Field(
        2.0,
        ge=0,
        le=255,
        description="mean absolute difference in grey levels that counts as equal",
    )
    read_ahead_frames: int = Field(8, ge=1, le=1024, description="bound of the decoded queue")
    watchdog_s: float | None = Field(
        None,
        gt=0,
        description="decode in a child process that is killed after this many silent seconds",
    )
    start_time: datetime | None = Field(
        None, description="wall time of stream second 0, ISO 8601 with an offset"
    )
    masks: tuple[Polygon, ...] = Field(
        (), description="areas painted black before anything is encoded: lists of [x, y], 0 to 1"
    )
    zones: tuple[Polygon, ...] = Field(
        (), description="areas that may be seen, the rest is painted black; none: everything"
    )
    handoff: Literal["newest", "queue"] = Field(
        "newest",
        description="live: a slow consumer gets the newest frame, or a queue of read_ahead_frames",
    )
    connect_timeout_s: float = Field(
        10.0, gt=0, description="live: an attempt to connect is given up after this"
    )
    stale_s: float = Field(
        5.0, gt=0, description="live: without a frame for this long a camera counts as stale"
    )
    silence_s: float = Field(
        15.0, gt=0, description="live: a connection without a frame for this long is opened again"
    )
    freeze_s: float | None = Field(
        60.0, gt=0, description="live: a picture that stays the same for this long is frozen"
    )
    reconnect_first_s: float = Field(
        1.0, gt=0, description="live: pause before the second attempt; it doubles each time"
    )
    reconnect_most_s: float = Field(60.0, gt=0, description="live: longest pause between attempts")

    @model_validator(mode="after")
    def _is_consistent(self) -> SourceConfig:
        if self.start_time is not None and self.start_time.tzinfo is None:
            raise ValueError(
                "start_time: expected an ISO 8601 time with an offset, got a naive one"
            )
        for name in ("masks", "zones"):
            for polygon in getattr(self, name):
                is_inside = all(0 <= part <= 1 for corner in polygon for part in corner)
                if len(polygon) < 3 or not is_inside:
                    raise ValueError(
                        f"{name}: expected at least three corners from 0 to 1, got {polygon}"
                    )
        return self


class MemoryConfig(Station):
    """What the device holds and how positions are given."""

    device_tokens: int = Field(
        256, ge=16, description="most slots any layer ever holds, question and answer included"
    )
    segment_frames: int = Field(
        4, ge=1, le=1024, description="frames per segment; compaction runs at the end of each"
    )
    prefill_frames: int = Field(
        1, ge=1, le=1024, description="frames prefilled in one forward pass; at most segment_frames"
    )
    protected_frames: int = Field(
        4, ge=0, description="newest frames that compaction must keep whole (short-term window)"
    )
    question_tokens: int = Field(
        32, ge=1, description="slots kept free for a question with its template"
    )
    history_tokens: int = Field(
        64, ge=0, description="slots kept free for earlier turns of the conversation"
    )
    answer_tokens: int = Field(16, ge=1, description="slots kept free for an answer")
    positions: Literal["right_aligned", "global", "released"] = Field(
        "right_aligned", description="how kept tokens get positions"
    )
    reindex: Literal["lazy", "eager"] = Field(
        "lazy", description="global and released: re-index near the model's limit, or every time"
    )
    reindex_margin: int = Field(
        1024, ge=0, description="lazy: re-index when a position passes the model's limit less this"
    )

    @model_validator(mode="after")
    def _frames_fit(self) -> MemoryConfig:
        if self.segment_frames % self.prefill_frames:
            raise ValueError(
                f"prefill_frames: expected a divisor of segment_frames ({self.segment_frames}), "
                f"got {self.prefill_frames}"
            )
        return self


class PolicyConfig(Station):
    """How mid-term memory chooses what to keep. Fields that a policy does not use are ignored."""

    name: str = Field("hermes", description="full | window | sink_window | uniform | hermes | ...")
    seed: int = Field(0, description="uniform: seed of the random priorities")
    sink_frames: int = Field(1, ge=0, description="sink_window: first frames that always stay")
    attention: Literal["true", "embedding"] = Field(
        "true", description="hermes: real attention mass, or the released code's shortcut"
    )
    guidance: Literal["joint", "separate"] = Field(
        "joint", description="hermes: one guidance pass for all bands, or one per prompt"
    )
    recency_weight: float = Field(
        0.75, ge=0, le=1, description="hermes: weight at the first middle layer"
    )
    recency_weight_drop: float = Field(
        0.6, ge=0, le=1, description="hermes: fall over the middle band"
    )
    recency_rate: float = Field(20.0, ge=0, description="hermes: decay over normalised age")
    recency_rate_drop: float = Field(12.0, ge=0, description="hermes: fall over the middle band")
    smoothing: tuple[float, float, float] = Field(
        (1.0, 1.0, 1.0), description="hermes: weight of the deeper layer, for shallow, middle, deep"
    )
    smoothing_recursive: bool = Field(True, description="hermes: blend already smoothed scores")
    smoothing_alignment: Literal["identity", "index"] = Field(
        "identity", description="hermes: pair tokens of two layers by provenance or by cache index"
    )
    summary: Literal["none", "appended", "weighted"] = Field(
        "weighted", description="hermes: one slot of deep layers that stands for what was dropped"
    )
    frame_quota: int = Field(
        1, ge=0, description="hermes: tokens every frame keeps before the rest is chosen by score"
    )
    quota_order: Literal["score", "even"] = Field(
        "even", description="hermes: which frames keep their quota when not all can"
    )
    trigger_includes_prefix: bool = Field(
        False, description="hermes: compact when prefix and video together exceed the budget"
    )


class AnswerConfig(Station):
    """How answers are generated and what evidence is reported."""

    max_tokens: int | None = Field(
        None, ge=1, description="most generated tokens; null: memory.answer_tokens"
    )
    min_tokens: int = Field(0, ge=0, description="end-of-answer is not allowed before this many")
    temperature: float = Field(0.0, ge=0, le=10, description="0: greedy")
    top_p: float = Field(1.0, gt=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    stop: tuple[str, ...] = Field((), description="texts that end the answer and are cut off")
    seed: int = Field(0, description="seed of sampling; every question starts from it")
    evidence_spans: int = Field(3, ge=0, description="most spans reported with an answer")
    keep_conversation: bool = Field(True, description="later questions see earlier turns")


FullAction = Literal["thin", "drop_kv", "forget"]


class StoreConfig(Station):
    """What long-term memory keeps off the device, and its caps."""

    enabled: bool = Field(True, description="keep the past off the device; false: forget for good")
    codec: str = Field("int8", description="raw | int8 | k8v4 | int4 | ...")
    host_bytes: int = Field(
        256 * 2**20, ge=0, description="cap in RAM: segments, vectors, tables, staging and queues"
    )
    disk_bytes: int = Field(
        4 * 2**30, ge=0, description="cap on disk, everything in the memory folder; 0: no disk"
    )
    keyframe_bytes: int = Field(
        512 * 2**20, ge=0, description="part of disk_bytes that pictures may take; 0: no pictures"
    )
    min_free_bytes: int = Field(
        2**30, ge=0, description="free space of the file system that is never used up"
    )
    durability: Literal["none", "interval", "strict"] = Field(
        "interval", description="when data is forced to the medium; kill -9 loses nothing anyway"
    )
    sync_interval_s: float = Field(2.0, gt=0, description="interval: seconds between two syncs")
    keep_images: bool = Field(
        True, description="false: no picture is ever stored, whatever the keys below say"
    )
    keyframes_per_segment: int = Field(1, ge=0, description="pictures kept of each segment")
    keyframe_format: Literal["jpeg", "webp"] = Field("jpeg")
    keyframe_quality: int = Field(90, ge=1, le=100)
    keyframe_side: int = Field(
        640, ge=16, description="longest side of a kept picture, in pixels; larger ones shrink"
    )
    at_disk_cap: tuple[FullAction, ...] = Field(
        ("drop_kv", "forget"),
        description="what happens to the oldest segments near the disk cap, in this order; "
        "thin: tokens that stand still are stored once",
    )
    thin_threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="store a token once while its embedding keeps this cosine; null: store all",
    )
    checkpoint_segments: int = Field(
        16, ge=1, description="segments between two snapshots of the device state"
    )
    retention_s: float | None = Field(
        None, gt=0, description="forget what is older than this; null: only caps decide"
    )


class RetrievalConfig(Station):
    """How the past is found again."""

    route: Literal["auto", "now", "recall", "time", "scan"] = Field(
        "auto", description="auto: chosen per question"
    )
    max_frames: int = Field(8, ge=1, description="most frames brought back for one question")
    retrieved_tokens: int = Field(
        32, ge=0, description="slots kept free for what is brought back; 0: nothing is"
    )
    heads: tuple[tuple[int, int], ...] = Field(
        ((5, 0), (0, 1), (0, 0), (3, 0)),
        description="(layer, KV head) whose keys are searched; see calibrate",
    )
    pooling: Literal["max", "mean"] = Field(
        "max", description="over question tokens: the best one counts, or all"
    )
    normalisation: Literal["standard", "centred", "none"] = Field(
        "centred",
        description="pooled scores per head: standardised on the stream, centred, or raw",
    )
    gate_margin: float = Field(
        47.94, description="how far the best hit must beat resident frames to be fetched"
    )
    vectors_per_frame: int = Field(
        2, ge=1, description="vectors of a frame and head: groups of its tokens in row-major order"
    )
    gap_frames: int = Field(
        2, ge=0, description="two hits are further apart than this; an event is found once"
    )
    neighbour_frames: int = Field(
        0, ge=0, description="frames on each side of a hit that come with it"
    )
    order_frames: int = Field(
        8, ge=0, description="the same for questions about what came before or after something"
    )
    deadline_s: float = Field(5.0, gt=0, description="fetching stops here; the rest is missing")
    scan_candidates: int = Field(512, ge=1, description="most frames that a scan starts from")
    scan_patience: int = Field(
        48, ge=1, description="a scan ends after this many candidates in a row that say no"
    )
    scan_min_frames: int = Field(
        2, ge=1, description="an event counts if this many frames in a row say yes"
    )
    scan_sure_frames: int = Field(
        3600,
        ge=0,
        description="among fewer frames one that says yes is enough: so few are seldom misread",
    )
    scan_deadline_s: float = Field(20.0, gt=0, description="a scan stops here with what it has")
    scan_batch: int = Field(
        16,
        ge=1,
        description="candidates asked in one pass, as far as device_tokens allows; 1: one by one",
    )
    scan_split: float | None = Field(
        None,
        gt=-1,
        le=1,
        description="neighbours less alike than this (cosine) are two events; null: one event",
    )
    verify_frames: int = Field(
        0,
        ge=0,
        description="most frames asked alone when what was found disagrees; 0: no such check",
    )


class EngineConfig(Station):
    """How many streams share one model. Only the engine reads it."""

    batch_frames: int = Field(
        8, ge=1, le=1024, description="most frames, of all streams together, encoded at once"
    )
    inbox_frames: int = Field(
        2, ge=1, le=1024, description="frames of a stream that may wait; then its source must"
    )
    patience_s: float = Field(
        1.0, gt=0, description="a frame that waits longer for its turn goes before questions"
    )
    device_bytes: int | None = Field(
        None, ge=0, description="most that all streams may be promised on the device; null: any"
    )
    host_bytes: int | None = Field(None, ge=0, description="the same in RAM")
    disk_bytes: int | None = Field(None, ge=0, description="the same on disk")


class HermesConfig(Station):
    """The whole configuration. Every field has a default, so a preset may be partial."""

    model: ModelConfig = ModelConfig()
    source: SourceConfig = SourceConfig()
    memory: MemoryConfig = MemoryConfig()
    policy: PolicyConfig = PolicyConfig()
    store: StoreConfig = StoreConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    answer: AnswerConfig = AnswerConfig()
    engine: EngineConfig = EngineConfig()

    @model_validator(mode="after")
    def _past_can_come_back(self) -> HermesConfig:
        if self.store.enabled and self.memory.positions != "right_aligned":
            raise ValueError(
                f"store.enabled: expected false with memory.positions {self.memory.positions!r}, "
                "got true; what comes back needs right_aligned"
            )
        return self
