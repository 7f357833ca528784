"""Live sources that read from the disk: a folder being written, a file at the speed of life."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError, SourceOpenError
from hermes_like.records import Frame
from hermes_like.sources import open_source
from hermes_like.sources.live import folder_watch
from hermes_like.sources.live.clock import ScaledClock
from hermes_like.sources.live.folder_watch import FolderWatch, open_watch
from hermes_like.sources.live.network import open_webcam
from hermes_like.sources.live.pictures import Counts
from hermes_like.sources.live.realtime import open_realtime
from hermes_like.sources.live.source import LiveSource
from hermes_like.sources.live.webcam import read_webcam
from tests.sources.clip_factory import read_barcode
from tests.sources.conftest import MakeClip
from tests.sources.leaks import nothing_left
from tests.sources.live_servers import HEIGHT, WIDTH, damaged_jpeg, jpeg
from tests.sources.scripted import StepClock

CLOSE_S = 2.0
EVERY = SourceConfig(sample_fps=None)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def clip(make_clip: MakeClip) -> Path:
    return make_clip("short.mp4", numbers=range(12), fps=10, width=WIDTH, height=HEIGHT)


def close_in_time(source: LiveSource) -> None:
    started = time.monotonic()
    source.close()
    assert time.monotonic() - started < CLOSE_S


def numbers(frames: list[Frame]) -> list[int]:
    return [read_barcode(frame.image) for frame in frames]


def take(frames: Iterator[Frame], count: int) -> list[int]:
    return numbers([next(frames) for _ in range(count)])


def wait_until(is_so: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Watched:
    """A watched folder under accelerated time, into which files are written."""

    def __init__(self, folder: Path, ending: str = "") -> None:
        self.folder = folder
        self.source = open_watch(f"watch:{folder}{ending}", EVERY, ScaledClock(20.0))

    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path


def test_pictures_that_appear_are_read_once_in_order(tmp_path: Path) -> None:
    (tmp_path / "before.jpg").write_bytes(jpeg(99))
    watched = Watched(tmp_path)
    frames = iter(watched.source)
    for number in range(3):
        watched.write(f"picture{number}.jpg", jpeg(number))
        time.sleep(0.02)
    assert take(frames, 3) == [0, 1, 2]
    watched.write("notes.txt", b"no picture")
    watched.write("picture0.jpg", jpeg(7))  # written again, as some cameras do
    assert take(frames, 1) == [7]
    assert watched.source.num_dropped == 0
    close_in_time(watched.source)
    assert list(frames) == []


def test_what_is_there_is_read_if_asked_for(tmp_path: Path) -> None:
    for number in (10, 9):
        (tmp_path / f"p{number}.jpg").write_bytes(jpeg(number))
        os.utime(tmp_path / f"p{number}.jpg", (1e9, 1e9))
    watched = Watched(tmp_path, "?existing")
    assert take(iter(watched.source), 2) == [9, 10]
    close_in_time(watched.source)


def test_a_file_that_grows_is_not_read_before_it_is_complete(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    frames = iter(watched.source)
    whole = jpeg(5)
    path = watched.write("slow.jpg", whole[:600])
    time.sleep(0.2)  # four seconds of its time: long settled, and cut off
    watched.write("other.jpg", jpeg(6))
    assert take(frames, 1) == [6]
    with path.open("ab") as file:
        file.write(whole[600:])
    assert take(frames, 1) == [5]
    assert watched.source.health().num_dropped["damaged"] == 0
    close_in_time(watched.source)


def test_a_file_that_never_can_be_read_is_given_up_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(tmp_path)
    frames = iter(watched.source)
    watched.write("bad.jpg", damaged_jpeg(1))
    watched.write("bad.mp4", b"no clip" * 100)
    watched.write("empty.png", b"")
    wait_until(lambda: watched.source.health().num_dropped["damaged"] == 3)
    assert "bad.jpg" in caplog.text
    assert "bad.mp4" in caplog.text
    assert "empty.png" in caplog.text
    watched.write("good.jpg", jpeg(3))
    assert take(frames, 1) == [3]
    close_in_time(watched.source)


def test_clips_that_appear_are_read_whole_at_the_times_they_show(
    tmp_path: Path, clip: Path
) -> None:
    """A slow consumer is waited for: files do not run away."""
    clock = ScaledClock(20.0)
    source = open_watch(f"folder:{tmp_path}?live", EVERY, clock)
    frames = iter(source)
    time.sleep(0.5)
    data = clip.read_bytes()
    path = tmp_path / "clip.mp4"
    path.write_bytes(data[: len(data) // 2])
    time.sleep(0.5)  # settled, and without its index
    (tmp_path / "part").write_bytes(data)
    now_s = clock.wall().timestamp()
    os.utime(tmp_path / "part", (now_s, now_s))
    (tmp_path / "part").replace(path)
    taken = []
    for frame in frames:
        taken.append(frame)
        time.sleep(0.01)
        if len(taken) == 12:
            break
    assert numbers(taken) == list(range(12))
    gaps = [after.pts_s - before.pts_s for before, after in pairwise(taken)]
    np.testing.assert_allclose(gaps, 0.1, atol=0.09)
    assert source.num_dropped == 0
    close_in_time(source)


def test_a_folder_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    watched = Watched(folder)
    frames = iter(watched.source)
    folder.rmdir()
    wait_until(lambda: watched.source.health().state == "offline")
    assert "no such file or directory" in watched.source.health().cause
    folder.mkdir()
    watched.write("new.jpg", jpeg(4))
    assert take(frames, 1) == [4]
    close_in_time(watched.source)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceOpenError, match="expected a folder, there is none"):
        open_source(f"watch:{tmp_path}/nothing")


def test_a_watch_ends_at_once_when_closed() -> None:
    watch = FolderWatch(Path("/nowhere"), StepClock(), seen={})
    watch.close()
    assert list(watch.arrivals()) == []
    assert folder_watch.SETTLE_S < folder_watch.GIVE_UP_S


def test_a_file_at_the_speed_of_life(clip: Path) -> None:
    started = time.monotonic()
    with open_source(f"realtime:{clip}", SourceConfig(handoff="queue")) as source:
        assert source.is_live
        frames = list(source)
    assert time.monotonic() - started > 1.05
    assert numbers(frames) == list(range(12))
    times = [frame.pts_s for frame in frames]
    assert times == sorted(times)
    assert times[-1] - times[0] == pytest.approx(1.1, abs=0.3)
    assert frames[0].wall_time is not None


def test_a_file_that_loops_goes_on_in_time(clip: Path) -> None:
    clock = StepClock()
    source = open_realtime(f"realtime:{clip}?loop", SourceConfig(handoff="queue"), clock)
    pictures = source._reader._connect().arrivals()
    times = [next(pictures).media_s for _ in range(30)]
    assert times == sorted(times)  # type: ignore[type-var]
    assert clock.now_s - 1000.0 == pytest.approx(times[-1])
    pictures.close()  # type: ignore[attr-defined]
    source.close()


def test_closing_between_two_pictures_of_a_file(make_clip: MakeClip) -> None:
    slow = make_clip("slow.mp4", numbers=range(3), times_s=[0, 600, 1200], fps=1)
    source = open_source(f"realtime:{slow}")
    assert isinstance(source, LiveSource)
    next(iter(source))
    close_in_time(source)


def test_a_file_that_is_none_is_told_and_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(SourceOpenError, match="no such file"):
        open_source(f"realtime:{tmp_path}/missing.mp4")
    text = tmp_path / "text.mp4"
    text.write_text("words")
    with open_source(f"realtime:{text}") as source, pytest.raises(SourceError, match=r"text\.mp4"):
        list(source)


def test_a_consumer_elsewhere_is_released_when_a_watch_is_closed(tmp_path: Path) -> None:
    source = open_source(f"watch:{tmp_path}")
    ended = threading.Event()
    thread = threading.Thread(target=lambda: (list(source), ended.set()))
    thread.start()
    time.sleep(0.05)
    source.close()
    assert ended.wait(1.0)
    thread.join()


def test_opencv_gives_pictures_and_says_when_there_are_none(clip: Path) -> None:
    """A file stands in for the device: OpenCV reads both through the same calls."""
    num_alive: list[None] = []
    request = {"name": "webcam:0", "device": str(clip)}
    arrivals = read_webcam(request, Counts(), lambda: num_alive.append(None))
    found = [read_barcode(a.to_image()) for a in arrivals]  # type: ignore[arg-type]
    assert found == list(range(12))
    assert len(num_alive) == 13
    with pytest.raises(SourceError, match="webcam:0: there is no such camera"):
        next(iter(read_webcam({**request, "device": "/nowhere"}, Counts(), lambda: None)))
    with pytest.raises(SourceOpenError, match="expected the number of a camera"):
        open_webcam("webcam:front", EVERY)
