"""Names, counters that never go down, no addresses, a server that leaves nothing behind."""

from __future__ import annotations

import http.client
import itertools
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from hermes_like.errors import ConfigError
from hermes_like.metrics import Metrics, StoreCounts, StreamReading, looks_like_address
from hermes_like.metrics_readings import MAX_GONE
from hermes_like.metrics_server import MAX_CONNECTIONS
from hermes_like.records import Answer, LayerStats, SessionStats, SourceHealth

HEALTH = SourceHealth(
    "online",
    silent_s=0.5,
    fps=12.5,
    lag_s=0.04,
    num_frames=100,
    num_dropped={"handoff": 3, "damaged": 1},
    num_decode_errors=2,
    num_reconnects=1,
)
STATS = SessionStats(
    stream="door",
    stream_s=60.0,
    num_frames=240,
    num_segments=15,
    device_tokens=512,
    peak_slots=500,
    device_bytes=1000,
    expected_bytes=1000,
    layers=(
        LayerStats(0, "shallow", 4, 100, 200, 0, 30, 0.0),
        LayerStats(1, "deep", 4, 100, 300, 6, 30, 0.0),
    ),
    vision_s=1.5,
    prefill_s=2.5,
    scoring_s=0.5,
    compaction_s=0.25,
    store_s=0.125,
    tiers={"host": (10, 100, 2), "disk": (20, 200, 3), "source": (5, 50, 4)},
    store_state="ok",
)
STORE = StoreCounts({"host": 7}, {"checksum": 1}, 2, 3, 4)
DOOR = StreamReading("door", HEALTH, 4, STATS, STORE, 2000)
ANSWER = Answer("a red star", "ok", route="recall", stream="door", num_tokens=3, ttft_s=0.2)

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def values(metrics: Metrics) -> Values:
    """Every sample of the plain text, by name and labels; fails on one that comes twice."""
    found: Values = {}
    for family in parse_text(metrics.text()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return values(metrics).get((f"hermes_like_{name}", frozenset(labels.items())))


def filled() -> Metrics:
    """Metrics in which every family has a sample."""
    metrics = Metrics(lambda: [DOOR])
    metrics.observe_inference("vision", 0.02)
    metrics.count_answer(ANSWER)
    metrics.count_failure("door", ValueError("no"))
    metrics.count_state("door", "stale")
    metrics.count_alert("parcel", "sent")
    return metrics


def test_what_a_stream_tells_comes_out() -> None:
    metrics = Metrics(lambda: [DOOR])
    for name, labels, expected in (
        ("stream_fps", {}, 12.5),
        ("stream_lag_seconds", {}, 0.04),
        ("stream_silent_seconds", {}, 0.5),
        ("stream_frozen", {}, 0),
        ("stream_state", {"state": "online"}, 1),
        ("stream_state", {"state": "stale"}, 0),
        ("stream_reconnects_total", {}, 1),
        ("frames_received_total", {}, 100),
        ("frames_dropped_total", {"reason": "handoff"}, 3),
        ("decode_errors_total", {}, 2),
        ("queue_depth", {}, 4),
        ("memory_bytes", {"tier": "device"}, 1000),
        ("memory_bytes", {"tier": "disk"}, 20),
        ("memory_limit_bytes", {"tier": "device"}, 2000),
        ("memory_limit_bytes", {"tier": "host"}, 100),
        ("memory_segments", {"tier": "source"}, 4),
        ("memory_slots", {}, 410),
        ("memory_slots_limit", {}, 512),
        ("memory_frames", {}, 240),
        ("memory_evictions_total", {}, 2),
        ("memory_hits_total", {"tier": "host"}, 7),
        ("memory_misses_total", {"reason": "checksum"}, 1),
        ("storage_bytes", {}, 25),
        ("storage_limit_bytes", {}, 250),
        ("storage_state", {"state": "ok"}, 1),
        ("storage_state", {"state": "full"}, 0),
        ("storage_writes_dropped_total", {}, 3),
        ("storage_writes_failed_total", {}, 4),
        ("stream_work_seconds_total", {"part": "prefill"}, 2.5),
    ):
        assert value(metrics, name, stream="door", **labels) == expected, name
    assert value(metrics, "streams") == 1


def test_a_bare_stream_has_what_is_known_and_no_more() -> None:
    metrics = Metrics(lambda: [StreamReading("door", SourceHealth("connecting"))])
    names = {name for name, labels in values(metrics) if ("stream", "door") in labels}
    assert "hermes_like_stream_fps" in names
    assert not names & {"hermes_like_stream_silent_seconds", "hermes_like_storage_bytes"}


def test_events_come_out() -> None:
    metrics = filled()
    by_stream = {"stream": "door", "route": "recall"}
    assert value(metrics, "answers_total", status="ok", **by_stream) == 1
    assert value(metrics, "time_to_first_token_seconds_sum", **by_stream) == pytest.approx(0.2)
    assert value(metrics, "time_to_first_token_seconds_bucket", le="0.25", **by_stream) == 1
    assert value(metrics, "time_to_first_token_seconds_bucket", le="0.1", **by_stream) == 0
    assert value(metrics, "answer_tokens_total", stream="door") == 3
    assert value(metrics, "inference_seconds_count", kind="vision") == 1
    assert value(metrics, "inference_seconds_count", kind="decode") == 0
    assert value(metrics, "question_failures_total", stream="door", error="ValueError") == 1
    assert value(metrics, "stream_state_changes_total", stream="door", state="stale") == 1
    assert value(metrics, "alerts_total", watch="parcel", result="sent") == 1


def test_an_answer_about_several_streams_counts_for_each() -> None:
    metrics = Metrics()
    nothing = Answer("There is no footage yet.", "no_footage", route="time", stream="yard")
    metrics.count_answer(Answer("both", "partial", stream="door, yard", parts=(ANSWER, nothing)))
    assert value(metrics, "answers_total", stream="door", route="recall", status="ok") == 1
    assert value(metrics, "answers_total", stream="yard", route="time", status="no_footage") == 1
    assert not any(("stream", "door, yard") in labels for _, labels in values(metrics))
    ttft = value(metrics, "time_to_first_token_seconds_count", stream="yard", route="time")
    assert ttft is None, "no model spoke"


@pytest.mark.parametrize("openmetrics", [False, True])
def test_both_formats_parse(openmetrics: bool) -> None:
    parse: Callable[[str], Iterator[Any]] = parse_openmetrics if openmetrics else parse_text
    families = {family.name: family for family in parse(filled().text(openmetrics=openmetrics))}
    assert families["hermes_like_inference_seconds"].type == "histogram"
    assert families["hermes_like_frames_dropped"].type == "counter"
    assert families["hermes_like_stream_fps"].type == "gauge"
    assert not any(name.endswith("_created") for name in families)


def test_names_follow_the_rules_of_prometheus() -> None:
    """Rules of promtool: counters and only they end in _total, base units, types not in names."""
    families = list(parse_openmetrics(filled().text(openmetrics=True)))
    own = [family for family in families if family.name.startswith("hermes_like_")]
    assert len(own) > 30
    for family in own:
        assert family.samples, f"{family.name}: the test does not fill it"
        assert re.fullmatch(r"hermes_like(_[a-z0-9]+)+", family.name), family.name
        assert family.documentation.endswith("."), family.name
        assert family.type != "unknown", family.name
        words = family.name.split("_")
        assert not set(words) & {
            "gauge", "counter", "histogram", "summary", "count", "sum", "bucket", "ms", "msec",
            "milliseconds", "minutes", "hours", "days", "kb", "mb", "kilobytes", "megabytes",
        }, family.name  # fmt: skip
        for unit in {"seconds", "bytes"} & set(words):
            assert words[-1] == unit == family.unit, f"{family.name}: the unit comes last"
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            assert set(sample.labels) <= {
                "stream", "state", "reason", "tier", "part", "kind", "route", "status", "watch",
                "result", "error", "version", "le",
            }, sample.labels  # fmt: skip


def test_two_in_one_process_do_not_meet_and_the_global_registry_is_left_alone() -> None:
    before = sorted(family.name for family in REGISTRY.collect())
    first, second = filled(), Metrics(lambda: [replace(DOOR, stream="yard")])
    first.count_alert("parcel", "sent")
    assert value(first, "alerts_total", watch="parcel", result="sent") == 2
    assert value(second, "alerts_total", watch="parcel", result="sent") is None
    assert value(second, "stream_fps", stream="door") is None
    assert sorted(family.name for family in REGISTRY.collect()) == before


def test_counters_go_on_when_a_source_begins_anew() -> None:
    now = [DOOR]
    metrics = Metrics(lambda: now)
    dropped = {"stream": "door", "reason": "handoff"}
    assert value(metrics, "frames_dropped_total", **dropped) == 3
    now[0] = replace(DOOR, health=SourceHealth("connecting"))  # opened again: knows no drops yet
    assert value(metrics, "frames_dropped_total", **dropped) == 3
    assert value(metrics, "frames_received_total", stream="door") == 100
    fresh = replace(HEALTH, num_frames=7, num_dropped={"handoff": 2})
    now[0] = replace(DOOR, health=fresh)
    assert value(metrics, "frames_dropped_total", **dropped) == 5
    assert value(metrics, "frames_received_total", stream="door") == 107


def test_what_is_unknown_for_a_moment_neither_vanishes_nor_counts_twice() -> None:
    now = [DOOR]
    metrics = Metrics(lambda: now)
    seen = []
    for reading in (DOOR, replace(DOOR, stats=None, store=None), DOOR):
        now[0] = reading
        seen.append(value(metrics, "memory_evictions_total", stream="door"))
    assert seen == [2, 2, 2]


def test_a_removed_stream_has_no_series_and_goes_on_when_it_is_back() -> None:
    now = [DOOR, replace(DOOR, stream="yard")]
    metrics = Metrics(lambda: now)
    metrics.count_answer(ANSWER)
    answers = {"stream": "door", "route": "recall", "status": "ok"}
    assert value(metrics, "answers_total", **answers) == 1
    del now[0]
    assert not any(("stream", "door") in labels for _, labels in values(metrics))
    assert value(metrics, "frames_received_total", stream="yard") == 100
    now.append(replace(DOOR, health=replace(HEALTH, num_frames=150)))
    assert value(metrics, "frames_received_total", stream="door") == 250
    metrics.count_answer(ANSWER)
    assert value(metrics, "answers_total", **answers) == 2


def test_counters_never_go_down() -> None:
    """Random lives of a stream: it counts, begins anew, goes and comes back."""
    rng = random.Random(4)
    count, is_there = 0, True
    metrics = Metrics(
        lambda: [replace(DOOR, health=replace(HEALTH, num_frames=count))] if is_there else []
    )
    last, num_seen = 0.0, 0
    for _ in range(300):
        count = rng.choice([count, count + rng.randrange(5), 0, rng.randrange(3)])
        is_there = rng.random() < 0.8
        got = value(metrics, "frames_received_total", stream="door")
        assert (got is not None) == is_there
        if got is not None:
            assert got >= last
            last, num_seen = got, num_seen + 1
    assert num_seen > 200
    assert last > 50


def test_streams_that_are_gone_for_long_are_forgotten() -> None:
    now: list[StreamReading] = []
    metrics = Metrics(lambda: now)
    bare = StreamReading("0", HEALTH)
    for start in (0, MAX_GONE):
        now[:] = [replace(bare, stream=str(start + i)) for i in range(MAX_GONE)]
        for reading in now[:10]:
            metrics.count_state(reading.stream, "online")
        metrics.text()
    now[:] = [replace(bare, stream="other")]
    metrics.text()
    now[:] = [bare, replace(bare, stream=str(MAX_GONE))]
    assert value(metrics, "frames_received_total", stream="0") == 100, "began anew"
    assert value(metrics, "stream_state_changes_total", stream="0", state="online") is None
    assert value(metrics, "frames_received_total", stream=str(MAX_GONE)) == 200, "was kept"


def test_an_owner_that_fails_costs_its_streams_only(caplog: pytest.LogCaptureFixture) -> None:
    is_broken = False

    def readings() -> list[StreamReading]:
        if is_broken:
            raise RuntimeError("closed")
        return [DOOR]

    metrics = Metrics(readings)
    metrics.count_alert("parcel", "sent")
    assert value(metrics, "frames_received_total", stream="door") == 100
    is_broken = True
    assert value(metrics, "alerts_total", watch="parcel", result="sent") == 1
    assert value(metrics, "stream_fps", stream="door") is None
    assert value(metrics, "reading_failures_total") == 3
    assert "could not be read" in caplog.text
    is_broken = False
    assert value(metrics, "frames_received_total", stream="door") == 100, "not taken for removed"


ADDRESSES = (
    "rtsp://admin:hunter2@192.168.1.20:554/live",
    "rtsp%3A%2F%2Fadmin%3Ahunter2%40cam",
    "//cam.example/stream",
    "admin:hunter2@cam",
    "192.168.1.20",
    "cam 10.0.0.7 (old)",
    "cam.example:554",
    "cam.example/stream",
    "localhost:8554",
    "fe80::1",
    "[2001:db8::1]:554",
    "aa:bb:cc:dd:ee:ff",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_address_becomes_a_label(address: str) -> None:
    assert looks_like_address(address)
    metrics = Metrics(lambda: [replace(DOOR, stream=address)])
    metrics.count_answer(replace(ANSWER, stream=address))
    metrics.count_alert(address, "sent")
    text = metrics.text() + metrics.text(openmetrics=True)
    for word in (address, "hunter2", "192.168", "10.0.0.7", "cam.example", "fe80"):
        assert word not in text
    label = metrics.label(address)
    assert value(metrics, "stream_fps", stream=label) == 12.5
    assert metrics.label(address) == label != metrics.label(address + "2")
    assert Metrics().label(address) != label, "the code cannot be looked up"


@pytest.mark.parametrize(
    "name", ["door", "Hof 2", "вход", "cam-1.5", "clip.mp4", "12:30", "a/b", "/dev/video0"]
)
def test_plain_names_stay(name: str) -> None:
    assert not looks_like_address(name)
    assert Metrics().label(name) == name


def test_awkward_names_come_back_as_they_were() -> None:
    names = ['say "hi"', "back\\slash", "two\nlines", "{a=1}", "half \udcff"]
    metrics = Metrics(lambda: [replace(DOOR, stream=name) for name in names])
    for parse in (parse_text, parse_openmetrics):
        text = metrics.text(openmetrics=parse is parse_openmetrics)
        (fps,) = (f for f in parse(text) if f.name == "hermes_like_stream_fps")
        assert [sample.labels["stream"] for sample in fps.samples] == [*names[:4], "half ?"]


def test_scrapes_while_events_are_pushed() -> None:
    count = 0

    def readings() -> list[StreamReading]:
        nonlocal count
        count += 1
        return [replace(DOOR, health=replace(HEALTH, num_frames=count))]

    metrics = Metrics(readings)
    num_events, failures, frames = 2000, [], []

    def push() -> None:
        for index in range(num_events):
            metrics.count_answer(replace(ANSWER, stream=f"s{index % 7}"))
            metrics.observe_inference("decode", 0.001)

    def scrape() -> None:
        try:
            for _ in range(15):
                list(parse_openmetrics(metrics.text(openmetrics=True)))
                frames.append(value(metrics, "frames_received_total", stream="door"))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for work in (push, push, scrape, scrape)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert value(metrics, "inference_seconds_count", kind="decode") == 2 * num_events
    answered = [
        v for (name, _), v in values(metrics).items() if name == "hermes_like_answers_total"
    ]
    assert sum(answered) == 2 * num_events
    assert max(f for f in frames if f) <= count


def test_a_scrape_that_overtakes_another_is_not_taken_for_a_restart() -> None:
    calls = itertools.count(1)
    is_inside, is_overtaken = threading.Event(), threading.Event()

    def readings() -> list[StreamReading]:
        num_frames = next(calls)
        if num_frames == 1:
            is_inside.set()
            is_overtaken.wait(0.3)  # the second scrape has this long to overtake
        else:
            is_overtaken.set()
        return [replace(DOOR, health=replace(HEALTH, num_frames=num_frames))]

    metrics = Metrics(readings)
    slow = threading.Thread(target=metrics.text)
    slow.start()
    assert is_inside.wait(5)
    metrics.text()
    slow.join()
    assert value(metrics, "frames_received_total", stream="door") == 3


# -- the server ----------------------------------------------------------------------------------


def get(
    port: int, path: str = "/metrics", host: str = "127.0.0.1", **headers: str
) -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def server_threads() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if "hermes-like-metrics" in thread.name or "process_request" in thread.name
    ]


def test_serving_on_loopback() -> None:
    with filled().serve() as server:
        assert server.host == "127.0.0.1"
        status, content_type, body = get(server.port)
        assert status == 200
        assert content_type.startswith("text/plain; version=0.0.4")
        assert any(f.name == "hermes_like_stream_fps" for f in parse_text(body))
        status, content_type, body = get(server.port, Accept="application/openmetrics-text")
        assert status == 200
        assert content_type.startswith("application/openmetrics-text")
        assert any(f.name == "hermes_like_stream_fps" for f in parse_openmetrics(body))
        assert get(server.port, "/")[0] == 404
        assert get(server.port, "/metrics?a=b")[0] == 200
    assert not server_threads()
    with pytest.raises(ConnectionRefusedError):
        get(server.port)
    server.close()


def test_serving_with_a_token() -> None:
    with filled().serve("0.0.0.0", 0, token="open-sesame") as server:
        for header in (None, "", "open-sesame", "Basic open-sesame", "Bearer open", "Bearer é"):
            headers = {} if header is None else {"Authorization": header}
            status, _, body = get(server.port, **headers)
            assert status == 401, header
            assert "hermes_like" not in body
        assert get(server.port, "/", Accept="x")[0] == 401, "nothing is told without a token"
        assert get(server.port, Authorization="Bearer open-sesame")[0] == 200
    assert not server_threads()


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
def test_other_addresses_need_a_token(host: str) -> None:
    if host == "::" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with pytest.raises(ConfigError, match="expected a token"):
        Metrics().serve(host)
    assert not server_threads()


@pytest.mark.parametrize("token", ["", "two words", "line\n", "naïve"])
def test_a_token_is_a_plain_word(token: str) -> None:
    with pytest.raises(ConfigError, match="expected a token") as caught:
        Metrics().serve(token=token)
    assert not token or token not in str(caught.value)


def test_an_address_that_cannot_be_used_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1 port {port}"):
            Metrics().serve(port=port)
    with pytest.raises(ConfigError, match="got 70000"):
        Metrics().serve(port=70000)
    assert not server_threads()


def test_closing_does_not_wait_for_silent_clients() -> None:
    server = filled().serve()
    silent = [
        socket.create_connection((server.host, server.port)) for _ in range(MAX_CONNECTIONS + 3)
    ]
    try:
        until = time.monotonic() + 5
        while len(server_threads()) < MAX_CONNECTIONS + 1 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(server_threads()) == MAX_CONNECTIONS + 1, "more are turned away"
        start = time.monotonic()
        server.close()
        assert time.monotonic() - start < 3
        assert not server_threads()
    finally:
        for connection in silent:
            connection.close()
