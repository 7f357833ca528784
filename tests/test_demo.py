"""The demonstration without a browser: what it refuses, what it keeps apart, what it cleans up."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from demos import views
from demos.asking import Exchange
from demos.camera import CameraServer
from demos.choice import Choice, DemoError
from demos.memory_view import GROUND, INK, NARROW, WIDE, draw_memory
from demos.own_folder import OwnFolder
from demos.preview import write_preview
from demos.script import Script
from demos.settings import PASSWORD_VARIABLE, DemoSettings
from demos.site import Site
from demos.uploads import remove_leftovers, take_upload, used_bytes
from demos.visit import Visit
from demos.watching import BrowserCamera
from hermes_like.cli import run
from hermes_like.config import HermesConfig, SourceConfig
from hermes_like.errors import ConfigError, SourceOpenError
from hermes_like.records import Answer, Evidence
from hermes_like.sources import open_source
from hermes_like.sprites.stories import draw_story

SHORT = "sprites:seed=0,frames=24"
#: Answers of the bundled model are short; these are long enough to be left in the middle.
LONG_ANSWERS = ("memory.answer_tokens=128", "memory.device_tokens=512", "answer.min_tokens=100")


def wait_until(is_so: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait for something that another thread does."""
    until_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.02)


def is_over(visit: Visit) -> bool:
    progress = visit.progress()
    return progress is not None and progress.is_over


def watched(site: Site, page: str, reference: str = SHORT) -> Visit:
    """A visitor who has watched a story to its end."""
    visit = site.visit(page)
    visit.watch_scenario("story", reference)
    wait_until(lambda: is_over(visit))
    assert visit.progress().state == "ended"
    return visit


def answered(visit: Visit, question: str) -> Exchange:
    """Ask and wait."""
    *_, exchange = visit.ask(question, None).updates()
    return exchange


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """What visitors share, with the bundled model."""
    root = tmp_path_factory.mktemp("demo")
    settings = DemoSettings(memory_root=root / "m", max_upload_bytes=2**22, quota_bytes=2**31)
    shared = Site(settings, root / "up")
    yield shared
    shared.close()


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    """The same, with no visitor left over."""
    yield shared_site
    for page in list(shared_site._visits):
        shared_site.end(page)


