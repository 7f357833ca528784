"""Log lines: JSON that parses, no credentials anywhere, nothing set up by an import."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import timeit
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hermes_like.errors import ConfigError, SourceError
from hermes_like.logs import HIDDEN, CredentialFilter, JsonFormatter, configure_logging, redact

logger = logging.getLogger("hermes_like.test")
ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    """Leave the logging of this process as it was."""
    root, own = logging.getLogger(), logging.getLogger("hermes_like")
    handlers, level = list(root.handlers), own.level
    yield
    root.handlers[:] = handlers
    own.setLevel(level)


def lines(level: str = "debug", *, as_json: bool = True) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(level, as_json=as_json, stream=stream)
    return stream


def records(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


# -- credentials ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rtsp://admin:hunter2@cam/live", "rtsp://***@cam/live"),
        ("cannot open rtsp://hunter2@cam:554: refused", "cannot open rtsp://***@cam:554: refused"),
        ("srt+tls://a:hunter2@[::1]:9000", "srt+tls://***@[::1]:9000"),
        ("rtsp://admin:hunter2@@x/?#[:hunter2@cam/1", "rtsp://***@cam/1"),
        ("rtsp://admin:hun://ter2@cam/1", "rtsp://***@cam/1"),
        ("rtsp://admin:hunter2%40@cam/1", "rtsp://***@cam/1"),
        ("open 'rtsp://admin:my hunter2@cam/1' failed", "open 'rtsp://***@cam/1' failed"),
        ("open rtsp://admin:my hunter2@cam/1 failed", "open rtsp://***@cam/1 failed"),
        ("two: rtsp://u:hunter2@a and RTSP://u:hunter2@b", "two: rtsp://***@a and RTSP://***@b"),
        ("http://gate/api?src=rtsp%3A%2F%2Fu%3Ahunter2%40cam", None),
        ("http://cam/s?token=hunter2&fps=5", "http://cam/s?token=***&fps=5"),
        ("http://cam/s?API_KEY=hun#ter2&fps=5", "http://cam/s?API_KEY=***&fps=5"),
        ("http://cam/s?user=hunter2&pwd=hunter2", "http://cam/s?user=***&pwd=***"),
        ("srt://cam:9000?passphrase=hunter2", "srt://cam:9000?passphrase=***"),
        ("rtsp://cam/user=a_password=hunter2_channel=1", "rtsp://cam/user=a_password=***"),
        ("http://gate/?next=%2Fx%3Ftoken%3Dhunter2", None),
        ("Authorization: Basic aHVudGVyMg==", "Authorization: ***"),
        ("{'Authorization': 'Bearer hunter2hunter2'}", "{'Authorization': '***'}"),
        ('Authorization: Digest username="hunter2", response="hunter2"', "Authorization: ***"),
        ("sent Bearer hunter2hunter2", "sent Bearer ***"),
        ('{"password": "hunter2", "fps": 5}', '{"password": "***", "fps": 5}'),
        ("HERMES_LIKE__API_KEY=hunter2", "HERMES_LIKE__API_KEY=***"),
    ],
)
def test_credentials_are_hidden(text: str, expected: str | None) -> None:
    hidden = redact(text)
    assert "ter2" not in hidden
    assert "aHVudGVyMg" not in hidden
    assert HIDDEN in hidden
    assert expected is None or hidden == expected
    assert redact(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "door: connecting to rtsp://cam:554/live/1",
        "memory.device_tokens=512, tokens=7, token 3 of 9",
        "metrics: expected a bearer token, got none",
        "http://localhost:8000 answered mail@example.org",
        "first pass: 12 segments; compass=north; bypass: on",
        "http://cam/s?fps=5&size=640x480",
        "C://clip.mp4 at 12:30",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("piece", ["//", "x://a:", "%2f%2f", "'rtsp://", "?a", "password ", "a@"])
def test_long_texts_take_linear_time(piece: str) -> None:
    def spent_s(num: int) -> float:
        text = piece * num
        return min(timeit.repeat(lambda: redact(text), number=1, repeat=3))

    assert spent_s(8000) < 40 * spent_s(1000), "quadratic would be 64 times"


@pytest.mark.parametrize("as_json", [False, True])
def test_credentials_never_reach_the_stream(as_json: bool) -> None:
    stream = lines(as_json=as_json)
    address = "rtsp://admin:hunter2@cam/live"

    class Camera:
        def __str__(self) -> str:
            return address

    logger.warning("cannot open %s", address)
    logger.warning("cannot open %s of %d", Camera(), 3)
    logger.warning("cannot open %(where)s", {"where": address})
    logger.warning("%s://%s:%s@%s", "rtsp", "admin", "hunter2", "cam")
    logger.warning("event", extra={"where": address, "password": "hunter2", "camera": Camera()})
    logger.warning("event", extra={"deep": {"a": [address], "api_key": "hunter2", address: 1}})
    logger.warning("stack", extra={"event": "x"}, stack_info=True)
    try:
        try:
            raise OSError(f"{address} refused")
        except OSError as cause:
            raise SourceError(f"door: {address}") from cause
    except SourceError:
        logger.exception("door: lost %s", address)
    text = stream.getvalue()
    assert "hunter2" not in text
    assert text.count("cannot open rtsp://***@cam/live") == 3
    assert "rtsp://***@cam\n" in text or '"rtsp://***@cam"' in text
    assert "OSError: rtsp://***@cam/live refused" in text
    assert "SourceError: door: rtsp://***@cam/live" in text


def test_the_formatter_alone_hides_too() -> None:
    record = logging.makeLogRecord({"msg": "at %s", "args": ("rtsp://a:hunter2@cam",)})
    record.stack_info = "rtsp://a:hunter2@cam"
    record.exc_text = "rtsp://a:hunter2@cam"
    assert "hunter2" not in JsonFormatter().format(record)


def test_other_records_pass_the_filter_unchanged() -> None:
    record = logging.makeLogRecord(
        {"msg": "%s has %d frames", "args": ("door", 3), "stream": "door"}
    )
    before = dict(record.__dict__)
    assert CredentialFilter().filter(record)
    assert record.__dict__ == before


def test_arguments_that_are_shown_in_part_are_hidden_in_whole() -> None:
    record = logging.makeLogRecord({"msg": "at %.6s", "args": ("rtsp://a:hunter2@cam",)})
    CredentialFilter().filter(record)
    assert record.args == ("rtsp://***@cam",)
    assert record.getMessage() == "at rtsp:/"


# -- lines ---------------------------------------------------------------------------------------


def test_a_record_is_one_object_on_one_line() -> None:
    stream = lines()
    start = datetime.now(UTC)
    logger.info("door: %d frames\nand \u2028 ünïcödé", 3, extra={"stream": "door", "event": "seen"})
    (record,) = records(stream)
    assert list(record) == ["time", "level", "logger", "message", "stream", "event"]
    assert record["message"] == "door: 3 frames\nand \u2028 ünïcödé"
    assert (record["level"], record["logger"]) == ("info", "hermes_like.test")
    assert (record["stream"], record["event"]) == ("door", "seen")
    moment = datetime.fromisoformat(record["time"])
    assert moment.utcoffset() is not None
    assert abs(moment - start) < timedelta(minutes=1)


def test_an_exception_is_one_field() -> None:
    stream = lines()
    try:
        raise SourceError("door: gone")
    except SourceError:
        logger.warning("lost", exc_info=True)
    (record,) = records(stream)
    assert record["exception"].startswith("Traceback")
    assert record["exception"].endswith("SourceError: door: gone")
    assert set(record) == {"time", "level", "logger", "message", "exception"}


def test_any_extra_value_can_be_told() -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    loop: list[Any] = []
    loop.append(loop)
    east = timezone(timedelta(hours=2))
    stream = lines()
    logger.info(
        "event",
        extra={
            "nan": float("nan"),
            "at": datetime(2026, 1, 2, 3, 4, tzinfo=east),
            "path": Path("a/b"),
            "ids": (1, 2),
            "nested": {1: {"x": None}},
            "bad": Bad(),
            "loop": loop,
            "time": "mine",
            "half": "\udcff",
        },
    )
    (record,) = records(stream)
    assert record["nan"] == "nan"
    assert record["at"] == "2026-01-02T03:04:00+02:00"
    assert record["path"] == str(Path("a/b"))
    assert record["ids"] == [1, 2]
    assert record["nested"] == {"1": {"x": None}}
    assert record["bad"] == "<Bad>"
    assert record["time_"] == "mine"
    assert datetime.fromisoformat(record["time"]).tzinfo is not None


@pytest.mark.parametrize("as_json", [False, True])
def test_a_wrong_call_costs_neither_the_program_nor_the_line(as_json: bool) -> None:
    stream = lines(as_json=as_json)
    root = logging.getLogger()
    root.handlers[:] = root.handlers[-1:]  # the test runner's own handlers raise on such a call
    logger.warning("%d frames", "three")
    assert "%d frames (its arguments do not fit)" in stream.getvalue()


# -- setting up ----------------------------------------------------------------------------------


def test_configuring_again_replaces_the_handler() -> None:
    first, second = lines(), lines(as_json=False)
    logger.warning("door: stale")
    assert not first.getvalue()
    assert second.getvalue().endswith("WARNING hermes_like.test: door: stale\n")
    assert second.getvalue().count("stale") == 1


def test_levels() -> None:
    stream = lines("info")
    logger.debug("no")
    logger.info("yes")
    logging.getLogger("other").info("no")
    logging.getLogger("other").warning("yes")
    assert [record["message"] for record in records(stream)] == ["yes", "yes"]
    with pytest.raises(ConfigError, match="debug, info, warning, error, critical, got 'loud'"):
        configure_logging("loud")


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    logger.warning("door: stale")
    logger.info("no")
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.count("\n") == 1


def test_importing_sets_nothing_up() -> None:
    code = """
import logging
import hermes_like, hermes_like.cli, hermes_like.logs, hermes_like.metrics
import hermes_like.sources, hermes_like.tiers
own = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "hermes_like"]
assert own, "the library has loggers"
for name in (None, *own):
    found = logging.getLogger(name)
    wanted = logging.WARNING if name is None else logging.NOTSET
    assert found.level == wanted, (name, found.level)
    assert found.propagate, name
    assert all(isinstance(h, logging.NullHandler) for h in found.handlers), (name, found.handlers)
    assert not found.filters, name
assert logging.getLogRecordFactory() is logging.LogRecord
assert logging.getLoggerClass() is logging.Logger
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_only_one_module_sets_logging_up() -> None:
    """The heavy modules are not imported for this: nobody else calls what changes a logger."""
    calls = re.compile(r"\b(addHandler|basicConfig|dictConfig|setLevel|captureWarnings)\(")
    paths = [*(ROOT / "hermes_like").rglob("*.py")]
    found = {path.stem for path in paths if calls.search(path.read_text(encoding="utf-8"))}
    assert found == {"logs"}
