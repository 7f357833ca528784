"""The whole frame path on real videos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hermes_like.config import SourceConfig
from hermes_like.frames import sampled
from hermes_like.sources import open_source
from tests.sources.conftest import skip_without_reader

CONFIG = SourceConfig(sample_fps=2)


def test_every_clip_is_read_to_its_end(real_clips: dict[str, Path]) -> None:
    assert real_clips
    for path in real_clips.values():
        with sampled(open_source(path, CONFIG), CONFIG) as feed:
            frames = list(feed)
        times = [frame.pts_s for frame in frames]
        assert times == sorted(times)
        assert times[0] < 0.1
        assert feed.source.duration_s is not None
        assert times[-1] == pytest.approx(feed.source.duration_s, abs=1.0)
        assert len(frames) == pytest.approx(feed.source.duration_s * 2, abs=1.5)
        assert feed.num_dropped == 0
        assert feed.warnings == ()
        assert all(frame.image.std() > 5 for frame in frames[1:])


@pytest.mark.parametrize("reader", ["opencv", "decord"])
def test_readers_agree(real_clips: dict[str, Path], reader: str) -> None:
    skip_without_reader(reader)
    path = real_clips["bikes"]
    feeds = []
    for name in ("pyav", reader):
        config = SourceConfig(reader=name, sample_fps=2)  # type: ignore[arg-type]
        with sampled(open_source(path, config), config) as feed:
            feeds.append(list(feed))
    ours, theirs = feeds
    assert [f.index for f in ours] == [f.index for f in theirs]
    np.testing.assert_allclose([f.pts_s for f in ours], [f.pts_s for f in theirs], atol=2e-3)
    for one, other in zip(ours, theirs, strict=True):
        assert float(np.abs(one.image.astype(int) - other.image).mean()) < 4.0
