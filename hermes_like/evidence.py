"""From attention on video tokens to spans of the stream an answer rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from hermes_like.memory import provenance
from hermes_like.memory.attention import AttentionProbe
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.provenance import FrameTable
from hermes_like.records import Evidence, Tier

#: A frame belongs to a span if it gets this share of the strongest frame's mass.
SPAN_THRESHOLD = 0.2
#: Below this share of all attention on video tokens, an answer rests on no frame in particular.
MIN_VIDEO_SHARE = 0.02


class EvidenceCollector:
    """Adds up attention by frame over the tokens of one answer.

    Args:
        heads: Layers and query heads to read.
        tokens_per_frame: Vision tokens of a frame.
    """

    def __init__(self, heads: dict[int, tuple[int, ...]], tokens_per_frame: int) -> None:
        self._heads, self._tokens_per_frame = heads, tokens_per_frame
        self._mass: dict[int, float] = {}
        self._num_reads = 0

    def probe(self) -> AttentionProbe:
        """A probe of the last query row, for one forward pass."""
        return AttentionProbe(rows=None, heads=self._heads)

    def add(self, probe: AttentionProbe, cache: HierarchicalCache) -> None:
        """Take in what a probe has read from a cache, right after the pass."""
        for layer, mass in probe.mass.items():
            frames = provenance.frames_of(cache.layers[layer].ids, self._tokens_per_frame)
            is_video = frames >= 0
            unique, inverse = torch.unique(frames[is_video], return_inverse=True)
            sums = torch.zeros(unique.shape[0], device=mass.device)
            sums.scatter_add_(0, inverse, mass[-1][is_video])
            for frame, value in zip(unique.tolist(), sums.tolist(), strict=True):
                self._mass[frame] = self._mass.get(frame, 0.0) + value
            self._num_reads += 1

    def spans(
        self,
        table: FrameTable,
        *,
        stream: str,
        most: int,
        tiers: Mapping[int, Tier] | None = None,
    ) -> tuple[Evidence, ...]:
        """The strongest spans, best first.

        Args:
            table: Times of the frames that were read.
            stream: Name of the stream.
            most: Most spans returned.
            tiers: Where frames came from; those not named were on the device.
        """
        total = sum(self._mass.values())
        if not most or not self._num_reads or total / self._num_reads < MIN_VIDEO_SHARE:
            return ()
        threshold = SPAN_THRESHOLD * max(self._mass.values())
        strong = sorted(f for f, mass in self._mass.items() if mass >= threshold and f in table)
        spans = [self._span(run, table, stream, total, tiers or {}) for run in _runs(strong)]
        spans.sort(key=lambda span: -span.score)
        return tuple(spans[:most])

    def _span(
        self,
        run: Sequence[int],
        table: FrameTable,
        stream: str,
        total: float,
        tiers: Mapping[int, Tier],
    ) -> Evidence:
        first = table[run[0]]
        best = max(run, key=lambda frame: self._mass[frame])
        return Evidence(
            stream=stream,
            segment_id=table[best].segment_id,
            start_s=first.pts_s,
            end_s=table.end_of(run[-1]),
            wall_time=first.wall_time,
            score=sum(self._mass[frame] for frame in run) / total,
            tier=tiers.get(best, "device"),
        )


def _runs(frames: Sequence[int]) -> list[list[int]]:
    """Ascending numbers, split where they are not consecutive."""
    runs: list[list[int]] = []
    for frame in frames:
        if runs and frame == runs[-1][-1] + 1:
            runs[-1].append(frame)
        else:
            runs.append([frame])
    return runs


def deep_heads(bands: Sequence[str], num_heads: int) -> dict[int, tuple[int, ...]]:
    """All heads of the deep band: where evidence is read when a model has no calibrated heads."""
    everything = tuple(range(num_heads))
    return {layer: everything for layer, band in enumerate(bands) if band == "deep"}
