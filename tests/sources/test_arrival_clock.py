"""Stream time never goes back, follows the wall, and survives every clock of a camera."""

from __future__ import annotations

from datetime import timedelta, timezone

import numpy as np
import pytest

from hermes_like.sources.live.arrival_clock import ArrivalClock
from tests.sources.scripted import START, StepClock

WRAP_S = 2**33 / 90_000


def tell(times: ArrivalClock, clock: StepClock, gap_s: float, media_s: float | None) -> float:
    clock.now_s += gap_s
    return times.tell(media_s, clock.monotonic())


def test_second_zero_is_when_it_was_opened() -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    assert times.start == START
    assert tell(times, clock, 5.0, None) == pytest.approx(5.0)
    assert times.wall_time(5.0) == START + timedelta(seconds=5)


def test_start_time_is_the_wall_time_of_second_zero_and_gives_its_zone() -> None:
    zone = timezone(timedelta(hours=2))
    clock = StepClock()
    times = ArrivalClock(clock, (START - timedelta(hours=1)).astimezone(zone))
    assert tell(times, clock, 0.0, None) == pytest.approx(3600.0)
    assert times.wall_time(3600.0) == START
    assert times.wall_time(0.0).utcoffset() == timedelta(hours=2)


def test_media_times_give_the_spacing_where_arrivals_jitter() -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    rng = np.random.default_rng(5)
    told = []
    for index in range(100):
        late_s = 0.0 if index == 0 else float(rng.uniform(0.0, 0.15))
        told.append(times.tell(50.0 + index / 10, 1000.0 + index / 10 + late_s))
    np.testing.assert_allclose(np.diff(told), 0.1, atol=1e-9)


def test_nothing_lies_in_the_future_and_a_burst_at_the_beginning_is_the_past() -> None:
    """A playlist hands over six seconds at once, and then in time."""
    clock = StepClock()
    times = ArrivalClock(clock)
    burst = [tell(times, clock, 0.001, i / 10) for i in range(60)]
    assert max(burst) <= clock.now_s - 1000.0 + 1e-9
    later = [tell(times, clock, 0.1, 6.0 + i / 10) for i in range(20)]
    np.testing.assert_allclose(np.diff(later), 0.1, atol=1e-9)


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0, -WRAP_S, 12.0, -2.0])
def test_a_jump_of_the_senders_clock_leaves_no_trace(step_s: float) -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    media_s = WRAP_S - 1.0
    told = [tell(times, clock, 0.1, media_s + i / 10) for i in range(10)]
    media_s += 1.0 + step_s
    told += [tell(times, clock, 0.1, media_s + i / 10) for i in range(10)]
    np.testing.assert_allclose(np.diff(told), 0.1, atol=1e-6)
    assert times.num_jumps == 1


def test_a_hole_in_the_footage_is_a_hole_in_stream_time() -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    before_s = tell(times, clock, 0.1, 7.0)
    times.join()
    after_s = tell(times, clock, 600.0, 0.0)  # the camera was started again
    assert after_s - before_s == pytest.approx(600.0)
    assert times.num_jumps == 0


@pytest.mark.parametrize("rate", [0.9999, 1.0001])
def test_a_clock_that_drifts_is_followed(rate: float) -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    for index in range(100_000):
        told_s = tell(times, clock, 1.0, index * rate)
    assert told_s == pytest.approx(100_000.0, abs=0.1)
    assert times.num_jumps == 0


def test_a_clock_that_stands_still_does_not_stop_time() -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    told = [tell(times, clock, 1.0, 42.0) for _ in range(200)]
    assert told[-1] == pytest.approx(200.0, abs=11.0)
    assert told == sorted(told)


@pytest.mark.parametrize("media_s", [None, float("nan"), float("inf")])
def test_without_a_clock_arrivals_count(media_s: float | None) -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    told = [tell(times, clock, gap, media_s) for gap in (1.0, 0.5, 2.0)]
    assert told == pytest.approx([1.0, 1.5, 3.5])


def test_a_step_of_the_wall_clock_back_moves_nothing() -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    first_s = tell(times, clock, 1.0, None)
    clock.set_wall(-86_400)
    times.join()
    assert tell(times, clock, 1.0, None) == pytest.approx(first_s + 1.0)


def test_a_step_of_the_wall_clock_forwards_is_followed_at_the_next_connection() -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    tell(times, clock, 1.0, None)
    clock.set_wall(3600.0)
    assert tell(times, clock, 1.0, None) == pytest.approx(2.0)
    times.join()
    assert tell(times, clock, 1.0, None) == pytest.approx(3603.0)
    assert times.wall_time(3603.0) == clock.wall()


def test_the_first_frame_comes_after_what_is_remembered_and_time_goes_on_from_there() -> None:
    clock = StepClock()
    times = ArrivalClock(clock, START + timedelta(seconds=100))  # the wall clock was set back
    times.start_after(500.0)
    first_s = tell(times, clock, 0.0, None)
    assert 500.0 < first_s < 500.1
    assert tell(times, clock, 2.0, None) == pytest.approx(first_s + 2.0)


def test_ages_count_back_but_never_behind_the_last() -> None:
    clock = StepClock()
    times = ArrivalClock(clock)
    clock.now_s += 100.0
    assert times.tell(None, clock.now_s, 60.0) == pytest.approx(40.0)
    assert times.tell(None, clock.now_s, 90.0) == pytest.approx(40.0)
