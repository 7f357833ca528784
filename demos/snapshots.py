"""What a memory holds at one moment and how it got there, read between two steps of the engine.

Knows sessions; it draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hermes_like.cli.history import Held, held_frames
from hermes_like.records import Band, SessionStats
from hermes_like.session import StreamSession

#: Most samples kept of the past; when it is passed, every second one is dropped.
MAX_SAMPLES = 240
#: Places where a segment may be read from, nearest first.
PLACES = ("host", "disk", "remote", "source")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of stream time, in seconds, and the place from which it would be read."""

    start_s: float
    end_s: float
    place: str


@dataclass(frozen=True, slots=True)
class Sample:
    """Sizes at one stream time.

    Attributes:
        stream_s: When.
        used_bytes: By tier: ``device``, ``host``, ``disk``.
        kept_tokens: By band, mean slots per layer with tokens of the video.
    """

    stream_s: float
    used_bytes: dict[str, int]
    kept_tokens: dict[Band, float]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A memory at one moment.

    Attributes:
        stats: Its numbers.
        held: Frames on the device, by band.
        short_since_s: Stream time from which on everything on the device is short-term.
        stored: Long-term segments, joined where neighbours lie in the same place.
        pictured: Stretches of which a picture is stored.
        samples: Sizes until now.
        caps_bytes: By tier.
        tokens_per_frame: Tokens of a whole frame in one layer.
    """

    stats: SessionStats
    held: dict[Band, Held]
    short_since_s: float
    stored: tuple[Span, ...]
    pictured: tuple[Span, ...]
    samples: tuple[Sample, ...]
    caps_bytes: dict[str, int]
    tokens_per_frame: int


class MemoryLog:
    """Samples of one session, and its newest snapshot.

    :meth:`note` must not run while the memory changes: it is called in the engine's own thread
    after a step, or while nothing is watched.
    """

    def __init__(self, session: StreamSession) -> None:
        self._session = session
        self._samples: list[Sample] = []
        self.newest: Snapshot | None = None

    def note(self) -> None:
        """Look at the memory."""
        session = self._session
        stats, held = session.stats(), held_frames(session)
        sample = _sample(stats)
        if self._samples and self._samples[-1].stream_s == sample.stream_s:
            self._samples.pop()
        self._samples.append(sample)
        if len(self._samples) > MAX_SAMPLES:
            del self._samples[-3::-2]
        stored, pictured = _stored(session)
        tokens_per_frame = session.model.dims.tokens_per_frame
        self.newest = Snapshot(
            stats=stats,
            held=held,
            short_since_s=_short_since(stats, held, tokens_per_frame),
            stored=stored,
            pictured=pictured,
            samples=tuple(self._samples),
            caps_bytes=_caps(session, stats),
            tokens_per_frame=tokens_per_frame,
        )


def _sample(stats: SessionStats) -> Sample:
    bands: dict[Band, list[int]] = {}
    for layer in stats.layers:
        bands.setdefault(layer.band, []).append(layer.short + layer.mid + layer.summary)
    return Sample(
        stats.stream_s,
        {"device": stats.device_bytes, **{name: used for name, (used, _, _) in _tiers(stats)}},
        {band: float(np.mean(counts)) for band, counts in bands.items()},
    )


def _tiers(stats: SessionStats) -> list[tuple[str, tuple[int, int, int]]]:
    """RAM and disk; pictures are a part of the disk."""
    rows: dict[str, tuple[int, int, int]] = {}
    for name, (used, cap, count) in stats.tiers.items():
        place = "host" if name == "host" else "disk"
        before = rows.get(place, (0, 0, 0))
        rows[place] = (before[0] + used, before[1] + cap, before[2] + count)
    return list(rows.items())


def _caps(session: StreamSession, stats: SessionStats) -> dict[str, int]:
    caps = {name: cap for name, (_, cap, _) in _tiers(stats)}
    if "disk" in caps:
        caps["disk"] = session.config.store.disk_bytes
    return {"device": session.promised_device_bytes, **caps}


def _short_since(stats: SessionStats, held: dict[Band, Held], tokens_per_frame: int) -> float:
    """Layers agree on what is short-term: compaction runs for all of them at once."""
    newest = max((h.pts_s for h in held.values() if len(h.pts_s)), key=len, default=None)
    count = max((layer.short for layer in stats.layers), default=0) // tokens_per_frame
    if newest is None or not count:
        return float("inf")
    return float(newest[-min(count, len(newest))])


def _stored(session: StreamSession) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    long_term = session.long_term
    if long_term is None:
        return (), ()
    stored: list[Span] = []
    pictured: list[Span] = []
    for segment in long_term.timeline.between(None, None):
        has_pictures = long_term.has_pictures(segment.segment_id)
        place = long_term.chain.where(segment.segment_id) or ("source" if has_pictures else None)
        for start_s, end_s in segment.spans():
            if place is not None:
                _join(stored, Span(start_s, end_s, place))
            if has_pictures:
                _join(pictured, Span(start_s, end_s, "source"))
    return tuple(stored), tuple(pictured)


def _join(spans: list[Span], span: Span) -> None:
    if spans and spans[-1].place == span.place and spans[-1].end_s >= span.start_s - 1e-6:
        spans[-1] = Span(spans[-1].start_s, span.end_s, span.place)
    else:
        spans.append(span)
