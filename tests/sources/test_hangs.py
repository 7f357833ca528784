"""A failure on either side reaches the other within a second, whatever the queue holds."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Generator, Iterator

import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError
from hermes_like.frames import FrameFeed, sampled
from hermes_like.records import Frame
from hermes_like.sources.base import Wanted
from tests.sources.fake_sources import NUM_GOOD_FRAMES, FakeSource

EVERY = SourceConfig(sample_fps=None, read_ahead_frames=4)
LIMIT_S = 1.0


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + LIMIT_S
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def _fill(feed: FrameFeed, source: FakeSource) -> None:
    """Wait until the reader is blocked on the full queue."""
    next(feed)
    deadline = time.monotonic() + 5
    while source.num_made < 1 + EVERY.read_ahead_frames + 1:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_consumer_error_stops_the_reader() -> None:
    source = FakeSource("endless")
    started = 0.0
    with pytest.raises(ValueError, match="consumer"), sampled(source, EVERY) as feed:  # noqa: PT012
        _fill(feed, source)
        started = time.monotonic()
        raise ValueError("consumer")
    assert time.monotonic() - started < LIMIT_S
    assert source.was_released.is_set()


def test_reader_error_reaches_the_consumer_after_the_good_frames() -> None:
    started = time.monotonic()
    seen = []
    with sampled(FakeSource("error"), EVERY) as feed:
        with pytest.raises(SourceError, match="fell over"):
            seen.extend(frame.index for frame in feed)  # extend stops at the error
        with pytest.raises(StopIteration):
            next(feed)
    assert time.monotonic() - started < LIMIT_S
    assert feed.num_read == NUM_GOOD_FRAMES


def test_frames_before_an_error_are_delivered() -> None:
    seen = []
    with sampled(FakeSource("error"), EVERY) as feed, pytest.raises(SourceError):  # noqa: PT012
        for frame in feed:
            seen.append(frame.index)
    assert seen == list(range(NUM_GOOD_FRAMES))


def test_a_bug_in_a_reader_reaches_the_consumer_too() -> None:
    with sampled(FakeSource("bug"), EVERY) as feed, pytest.raises(ZeroDivisionError):
        list(feed)


class StuckSource(FakeSource):
    """A native call that does not return until ``gate`` opens."""

    def __init__(self) -> None:
        super().__init__("end")
        self.gate = threading.Event()

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        self.gate.wait(30)
        yield from super()._read(wanted)


def test_close_returns_although_the_reader_hangs(caplog: pytest.LogCaptureFixture) -> None:
    source = StuckSource()
    ended = threading.Event()
    feed = sampled(source, EVERY)

    def consume() -> None:
        list(feed)
        ended.set()

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    time.sleep(0.05)
    started = time.monotonic()
    feed.close()
    assert time.monotonic() - started < LIMIT_S
    assert ended.wait(LIMIT_S)
    assert "fake:end: the reader did not stop yet" in caplog.text
    assert not source.was_released.is_set()
    source.gate.set()
    assert source.was_released.wait(LIMIT_S)
    thread.join()


def test_close_unblocks_a_reader_on_a_full_queue_and_counts_what_is_left() -> None:
    source = FakeSource("endless")
    feed = sampled(source, EVERY)
    _fill(feed, source)
    started = time.monotonic()
    feed.close()
    assert time.monotonic() - started < LIMIT_S
    assert feed.num_dropped == source.num_made - 1
    assert list(feed) == []
    feed.close()


def test_read_ahead_is_bounded() -> None:
    source = FakeSource("endless")
    with sampled(source, EVERY) as feed:
        for _ in range(3):
            next(feed)
        time.sleep(0.1)
        assert source.num_made <= 3 + EVERY.read_ahead_frames + 1


def test_a_forgotten_feed_ends_its_thread() -> None:
    source = FakeSource("endless")
    feed = sampled(source, EVERY)
    _fill(feed, source)
    del feed
    gc.collect()


def test_a_feed_that_was_never_read_starts_no_thread() -> None:
    before = threading.active_count()
    source = FakeSource("endless")
    with sampled(source, EVERY):
        assert threading.active_count() == before
    assert source.was_released.is_set()


def test_four_threads_on_one_feed_share_its_frames() -> None:
    """A14: one owner thread reads; consumers may be many."""
    indices: list[int] = []
    with sampled(FakeSource("end"), EVERY) as feed:
        threads = [
            threading.Thread(target=lambda: indices.extend(f.index for f in feed)) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    assert sorted(indices) == list(range(NUM_GOOD_FRAMES))
