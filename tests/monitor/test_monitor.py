"""Cameras by name: asked while they run, resumed after a restart, blind spans known."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hermes_like.config import HermesConfig
from hermes_like.errors import BudgetError, ConfigError, HermesError, SessionStateError, SourceError
from hermes_like.models import load_model
from hermes_like.models.base import ModelAdapter
from hermes_like.monitor import Monitor, MonitorEvent
from hermes_like.presets import load_config, with_settings
from hermes_like.records import SourceState
from tests.monitor.cameras import BLUE_RING, RED_STAR, SpritesCamera, wait_until

NOW = "what is visible now ?"
#: Quick to notice what is wrong, so that the tests are short.
QUICK = {
    "source.sample_fps": 5.0,
    "source.stale_s": 0.6,
    "source.silence_s": 1.5,
    "source.reconnect_first_s": 0.1,
    "source.reconnect_most_s": 0.2,
    "store.min_free_bytes": 0,
}


@pytest.fixture(scope="module")
def config() -> HermesConfig:
    return with_settings(load_config("sprites"), QUICK)


@pytest.fixture(scope="module")
def model(config: HermesConfig) -> ModelAdapter:
    return load_model(config.model)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Every test ends with the threads and handles it began with."""
    threads, handles = threading.active_count(), len(os.listdir("/proc/self/fd"))
    yield
    wait_until(lambda: threading.active_count() <= threads, "threads to end", 5.0)
    assert len(os.listdir("/proc/self/fd")) <= handles + 1


def num_frames(monitor: Monitor, name: str) -> int:
    return {info.name: info.stats.num_frames for info in monitor.streams()}[name]


def state(monitor: Monitor, name: str) -> SourceState:
    return {info.name: info.health.state for info in monitor.streams()}[name]


def wait_for_frames(monitor: Monitor, name: str, count: int) -> None:
    wait_until(lambda: num_frames(monitor, name) >= count, f"{count} frames of {name}")


def test_asked_while_it_runs_the_answer_names_the_camera(
    model: ModelAdapter, config: HermesConfig
) -> None:
    with (
        SpritesCamera(RED_STAR) as gate,
        SpritesCamera(BLUE_RING) as yard,
        Monitor(model, config=config) as monitor,
    ):
        monitor.add_stream("gate", gate.address())
        monitor.add_stream("yard", yard.address(), weight=2.0)
        for name in ("gate", "yard"):
            wait_for_frames(monitor, name, 4)
            assert state(monitor, name) == "online"
        one = monitor.ask(NOW, stream="gate")
        assert (one.stream, one.text, one.parts) == ("gate", "red star", ())
        both = monitor.ask(NOW)
        assert both.text == "gate: red star\nyard: blue ring"
        assert [part.stream for part in both.parts] == ["gate", "yard"]
        assert {evidence.stream for evidence in both.evidence} == {"gate", "yard"}
        some = monitor.ask("was there a red star ?", stream=["yard", "gate"])
        assert some.text == "yard: no\ngate: yes"
        pieces = list(monitor.ask_stream(NOW, stream="yard"))
        assert "".join(pieces).strip() == "blue ring"


