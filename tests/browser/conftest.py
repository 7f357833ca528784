"""The page in a real browser: Debian's Chromium, driven by playwright, headless.

``make test-browser`` sets it up and runs it. Elsewhere these tests are skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
#: Set by ``make test-browser``; the suite without a browser stays quick.
WANTED = "HERMES_LIKE_BROWSER_TESTS"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
)
#: The bundled model answers in two words; these answers are long enough to be left in the middle.
LONG = ("memory.answer_tokens=512", "memory.device_tokens=1024", "answer.min_tokens=400")
#: What the page's framework says where reading was broken off by loading the page again (it aborts
#: its own streams as a page is left); excused on pages that were, and nowhere else.
BROKEN_OFF = (
    "BodyStreamBuffer was aborted",
    "Connection errored out",
    "signal is aborted without reason",
)
#: Where pictures of the page go; looked at by people.
SHOTS = Path(os.environ.get("HERMES_LIKE_SCREENSHOTS", "runs/browser"))


def browser_path() -> str | None:
    """Where a Chromium is."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


def missing() -> str:
    """Why there is no browser to test with; empty: there is one."""
    if not os.environ.get(WANTED):
        return f"browser tests run with: make test-browser (or {WANTED}=1)"
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed: pip install -e '.[browser]'"
    return "" if browser_path() else "no Chromium found: apt-get install chromium"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip everything here, with the reason, where there is no browser."""
    reason = missing()
    here = Path(__file__).parent
    for item in items:
        if reason and here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


class Server:
    """The page in a process of its own, which can be started again.

    Attributes:
        root: Folder of memories.
        address: Where the page is.
    """

    def __init__(self, root: Path, *settings: str) -> None:
        self.root = root
        options = [part for setting in settings for part in ("--set", setting)]
        command = [sys.executable, "-m", "demos.app", "--memory-root", str(root)]
        self._log = (root.parent / "server.log").open("a+")
        self._process = subprocess.Popen(
            [*command, "--max-upload-mib", "8", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "open http://" not in line:
            self._log.seek(0)
            raise AssertionError(self._log.read())
        self.address = line.split()[3]

    def visits(self) -> list[Path]:
        """Folders of memories that are not saved."""
        return [path for path in self.root.glob(".visits/*/*") if path.is_dir()]

    def stop(self) -> str:
        """Press Ctrl-C and return what it has said on stderr."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=30)
        finally:
            self._process.kill()
            self._process.wait()
        self._log.seek(0)
        errors = self._log.read()
        self._log.close()
        return errors


@pytest.fixture(scope="session")
def memories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of memories, which outlives servers."""
    return tmp_path_factory.mktemp("browser") / "memories"


@pytest.fixture(scope="session")
def server(memories: Path) -> Iterator[Server]:
    """The page as a newcomer meets it."""
    served = Server(memories)
    yield served
    errors = served.stop()
    assert "Traceback" not in errors, errors


@pytest.fixture(scope="session")
def long_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The page with long answers."""
    root = tmp_path_factory.mktemp("long") / "memories"
    served = Server(root, *LONG)
    yield served
    errors = served.stop()
    assert "Traceback" not in errors, errors


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=browser_path(), headless=True, args=list(FLAGS)
        )
        yield browser
        browser.close()


class Watcher:
    """Watches a page: requests that leave this machine, and errors in its console."""

    def __init__(self, page: Any) -> None:
        self.foreign: list[str] = []
        self._errors: list[str] = []
        self._num_loads = 0
        page.on("request", lambda request: self._note(request.url))
        page.on("websocket", lambda socket: self._note(socket.url))
        page.on("pageerror", lambda error: self._errors.append(str(error)))
        page.on("console", self._console)
        page.on("domcontentloaded", self._count)

    @property
    def errors(self) -> list[str]:
        """What the page complained of."""
        excused = BROKEN_OFF if self._num_loads > 1 else ()
        return [error for error in self._errors if not any(text in error for text in excused)]

    def _count(self, _: Any) -> None:
        self._num_loads += 1

    def _note(self, url: str) -> None:
        own = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:")
        if not url.startswith(own):
            self.foreign.append(url)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self._errors.append(f"{message.text} at {message.location.get('url')}")


@pytest.fixture
def new_page(chromium: Any) -> Iterator[Any]:
    """Makes pages; at the end none may have called another machine or complained."""
    contexts, watchers = [], []

    def make(address: str, **options: Any) -> Any:
        context = chromium.new_context(**({"viewport": {"width": 1280, "height": 1000}} | options))
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        watchers.append(Watcher(page))
        page.goto(address)
        page.wait_for_selector("#hl-watch-sample")
        return page

    yield make
    for context in contexts:
        context.close()
    assert [url for watcher in watchers for url in watcher.foreign] == []
    assert [error for watcher in watchers for error in watcher.errors] == []
