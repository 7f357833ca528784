"""Figures for Prometheus: events are pushed, the state of the streams is read when it is asked for.

Every :class:`Metrics` has a registry of its own, so that several live in one process. The module
knows records and the text formats; it knows neither sources, sessions nor who owns them. A stream
is labelled by its name, and a name that looks like an address is replaced by a code.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics_text

from hermes_like.metrics_readings import Scrape, StoreCounts, StreamReading, unit_of
from hermes_like.metrics_server import MetricsServer
from hermes_like.records import Answer, SourceState

__all__ = ["Metrics", "MetricsServer", "StoreCounts", "StreamReading", "looks_like_address"]

STEP_KINDS: Final = ("vision", "prefill", "question", "decode")
#: Upper bounds of the histograms, in seconds.
STEP_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
TTFT_BUCKETS_S: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_ADDRESS: Final = re.compile(
    r"""//|%2f%2f|@                             # a scheme, or credentials before a host
    |(?<!\d)\d{1,3}(?:\.\d{1,3}){3}(?!\d)       # IPv4
    |(?:[0-9a-f]{0,4}:){3}                      # IPv6, or the address of a network card
    |::[0-9a-f]
    |localhost
    |[a-z0-9-]+\.[a-z0-9.-]*[a-z0-9](?::\d|/)   # host.domain with a port or a path
    """,
    re.IGNORECASE | re.VERBOSE,
)


def looks_like_address(name: str) -> bool:
    """Whether a name tells where something is reached, and so must not become a label."""
    return _ADDRESS.search(name) is not None


def _nothing() -> Sequence[StreamReading]:
    return ()


class Metrics:
    """The figures of one monitor or engine. All methods may be called from any thread.

    Pushing an event takes no lock of the owner. Reading does, through ``readings``: never ask for
    the text while holding a lock that ``readings`` takes.

    Args:
        readings: Tells of all streams at this moment, each name once; None: events only. A stream
            it no longer tells of loses its series; if it comes back, its counters go on.
    """

    def __init__(self, readings: Callable[[], Sequence[StreamReading]] | None = None) -> None:
        # A plain digest of an address could be found by trying all of them; hence a key.
        self._key = secrets.token_bytes(16)
        self._steps = _histogram(
            "inference_seconds",
            "Seconds per step of the model, by kind.",
            ("kind",),
            STEP_BUCKETS_S,
        )
        self._ttft = _histogram(
            "time_to_first_token_seconds",
            "Seconds from a question to the first text of an answer that a model gave.",
            ("stream", "route"),
            TTFT_BUCKETS_S,
        )
        self._answers = _counter(
            "answers_total", "Questions answered, by status.", ("stream", "route", "status")
        )
        self._tokens = _counter("answer_tokens_total", "Tokens generated.", ("stream",))
        self._failures = _counter(
            "question_failures_total", "Questions that ended in an error.", ("stream", "error")
        )
        self._changes = _counter(
            "stream_state_changes_total", "Times a stream went into a state.", ("stream", "state")
        )
        self._alerts = _counter(
            "alerts_total",
            "Alerts of standing questions, by what became of them.",
            ("watch", "result"),
        )
        failed_readings = _counter(
            "reading_failures_total", "Times the streams could not be read.", ()
        )
        for kind in STEP_KINDS:
            self._steps.labels(kind)
        of_streams = (self._ttft, self._answers, self._tokens, self._failures, self._changes)
        scrape = Scrape(
            readings or _nothing,
            (self._steps, self._alerts),
            of_streams,
            failed_readings,
            self.label,
        )
        self._registry = CollectorRegistry()
        self._registry.register(scrape)
        ProcessCollector(registry=self._registry)

    # -- events ----------------------------------------------------------------------------------

    def observe_inference(self, kind: str, seconds: float) -> None:
        """Note one step of the model: ``vision``, ``prefill``, ``question`` or ``decode``."""
        self._steps.labels(kind).observe(seconds)

    def count_answer(self, answer: Answer) -> None:
        """Note an answer; one about several streams counts for each of them.

        Time to first token is noted only where a model spoke: that there is no footage is found
        out by code, much faster.
        """
        for part in answer.parts or (answer,):
            stream = self.label(part.stream)
            self._answers.labels(stream, part.route, part.status).inc()
            if part.status != "no_footage" and part.num_tokens:
                self._ttft.labels(stream, part.route).observe(part.ttft_s)
                self._tokens.labels(stream).inc(part.num_tokens)

    def count_failure(self, stream: str, error: BaseException) -> None:
        """Note a question that ended in an error; the label is the name of its class."""
        self._failures.labels(self.label(stream), type(error).__name__).inc()

    def count_state(self, stream: str, state: SourceState) -> None:
        """Note that a stream went into a state; a change between two scrapes is seen too."""
        self._changes.labels(self.label(stream), state).inc()

    def count_alert(self, watch: str, result: str) -> None:
        """Note an alert of a standing question, and what became of it."""
        self._alerts.labels(self.label(watch), result).inc()

    # -- reading ---------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        """The value of a label for a name; an address becomes a code, another in each process."""
        if not looks_like_address(name):
            return name.encode("utf-8", "replace").decode("utf-8")
        data = name.encode("utf-8", "replace")
        return "hidden-" + hashlib.blake2b(data, key=self._key, digest_size=4).hexdigest()

    def text(self, *, openmetrics: bool = False) -> str:
        """All figures at this moment, in the text format of Prometheus or in OpenMetrics."""
        write = openmetrics_text.generate_latest if openmetrics else generate_latest
        return write(self._registry).decode("utf-8")

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type of an HTTP response.

        Args:
            accept: The ``Accept`` header of the request; OpenMetrics is sent to who asks for it.
        """
        openmetrics = "application/openmetrics-text" in accept.lower()
        content_type = (
            openmetrics_text.CONTENT_TYPE_LATEST if openmetrics else CONTENT_TYPE_PLAIN_0_0_4
        )
        return self.text(openmetrics=openmetrics).encode("utf-8"), content_type

    def serve(
        self, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> MetricsServer:
        """Serve ``/metrics`` over HTTP from a thread of its own, until the result is closed.

        Args:
            host: Where to listen. Anything but a loopback address needs a token.
            port: 0: a free one.
            token: Clients must send ``Authorization: Bearer <token>``.

        Raises:
            ConfigError: The token is missing or no plain word, or the address cannot be used.
        """
        return MetricsServer(self.render, host, port, token)


def _counter(name: str, help_: str, labels: Sequence[str]) -> Counter:
    return Counter(f"hermes_like_{name}", help_, labels, registry=None)


def _histogram(name: str, help_: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
    return Histogram(
        f"hermes_like_{name}", help_, labels, unit=unit_of(name), registry=None, buckets=buckets
    )