def test_a_camera_that_hangs_up_is_found_again_and_the_hole_is_known(
    model: ModelAdapter, config: HermesConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A hole counts from ten seconds on; nobody wants to wait for that.
    monkeypatch.setattr("hermes_like.monitor.watcher.MAX_FRAME_S", 1.0)
    monkeypatch.setattr("hermes_like.timeline.MAX_FRAME_S", 1.0)
    monkeypatch.setattr("hermes_like.directions.MAX_FRAME_S", 1.0)
    told: list[MonitorEvent] = []
    camera = SpritesCamera(RED_STAR)
    with camera, Monitor(model, config=config, on_event=told.append) as monitor:
        monitor.add_stream("gate", camera.address())
        wait_for_frames(monitor, "gate", 5)
        camera.stop()
        wait_until(lambda: state(monitor, "gate") == "offline", "the camera to be offline")
        time.sleep(1.6)
        blind = monitor.ask(NOW, stream="gate")
        assert blind.status == "partial"
        assert any("the camera was offline" in note for note in blind.notes)
        assert any(span.reason == "the camera was offline" for span in blind.missing)
        seen = num_frames(monitor, "gate")
        camera.start()
        wait_for_frames(monitor, "gate", seen + 5)
        wait_until(lambda: state(monitor, "gate") == "online", "the camera to be online")
        (gap,) = [event for event in told if event.kind == "gap"]
        assert gap.span_s is not None
        start_s, end_s = gap.span_s
        assert end_s - start_s > 1.0
        assert "the camera was offline" in gap.text
        answer = monitor.ask(
            "was there a red star ?", stream="gate", since=start_s + 1.1, until=end_s - 0.05
        )
        assert answer.status == "no_footage"
        assert "the camera was offline" in answer.text
        assert monitor.ask(NOW, stream="gate").notes == ()
    states = [event.health.state for event in told if event.health is not None]
    assert states[0] == "online"
    assert states.index("offline") < len(states) - 1 - states[::-1].index("online")


def test_after_a_restart_the_past_is_there_and_the_gap_has_a_reason(
    model: ModelAdapter,
    config: HermesConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hermes_like.monitor.watcher.MAX_FRAME_S", 0.5)
    monkeypatch.setattr("hermes_like.timeline.MAX_FRAME_S", 0.5)
    with SpritesCamera(RED_STAR) as camera, Monitor(model, tmp_path, config=config) as monitor:
        monitor.add_stream("gate", camera.address())
        wait_for_frames(monitor, "gate", 12)
    stopped = datetime.now(UTC)
    time.sleep(1.5)
    with SpritesCamera(BLUE_RING) as camera, Monitor(model, tmp_path, config=config) as monitor:
        monitor.add_stream("gate", camera.address())
        began = datetime.now(UTC)
        assert num_frames(monitor, "gate") >= 12
        wait_for_frames(monitor, "gate", 30)
        wait_until(
            lambda: monitor.ask(NOW, stream="gate").text == "blue ring", "the new camera's picture"
        )
        past = monitor.ask("was there a red star ?", stream="gate")
        assert past.text == "yes"
        assert past.evidence[0].wall_time is not None
        assert past.evidence[0].wall_time < stopped
        gap = monitor.ask(
            NOW,
            stream="gate",
            since=stopped + timedelta(seconds=0.6),
            until=began - timedelta(seconds=0.1),
        )
        assert gap.status == "no_footage"
        assert "nothing was watching" in gap.text


def test_a_recording_is_watched_once(
    model: ModelAdapter, config: HermesConfig, tmp_path: Path, sprites_video: Path
) -> None:
    told: list[MonitorEvent] = []
    for _ in range(2):
        with Monitor(model, tmp_path, config=config, on_event=told.append) as monitor:
            monitor.add_stream("clip", sprites_video, settings={"source.sample_fps": 1.0})
            assert monitor.join(60.0)
            assert num_frames(monitor, "clip") == 24
            assert monitor.ask(NOW, stream="clip").text == "blue ring"
    assert [event.kind for event in told if event.kind != "state"].count("ended") == 2


def test_a_source_that_cannot_be_opened_is_told_and_others_go_on(
    model: ModelAdapter, config: HermesConfig, tmp_path: Path
) -> None:
    told: list[MonitorEvent] = []
    with (
        SpritesCamera(RED_STAR) as camera,
        Monitor(model, config=config, on_event=told.append) as monitor,
    ):
        monitor.add_stream("none", tmp_path / "none.mp4")
        monitor.add_stream("gate", camera.address())
        wait_for_frames(monitor, "gate", 4)
        wait_until(lambda: any(event.kind == "failure" for event in told), "the failure")
        (info,) = [info for info in monitor.streams() if info.name == "none"]
        assert info.health.state == "offline"
        assert "none.mp4" in info.health.cause
        assert monitor.ask(NOW, stream="none").status == "no_footage"
        assert monitor.ask(NOW, stream="gate").text == "red star"


def test_paused_and_gone_on(model: ModelAdapter, config: HermesConfig, tmp_path: Path) -> None:
    with SpritesCamera(RED_STAR) as camera, Monitor(model, config=config) as monitor:
        monitor.add_stream("gate", camera.address())
        wait_for_frames(monitor, "gate", 3)
        monitor.set_enabled("gate", False)
        wait_until(lambda: state(monitor, "gate") == "disabled", "the pause")
        time.sleep(0.3)
        before = num_frames(monitor, "gate")
        time.sleep(0.6)
        assert num_frames(monitor, "gate") == before
        monitor.set_enabled("gate", True)
        wait_for_frames(monitor, "gate", before + 3)
        monitor.add_stream("clip", "sprites:frames=2")
        assert not monitor.join(0.2)
        with pytest.raises(SourceError, match="only a live source can be paused"):
            monitor.set_enabled("clip", False)


def test_one_call_erases_a_span_or_a_stream(
    model: ModelAdapter, config: HermesConfig, tmp_path: Path
) -> None:
    with (
        SpritesCamera(RED_STAR) as camera,
        SpritesCamera(BLUE_RING) as other,
        Monitor(model, tmp_path, config=config) as monitor,
    ):
        monitor.add_stream("gate", camera.address())
        monitor.add_stream("yard", other.address())
        for name in ("gate", "yard"):
            wait_for_frames(monitor, name, 12)
        before_they_began = monitor.erase(timedelta(hours=2), timedelta(hours=1))
        assert before_they_began == {}
        erased = monitor.erase(until=timedelta(seconds=0.5))
        assert set(erased) == {"gate", "yard"}
        answer = monitor.ask(NOW, stream="gate", until=timedelta(seconds=1.0))
        assert answer.status == "no_footage"
        assert "erased" in answer.text
        monitor.remove_stream("gate", forget=True)
        assert not (tmp_path / "gate").exists()
        assert (tmp_path / "yard").exists()
        with pytest.raises(SessionStateError, match="'yard' is being watched"):
            monitor.forget_stream("yard")
    with Monitor(model, tmp_path, config=config) as monitor:
        monitor.forget_stream("yard")
        assert not (tmp_path / "yard").exists()


def test_stop_returns_within_two_seconds_and_may_be_called_twice(
    model: ModelAdapter, config: HermesConfig
) -> None:
    with SpritesCamera(RED_STAR, silent_after=3) as silent, SpritesCamera(RED_STAR) as camera:
        monitor = Monitor(model, config=config)
        monitor.start()
        monitor.add_stream("silent", silent.address())
        monitor.add_stream("gate", camera.address())
        monitor.add_stream("nowhere", "http://127.0.0.1:9/video")
        wait_for_frames(monitor, "gate", 3)
        started_s = time.monotonic()
        monitor.stop()
        assert time.monotonic() - started_s < 4.0  # two for the sources, and memories are saved
        monitor.stop()
        with pytest.raises(SessionStateError, match="the monitor was stopped"):
            monitor.add_stream("late", camera.address())
        with pytest.raises(SessionStateError):
            monitor.ask(NOW)


def test_credentials_are_nowhere(
    model: ModelAdapter,
    config: HermesConfig,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    told: list[MonitorEvent] = []
    with (
        SpritesCamera(RED_STAR, credentials="admin:s3cret-pw") as camera,
        SpritesCamera(RED_STAR, credentials="admin:another") as other,
        Monitor(model, tmp_path, config=config, on_event=told.append) as monitor,
    ):
        monitor.add_stream("good", camera.address("admin:s3cret-pw@"))
        monitor.add_stream("bad", other.address("admin:wr0ng-pw@"))
        wait_for_frames(monitor, "good", 3)
        wait_until(lambda: state(monitor, "bad") == "offline", "the refusal")
        shown = [repr(monitor.streams()), repr(told), monitor.metrics.text(), caplog.text]
        shown += [repr(monitor.ask(NOW)), repr(threading.enumerate())]
    shown += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    for secret in ("s3cret-pw", "wr0ng-pw"):
        assert not [text[:2000] for text in shown if secret in text]


def test_metrics_speak_of_streams_by_name(model: ModelAdapter, config: HermesConfig) -> None:
    with SpritesCamera(RED_STAR) as camera, Monitor(model, config=config) as monitor:
        monitor.add_stream("gate", camera.address())
        wait_for_frames(monitor, "gate", 4)
        monitor.ask(NOW)
        text = monitor.metrics.text()
        assert 'hermes_like_stream_fps{stream="gate"}' in text
        assert (
            'hermes_like_time_to_first_token_seconds_count{route="now",stream="gate"} 1.0' in text
        )
        assert "hermes_like_inference_seconds_bucket" in text
        assert "127.0.0.1" not in text
        monitor.remove_stream("gate")
        assert 'hermes_like_stream_fps{stream="gate"}' not in monitor.metrics.text()


def test_a_receiver_that_fails_or_is_slow_harms_nobody(
    model: ModelAdapter, config: HermesConfig
) -> None:
    told: list[str] = []

    def fail(event: MonitorEvent) -> None:
        told.append(event.kind)
        raise ValueError("mine")

    with SpritesCamera(RED_STAR) as camera, Monitor(model, config=config, on_event=fail) as monitor:
        monitor.on_event(lambda event: time.sleep(0.3))
        monitor.add_stream("gate", camera.address())
        wait_for_frames(monitor, "gate", 6)
        monitor.ask(NOW)
        wait_until(lambda: "answer" in told, "the answer event")


def test_misuse_is_named(model: ModelAdapter, config: HermesConfig) -> None:
    with Monitor(model, config=config) as monitor:
        with pytest.raises(SessionStateError, match="add_stream first"):
            monitor.ask(NOW)
        for name in ("", "../gate", "a/b", ".hidden", "x" * 65, "rtsp://a:b@c/d"):
            with pytest.raises(ConfigError, match="stream name: expected"):
                monitor.add_stream(name, "sprites:frames=1")
            with pytest.raises(ConfigError, match="stream name: expected"):
                monitor.forget_stream(name)
        with pytest.raises(ConfigError, match=r"store\.retention"):
            monitor.add_stream("a", "sprites:frames=1", settings={"store.retention": 5})
        monitor.add_stream("a", "sprites:frames=1")
        with pytest.raises(SessionStateError, match="'a' is there already"):
            monitor.add_stream("a", "sprites:frames=1")
        with pytest.raises(SessionStateError, match="unknown stream 'b'"):
            monitor.remove_stream("b")
        with pytest.raises(HermesError, match="with a zone"):
            monitor.ask(NOW, stream="a", since=datetime(2026, 5, 1))
    tight = with_settings(config, {"engine.host_bytes": config.store.host_bytes})
    with Monitor(model, config=tight) as monitor:
        monitor.add_stream("a", "sprites:frames=1")
        with pytest.raises(BudgetError, match=r"engine\.host_bytes"):
            monitor.add_stream("b", "sprites:frames=1")
