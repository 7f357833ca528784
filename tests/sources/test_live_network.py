"""Network cameras against real servers on the loopback, each failure provoked."""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermes_like.config import SourceConfig
from hermes_like.frames import sampled
from hermes_like.records import Frame
from hermes_like.sources import open_source
from hermes_like.sources.live import child
from hermes_like.sources.live.child import ChildConnection
from hermes_like.sources.live.source import LiveSource
from tests.sources import live_servers as servers
from tests.sources.clip_factory import read_barcode, write_audio_only
from tests.sources.conftest import MakeClip
from tests.sources.leaks import children, nothing_left
from tests.sources.live_servers import HEIGHT, WIDTH, Camera
from tests.sources.rtsp_server import RtspCamera

CLOSE_S = 2.0
LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture(scope="module")
def stream(make_clip: MakeClip) -> bytes:
    """60 barcodes in two seconds as a transport stream, a key frame every 15, no B-frames."""
    options = {"preset": "ultrafast", "tune": "zerolatency", "g": "15", "sc_threshold": "0"}
    size = {"width": WIDTH, "height": HEIGHT}
    path = make_clip("live.ts", muxer="mpegts", codec_options=options, **size)
    return path.read_bytes()


def config(**changes: Any) -> SourceConfig:
    """Short limits, and every frame."""
    quick = {
        "sample_fps": None,
        "handoff": "queue",
        "read_ahead_frames": 1000,
        "connect_timeout_s": 8.0,
        "silence_s": 8.0,
        "reconnect_first_s": 0.05,
        "reconnect_most_s": 0.1,
    }
    return SourceConfig(**{**quick, **changes})


def open_live(address: str, **changes: Any) -> LiveSource:
    source = open_source(address, config(**changes))
    assert isinstance(source, LiveSource)
    return source


def take(frames: Iterator[Frame], is_enough: Callable[[list[Frame]], bool]) -> list[Frame]:
    """Frames until there are enough."""
    taken: list[Frame] = []
    deadline = time.monotonic() + LIMIT_S
    while not is_enough(taken):
        assert time.monotonic() < deadline
        taken.append(next(frames))
    return taken


def numbers(frames: list[Frame]) -> list[int]:
    return [read_barcode(frame.image) for frame in frames]


