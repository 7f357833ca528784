"""What a visitor does, from the first click to a memory that is opened after a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.browser.conftest import SHOTS, Server

STATE = "document.querySelector('#hl-status')?.innerText"
TIME = "document.getElementById('hl-video')?.currentTime"


def shot(page: Any, name: str) -> None:
    """Take a picture of the whole page for people to look at."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS / f"{name}.png"), full_page=True)


def wait_for(page: Any, condition: str, *, limit_s: float = 60.0) -> None:
    """Wait until an expression of the page is true."""
    page.wait_for_function(f"() => {condition}", timeout=limit_s * 1000)


def wait_until(is_so: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Wait for something outside the page."""
    until_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.1)


def watch_sample(page: Any) -> None:
    """Watch the sample to its end."""
    page.click("#hl-watch-sample")
    wait_for(page, f"{STATE}.includes('Watched to the end')")


def ask(page: Any, question: str) -> str:
    """Ask, wait, and return the text of the answer."""
    page.fill("#hl-question textarea", question)
    page.click("#hl-ask")
    page.wait_for_selector(f".hl-exchange[data-state=done] h3:text-is('{question}')")
    return str(page.inner_text("#hl-answer .hl-a")).strip()


def open_tab(page: Any, name: str) -> None:
    """Choose another kind of source."""
    page.get_by_role("tab", name=name).click()


def open_fold(page: Any, selector: str, shown: str) -> None:
    """Unfold a section."""
    page.click(f"{selector} button >> nth=0")
    page.wait_for_selector(shown, state="visible")


def test_from_the_first_click_to_evidence(server: Server, new_page: Any) -> None:
    """Watch, ask, see the moments, go there; and the page says what to do before."""
    page = new_page(server.address)
    assert "Press Watch above to start" in page.inner_text("#hl-stage")
    assert "The memory is empty" in page.inner_text("#hl-memory")
    watch_sample(page)
    page.wait_for_selector("#hl-video")
    assert ask(page, "where did the yellow triangle appear ?") == "bottom"
    facts = page.inner_text(".hl-facts")
    assert "searched the past" in facts
    assert "first text after" in facts
    moment = page.locator(".hl-moment").first
    seconds = float(moment.get_attribute("data-seek"))
    assert seconds > 1.0
    assert page.evaluate(TIME) < 1.0
    assert moment.locator("img").evaluate("image => image.naturalWidth") > 50
    moment.click()
    wait_for(page, f"Math.abs({TIME} - {seconds}) < 0.5")
    page.wait_for_selector("#hl-memory svg[role=img]")
    wait_for(page, "document.querySelector('.hl-key').innerText.includes('last answer')")


def test_a_route_can_be_forced(server: Server, new_page: Any) -> None:
    page = new_page(server.address)
    watch_sample(page)
    page.get_by_label("Only now").check()
    ask(page, "what color was the heart ?")
    assert "looked at now (as you asked)" in page.inner_text(".hl-facts")
    page.get_by_label("Go through everything").check()
    page.fill("#hl-question textarea", "how many stars appeared ?")
    page.click("#hl-ask")
    page.wait_for_selector(".hl-exchange[data-state=done] h3:text-is('how many stars appeared ?')")
    assert "went through everything (as you asked)" in page.inner_text(".hl-facts >> nth=0")
    assert page.locator(".hl-moment").count() >= 1


def test_asking_while_it_is_watched(server: Server, new_page: Any) -> None:
    page = new_page(server.address)
    open_fold(page, "#hl-budgets", "#hl-plan table")
    page.get_by_label("Watch recordings at the pace at which they play").check()
    page.click("#hl-watch-sample")
    wait_for(page, f"{STATE}.includes('Watching') && {STATE}.includes('lag')")
    wait_for(page, f"/[3-9] frames/.test({STATE})")
    assert ask(page, "what is visible now ?")
    assert "Watching" in page.inner_text("#hl-status")
    page.get_by_role("button", name="Pause").click()
    wait_for(page, f"{STATE}.includes('Paused')")
    page.get_by_role("button", name="Resume").click()
    wait_for(page, f"{STATE}.includes('Watching')")
    page.get_by_role("button", name="Stop watching").click()
    wait_for(page, f"{STATE}.includes('Stopped')")
    assert ask(page, "what came first ?")


def test_budgets_show_their_arithmetic(server: Server, new_page: Any) -> None:
    page = new_page(server.address)
    open_fold(page, "#hl-budgets", "#hl-plan table")
    assert "256 slots" in page.inner_text("#hl-plan")
    page.get_by_label("number input for RAM").fill("128")
    page.get_by_label("number input for RAM").press("Enter")
    wait_for(page, "document.querySelector('#hl-plan').innerText.includes('128.0 MiB')")


def test_an_upload_is_watched_and_a_false_one_refused(
    server: Server, new_page: Any, sprites_video: Path, tmp_path: Path
) -> None:
    page = new_page(server.address)
    open_tab(page, "My video")
    false = tmp_path / "film.mp4"
    false.write_bytes(b"this is no film" * 100)
    page.set_input_files("#hl-upload input[type=file]", str(false))
    page.wait_for_selector("#hl-watch-error .hl-error")
    assert "film.mp4 is no video that can be read" in page.inner_text("#hl-watch-error")
    assert "Nothing is being watched yet" in page.inner_text("#hl-stage")
    # What a file is called does not matter.
    honest = tmp_path / "holiday.dat"
    honest.write_bytes(sprites_video.read_bytes())
    page.set_input_files("#hl-upload input[type=file]", str(honest))
    wait_for(page, f"{STATE}.includes('Watched to the end')")
    assert not page.inner_text("#hl-watch-error").strip()
    assert ask(page, "what is visible now ?") == "blue ring"
    wait_for(page, "document.getElementById('hl-video')?.readyState >= 1")
    clip = page.get_attribute("#hl-video", "src")
    assert page.request.get(server.address + clip).status == 200
    page.close()
    other = new_page(server.address)
    wait_until(lambda: other.request.get(server.address + clip).status == 404)


def test_a_film_that_browsers_cannot_play_gets_a_preview(
    server: Server, new_page: Any, tmp_path: Path
) -> None:
    path = tmp_path / "old.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for index in range(40):
            image = np.full((120, 160, 3), 40 + index * 4, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    page = new_page(server.address)
    open_tab(page, "My video")
    page.set_input_files("#hl-upload input[type=file]", str(path))
    wait_for(page, "document.getElementById('hl-video')?.videoWidth == 160")
    wait_for(page, "Math.abs(document.getElementById('hl-video').duration - 8) < 0.5")


def test_the_webcam_of_the_browser(server: Server, new_page: Any) -> None:
    page = new_page(server.address, permissions=["camera"])
    open_tab(page, "Webcam")
    page.locator("#hl-webcam").get_by_role("button").first.click()
    page.wait_for_selector("#hl-webcam video")
    page.click("#hl-watch-webcam")
    record = page.locator("#hl-webcam button").filter(has_text="Record")
    if record.count():
        record.first.click()
    wait_for(page, f"/[2-9] frames/.test({STATE})")
    assert ask(page, "what is visible now ?") is not None
    page.wait_for_selector("#hl-stage img")
    assert page.locator(".hl-moment .hl-wall").count() >= 1
    page.locator(".hl-moment").first.click()
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Stop watching").click()
    wait_for(page, f"{STATE}.includes('Stopped')")


def test_errors_are_told_where_they_happen(server: Server, new_page: Any) -> None:
    page = new_page(server.address)
    page.fill("#hl-question textarea", "what is visible now ?")
    page.click("#hl-ask")
    page.wait_for_selector("#hl-ask-error .hl-error")
    assert page.inner_text("#hl-ask-error") == "Nothing has been watched yet: press Watch first."
    open_tab(page, "Camera")
    page.get_by_label("Address of a camera or stream").fill("file:///etc/passwd")
    page.click("#hl-watch-address")
    page.wait_for_selector("#hl-watch-error .hl-error")
    assert "begins with rtsp://" in page.inner_text("#hl-watch-error")


def test_erasing_asks_first(server: Server, new_page: Any) -> None:
    page = new_page(server.address)
    watch_sample(page)
    assert ask(page, "what is visible now ?")
    open_fold(page, "#hl-keeping", "#hl-erase")
    page.get_by_label("Erase from").fill("0:30")
    page.get_by_label("to", exact=True).fill("0:10")
    page.click("#hl-erase")
    page.wait_for_selector("#hl-keep-note .hl-error")
    page.get_by_label("to", exact=True).fill("0:45")
    page.click("#hl-erase")
    page.get_by_text("Erase 0:30 to 0:45 for good").wait_for()
    page.get_by_role("button", name="Erase for good").click()
    page.wait_for_selector("#hl-keep-note .hl-done")
    assert "Erased 0:28 to 0:4" in page.inner_text("#hl-keep-note")
    assert "No question yet" in page.inner_text("#hl-answer")


def test_two_visitors_have_two_memories(server: Server, new_page: Any) -> None:
    first, second = new_page(server.address), new_page(server.address)
    second.locator("#hl-sources input").first.click()
    second.get_by_role("option", name="Ten minutes of shapes").click()
    first.click("#hl-watch-sample")
    second.click("#hl-watch-sample")
    wait_for(first, f"{STATE}.includes('of 2:00')")
    wait_for(second, f"{STATE}.includes('of 10:00')")
    assert ask(second, "what is visible now ?")
    assert "No question yet" in first.inner_text("#hl-answer")
    wait_for(first, f"{STATE}.includes('Watched to the end')")
    assert ask(first, "what is on the screen now ?") == "yellow moon"
    assert len(server.visits()) >= 2


def test_leaving_ends_the_memory(server: Server, new_page: Any) -> None:
    wait_until(lambda: not server.visits())  # those of the tests before
    page = new_page(server.address)
    page.click("#hl-watch-sample")
    wait_until(lambda: len(server.visits()) == 1)
    page.close()
    wait_until(lambda: not server.visits())


def test_a_memory_is_saved_and_opened_after_a_reload(server: Server, new_page: Any) -> None:
    page = new_page(server.address)
    watch_sample(page)
    before = ask(page, "where did the yellow triangle appear ?")
    open_fold(page, "#hl-keeping", "#hl-save")
    page.get_by_label("Save this memory as").fill("the sample")
    page.click("#hl-save")
    page.wait_for_selector("#hl-keep-note .hl-done")
    page.reload()
    page.wait_for_selector("#hl-keeping")
    assert "Nothing is being watched yet" in page.inner_text("#hl-stage")
    reopen(page, "the sample")
    assert ask(page, "where did the yellow triangle appear ?") == before
    seek_works(page)


def reopen(page: Any, name: str) -> None:
    """Open a saved memory; the one who had it open may still be leaving."""
    open_fold(page, "#hl-keeping", "#hl-open")
    page.locator("#hl-saved input").click()
    page.get_by_role("option", name=name).click()

    def is_open() -> bool:
        page.click("#hl-open")
        page.wait_for_timeout(700)
        return f"{name} is open" in str(page.inner_text("#hl-keep-note"))

    wait_until(is_open)
    assert "Reopened" in page.inner_text("#hl-status")


def seek_works(page: Any) -> None:
    """The film came back with the memory."""
    moment = page.locator(".hl-moment").first
    seconds = float(moment.get_attribute("data-seek"))
    moment.click()
    wait_for(page, f"Math.abs({TIME} - {seconds}) < 0.5")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {}),
        ("dark", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 390, "height": 844}, "has_touch": True}),
    ],
)
def test_everybody_can_use_it(
    server: Server, new_page: Any, name: str, options: dict[str, Any]
) -> None:
    """No serious fault of accessibility, whatever the colours and the width."""
    page = new_page(server.address, **options)
    empty = serious_faults(page)
    watch_sample(page)
    ask(page, "what was the color of the heart ?")
    ask(page, "which object followed the yellow cross ?")
    seek_works(page)
    count = page.locator("#hl-answer .hl-moment").count()
    wait_for(page, f"document.querySelector('.hl-wide').dataset.hits == '{count}'")
    page.wait_for_timeout(500)  # the film shows the moment a little after it says so
    shot(page, name)
    open_fold(page, "#hl-budgets", "#hl-plan table")
    open_fold(page, "#hl-keeping", "#hl-save")
    shot(page, f"unfolded_{name}")
    assert empty + serious_faults(page) == []
    # Nothing sticks out to the right.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    drawing = "wide" if name != "phone" else "narrow"
    assert page.locator(f".hl-{drawing} svg").is_visible()
    assert page.locator(f".hl-{drawing} svg text").first.evaluate(
        "text => text.getBoundingClientRect().height"
    ) >= (8 if name == "phone" else 9)


def serious_faults(page: Any) -> list[str]:
    """What axe-core calls serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        json.dumps({"rule": fault["id"], "where": [node["target"] for node in fault["nodes"]][:4]})
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


def test_a_memory_is_opened_after_a_restart(memories: Path, new_page: Any) -> None:
    assert (memories / "the sample").is_dir(), "the test of saving runs first"
    restarted = Server(memories)
    try:
        page = new_page(restarted.address)
        reopen(page, "the sample")
        assert ask(page, "where did the yellow triangle appear ?") == "bottom"
        seek_works(page)
        page.wait_for_selector("#hl-memory svg[role=img]")
        page.close()
    finally:
        assert "Traceback" not in restarted.stop()


# -- long answers ------------------------------------------------------------------------------


def test_the_answer_streams_and_can_be_stopped(long_server: Server, new_page: Any) -> None:
    page = new_page(long_server.address)
    watch_sample(page)
    page.evaluate(
        """() => {
          window.lengths = new Set();
          const note = () => {
            const text = document.querySelector('.hl-exchange[data-state=running] .hl-a');
            if (text) window.lengths.add(text.innerText.length);
          };
          new MutationObserver(note).observe(document.querySelector('#hl-answer'),
            { childList: true, subtree: true, characterData: true });
        }"""
    )
    ask(page, "what came first ?")
    assert page.evaluate("window.lengths.size") >= 4
    assert "per token" in page.inner_text(".hl-facts")
    page.fill("#hl-question textarea", "what is visible now ?")
    page.click("#hl-ask")
    page.wait_for_selector(".hl-exchange[data-state=running] .hl-a")
    # Without waiting until nothing moves any more: text keeps coming.
    page.evaluate("document.getElementById('hl-stop-answer').click()")
    page.wait_for_selector(".hl-exchange[data-state=stopped]")


def test_leaving_in_mid_answer_leaves_nothing(long_server: Server, new_page: Any) -> None:
    stays = new_page(long_server.address)
    watch_sample(stays)
    before = len(long_server.visits())
    leaves = new_page(long_server.address)
    watch_sample(leaves)
    leaves.fill("#hl-question textarea", "what is visible now ?")
    leaves.click("#hl-ask")
    leaves.wait_for_selector(".hl-exchange[data-state=running] .hl-a")
    assert len(long_server.visits()) == before + 1
    leaves.close()
    wait_until(lambda: len(long_server.visits()) == before)
    assert ask(stays, "what is visible now ?")
