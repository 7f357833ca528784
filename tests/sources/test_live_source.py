"""The owner loop of live sources, with scripted connections: hand-off, states, pauses, closing."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SessionStateError, SourceError
from hermes_like.frames import sampled
from hermes_like.records import Frame, SourceHealth
from hermes_like.sources.live.backoff import BackOff
from hermes_like.sources.live.clock import Clock, ScaledClock
from hermes_like.sources.live.source import LiveSource
from tests.sources.clip_factory import read_barcode
from tests.sources.leaks import nothing_left
from tests.sources.scripted import START, Picture, Script, Scripts, StepClock

CLOSE_S = 2.0
QUEUE = SourceConfig(handoff="queue", read_ahead_frames=1000, freeze_s=None)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    with nothing_left():
        yield


def wait_until(is_so: Callable[[], bool], limit_s: float = 5.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def close_in_time(source: LiveSource) -> None:
    started = time.monotonic()
    source.close()
    assert time.monotonic() - started < CLOSE_S


def take(source: LiveSource, count: int) -> list[Frame]:
    frames = iter(source)
    return [next(frames) for _ in range(count)]


def test_it_reconnects_and_the_hole_is_a_hole_in_time() -> None:
    clock = StepClock()
    failure = SourceError("yard: connection reset")
    first = Script([Picture(0), Picture(1), failure], clock)
    second = Script([Picture(2), Picture(3)], clock, hangs=True)
    source = LiveSource(
        "yard",
        QUEUE,
        connect=Scripts(first, Script([failure], clock), Script([failure], clock), second),
        clock=clock,
        seed=7,
    )
    frames = take(source, 4)
    assert [read_barcode(frame.image) for frame in frames] == [0, 1, 2, 3]
    assert [frame.index for frame in frames] == [0, 1, 2, 3]
    pauses = [wait_s for wait_s in clock.waits_s if wait_s != 0.25]
    assert len(pauses) == 3
    for pause_s, full_s in zip(pauses, (1.0, 1.0 * 2, 1.0 * 4), strict=True):
        assert full_s / 2 <= pause_s <= full_s
    assert frames[2].pts_s - frames[1].pts_s == pytest.approx(sum(pauses) + 0.25)
    assert frames[3].wall_time == clock.wall()
    health = source.health()
    assert (health.state, health.num_reconnects, health.num_frames) == ("online", 1, 4)
    assert health.cause == "connection reset"
    close_in_time(source)
    assert first.threads == second.threads
    assert len(first.threads) == 1


def test_pauses_double_up_to_a_bound_with_jitter_and_begin_again() -> None:
    pauses = BackOff(1.0, 60.0, seed=3)
    told = [pauses.next_s() for _ in range(50)]
    for pause_s, full_s in zip(told, [1, 2, 4, 8, 16, 32] + [60] * 44, strict=True):
        assert full_s / 2 <= pause_s <= full_s
    assert len(set(told)) == 50
    pauses.reset()
    assert pauses.next_s() <= 1.0
    assert [BackOff(1.0, 60.0, seed=3).next_s() for _ in range(2)] == [told[0]] * 2
    assert BackOff(1.0, 60.0, seed=4).next_s() != told[0]


def test_a_slow_consumer_gets_the_newest_frame_and_the_rest_is_counted() -> None:
    clock = StepClock()
    gate, done = threading.Event(), threading.Event()
    steps = [Picture(0), gate.wait, *(Picture(i) for i in range(1, 10)), done.set]
    script = Script(steps, clock, hangs=True)
    source = LiveSource("yard", SourceConfig(), connect=Scripts(script), clock=clock)
    frames = iter(source)
    assert next(frames).index == 0
    gate.set()
    assert done.wait(5.0)  # pictures are counted before they are handed over
    assert source.health().num_frames == 10
    clock.now_s += 3.0
    newest = next(frames)
    assert (newest.index, read_barcode(newest.image)) == (9, 9)
    health = source.health()
    assert health.num_dropped == {"handoff": 8, "damaged": 0, "frozen": 0}
    assert source.num_dropped == 8
    assert health.lag_s == pytest.approx(3.0)
    close_in_time(source)


def test_a_bounded_queue_gives_way_at_its_old_end() -> None:
    clock = StepClock()
    config = SourceConfig(handoff="queue", read_ahead_frames=4)
    script = Script([Picture(i) for i in range(10)], clock, hangs=True)
    source = LiveSource("yard", config, connect=Scripts(script), clock=clock)
    frames = iter(source)
    wait_until(lambda: source.health().num_dropped["handoff"] == 6)
    assert [next(frames).index for _ in range(4)] == [6, 7, 8, 9]
    close_in_time(source)


def test_what_does_not_run_away_waits_for_the_consumer() -> None:
    clock = StepClock()
    script = Script([Picture(i) for i in range(30)], clock)
    source = LiveSource(
        "folder", connect=Scripts(script), clock=clock, is_lasting=False, waits_for_consumer=True
    )
    assert [frame.index for frame in source] == list(range(30))
    assert source.num_dropped == 0
    close_in_time(source)


def test_only_wanted_pictures_become_pixels_in_the_owner_thread() -> None:
    clock = StepClock()
    converted: list[int] = []
    askers: set[int] = set()

    class Recording(Picture):
        def image(self) -> None:
            converted.append(self.number)

    script = Script([Recording(i) for i in range(20)], clock)
    source = LiveSource("yard", connect=Scripts(script), clock=clock, is_lasting=False)

    def wanted(pts_s: float) -> bool:
        askers.add(threading.get_ident())
        return pts_s % 1.0 == 0.0

    assert list(source.select(wanted)) == []
    assert converted == [3, 7, 11, 15, 19]
    assert askers == script.threads
    assert threading.get_ident() not in askers
    health = source.health()
    assert health.num_dropped["damaged"] == 5
    assert health.num_decode_errors == 5


def test_a_feed_puts_no_queue_in_front_of_a_live_source() -> None:
    clock = StepClock()
    gate = threading.Event()
    script = Script([Picture(0), gate.wait, *(Picture(i) for i in range(1, 41))], clock, hangs=True)
    source = LiveSource("yard", SourceConfig(), connect=Scripts(script), clock=clock)
    with sampled(source, SourceConfig(sample_fps=1)) as feed:
        assert next(feed).index == 0
        threads = threading.active_count()
        gate.set()
        wait_until(lambda: source.health().num_frames == 41)
        assert next(feed).pts_s == pytest.approx(10.0)
        assert threading.active_count() == threads
        assert feed.num_read == 41
        assert feed.num_dropped == 9
    assert list(feed) == []


def test_a_stream_joined_late_has_missed_nothing() -> None:
    clock = StepClock()
    config = SourceConfig(start_time=START - timedelta(days=3), handoff="queue")
    script = Script([Picture(i) for i in range(20)], clock)
    source = LiveSource("yard", config, connect=Scripts(script), clock=clock, is_lasting=False)
    with sampled(source, config) as feed:
        assert len(list(feed)) == 6
        assert feed.warnings == ()


def test_states_from_connecting_to_offline() -> None:
    clock = StepClock()
    health: list[SourceHealth] = []
    config = SourceConfig(handoff="queue", stale_s=5.0)

    def look() -> None:
        health.append(source.health())

    def pass_time() -> None:
        clock.now_s += 5.1

    steps = [look, Picture(0), Picture(1), look, pass_time, look, Picture(2), look]
    first = Script([*steps, SourceError("yard: gone")], clock)
    second = Script([look, Picture(3), look], clock, hangs=True)
    source = LiveSource("yard", config, connect=Scripts(first, second), clock=clock)
    assert source.health().state == "connecting"
    assert source.health().silent_s is None
    take(source, 4)
    wait_until(lambda: len(health) == 6)
    found = [one.state for one in health]
    assert found == ["connecting", "online", "stale", "online", "offline", "online"]
    assert health[2].silent_s == pytest.approx(5.1)
    assert health[4].cause == "gone"
    close_in_time(source)


def test_a_source_that_was_never_there_is_offline_with_the_cause() -> None:
    source = LiveSource("yard", connect=Scripts(), clock=StepClock(), seed=1)
    iter(source)
    wait_until(lambda: source.health().cause != "")
    assert source.health().state == "offline"
    assert source.health().num_reconnects == 0
    close_in_time(source)


def test_the_rate_is_measured_and_falls_to_zero() -> None:
    clock = StepClock()
    script = Script([Picture(i, gap_s=0.04) for i in range(500)], clock, hangs=True)
    source = LiveSource("yard", connect=Scripts(script), clock=clock)
    iter(source)
    wait_until(lambda: source.health().num_frames == 500)
    assert source.health().fps == pytest.approx(25.0, abs=0.2)
    clock.now_s += 20.0
    assert source.health().fps == 0.0
    close_in_time(source)


def test_a_frozen_picture_is_noticed_counted_and_forgiven() -> None:
    clock = StepClock()
    config = SourceConfig(handoff="queue", read_ahead_frames=1000, freeze_s=10.0)
    looks: list[SourceHealth] = []
    frozen = [Picture(7, gap_s=1.0) for _ in range(20)]
    steps = [Picture(1), *frozen, lambda: looks.append(source.health()), Picture(2)]
    source = LiveSource(
        "yard", config, connect=Scripts(Script(steps, clock)), clock=clock, is_lasting=False
    )
    numbers = [read_barcode(frame.image) for frame in source]
    assert numbers == [1] + [7] * 10 + [2]
    assert (looks[0].state, looks[0].is_frozen) == ("stale", True)
    assert looks[0].num_dropped["frozen"] == 10
    assert looks[0].silent_s == 0.0
    assert not source.health().is_frozen


def test_disabling_pauses_without_ending_the_iteration() -> None:
    clock = StepClock()
    first = Script([Picture(0)], clock, hangs=True)
    second = Script([Picture(1)], clock, hangs=True)
    source = LiveSource("yard", QUEUE, connect=Scripts(first, second), clock=clock)
    frames = iter(source)
    next(frames)
    source.disable()
    assert source.health().state == "disabled"
    assert first.is_over.wait(1.0)
    time.sleep(0.05)
    assert not second.threads
    source.enable()
    assert next(frames).index == 1
    assert source.health().state == "online"
    assert source.health().cause == ""
    close_in_time(source)
    assert list(frames) == []


def test_closing_while_disabled() -> None:
    source = LiveSource("yard", connect=Scripts(), clock=StepClock())
    source.disable()
    iter(source)
    time.sleep(0.02)
    close_in_time(source)


def test_closing_in_a_pause_of_an_hour() -> None:
    config = SourceConfig(reconnect_first_s=3600, reconnect_most_s=3600)
    connect = Scripts()
    source = LiveSource("yard", config, connect=connect, clock=Clock())
    iter(source)
    wait_until(lambda: source.health().state == "offline")
    close_in_time(source)
    assert connect.num_attempts == 1


def test_closing_while_the_connection_hangs_and_a_consumer_waits() -> None:
    script = Script([], Clock(), hangs=True)
    source = LiveSource("yard", connect=Scripts(script))
    ended = threading.Event()

    def consume() -> None:
        with sampled(source) as feed:
            list(feed)
        ended.set()

    thread = threading.Thread(target=consume)
    thread.start()
    wait_until(lambda: source.health().state == "connecting" and source._thread is not None)
    close_in_time(source)
    assert ended.wait(1.0)
    thread.join()


def test_closing_from_the_consumer_and_from_wanted() -> None:
    clock = StepClock()
    script = Script([Picture(i) for i in range(100)], clock, hangs=True)
    source = LiveSource("yard", connect=Scripts(script), clock=clock)

    def wanted(pts_s: float) -> bool:
        if pts_s >= 5.0:
            source.close()
        return True

    assert len(list(source.select(wanted))) <= 20
    close_in_time(source)


def test_a_native_call_that_hangs_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    script = Script([release.wait], Clock())
    source = LiveSource("yard", connect=Scripts(script))
    iter(source)
    wait_until(lambda: bool(script.threads))
    close_in_time(source)
    assert "yard: the reader did not stop yet" in caplog.text
    release.set()


def test_a_forgotten_source_ends_its_thread() -> None:
    clock = StepClock()
    source = LiveSource("yard", connect=Scripts(Script([Picture(0)], clock, hangs=True)))
    frames = iter(source)
    next(frames)
    thread = source._thread
    assert thread is not None
    del source, frames
    gc.collect()
    thread.join(1.0)
    assert not thread.is_alive()


def test_a_source_that_does_not_last_ends_or_raises() -> None:
    clock = StepClock()
    broken = Script([Picture(0), SourceError("clip: broken")], clock)
    source = LiveSource("clip", QUEUE, connect=Scripts(broken), clock=clock, is_lasting=False)
    frames = iter(source)
    assert next(frames).index == 0
    with pytest.raises(SourceError, match="clip: broken"):
        next(frames)
    assert list(frames) == []


@pytest.mark.parametrize("where", ["connection", "wanted"])
def test_a_bug_reaches_the_consumer(where: str) -> None:
    clock = StepClock()
    steps = [ZeroDivisionError("a bug")] if where == "connection" else [Picture(0)]
    source = LiveSource("yard", connect=Scripts(Script(steps, clock)), clock=clock)
    with pytest.raises(ZeroDivisionError):
        list(source.select(lambda pts_s: pts_s < 1 / 0))


def test_a_source_is_read_once() -> None:
    source = LiveSource("yard", connect=Scripts(), clock=StepClock())
    iter(source)
    with pytest.raises(SessionStateError, match="read once"):
        iter(source)
    close_in_time(source)


def test_a_resumed_memory_goes_on_after_its_newest_time() -> None:
    clock = StepClock()
    clock.set_wall(-3600.0)
    config = SourceConfig(start_time=START, handoff="queue")
    script = Script([Picture(0), Picture(1)], clock)
    source = LiveSource("yard", config, connect=Scripts(script), clock=clock, is_lasting=False)
    source.not_before_s = 1234.0
    frames = list(source)
    assert frames[0].pts_s > 1234.0
    assert frames[1].pts_s - frames[0].pts_s == pytest.approx(0.25)
    assert frames[0].wall_time is not None
    assert (frames[0].wall_time - START).total_seconds() == pytest.approx(frames[0].pts_s, abs=1e-5)


def test_losses_are_logged_once_and_not_at_each_attempt(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = StepClock()
    connect = Scripts(Script([Picture(0), SourceError("yard: no more connections")], clock))
    source = LiveSource("yard", connect=connect, clock=clock, seed=0)
    iter(source)
    wait_until(lambda: connect.num_attempts > 5)
    close_in_time(source)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) <= 2


def test_accelerated_time_agrees_with_itself() -> None:
    clock = ScaledClock(1000.0)
    event = threading.Event()
    before_s, before = clock.monotonic(), clock.wall()
    assert not clock.wait(event, 20.0)
    passed_s = clock.monotonic() - before_s
    assert passed_s >= 20.0
    assert (clock.wall() - before).total_seconds() == pytest.approx(passed_s, abs=5.0)
