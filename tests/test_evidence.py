"""Attention by frame becomes spans of stream time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from hermes_like.evidence import EvidenceCollector, deep_heads
from hermes_like.memory.attention import AttentionProbe
from hermes_like.memory.provenance import SUMMARY_TOP, FrameRecord, FrameTable


def table(times: list[float]) -> FrameTable:
    frames = FrameTable()
    for frame, pts_s in enumerate(times):
        frames.add(frame, FrameRecord(pts_s, None, frame // 4))
    return frames


def collect(mass: list[float], ids: list[int], reads: int = 1) -> EvidenceCollector:
    """A collector that has read one layer whose tokens (2 a frame) got this mass."""
    collector = EvidenceCollector({0: (0,)}, tokens_per_frame=2)
    cache = SimpleNamespace(layers=[SimpleNamespace(ids=torch.tensor(ids))])
    for _ in range(reads):
        probe = AttentionProbe()
        probe.mass[0] = torch.tensor([mass])
        collector.add(probe, cache)  # type: ignore[arg-type]
    return collector


def test_neighbouring_strong_frames_are_one_span() -> None:
    ids = [-1, *range(12)]
    mass = [0.3, 0, 0, 0.1, 0.1, 0.2, 0.1, 0.01, 0, 0, 0, 0.1, 0.09]
    spans = collect(mass, ids, reads=3).spans(table([0, 1, 2, 3, 5, 8]), stream="s", most=5)
    assert [(s.start_s, s.end_s) for s in spans] == [(1.0, 3.0), (8.0, 11.0)]
    assert spans[0].score == pytest.approx(0.5 / 0.7, abs=1e-4)
    assert spans[0].segment_id == 0
    assert spans[1].segment_id == 1


def test_tokens_that_are_no_video_do_not_count() -> None:
    ids = [-1, SUMMARY_TOP - 5, 0, 1, -7]
    spans = collect([0.4, 0.3, 0.1, 0.1, 0.1], ids).spans(table([4.0]), stream="s", most=1)
    assert spans[0].score == pytest.approx(1.0)


def test_no_attention_on_video_is_no_evidence() -> None:
    collector = collect([0.99, 0.005, 0.005], [-1, 0, 1])
    assert collector.spans(table([0.0]), stream="s", most=3) == ()


def test_frames_that_are_gone_are_not_evidence() -> None:
    frames = table([0.0, 1.0])
    frames.prune([1])
    spans = collect([0.5, 0.5, 0.5, 0.4], [0, 1, 2, 3]).spans(frames, stream="s", most=3)
    assert [s.start_s for s in spans] == [1.0]


def test_most_limits_the_spans() -> None:
    collector = collect([0.3, 0.2, 0, 0, 0.2, 0.2], [0, 1, 2, 3, 4, 5])
    frames = table([0.0, 1.0, 2.0])
    assert len(collector.spans(frames, stream="s", most=9)) == 2
    assert len(collector.spans(frames, stream="s", most=1)) == 1
    assert collector.spans(frames, stream="s", most=0) == ()


def test_deep_heads_are_all_heads_of_the_deep_band() -> None:
    assert deep_heads(["shallow", "middle", "deep", "deep"], 2) == {2: (0, 1), 3: (0, 1)}
