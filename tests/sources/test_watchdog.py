"""A03: native calls that never return, or that take the process with them."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator

import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError, SourceStalledError
from hermes_like.frames import sampled
from hermes_like.sources.watchdog import WatchdogSource
from tests.sources.fake_sources import NUM_GOOD_FRAMES

OPENER = "tests.sources.fake_sources:open_fake"
CONFIG = SourceConfig(watchdog_s=0.5)


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def watch(reference: str) -> WatchdogSource:
    return WatchdogSource(reference, CONFIG, opener=OPENER)


def test_a_reader_that_sleeps_forever_is_ended_and_named() -> None:
    indices = []
    with watch("sleep") as source:
        started = 0.0
        with pytest.raises(SourceStalledError, match=r"^sleep: .*0\.5 s"):  # noqa: PT012
            for frame in source:
                indices.append(frame.index)
                started = time.monotonic()
        assert 0.4 < time.monotonic() - started < 2.0
    assert indices == list(range(NUM_GOOD_FRAMES))


def test_a_file_that_never_opens_is_ended_and_named() -> None:
    with pytest.raises(SourceStalledError, match=r"^never: "):
        watch("never")


def test_a_reader_that_takes_its_process_with_it_is_an_error() -> None:
    with watch("crash") as source, pytest.raises(SourceError, match=r"crash: .*exit code -6"):
        list(source)


def test_the_childs_error_arrives_with_its_type_and_words() -> None:
    with watch("error") as source, pytest.raises(SourceError, match="fell over"):
        list(source)


def test_a_slow_consumer_is_not_a_stalled_reader() -> None:
    with watch("end") as source:
        frames = iter(source)
        next(frames)
        time.sleep(0.8)
        assert [frame.index for frame in frames] == [1, 2]


def test_closing_while_the_reader_hangs_takes_less_than_a_second() -> None:
    source = WatchdogSource("sleep", SourceConfig(watchdog_s=30), opener=OPENER)
    ended = threading.Event()

    def consume() -> None:
        with sampled(source, SourceConfig(sample_fps=None)) as feed:
            list(feed)
        ended.set()

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    time.sleep(0.2)
    started = time.monotonic()
    source.close()
    assert ended.wait(1.0)
    assert time.monotonic() - started < 1.0
    thread.join()