# -- who may open the page ---------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_other_machines_need_a_login(host: str) -> None:
    with pytest.raises(ConfigError, match="--user NAME and HERMES_LIKE_DEMO_PASSWORD"):
        DemoSettings(host=host)
    with pytest.raises(ConfigError, match="expected a password in HERMES_LIKE_DEMO_PASSWORD"):
        DemoSettings(host=host, user="ann")
    with pytest.raises(ConfigError, match="at least 8 characters, got 5"):
        DemoSettings(host=host, user="ann", password="short")
    settings = DemoSettings(host=host, user="ann", password="long enough")
    assert not settings.is_loopback
    assert "long enough" not in repr(settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    assert DemoSettings(host=host).is_loopback


def test_the_command_refuses_without_serving(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    assert run(["demo", "--host", "0.0.0.0"]) == 2
    assert "--host 0.0.0.0: expected --user NAME" in capsys.readouterr().err


# -- what is taken -----------------------------------------------------------------------------


def test_decoding_decides_not_the_name(sprites_video: Path, tmp_path: Path) -> None:
    honest = tmp_path / "up" / "notes.txt"
    honest.parent.mkdir()
    honest.write_bytes(sprites_video.read_bytes())
    place = take_upload(honest, tmp_path / "a", 2**30, SourceConfig())
    assert place.read_bytes() == sprites_video.read_bytes()
    assert not honest.exists()
    false = tmp_path / "up" / "film.mp4"
    for content in (b"", b"no film " * 1000, b"<html><script>alert(1)</script></html>"):
        false.write_bytes(content)
        with pytest.raises(SourceOpenError, match=r"film\.mp4 is no video that can be read"):
            take_upload(false, tmp_path / "b", 2**30, SourceConfig())
        assert not false.exists()
        assert used_bytes(tmp_path / "b") == 0


def test_a_refused_upload_changes_nothing(site: Site, tmp_path: Path) -> None:
    visit = watched(site, "refused")
    before = visit.snapshot()
    large = tmp_path / "large.mp4"
    large.write_bytes(bytes(2**22 + 2**20))
    with pytest.raises(SourceOpenError, match=r"expected at most 4\.0 MiB, got 5\.0 MiB"):
        visit.watch_upload(large)
    assert visit.snapshot() is before
    assert answered(visit, "what is visible now ?").state == "done"


def test_a_file_in_use_is_never_removed(site: Site, sprites_video: Path, tmp_path: Path) -> None:
    upload = tmp_path / "mine.mp4"
    upload.write_bytes(sprites_video.read_bytes())
    visit = site.visit("in use")
    visit.watch_upload(upload)
    (clip,) = site.visits_root.glob("*/clip.mp4")
    os.utime(clip, (0, 0))
    leftover = site.uploads_root / "old" / "left.mp4"
    leftover.parent.mkdir()
    leftover.write_bytes(b"x")
    os.utime(leftover, (0, 0))
    assert remove_leftovers(site.uploads_root) == 1
    assert clip.exists()
    assert not leftover.exists()
    wait_until(lambda: is_over(visit))
    assert visit.progress().num_frames == 24
    assert answered(visit, "what is visible now ?").text == "blue ring"


@pytest.mark.parametrize(
    "address", ["", "/etc/passwd", "file:///etc/passwd", "watch:/tmp", "realtime:/x", "webcam:0"]
)
def test_an_address_is_on_the_network(site: Site, address: str) -> None:
    with pytest.raises(DemoError, match="begins with rtsp://"):
        site.visit(f"address {address}").watch_address(address)


def test_a_camera_on_the_network_is_watched(site: Site) -> None:
    story = draw_story(np.random.default_rng(0), 600, min_event_frames=4)
    with CameraServer(0, story) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        visit = site.visit("camera")
        visit.watch_address(server.address)
        wait_until(lambda: visit.progress().num_frames >= 2)
        assert visit.is_live
        assert visit.newest_picture is not None
        assert answered(visit, "what is visible now ?").state == "done"
        assert visit.progress().lag_s is not None
        visit.stop()
        assert visit.progress().state == "stopped"
        server.shutdown()
        thread.join()


# -- watching ----------------------------------------------------------------------------------


def test_watching_pauses_goes_on_and_stops(site: Site) -> None:
    visit = site.visit("pause")
    visit.choice = Choice(as_it_plays=True)
    visit.watch_scenario("story", SHORT)
    wait_until(lambda: visit.progress().num_frames >= 1)
    visit.pause()
    wait_until(lambda: visit.progress().state == "paused")
    held = visit.progress().num_frames
    time.sleep(1.3)
    assert visit.progress().num_frames - held <= 1  # the frame on its way when it was paused
    visit.resume()
    wait_until(lambda: visit.progress().num_frames >= held + 2)
    assert visit.progress().lag_s is not None
    visit.stop()
    assert visit.progress().state == "stopped"
    assert answered(visit, "what is visible now ?").state == "done"


def test_a_browser_camera_keeps_the_newest_picture() -> None:
    camera = BrowserCamera()
    for grey in range(5):
        camera.push(np.full((4, 4, 3), grey, np.uint8))
    frame = next(iter(camera))
    assert frame.image[0, 0, 0] == 4
    assert camera.num_dropped == 4
    assert frame.wall_time is not None
    assert frame.wall_time.tzinfo is not None
    camera.close()
    assert list(camera) == []


def test_a_webcam_is_remembered(site: Site) -> None:
    visit = site.visit("webcam")
    visit.watch_camera()
    camera = visit.camera
    assert camera is not None
    picture = next(iter(open_source(SHORT))).image

    def push() -> bool:
        camera.push(picture)
        time.sleep(0.2)
        return visit.progress().num_frames >= 2

    wait_until(push)
    exchange = answered(visit, "what is visible now ?")
    assert exchange.answer is not None
    assert exchange.answer.evidence[0].wall_time is not None


def test_too_many_visitors_are_told(tmp_path: Path) -> None:
    site = Site(DemoSettings(memory_root=tmp_path / "m", max_visitors=2), tmp_path / "up")
    try:
        assert site.visit("a") is site.visit("a")
        site.visit("b")
        with pytest.raises(DemoError, match="2 visitors are here already"):
            site.visit("c")
        site.end("a")
        site.visit("c")
    finally:
        site.close()


# -- visitors ----------------------------------------------------------------------------------


def test_visitors_do_not_see_each_other(site: Site) -> None:
    first = watched(site, "first", "sprites:seed=0,frames=16")
    second = watched(site, "second", "sprites:seed=5,frames=12")
    assert first.token != second.token
    assert (first.snapshot().stats.num_frames, second.snapshot().stats.num_frames) == (16, 12)
    answered(first, "what is visible now ?")
    assert not second.exchanges
    assert first.film.find(second.film.token or "none") is None
    site.end("first")
    assert answered(second, "what is visible now ?").state == "done"


def test_leaving_in_mid_answer_leaves_nothing(tmp_path: Path) -> None:
    settings = DemoSettings(memory_root=tmp_path / "m", overrides=LONG_ANSWERS)
    site = Site(settings, tmp_path / "up")
    try:
        visit = site.visit("page")
        visit.choice = Choice(device_tokens=512)
        visit.watch_scenario("story", SHORT)
        wait_until(lambda: is_over(visit))
        asking = visit.ask("what is visible now ?", None)
        updates = asking.updates()
        wait_until(lambda: bool(next(updates).text))
        assert asking.is_running
        engine = site.engine("sprites")
        session = engine.session(visit.token)
        site.end("page")
        assert not asking.is_running
        assert asking.exchange.state == "stopped"
        assert engine.names == ()
        assert session.memory.cache.num_bytes == 0
        assert not list(site.visits_root.glob(f"{visit.token}*"))
        with pytest.raises(DemoError, match="This page was left"):
            visit.ask("what is visible now ?", None)
    finally:
        site.close()


def test_a_page_that_calls_again_was_never_gone(site: Site) -> None:
    visit = watched(site, "blink", "sprites:seed=0,frames=8")
    site.leave("blink")
    assert visit.left_s is not None
    time.sleep(1.2)  # what comes within a second may have been on its way before
    assert site.visit("blink") is visit
    wait_until(lambda: visit.left_s is None)
    assert answered(visit, "what is visible now ?").state == "done"
    site.leave("blink")
    wait_until(lambda: not visit.has_memory, 10.0)
    with pytest.raises(DemoError, match="This page was left"):
        site.visit("blink")


def test_one_question_at_a_time_and_it_can_be_stopped(tmp_path: Path) -> None:
    settings = DemoSettings(memory_root=tmp_path / "m", overrides=LONG_ANSWERS)
    site = Site(settings, tmp_path / "up")
    try:
        visit = site.visit("page")
        with pytest.raises(DemoError, match="Nothing has been watched yet"):
            visit.ask("what is visible now ?", None)
        visit.choice = Choice(device_tokens=512)
        visit.watch_scenario("story", SHORT)
        wait_until(lambda: is_over(visit))
        asking = visit.ask("what is visible now ?", None)
        with pytest.raises(DemoError, match="One question at a time"):
            visit.ask("what is visible now ?", None)
        assert visit.stop_answer()
        assert asking.exchange.state == "stopped"
        pieces = {exchange.text for exchange in visit.ask("what came first ?", None).updates()}
        assert len(pieces) > 3  # it came bit by bit
    finally:
        site.close()


def test_a_memory_is_saved_and_opened_after_a_restart(tmp_path: Path) -> None:
    settings = DemoSettings(memory_root=tmp_path / "m")
    site = Site(settings, tmp_path / "up")
    question = "what is visible now ?"
    visit = watched(site, "a")
    wait_until(lambda: bool(visit.film.token))
    before = answered(visit, question).text
    visit.save("my story")
    assert answered(visit, question).text == before
    other = site.visit("b")
    with pytest.raises(DemoError, match="is open in another window"):
        other.open("my story")
    second = watched(site, "c", "sprites:seed=1,frames=8")
    with pytest.raises(DemoError, match="There is a memory called 'my story' already"):
        second.save("my story")
    site.close()
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [".visits", "my story"]
    assert not list((tmp_path / "m" / ".visits").iterdir())

    site = Site(settings, tmp_path / "up")
    try:
        assert site.saved() == ["my story"]
        visit = site.visit("d")
        visit.open("my story")
        assert visit.label == "story"
        clip = visit.film.find(visit.film.token)
        assert clip is not None
        assert clip.parent == tmp_path / "m" / "my story"
        assert clip.is_file()
        assert visit.snapshot().stats.num_frames == 24
        exchange = answered(visit, question)
        assert exchange.text == before
        assert any(exchange.pictures)
    finally:
        site.close()


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "x" * 41, "a\nb"])
def test_names_are_names(site: Site, name: str) -> None:
    visit = watched(site, f"names {name}", "sprites:seed=0,frames=8")
    for act in (visit.save, visit.open):
        with pytest.raises(DemoError, match="A name has 1 to 40 letters"):
            act(name)