def wait_until(is_so: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def close_in_time(source: LiveSource) -> None:
    started = time.monotonic()
    source.close()
    assert time.monotonic() - started < CLOSE_S


def test_multipart_jpeg_survives_a_server_that_comes_and_goes() -> None:
    """A12: it closes after ten pictures, then is away, then is back."""
    with Camera(close_after=10) as camera:
        source = open_live(camera.address())
        frames = iter(source)
        taken = take(frames, lambda taken: len(taken) == 10)
        assert numbers(taken) == list(range(10))
        camera.stop()
        wait_until(lambda: source.health().state == "offline")
        wait_until(lambda: "refused" in source.health().cause)
        camera.close_after = None
        camera.start()
        taken += take(frames, lambda taken: bool(taken) and numbers(taken)[-1] >= 20)
        health = source.health()
        assert (health.state, health.num_reconnects) in {("online", 1), ("online", 2)}
        assert health.num_frames >= len(taken)
        close_in_time(source)
    times = [frame.pts_s for frame in taken]
    assert times == sorted(times)
    for frame in taken:
        assert frame.image.shape == (HEIGHT, WIDTH, 3)
        assert frame.wall_time is not None
        passed_s = (frame.wall_time - source.start).total_seconds()
        assert passed_s == pytest.approx(frame.pts_s, abs=1e-5)
        assert frame.wall_time.tzinfo is not None


def test_a_slow_consumer_sees_the_present_through_a_feed() -> None:
    """A13: fifty pictures per second, a consumer that takes three."""
    with Camera() as camera:
        source = open_live(camera.address(), handoff="newest")
        with sampled(source, SourceConfig(sample_fps=20)) as feed:
            next(feed)
            behind = []
            for _ in range(5):
                time.sleep(0.3)
                frame = next(feed)
                behind.append(camera.number - read_barcode(frame.image))
            health = source.health()
        assert max(behind) < 25  # half a second, not the second and a half that have passed
        assert health.num_dropped["handoff"] > 5


def test_a_silent_connection_is_stale_and_then_opened_again() -> None:
    with Camera(silent_after=5) as camera:
        source = open_live(camera.address(), stale_s=0.2, silence_s=0.6)
        frames = iter(source)
        take(frames, lambda taken: len(taken) == 5)
        wait_until(lambda: source.health().state == "stale")
        take(frames, lambda taken: len(taken) == 5)
        assert camera.num_connections == 2
        assert source.health().num_reconnects == 1
        assert source.health().cause == "no answer for 0.6 s"
        close_in_time(source)


def test_a_frozen_picture_is_noticed_and_forgiven() -> None:
    with Camera(frozen_from=10, frozen_to=60) as camera:
        source = open_live(camera.address(), freeze_s=0.4)
        frames = iter(source)
        taken: list[Frame] = []
        thread = threading.Thread(
            target=lambda: taken.extend(take(frames, lambda f: bool(f) and numbers(f)[-1] >= 60))
        )
        thread.start()
        wait_until(lambda: source.health().is_frozen)
        assert source.health().state == "stale"
        thread.join()
        assert source.health().state == "online"
        assert source.health().num_dropped["frozen"] > 5
        assert numbers(taken).count(10) < 40
        close_in_time(source)


def test_damaged_pictures_are_counted_and_left_out() -> None:
    with Camera(damaged=frozenset({4, 5, 11})) as camera:
        source = open_live(camera.address())
        taken = take(iter(source), lambda taken: bool(taken) and numbers(taken)[-1] >= 15)
        found = numbers(taken)
        assert not {4, 5, 11} & set(found)
        assert set(found) >= {0, 1, 2, 3, 7, 8, 9, 13, 14, 15}
        assert source.health().num_decode_errors >= 3
        assert source.health().num_dropped["damaged"] >= 3
        close_in_time(source)


@pytest.mark.parametrize(
    ("raw", "written"),
    [("ad min:p@ss:w%rd é", "ad min:p@ss:w%rd é"), ("admin:a/b?c#d", "admin:a%2Fb%3Fc%23d")],
)
def test_awkward_passwords_arrive_as_they_are(raw: str, written: str) -> None:
    with Camera(credentials=raw) as camera:
        source = open_live(camera.address(f"{written}@"))
        next(iter(source))
        close_in_time(source)
    assert camera.seen_credentials == [raw]


def test_a_wrong_password_is_told_without_showing_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("YARD_PASSWORD", "geheim/wort")
    with Camera(credentials="admin:right") as camera:
        address = camera.address("admin:${YARD_PASSWORD}@", "/video?token=sesam")
        source = open_live(address)
        assert source.name == camera.address(path="/video?token=***")
        iter(source)
        wait_until(lambda: len(camera.seen_credentials) >= 2)
        wait_until(lambda: "401" in source.health().cause)
        assert "admin:geheim/wort" in camera.seen_credentials
        assert "/video?token=sesam" in camera.seen_paths
        shown = f"{source.health()}{source!r}{source.warnings}{source.name}{caplog.text}"
        commands = b"".join(
            Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children() if _exists(pid)
        )
        close_in_time(source)
    for secret in ("geheim", "wort", "sesam", "admin"):
        assert secret not in shown
        assert secret.encode() not in commands
    assert source.health().state == "offline"


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists()


@pytest.mark.parametrize("scheme", ["rtsp", "rtsps", "http", "https", "tcp"])
def test_refused(scheme: str) -> None:
    source = open_live(f"{scheme}://admin:geheim@127.0.0.1:{servers.free_port()}/live")
    iter(source)
    wait_until(lambda: source.health().cause != "")
    assert source.health().state == "offline"
    assert source.health().cause == "connection refused"
    close_in_time(source)


@pytest.mark.parametrize("scheme", ["rtsp", "http", "tcp"])
def test_black_hole_is_given_up_and_can_be_left_at_once(scheme: str) -> None:
    with servers.tcp_server(servers.say_nothing) as port:
        source = open_live(f"{scheme}://127.0.0.1:{port}/live", connect_timeout_s=0.4)
        iter(source)
        wait_until(lambda: source.health().cause != "")
        assert source.health().cause == "no answer for 0.4 s"
        close_in_time(source)
        patient = open_live(f"{scheme}://127.0.0.1:{port}/live", connect_timeout_s=60)
        iter(patient)
        time.sleep(0.7)  # it has started and is connecting
        assert patient.health().state == "connecting"
        close_in_time(patient)


def test_garbage_is_told() -> None:
    noise = random.Random(1).randbytes(1 << 18)

    def serve(connection: socket.socket, stopped: threading.Event) -> None:
        connection.sendall(noise)

    with servers.tcp_server(serve) as port:
        source = open_live(f"tcp://127.0.0.1:{port}")
        iter(source)
        wait_until(lambda: source.health().cause != "")
        assert "invalid data" in source.health().cause
        close_in_time(source)


def test_a_stream_without_video_is_told(tmp_path: Path) -> None:
    sound = write_audio_only(tmp_path / "sound.ts").read_bytes()
    with servers.tcp_server(lambda connection, _: connection.sendall(sound)) as port:
        source = open_live(f"tcp://127.0.0.1:{port}")
        iter(source)
        wait_until(lambda: source.health().cause != "")
        assert "no video, only audio (aac)" in source.health().cause
        close_in_time(source)


def test_joining_in_the_middle_waits_for_a_key_frame(stream: bytes) -> None:
    """A11, and the end of the stream is an end of the connection only."""
    late = stream[len(stream) * 3 // 8 // 188 * 188 :]

    def serve(connection: socket.socket, stopped: threading.Event) -> None:
        servers.send_paced(late, connection.sendall, stopped, 1.2)

    with servers.tcp_server(serve) as port:
        source = open_live(f"tcp://127.0.0.1:{port}")
        taken = take(iter(source), lambda taken: bool(taken) and numbers(taken)[-1] == 59)
        first, *_ = numbers(taken)
        assert first in {30, 45}
        assert numbers(taken) == list(range(first, 60))
        wait_until(lambda: source.health().cause == "the other side ended the stream")
        close_in_time(source)


def test_lost_packets_are_counted_and_what_builds_on_them_is_left_out(stream: bytes) -> None:
    middle = len(stream) // 2 // 188 * 188
    damaged = stream[:middle] + stream[middle + 188 * 3 :]

    def serve(connection: socket.socket, stopped: threading.Event) -> None:
        servers.send_paced(damaged, connection.sendall, stopped, 1.5)

    with servers.tcp_server(serve) as port:
        source = open_live(f"tcp://127.0.0.1:{port}")
        taken = take(iter(source), lambda taken: bool(taken) and numbers(taken)[-1] == 59)
        found = numbers(taken)
        assert found == sorted(found)
        assert 30 < len(found) <= 58
        assert source.health().num_decode_errors > 0
        assert source.health().num_dropped["damaged"] > 0
        close_in_time(source)


def test_a_jump_of_the_media_clock_leaves_no_trace(make_clip: MakeClip) -> None:
    """The clock of 33 bits wraps; then a camera starts anew within the connection."""
    options = {"preset": "ultrafast", "tune": "zerolatency", "g": "15"}
    size = {"width": WIDTH, "height": HEIGHT}
    start_s = 2**33 / 90_000 - 2.0
    path = make_clip("wrap.ts", muxer="mpegts", codec_options=options, start_s=start_s, **size)
    stream = path.read_bytes()

    def serve(connection: socket.socket, stopped: threading.Event) -> None:
        for seconds in (2.0, 2.0):
            servers.send_paced(stream, connection.sendall, stopped, seconds)
        stopped.wait()

    with servers.tcp_server(serve) as port:
        source = open_live(f"tcp://127.0.0.1:{port}")
        taken = take(iter(source), lambda taken: len(taken) > 85)
        close_in_time(source)
    times = [frame.pts_s for frame in taken]
    assert times == sorted(times)
    assert times[-1] - times[-20] == pytest.approx(19 / 30, abs=0.35)
    assert times[50] - times[31] == pytest.approx(19 / 30, abs=0.35)
    assert source.health().num_reconnects == 0


def push(data: bytes, port: int) -> None:
    """Send a stream to a listener, which may not be there yet, and hang up."""
    for _ in range(200):
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                servers.send_paced(data, connection.sendall, threading.Event(), 0.6)
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError("nobody listened")


def test_listening_for_a_transport_stream_twice(stream: bytes) -> None:
    port = servers.free_port()
    source = open_live(f"tcp://127.0.0.1:{port}?listen=1", connect_timeout_s=0.3)
    frames = iter(source)
    for _ in range(2):
        sender = threading.Thread(target=push, args=(stream, port))
        sender.start()
        take(frames, lambda taken: bool(taken) and numbers(taken)[-1] == 59)
        sender.join()
    assert source.health().num_reconnects == 1
    time.sleep(0.5)  # listening again
    close_in_time(source)


def test_rtsp_pushed_to_a_listener() -> None:
    port = servers.free_port()
    source = open_live(f"rtsp://127.0.0.1:{port}/live?listen=1", connect_timeout_s=0.3)
    frames = iter(source)
    sender = threading.Thread(target=servers.push_rtsp, args=(port, 40))
    sender.start()
    taken = take(frames, lambda taken: bool(taken) and numbers(taken)[-1] == 39)
    sender.join()
    assert numbers(taken) == list(range(40))
    times = [frame.pts_s for frame in taken]
    assert times == sorted(times)
    gaps = [after - before for before, after in pairwise(times[-5:])]
    assert max(gaps) < 0.2
    close_in_time(source)


@pytest.mark.parametrize("password", [None, "pä ss/w@rd:1"])
def test_rtsp_camera(password: str | None, stream: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked over TCP, with a digest where it wants one, and once more when it hangs up."""
    credentials = None if password is None else ("admin", password)
    camera = RtspCamera(stream, 1.0, credentials)
    with servers.tcp_server(camera.serve) as port:
        monkeypatch.setenv("YARD_PASSWORD", password or "unused")
        source = open_live(f"rtsp://admin:${{YARD_PASSWORD}}@127.0.0.1:{port}/live?channel=1")
        frames = iter(source)
        taken = take(frames, lambda taken: bool(taken) and numbers(taken)[-1] >= 55)
        assert numbers(taken) == list(range(numbers(taken)[-1] + 1))
        take(frames, lambda taken: bool(taken) and source.health().num_reconnects == 1)
        close_in_time(source)
    assert source.name == f"rtsp://127.0.0.1:{port}/live?channel=1"
    assert any("/live?channel=1" in request for request in camera.requests)
    assert all("interleaved" in r for r in camera.requests if r.startswith("SETUP"))


def test_rtsp_with_a_wrong_password(stream: bytes) -> None:
    camera = RtspCamera(stream, 1.0, ("admin", "right"))
    with servers.tcp_server(camera.serve) as port:
        source = open_live(f"rtsp://admin:geheim@127.0.0.1:{port}/live")
        iter(source)
        wait_until(lambda: source.health().cause != "")
        assert "401 unauthorized" in source.health().cause
        close_in_time(source)


def test_datagrams(stream: bytes) -> None:
    port = servers.free_port()
    source = open_live(f"udp://127.0.0.1:{port}", connect_timeout_s=0.3)
    frames = iter(source)
    stopped = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not stopped.is_set():
                servers.send_paced(
                    stream, lambda data: sender.sendto(data, ("127.0.0.1", port)), stopped, 1.0
                )

    thread = threading.Thread(target=send)
    thread.start()
    taken = take(frames, lambda taken: len(taken) >= 60)
    close_in_time(source)
    stopped.set()
    thread.join()
    assert {read_barcode(frame.image) for frame in taken} >= set(range(16, 50))
    times = [frame.pts_s for frame in taken]
    assert times == sorted(times)


def test_a_playlist_that_grows(tmp_path: Path, make_clip: MakeClip) -> None:
    options = {"preset": "ultrafast", "tune": "zerolatency", "g": "10"}
    for part in range(5):
        make_clip(
            f"part{part}.ts",
            numbers=range(part * 10, part * 10 + 10),
            fps=10,
            start_s=1.0 + part,
            width=WIDTH,
            height=HEIGHT,
            muxer="mpegts",
            codec_options=options,
        )
        data = make_clip(f"part{part}.ts").read_bytes()
        (tmp_path / f"part{part}.ts").write_bytes(data)
    names = [f"part{part}.ts" for part in range(5)]
    servers.playlist(tmp_path, names[:2])

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            requested.append(self.path)
            super().do_GET()

    requested: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        source = open_live(f"http://127.0.0.1:{server.server_address[1]}/live.m3u8")
        frames = iter(source)
        wait_until(lambda: "/part1.ts" in requested)
        for end in (3, 4, 5):
            servers.playlist(tmp_path, names[end - 2 : end], first=end - 2)
            wait_until(lambda end=end: f"/part{end - 1}.ts" in requested)
        taken = take(frames, lambda taken: bool(taken) and numbers(taken)[-1] >= 40)
        close_in_time(source)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    found = numbers(taken)
    assert "/part0.ts" not in requested
    assert found == sorted(found)
    assert found[0] == 10


def fake(ending: str, **limits: Any) -> LiveSource:
    """A reader that misbehaves in its process."""
    request = {"reader": "tests.sources.fake_pictures:read_fake", "name": "fake", "ending": ending}
    return LiveSource(
        "fake",
        config(),
        connect=lambda: ChildConnection(request, **{"open_s": 5.0, "silence_s": 5.0} | limits),
    )


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        ("hang", "no answer for 0.3 s"),
        ("crash", "the reading process died (-6)"),
        ("bug", "the reading process died (0)"),
        ("end", "the other side ended the stream"),
    ],
)
def test_a_reading_process_that_fails_is_replaced(ending: str, cause: str) -> None:
    source = fake(ending, silence_s=0.3)
    taken = take(iter(source), lambda taken: len(taken) == 4)
    assert numbers(taken) == [0, 1, 0, 1]
    assert source.health().cause == cause
    close_in_time(source)


def test_data_without_pictures_is_given_up_but_not_waiting_to_be_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "PICTURELESS_S", 0.5)
    source = fake("blank", silence_s=0.5)
    iter(source)
    wait_until(lambda: source.health().cause == "data comes, and no picture in it")
    close_in_time(source)
    listener = fake("late", open_s=None, silence_s=0.5)
    assert numbers(take(iter(listener), lambda taken: len(taken) == 2)) == [0, 1]
    close_in_time(listener)


def test_closing_while_native_calls_hang() -> None:
    for source in (fake("hang"), fake("deaf")):
        iter(source)
        time.sleep(0.7)
        close_in_time(source)


def test_closing_right_after_the_start() -> None:
    for pause_s in (0.0, 0.01, 0.1):
        source = fake("end")
        iter(source)
        time.sleep(pause_s)
        close_in_time(source)


def test_a_reading_process_that_is_killed_from_outside_is_replaced() -> None:
    others = children()
    source = fake("hang")
    frames = iter(source)
    take(frames, lambda taken: len(taken) == 2)
    for pid in children() - others:
        os.kill(pid, signal.SIGKILL)
    taken = take(frames, lambda taken: len(taken) == 2)
    np.testing.assert_array_equal(numbers(taken), [0, 1])
    assert source.health().num_reconnects == 1
    close_in_time(source)


_ORPHAN = """
import os, signal, sys
from tests.sources.leaks import children
from tests.sources.test_live_network import fake
source = fake("hang")
frames = iter(source)
next(frames)
print(*children(), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("way", ["killed", "ended"])
def test_no_process_outlives_one_that_forgot_to_close(way: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _ORPHAN, way], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == (-signal.SIGKILL if way == "killed" else 0), result.stderr
    reader = int(result.stdout)
    wait_until(lambda: not _exists(reader), 2.0)


def test_a_webcam_that_is_not_there() -> None:
    source = open_live("webcam:63")
    iter(source)
    wait_until(lambda: source.health().cause != "")
    assert source.health().cause == "there is no such camera, or another program uses it"
    close_in_time(source)
