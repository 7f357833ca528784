"""The demonstration as a process of its own: what it serves, what it refuses, how it ends."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SECRET = "a saved memory is nobody's business"
BOUNDARY = "a-boundary"
PASSWORD = "long enough"


class Served:
    """The page, served by ``python -m demos.app``."""

    def __init__(self, root: Path, *options: str, **environment: str) -> None:
        self.root = root
        command = [sys.executable, "-m", "demos.app", "--memory-root", str(root), *options]
        self._log = (root.parent / "server.log").open("w+")
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "open http://127.0.0.1:" in line, self.errors()
        self.host = line.split("http://")[1].split("/")[0]
        #: Sent with every request once somebody has logged in.
        self.cookie = ""
        self.cookies: list[str] = []

    def errors(self) -> str:
        """What it has said on stderr."""
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> int:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
        return self.process.returncode

    def get(
        self,
        path: str,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> tuple[int, bytes]:
        """One request with the path as it is: no library may tidy it up."""
        connection = http.client.HTTPConnection(self.host, timeout=20)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in ({"Cookie": self.cookie} | (headers or {})).items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            self.cookies = [
                cookie.split(";")[0] for cookie in response.headers.get_all("Set-Cookie", [])
            ]
            return response.status, response.read(2**20)
        finally:
            connection.close()

    def upload(self, content: bytes) -> tuple[int, bytes]:
        """Send a file as the page does."""
        head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n'
            "Content-Type: text/plain\r\n\r\n"
        )
        body = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
        headers = {
            "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
            "Content-Length": str(len(body)),
        }
        return self.get("/gradio_api/upload", "POST", headers, body)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page with a login; its end must be clean."""
    root = tmp_path_factory.mktemp("served") / "memories"
    limits = ("--max-upload-mib", "1", "--quota-mib", "64")
    server = Served(root, "--user", "ann", *limits, HERMES_LIKE_DEMO_PASSWORD=PASSWORD)
    yield server
    status, errors = server.stop(), server.errors()
    server._log.close()
    assert status == 0, errors
    assert "Traceback" not in errors
    assert not list((root / ".visits").iterdir())


def test_a_login_is_asked_for(served: Served) -> None:
    """Runs first: the tests behind it are logged in."""
    for path in ("/config", "/gradio_api/info", "/gradio_api/queue/data?session_hash=x"):
        assert served.get(path)[0] == 401, path
    assert served.upload(b"x")[0] == 401
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for password, expected in (("wrong words", 400), (PASSWORD, 200)):
        form = f"username=ann&password={password.replace(' ', '+')}".encode()
        sized = headers | {"Content-Length": str(len(form))}
        assert served.get("/login", "POST", sized, form)[0] == expected
    served.cookie = "; ".join(served.cookies)
    assert served.get("/config")[0] == 200
    command = Path(f"/proc/{served.process.pid}/cmdline")
    assert not command.exists() or PASSWORD.encode() not in command.read_bytes()


def test_no_path_is_served(served: Served, tmp_path: Path) -> None:
    """Whatever a request names: a saved memory, an upload, a file of the system."""
    kept, stray = served.root / "kept" / "memory" / "note.txt", tmp_path / "stray.txt"
    kept.parent.mkdir(parents=True)
    status, body = served.upload(SECRET.encode())
    assert status == 200, body
    (upload,) = json.loads(body)
    assert Path(upload).read_text() == SECRET
    for path in (kept, stray):
        path.write_text(SECRET)
    spelled = ["http://127.0.0.1:1/", "https://example.org/"]
    for target in (str(kept), str(stray), str(upload), "/etc/passwd"):
        up = "../" * 12 + target.lstrip("/")
        spelled += [target, up, up.replace("../", "..%2f"), up.replace("..", "%2e%2e")]
        spelled += [target.replace("/", "%2F"), f"file://{target}", "%2F" + target[1:]]
        spelled += [up.replace("..", "%252e%252e"), f"{served.root}/kept/{up}", f"./{up}"]
    routes = ["/gradio_api/file=", "/gradio_api/file/", "/file=", "/gradio_api//file="]
    routes += ["/GRADIO_API/file=", "//gradio_api/file=", "/gradio_api/proxy=", "/clip/"]
    routes += ["/static/", "/assets/", "/svelte/", "/gradio_api/custom_component/", "/"]
    for route in routes:
        for spelling in spelled:
            status, body = served.get(route + spelling)
            where = f"{route}{spelling}: {status}"
            assert SECRET.encode() not in body, where
            assert b"root:" not in body, where
            # The page itself may answer to a name at the top; everything else says no.
            assert status >= 400 or b"<html" in body.lower(), where


@pytest.mark.parametrize(
    "path", ["/monitoring", "/gradio_api/vibe-code/", "/gradio_api/runs", "/gradio_api/deep_link"]
)
def test_what_the_page_does_not_need_is_closed(served: Served, path: str) -> None:
    assert served.get(path) == (403, b"This is not served here.")


def test_uploads_have_a_size_and_a_quota(served: Served) -> None:
    status, body = served.upload(bytes(3 * 2**20))
    assert (status, body) == (413, b"This file is larger than the 1 MiB that are taken.")
    assert served.upload(bytes(2**20 + 2**19))[0] == 413
    assert served.get("/gradio_api/upload", "POST")[0] == 411
    filler = served.root / "filler"
    with filler.open("wb") as file:
        file.truncate(64 * 2**20)
    time.sleep(2.1)  # a count is believed for two seconds
    status, body = served.upload(b"small")
    filler.unlink()
    assert status == 413
    assert b"the disk quota of this page is used up" in body
    time.sleep(2.1)
    assert served.upload(b"small")[0] == 200


def test_nothing_is_reported_and_nothing_is_fetched(served: Served) -> None:
    status, body = served.get("/config")
    config = json.loads(body)
    assert status == 200
    assert config["analytics_enabled"] is False
    assert all("https" not in sheet for sheet in config["stylesheets"])