def test_what_was_erased_is_not_shown(site: Site) -> None:
    visit = watched(site, "erase")
    answered(visit, "what came first ?")
    with pytest.raises(DemoError, match="The end must lie behind the beginning"):
        visit.erase(5.0, 5.0)
    first_s, last_s = visit.erase(1.0, 9.0)
    assert first_s <= 1.0
    assert last_s >= 9.0
    assert not visit.exchanges  # earlier answers may show what is gone
    snapshot = visit.snapshot()
    assert snapshot is not None
    spans = [(span.start_s, span.end_s) for span in (*snapshot.stored, *snapshot.pictured)]
    spans += [(t, t) for held in snapshot.held.values() for t in held.pts_s]
    assert spans
    assert all(end <= first_s or start >= last_s for start, end in spans)


def test_budgets_are_those_of_the_visitor(site: Site) -> None:
    visit = site.visit("budget")
    visit.choice = Choice(device_tokens=190, host_mib=32, disk_mib=64)
    visit.watch_scenario("story", SHORT)
    wait_until(lambda: is_over(visit))
    caps = visit.snapshot().caps_bytes
    assert (caps["host"] <= 32 * 2**20, caps["disk"]) == (True, 64 * 2**20)
    assert visit.snapshot().stats.device_tokens == 190
    text = views.budgets(visit.choice, site.config("sprites"))
    assert "190 slots" in text
    assert "48.0 MiB" in text  # of the disk, a quarter is for pictures
    assert "16.0 MiB" in text
    refused = views.budgets(Choice(disk_mib=-1), site.config("sprites"))
    assert "role='alert'" in refused


