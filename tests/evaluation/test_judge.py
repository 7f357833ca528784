"""The judge of free words, against a real server on the loopback address."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hermes_like.errors import ConfigError, ModelError
from hermes_like.evaluation.predictions import Predictions
from hermes_like.evaluation.scoring.judge import Judge, parse_judgement
from hermes_like.evaluation.scoring.scores import judgements_of, score
from tests.evaluation.fixtures import load, predictions

YES = '{"pred": "yes", "score": 4}'


@dataclass
class Server:
    """What the judge is told and has asked."""

    address: str = ""
    #: Given to each request in turn, the last one again and again: a status, or words.
    replies: list[int | str | bytes] = field(default_factory=lambda: [YES])
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def next(self) -> int | str | bytes:
        return self.replies[min(len(self.requests), len(self.replies)) - 1]


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.requests.append({"path": self.path, **json.loads(body)})
            state.keys.append(self.headers["Authorization"])
            reply = state.next()
            if isinstance(reply, str):
                message = {"choices": [{"message": {"content": reply}}]}
                reply = json.dumps(message).encode()
            status = reply if isinstance(reply, int) else 200
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{state.address}/elsewhere")
            content = reply if isinstance(reply, bytes) else b"told why"
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{httpd.server_port}/v1"
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield state
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def make(server: Server, pauses: list[float]) -> Callable[..., Judge]:
    def build(**options: Any) -> Judge:
        return Judge(server.address, "judge-1", wait=pauses.append, **options)

    return build


def test_asks_once_and_remembers(
    server: Server, make: Callable[..., Judge], tmp_path: Path
) -> None:
    cache = tmp_path / "deep" / "judge.jsonl"
    judge = make(cache=cache, key="secret")
    assert judge.judge("What is cut?", "An onion.", "onions").is_right is True
    assert judge.judge("What is cut?", "An onion.", "onions").score == 4
    assert len(server.requests) == 1
    request = server.requests[0]
    assert request["path"] == "/v1/chat/completions"
    assert (request["model"], request["temperature"]) == ("judge-1", 0)
    assert "True answer: An onion." in request["messages"][1]["content"]
    assert server.keys == ["Bearer secret"]
    with cache.open("a") as file:
        file.write('{"key": "torn')
    again = make(cache=cache)
    assert again.judge("What is cut?", "An onion.", "onions").is_right is True
    assert again.num_requests == 0
    assert "secret" not in cache.read_text()
    other = Judge(server.address, "judge-2", cache=cache)
    assert other.judge("What is cut?", "An onion.", "onions").is_right is True
    assert other.num_requests == 1, "another model judges for itself"


def test_no_reply_is_wrong_without_asking(server: Server, make: Callable[..., Judge]) -> None:
    judge = make()
    assert judge.judge("?", "yes", None).is_right is False
    assert judge.judge("?", "yes", "  ").is_right is False
    assert not server.requests


@pytest.mark.parametrize("first", [503, 429, "I cannot tell", b"{}", b"<html>", b'{"choices": []}'])
def test_tries_again_while_it_makes_sense(
    first: int | str | bytes, server: Server, make: Callable[..., Judge], pauses: list[float]
) -> None:
    server.replies = [first, YES]
    assert make().judge("?", "a", "b").is_right is True
    assert pauses == [2.0]


def test_gives_up_and_says_so(
    server: Server, make: Callable[..., Judge], pauses: list[float], tmp_path: Path
) -> None:
    server.replies = ["perhaps"]
    cache = tmp_path / "judge.jsonl"
    given = make(num_attempts=3, cache=cache).judge("?", "a", "b")
    assert (given.is_right, given.score) == (None, None)
    assert "perhaps" in given.detail
    assert (len(server.requests), pauses) == (3, [2.0, 4.0])
    assert not cache.exists(), "what was no verdict is asked again the next time"


@pytest.mark.parametrize("status", [401, 404, 302])
def test_a_refusal_ends_the_run_and_no_key_goes_elsewhere(
    status: int, server: Server, make: Callable[..., Judge]
) -> None:
    server.replies = [status]
    with pytest.raises(ModelError, match=rf"judge judge-1 at .*: {status} "):
        make(key="secret").judge("?", "a", "b")
    assert [request["path"] for request in server.requests] == ["/v1/chat/completions"]


def test_nobody_there(server: Server) -> None:
    with pytest.raises(ModelError, match="judge at http"):
        Judge("http://127.0.0.1:9/v1", "m").judge("?", "a", "b")
    with pytest.raises(ConfigError, match="expected an address"):
        Judge("file:///etc/passwd", "m")


@pytest.mark.parametrize(
    ("text", "is_right", "points"),
    [
        (YES, True, 4),
        ("{'pred': 'no', 'score': 1}", False, 1),
        ('```json\n{"pred": "Yes", "score": "4.8"}\n```', True, 4.8),
        ("yes 4", True, 4),
        ("No.", False, None),
        ("(no, 2)", False, 2),
        ('{"pred": "yes", "score": 9}', True, None),
        ('{"pred": "maybe", "score": 3}', None, None),
        ("yes and no", None, None),
        ("{'pred': __import__('os').abort()}", None, None),
        ("", None, None),
    ],
)
def test_verdicts_in_all_shapes(text: str, is_right: bool | None, points: float | None) -> None:
    given = parse_judgement(text)
    assert (given.is_right, given.score) == (is_right, points)


def test_a_result_judged_from_end_to_end(server: Server, make: Callable[..., Judge]) -> None:
    server.replies = [YES, "no 1", YES]
    rows = Predictions(tuple(predictions(load("rvs-ego", "rvs_rekv"))))
    seen: list[tuple[int, int]] = []
    judge = make()
    judged = judgements_of(rows, judge, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    report = score(rows, "strict", judgements=judged, judge=judge.name)
    assert report.total.score == pytest.approx(2 / 3)
    assert report.extras["judge_score_0_to_5"] == pytest.approx(3)
    assert report.judge == "judge-1, prompt 1"
