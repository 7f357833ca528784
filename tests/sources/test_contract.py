"""One contract for every source: readers, image folder, sprites, watchdog, live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hermes_like.config import SourceConfig
from hermes_like.errors import SessionStateError, SourceOpenError
from hermes_like.frames import sampled
from hermes_like.sources import open_source
from hermes_like.sources.base import FrameSource
from hermes_like.sources.live.source import LiveSource
from hermes_like.sources.watchdog import WatchdogSource
from tests.sources.clip_factory import barcode, read_barcode
from tests.sources.conftest import MakeClip, skip_without_reader
from tests.sources.scripted import StepClock, contract_script

NUM_FRAMES = 12
FPS = 4
START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)

Opener = Callable[..., FrameSource]
KINDS = ["pyav", "opencv", "decord", "folder", "sprites", "watchdog", "live"]


@pytest.fixture(params=KINDS)
def open_it(request: pytest.FixtureRequest, make_clip: MakeClip, tmp_path: Path) -> Opener:
    """Open a source of 12 frames, four per second; keywords go into its configuration."""
    kind = request.param
    if kind == "live":
        return _open_live
    reference: str | Path
    if kind == "sprites":
        reference = f"sprites:seed=3,frames={NUM_FRAMES},fps={FPS}"
    elif kind == "folder":
        reference = tmp_path
        for number in range(NUM_FRAMES):
            Image.fromarray(barcode(number)).save(tmp_path / f"frame{number}.png")
    else:
        reference = make_clip("contract.mp4", numbers=range(NUM_FRAMES), fps=FPS)

    def open_now(**changes: Any) -> FrameSource:
        if kind in {"pyav", "opencv", "decord"}:
            skip_without_reader(kind)
            changes["reader"] = kind
        if kind == "watchdog":
            changes["watchdog_s"] = 20.0
        changes.setdefault("sample_fps", FPS)
        return open_source(reference, SourceConfig(**changes))

    return open_now


def _open_live(**changes: Any) -> FrameSource:
    """A scripted camera that ends; time passes only while it is waited for."""
    config = SourceConfig(handoff="queue", read_ahead_frames=NUM_FRAMES, **changes)
    clock = StepClock(START)
    script = contract_script(clock, NUM_FRAMES, FPS)
    return LiveSource("live", config, connect=lambda: script, clock=clock, is_lasting=False)


def test_frames_are_rgb_in_time_order_with_true_times(open_it: Opener) -> None:
    with open_it() as source:
        frames = list(source)
    assert len(frames) == NUM_FRAMES
    assert [frame.index for frame in frames] == list(range(NUM_FRAMES))
    np.testing.assert_allclose([f.pts_s for f in frames], np.arange(NUM_FRAMES) / FPS, atol=1e-3)
    for frame in frames:
        assert frame.image.shape == (240, 320, 3)
        assert frame.image.dtype == np.uint8
        assert frame.image.flags.c_contiguous
        assert (frame.wall_time is not None) == source.is_live
    assert source.num_dropped == 0
    assert source.warnings == ()


def test_pictures_are_the_right_ones_and_not_shared(open_it: Opener) -> None:
    with open_it() as source:
        frames = list(source)
    if not source.name.startswith("sprites:"):
        assert [read_barcode(frame.image) for frame in frames] == list(range(NUM_FRAMES))
        assert all(tuple(f.image[10, 10] > 128) == (True, False, False) for f in frames)
    assert len({frame.image.ctypes.data for frame in frames}) == NUM_FRAMES


def test_start_time_gives_every_frame_a_wall_time(open_it: Opener) -> None:
    with open_it(start_time=START) as source:
        for frame in source:
            assert frame.wall_time is not None
            assert (frame.wall_time - START).total_seconds() == pytest.approx(frame.pts_s, abs=1e-5)


def test_select_asks_once_per_frame_in_order(open_it: Opener) -> None:
    asked: list[float] = []

    def wanted(pts_s: float) -> bool:
        asked.append(pts_s)
        return len(asked) % 3 == 1

    with open_it() as source:
        picked = [frame.index for frame in source.select(wanted)]
    assert picked == [0, 3, 6, 9]
    assert len(asked) == NUM_FRAMES
    assert asked == sorted(asked)


def test_a_source_is_read_once(open_it: Opener) -> None:
    with open_it() as source:
        next(iter(source))
        with pytest.raises(SessionStateError, match="read once"):
            iter(source)


def test_a_closed_source_stops_at_once(open_it: Opener) -> None:
    source = open_it()
    frames = iter(source)
    next(frames)
    source.close()
    source.close()
    assert list(frames) == []

    never_read = open_it()
    never_read.close()
    assert list(never_read) == []


def test_close_from_another_thread_stops_the_reader(open_it: Opener) -> None:
    source = open_it()
    frames = iter(source)
    next(frames)
    has_one = threading.Event()
    ended = threading.Event()

    def read() -> None:
        for _ in frames:
            has_one.set()
            time.sleep(0.01)
        ended.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert has_one.wait(5)
    started = time.monotonic()
    source.close()
    assert ended.wait(1.0)
    assert time.monotonic() - started < 1.0
    thread.join()


def test_the_whole_frame_path(open_it: Opener) -> None:
    with sampled(open_it(), SourceConfig(sample_fps=1)) as feed:
        frames = list(feed)
    assert [frame.pts_s for frame in frames] == pytest.approx([0.0, 1.0, 2.0], abs=1e-3)
    assert feed.num_read == NUM_FRAMES
    assert feed.num_dropped == 0
    assert feed.num_skipped_duplicates == 0


@pytest.mark.parametrize("reader", ["auto", "pyav", "opencv", "decord"])
def test_a_missing_file_is_named(reader: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing.mp4"
    with pytest.raises(SourceOpenError, match=r"missing\.mp4: no such file"):
        open_source(missing, SourceConfig(reader=reader))
    with pytest.raises(SourceOpenError, match=r"missing\.mp4: no such file"):
        WatchdogSource(str(missing), SourceConfig(reader=reader, watchdog_s=20))


def test_an_unknown_kind_of_reference_lists_the_known_ones() -> None:
    with pytest.raises(SourceOpenError, match="did you mean 'sprites'"):
        open_source("sprite:seed=3")