def test_only_listed_models_are_loaded(site: Site) -> None:
    visit = site.visit("model")
    visit.choice = Choice(model="/etc")
    with pytest.raises(DemoError, match="is not one of the models"):
        visit.watch_scenario("story", SHORT)


# -- what is shown -----------------------------------------------------------------------------


def test_the_drawing_stands_in_a_page(site: Site) -> None:
    visit = watched(site, "drawing")
    exchange = answered(visit, "what came first ?")
    snapshot = visit.snapshot()
    assert exchange.answer is not None
    assert snapshot is not None
    hits = exchange.answer.evidence
    for shape in (WIDE, NARROW):
        svg = draw_memory(snapshot, hits, shape)
        tree = ET.fromstring(svg)
        assert tree.get("role") == "img"
        assert "24 frames and 6 segments" in (tree.get("aria-label") or "")
        assert INK not in svg
        assert GROUND not in svg
        assert "var(--mv-ink)" in svg
        ids = re.findall(r'\bid="([^"]+)"', svg)
        assert len(ids) == len(set(ids))
        words = "".join(tree.itertext())
        for word in ("deep", "middle", "long-term", "pictures", "RAM", "disk", "cap"):
            assert word in words
        assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", svg)


def test_what_visitors_bring_is_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>"
    evidence = Evidence(evil, 0, 1.0, 2.0, None, 0.5)
    answer = Answer(evil, "ok", (evidence,), question=evil, notes=(evil,))
    exchange = Exchange(evil, text=evil, answer=answer, state="done", truth=evil, error=evil)
    for html in (views.exchange(exchange), views.status(None, evil, evil), views.error(evil)):
        assert "<img" not in html
        assert "&lt;img" in html


