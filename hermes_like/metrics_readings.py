"""From what the streams tell at this moment to families of samples for Prometheus.

A table says what is read from where. Counters go on when a source, a session or a stream begins
anew. The module knows records; it knows neither events by name nor the text formats.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from hermes_like import __version__
from hermes_like.records import SessionStats, SourceHealth, SourceState

logger = logging.getLogger(__name__)

STORE_STATES: Final = ("ok", "full", "failed", "closed", "off")
#: Streams that are gone and whose totals are kept in case they come back.
MAX_GONE: Final = 1024


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """What happened in the tiers of one stream since they were opened.

    Attributes:
        hits: Segments read, by the tier that served them.
        misses: Segments that could not be read, by reason.
        num_evicted: Segments that are nowhere any more because of a cap.
        num_dropped_writes: Writes that were given up.
        num_failed_writes: Attempts to write that failed; most were repeated.
    """

    hits: Mapping[str, int] = field(default_factory=dict)
    misses: Mapping[str, int] = field(default_factory=dict)
    num_evicted: int = 0
    num_dropped_writes: int = 0
    num_failed_writes: int = 0


@dataclass(frozen=True, slots=True)
class StreamReading:
    """One stream at the moment it is asked.

    What is None is unknown at this moment: its gauges are left out, its counters stay.

    Attributes:
        stream: Its name, unique among the readings.
        health: How its source is doing.
        queue_depth: Frames that wait to be watched.
        stats: State of its session.
        store: Counters of its tiers.
        device_limit_bytes: Promised cap of the tensors on the device; 0 or None: without one.
    """

    stream: str
    health: SourceHealth
    queue_depth: int = 0
    stats: SessionStats | None = None
    store: StoreCounts | None = None
    device_limit_bytes: int | None = None


#: Values of the labels beside ``stream``, to value.
_Values = Mapping[tuple[str, ...], float]


def _by_key(counts: Mapping[str, int]) -> _Values:
    return {(key,): count for key, count in counts.items()}


def _one_of(current: str, values: Iterable[str]) -> _Values:
    return {(value,): float(value == current) for value in values}


def _of_tiers(reading: StreamReading, index: int) -> _Values:
    """Used bytes (0), caps in bytes (1) or segments (2) of the tiers off the device."""
    tiers = {} if reading.stats is None else reading.stats.tiers
    return {(name,): tier[index] for name, tier in tiers.items()}


def _storage(reading: StreamReading, index: int) -> _Values:
    """Bytes of the memory folder: segments and pictures, whose caps are apart."""
    tiers = {} if reading.stats is None else reading.stats.tiers
    on_disk = [tier[index] for name, tier in tiers.items() if name in ("disk", "source")]
    return {(): sum(on_disk)} if on_disk else {}


def _device_bytes(reading: StreamReading) -> _Values:
    return {} if reading.stats is None else {("device",): reading.stats.device_bytes}


def _device_limit(reading: StreamReading) -> _Values:
    return {("device",): reading.device_limit_bytes} if reading.device_limit_bytes else {}


def _of_stats(read: Callable[[SessionStats], _Values]) -> Callable[[StreamReading], _Values]:
    return lambda reading: {} if reading.stats is None else read(reading.stats)


def _of_store(read: Callable[[StoreCounts], _Values]) -> Callable[[StreamReading], _Values]:
    return lambda reading: {} if reading.store is None else read(reading.store)


def _work(stats: SessionStats) -> _Values:
    parts = ("vision", "prefill", "scoring", "compaction", "store")
    return {(part,): getattr(stats, f"{part}_s") for part in parts}


@dataclass(frozen=True, slots=True)
class _Family:
    """A metric that is read; one whose name ends in ``_total`` is a counter."""

    name: str
    help: str
    read: Callable[[StreamReading], _Values]
    labels: tuple[str, ...] = ()


_FAMILIES: Final = (
    _Family(
        "stream_state",
        "1 for the state a stream is in, 0 for the others.",
        lambda r: _one_of(r.health.state, get_args(SourceState)),
        ("state",),
    ),
    _Family("stream_fps", "Frames per second that arrived lately.", lambda r: {(): r.health.fps}),
    _Family(
        "stream_lag_seconds",
        "Seconds between arrival and hand-over of the newest frame.",
        lambda r: {(): r.health.lag_s},
    ),
    _Family(
        "stream_silent_seconds",
        "Seconds since the last frame arrived; absent before the first.",
        lambda r: {} if r.health.silent_s is None else {(): r.health.silent_s},
    ),
    _Family(
        "stream_frozen",
        "1 while frames arrive that all show the same picture.",
        lambda r: {(): float(r.health.is_frozen)},
    ),
    _Family(
        "stream_reconnects_total",
        "Connections made after the first.",
        lambda r: {(): r.health.num_reconnects},
    ),
    _Family("frames_received_total", "Frames that arrived.", lambda r: {(): r.health.num_frames}),
    _Family(
        "frames_dropped_total",
        "Frames that arrived and were not watched, by reason.",
        lambda r: _by_key(r.health.num_dropped),
        ("reason",),
    ),
    _Family(
        "decode_errors_total",
        "Packets that could not be decoded.",
        lambda r: {(): r.health.num_decode_errors},
    ),
    _Family("queue_depth", "Frames that wait to be watched.", lambda r: {(): r.queue_depth}),
    _Family(
        "memory_bytes",
        "Bytes taken by the memory of a stream, by tier.",
        lambda r: {**_device_bytes(r), **_of_tiers(r, 0)},
        ("tier",),
    ),
    _Family(
        "memory_limit_bytes",
        "Bytes that the memory of a stream may take, by tier.",
        lambda r: {**_device_limit(r), **_of_tiers(r, 1)},
        ("tier",),
    ),
    _Family(
        "memory_segments",
        "Segments held, by tier; source stands for pictures.",
        lambda r: _of_tiers(r, 2),
        ("tier",),
    ),
    _Family(
        "memory_slots",
        "Occupied token slots of the fullest layer on the device.",
        _of_stats(lambda s: {(): max((layer.slots for layer in s.layers), default=0)}),
    ),
    _Family(
        "memory_slots_limit",
        "Most token slots that a layer may occupy; absent without a limit.",
        _of_stats(lambda s: {} if s.device_tokens is None else {(): s.device_tokens}),
    ),
    _Family(
        "memory_frames",
        "Frames taken in over the whole life of the memory, restarts included.",
        _of_stats(lambda s: {(): s.num_frames}),
    ),
    _Family(
        "memory_evictions_total",
        "Segments that were given up because of a cap.",
        _of_store(lambda c: {(): c.num_evicted}),
    ),
    _Family(
        "memory_hits_total",
        "Segments read for questions, by the tier that served them.",
        _of_store(lambda c: _by_key(c.hits)),
        ("tier",),
    ),
    _Family(
        "memory_misses_total",
        "Segments that could not be read for questions, by reason.",
        _of_store(lambda c: _by_key(c.misses)),
        ("reason",),
    ),
    _Family("storage_bytes", "Bytes taken on disk.", lambda r: _storage(r, 0)),
    _Family("storage_limit_bytes", "Bytes that may be taken on disk.", lambda r: _storage(r, 1)),
    _Family(
        "storage_state",
        "1 for the state that writing is in, 0 for the others.",
        _of_stats(lambda s: _one_of(s.store_state, STORE_STATES)),
        ("state",),
    ),
    _Family(
        "storage_writes_dropped_total",
        "Writes that were given up.",
        _of_store(lambda c: {(): c.num_dropped_writes}),
    ),
    _Family(
        "storage_writes_failed_total",
        "Attempts to write that failed; most were repeated.",
        _of_store(lambda c: {(): c.num_failed_writes}),
    ),
    _Family(
        "stream_work_seconds_total",
        "Seconds of work done for a stream, by part.",
        _of_stats(_work),
        ("part",),
    ),
)


class _Total:
    """A counter that goes on when what it is read from begins at 0 again."""

    __slots__ = ("before", "last")

    def __init__(self) -> None:
        self.before = self.last = 0.0

    def read(self, value: float) -> None:
        if value < self.last:
            self.retire()
        self.last = value

    def retire(self) -> None:
        """What is read next comes on top."""
        self.before, self.last = self.before + self.last, 0.0


#: Of one stream, by family and labels.
_Totals = dict[tuple[str, tuple[str, ...]], _Total]


class Scrape(Collector):
    """Joins pushed events with what the streams tell at this moment."""

    def __init__(
        self,
        readings: Callable[[], Sequence[StreamReading]],
        events: Sequence[Counter | Histogram],
        stream_events: Sequence[Counter | Histogram],
        failures: Counter,
        label: Callable[[str], str],
    ) -> None:
        self._readings, self._label = readings, label
        self._events = (*stream_events, *events, failures)
        self._stream_events, self._failures = stream_events, failures
        self._lock = threading.Lock()
        self._totals: dict[str, _Totals] = {}
        #: Labels of streams that were there and are not, oldest first.
        self._gone: dict[str, None] = {}

    def collect(self) -> list[Metric]:
        # One scrape at a time: a reading that overtakes an older one would look like a restart.
        with self._lock:
            streams = self._read()
            if streams is not None:
                self._note_gone(streams)
            events = [self._visible(metric) for event in self._events for metric in event.collect()]
            build = InfoMetricFamily("hermes_like_build", "The running version.")
            build.add_metric([], {"version": __version__})
            count = GaugeMetricFamily("hermes_like_streams", "Streams that are known.")
            if streams is not None:
                count.add_metric([], len(streams))
            families = [self._family(family, streams or {}) for family in _FAMILIES]
            return [build, count, *families, *events]

    def _read(self) -> dict[str, StreamReading] | None:
        try:
            return {self._label(reading.stream): reading for reading in self._readings()}
        except Exception:  # whatever the owner does, its other figures can be read
            logger.warning("metrics: the streams could not be read", exc_info=True)
            self._failures.inc()
            return None

    def _note_gone(self, streams: Mapping[str, StreamReading]) -> None:
        for stream in set(self._totals) - set(streams) - set(self._gone):
            self._gone[stream] = None
            for total in self._totals[stream].values():
                total.retire()
        for stream in streams:
            self._gone.pop(stream, None)
            self._totals.setdefault(stream, {})
        while len(self._gone) > MAX_GONE:
            stream = next(iter(self._gone))
            del self._gone[stream], self._totals[stream]
            for event in self._stream_events:
                event.remove_by_labels({"stream": stream})

    def _visible(self, metric: Metric) -> Metric:
        """Without streams that are gone, and without times of creation."""
        metric.samples = [
            sample
            for sample in metric.samples
            if sample.labels.get("stream") not in self._gone
            and not sample.name.endswith("_created")
        ]
        return metric

    def _family(self, family: _Family, streams: Mapping[str, StreamReading]) -> Metric:
        is_counter = family.name.endswith("_total")
        kind = CounterMetricFamily if is_counter else GaugeMetricFamily
        metric = kind(
            f"hermes_like_{family.name}",
            family.help,
            labels=("stream", *family.labels),
            unit=unit_of(family.name),
        )
        for stream, reading in streams.items():
            values = family.read(reading)
            if is_counter:
                values = self._count(stream, family.name, values)
            for labels, value in values.items():
                metric.add_metric((stream, *labels), value)
        return metric

    def _count(self, stream: str, family: str, values: _Values) -> _Values:
        totals = self._totals[stream]
        for labels, value in values.items():
            totals.setdefault((family, labels), _Total()).read(value)
        return {
            labels: total.before + total.last
            for (name, labels), total in totals.items()
            if name == family
        }


def unit_of(name: str) -> str:
    last = name.removesuffix("_total").rpartition("_")[2]
    return last if last in ("seconds", "bytes") else ""
