"""Sampling by time, stream clocks with absurd rates, near-duplicates: A09, A20."""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_like.config import SourceConfig
from hermes_like.frames import DuplicateFilter, TimeSampler, sampled
from hermes_like.records import Frame
from hermes_like.sources.base import Wanted
from hermes_like.sources.clock import DEFAULT_FPS, StreamClock, sane_fps
from hermes_like.sources.owned import OwnedSource

times_strategy = st.lists(st.floats(0, 500, allow_nan=False), max_size=80).map(sorted)
rates_strategy = st.floats(0.05, 200)


def pick(times: list[float], fps: float | None) -> list[float]:
    sampler = TimeSampler(fps)
    return [time for time in times if sampler.wants(time)]


@given(times_strategy, rates_strategy)
def test_each_due_time_gets_the_first_frame_at_or_after_it(times: list[float], fps: float) -> None:
    tolerance = min(0.001 * fps, 0.1)
    expected = []
    next_due = 0
    for time in times:
        if time * fps + tolerance >= next_due:
            expected.append(time)
            next_due = math.floor(time * fps + tolerance) + 1
    assert pick(times, fps) == expected


@given(times_strategy, rates_strategy)
def test_sampling_again_changes_nothing(times: list[float], fps: float) -> None:
    once = pick(times, fps)
    assert pick(once, fps) == once


@given(times_strategy, rates_strategy)
def test_counts_add_up(times: list[float], fps: float) -> None:
    sampler = TimeSampler(fps)
    num_wanted = sum(sampler.wants(time) for time in times)
    assert (sampler.num_seen, sampler.num_wanted) == (len(times), num_wanted)
    if times:
        last_due = math.floor(times[-1] * fps + min(0.001 * fps, 0.1))
        assert sampler.num_wanted + sampler.num_missing == last_due + 1


def test_times_rounded_to_milliseconds_lose_no_frame() -> None:
    times = [round(index / 30, 3) for index in range(300)]
    assert pick(times, 30) == times
    assert pick(times, 10) == times[::3]
    assert pick(times, None) == times


@pytest.mark.parametrize("declared", [0, float("nan"), float("inf"), -1, 90_000, 180_000, None])
def test_absurd_rates_are_not_believed(declared: float | None) -> None:
    assert sane_fps(declared) == DEFAULT_FPS
    clock = StreamClock(declared)
    assert [clock.tell(None) for _ in range(3)] == pytest.approx([0, 0.04, 0.08])
    measured = StreamClock(declared)
    assert [measured.tell(time) for time in (0.0, 0.5, 3.0)] == [0.0, 0.5, 3.0]
    assert measured.notes() == []


@pytest.mark.parametrize("declared", [0.5, 25, 29.97, 240])
def test_plausible_rates_are_believed(declared: float) -> None:
    assert sane_fps(declared) == declared


def test_small_steps_back_are_clamped_and_counted() -> None:
    clock = StreamClock(25)
    assert [clock.tell(time) for time in (0.0, 0.2, 0.1, 0.3)] == [0.0, 0.2, 0.2, 0.3]
    assert clock.num_clamped == 1
    assert "before their predecessor" in clock.notes()[0]


def test_a_slightly_negative_first_time_is_zero() -> None:
    clock = StreamClock(25)
    assert [clock.tell(time) for time in (None, -0.02, 0.04)] == [0.0, 0.0, 0.04]


def test_a_new_time_line_is_appended() -> None:
    clock = StreamClock(10)
    times = [clock.tell(time) for time in (0.0, 60.0, 0.0, 0.1, 5.0)]
    assert times == pytest.approx([0.0, 60.0, 60.1, 60.2, 65.1])
    assert clock.num_jumps == 1


@given(st.lists(st.none() | st.floats(-1e6, 1e6) | st.just(float("nan"))))
def test_the_clock_never_goes_back(times: list[float | None]) -> None:
    clock = StreamClock(None)
    told = [clock.tell(time) for time in times]
    assert told == sorted(told)
    assert all(math.isfinite(time) and time >= 0 for time in told)


class LevelSource(OwnedSource):
    """Grey pictures of given levels, one per second."""

    def __init__(self, levels: list[int]) -> None:
        super().__init__("levels", SourceConfig())
        self.levels = levels

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        for index, level in enumerate(self.levels):
            if wanted(float(index)):
                yield self._frame(np.full((480, 640, 3), level, np.uint8), index, float(index))


def test_near_duplicates_are_skipped_and_counted() -> None:
    levels = [100, 100, 101, 102, 103, 103, 200, 100]
    config = SourceConfig(skip_duplicates=True, duplicate_threshold=2)
    with sampled(LevelSource(levels), config) as feed:
        kept = [frame.index for frame in feed]
    assert kept == [0, 4, 6, 7]
    assert feed.num_skipped_duplicates == 4
    assert feed.num_read == 8
    with sampled(LevelSource(levels), SourceConfig()) as feed:
        assert len(list(feed)) == 8
    assert feed.num_skipped_duplicates == 0


def test_slow_drift_is_compared_with_the_last_kept_frame() -> None:
    config = SourceConfig(skip_duplicates=True, duplicate_threshold=2)
    with sampled(LevelSource(list(range(30))), config) as feed:
        assert [frame.index for frame in feed] == list(range(0, 30, 3))


def test_another_size_is_no_duplicate() -> None:
    duplicates = DuplicateFilter(255)
    assert not duplicates.is_duplicate(np.zeros((8, 8, 3), np.uint8))
    assert duplicates.is_duplicate(np.ones((8, 8, 3), np.uint8))
    assert not duplicates.is_duplicate(np.zeros((8, 9, 3), np.uint8))