def test_answers_say_where_they_come_from() -> None:
    evidence = Evidence("s", 3, 65.0, 70.0, None, 0.42, tier="disk", keyframe="3")
    answer = Answer("red", "ok", (evidence,), route="recall", ttft_s=0.12, tpot_s=0.034)
    html = views.exchange(Exchange("what ?", "recall", "red", answer, (b"jpeg",), state="done"))
    assert "data-seek='65.000'" in html
    assert "1:05-1:10" in html
    assert "42%" in html
    assert "from disk" in html
    assert "searched the past (as you asked)" in html
    assert "120 ms" in html
    assert "34 ms" in html


def test_suggestions_are_true() -> None:
    script = Script("sprites:seed=0,frames=60")
    found = script.suggest(60)
    assert len(found) == 4
    for truth in found.values():
        assert truth.answer
        assert all(0 <= start < end <= 60 for start, end in truth.shown)
    assert script.suggest(60) == found


def test_a_preview_is_what_browsers_play(tmp_path: Path) -> None:
    """MPEG-4 part 2 in AVI plays in no browser; times must be those of the original."""
    clip = tmp_path / "clip.avi"
    with av.open(str(clip), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for index in range(25):
            image = np.full((64, 96, 3), index * 10, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    made = write_preview(clip, tmp_path, lambda: False)
    assert made is not None
    with av.open(str(made)) as container:
        assert container.streams.video[0].codec_context.name in ("h264", "vp9")
    with open_source(clip) as old, open_source(made) as new:
        times = [frame.pts_s for frame in new]
        assert times == pytest.approx([frame.pts_s for frame in old], abs=0.002)
    assert write_preview(clip, tmp_path, lambda: True) is None
    assert not list(tmp_path.glob("*part*"))


def test_the_dead_are_cleared_away_and_the_living_are_not(tmp_path: Path) -> None:
    living = OwnFolder(tmp_path)
    dead = OwnFolder(tmp_path)
    (dead.path / "memory").write_text("left behind")
    os.close(dead._lock_fd)  # what a killed process does
    third = OwnFolder(tmp_path)
    assert living.path.exists()
    assert third.path.exists()
    assert not dead.path.exists()
    third.close()
    living.close()
    assert not list(tmp_path.iterdir())


def test_choices_do_not_break_configurations() -> None:
    config = Choice(device_tokens=300, host_mib=16, disk_mib=64).apply(HermesConfig())
    assert config.memory.device_tokens == 300
    assert config.store.keyframe_bytes <= config.store.disk_bytes // 4
    assert json.loads(config.model_dump_json())["store"]["host_bytes"] == 16 * 2**20
