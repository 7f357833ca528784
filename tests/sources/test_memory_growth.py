"""A01: no reader fills memory while the consumer thinks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.frames import sampled
from hermes_like.sources import decord_file, open_source
from tests.sources.clip_factory import barcode
from tests.sources.conftest import MakeClip, skip_without_reader

NUM_FRAMES = 200
MEBI = 2**20
#: Allocators keep a little; unbounded decoding would take 530 MiB, and pictures kept alive by
#: reference cycles took 270 MiB once.
LIMIT_BYTES = 60 * MEBI


@pytest.fixture(scope="module")
def large_clip(make_clip: MakeClip) -> Path:
    """Seven seconds at 1280x720: 530 MiB when decoded."""
    picture = barcode(5, 1280, 720)
    return make_clip(
        "720p.mp4",
        width=1280,
        height=720,
        codec_options={"preset": "ultrafast"},
        numbers=range(NUM_FRAMES),
        make=lambda number: picture,
    )


def resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc on this system")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("reader", ["pyav", "opencv"])
def test_memory_stays_flat_while_the_consumer_waits(large_clip: Path, reader: str) -> None:
    skip_without_reader(reader)
    config = SourceConfig(reader=reader, sample_fps=None)  # type: ignore[arg-type]
    with sampled(open_source(large_clip, config), config) as feed:
        for _ in range(10):
            next(feed)
        time.sleep(0.4)
        before = resident_bytes()
        time.sleep(0.8)
        grown = resident_bytes() - before
        assert feed.num_read <= 10 + config.read_ahead_frames + 1
    assert grown < LIMIT_BYTES, f"grew by {grown / MEBI:.0f} MiB"


@pytest.mark.parametrize("reader", ["pyav", "opencv"])
def test_memory_stays_flat_over_the_whole_file(large_clip: Path, reader: str) -> None:
    skip_without_reader(reader)
    config = SourceConfig(reader=reader, sample_fps=None)  # type: ignore[arg-type]
    with sampled(open_source(large_clip, config), config) as feed:
        next(feed)
        before = resident_bytes()
        assert sum(1 for _ in feed) == NUM_FRAMES - 1
        grown = resident_bytes() - before
    assert grown < LIMIT_BYTES, f"grew by {grown / MEBI:.0f} MiB"


def test_decord_is_refused_where_its_own_read_ahead_could_pass_the_bound(
    large_clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decord decodes to the end of the file in the background, whatever is asked of it."""
    skip_without_reader("decord")
    monkeypatch.setattr(decord_file, "MAX_AHEAD_BYTES", 100 * MEBI)
    with pytest.raises(SourceOpenError, match=r"720p\.mp4: decord decodes ahead .* 0\.5 GiB"):
        open_source(large_clip, SourceConfig(reader="decord"))
