"""A language model as judge of free words, over any address that speaks OpenAI's chat protocol.

Every verdict is kept in a file of JSON lines, by a hash of model and prompt, so that the same reply
is judged once. A reply that could not be judged is reported as such, never left out. Knows nothing
of datasets and averages.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hermes_like.errors import ConfigError, ModelError

#: Changes whenever the words of the prompt do.
PROMPT_VERSION: Final = "1"
_SYSTEM: Final = (
    "You grade answers to questions about a video. You are given a question, its true answer and "
    "an answer to grade. The answer is right if it says the same thing as the true answer; "
    "wording, synonyms and further detail that does not contradict it do not matter."
)
_FORM: Final = (
    'Reply with one JSON object and nothing else: {"pred": "yes" or "no", "score": 0 to 5}, where '
    "pred says whether the answer is right and score, a whole number, how well it agrees."
)
#: Answers of a server after which the same request may succeed.
_PASSING: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge said of one reply.

    Attributes:
        is_right: None: it could not be judged.
        score: 0 to 5; None: not given.
        detail: The judge's own words, or why there are none.
    """

    is_right: bool | None
    score: float | None = None
    detail: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody: a redirect would carry the key to another host."""

    def redirect_request(self, *args: Any) -> None:
        """Leave the redirect as the error that it then is."""


class Judge:
    """Asks one model, and remembers what it said.

    Args:
        address: Base of the protocol, as in ``http://127.0.0.1:8000/v1``.
        model: Name that the server knows.
        cache: File of earlier verdicts, appended to; None: nothing is kept.
        key: Sent as bearer token; None: none is.
        timeout_s: For each request.
        num_attempts: For each reply, while the server is busy or its words make no sense.
        wait: Called with the seconds to pause before another attempt.

    Raises:
        ConfigError: The address is none.
    """

    def __init__(
        self,
        address: str,
        model: str,
        *,
        cache: Path | None = None,
        key: str | None = None,
        timeout_s: float = 60.0,
        num_attempts: int = 3,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if not re.match(r"https?://[^/\s]", address):
            raise ConfigError(f"judge: expected an address as http://host:port/v1, got {address!r}")
        self.address, self.model = address.rstrip("/"), model
        self._key, self._timeout_s, self._num_attempts = key, timeout_s, num_attempts
        self._cache_path, self._wait = cache, wait
        is_local = urllib.parse.urlsplit(address).hostname in ("localhost", "127.0.0.1", "::1")
        handlers = [_NoRedirect(), *([urllib.request.ProxyHandler({})] if is_local else [])]
        self._opener = urllib.request.build_opener(*handlers)
        self._known = {} if cache is None else _read_cache(cache)
        #: Requests sent, repetitions included.
        self.num_requests = 0

    @property
    def name(self) -> str:
        """How results call this judge."""
        return f"{self.model}, prompt {PROMPT_VERSION}"

    def judge(self, question: str, gold: str, reply: str | None) -> Judgement:
        """Whether a reply says what the true answer says.

        No reply is wrong without being asked about.

        Raises:
            ModelError: The server refuses every request (no such model, no permission, not there).
        """
        if reply is None or not reply.strip():
            return Judgement(False, 0.0, "no reply")
        messages = _messages(question, gold, reply)
        key = hashlib.sha256(
            json.dumps([self.model, messages], ensure_ascii=False).encode()
        ).hexdigest()
        if (known := self._known.get(key)) is not None:
            return parse_judgement(known)
        detail = ""
        for attempt in range(self._num_attempts):
            if attempt:
                self._wait(min(2.0**attempt, 30.0))
            text, detail = self._ask(messages)
            if text is None:
                continue
            judgement = parse_judgement(text)
            if judgement.is_right is not None:
                self._remember(key, text)
                return judgement
            detail = judgement.detail
        return Judgement(None, None, detail)

    def _ask(self, messages: list[dict[str, str]]) -> tuple[str | None, str]:
        """Words of the judge, or None and why there are none this time."""
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": 64}
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(
            f"{self.address}/chat/completions", json.dumps(body).encode(), headers
        )
        self.num_requests += 1
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                content = json.loads(response.read())
            return str(content["choices"][0]["message"]["content"]), ""
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(300).decode("utf-8", "replace").strip()
            if error.code not in _PASSING:
                raise ModelError(
                    f"judge {self.model} at {self.address}: {error.code} {error.reason}: {told}"
                ) from error
            return None, f"{error.code} {error.reason}"
        except (ValueError, LookupError, TypeError) as error:
            return None, f"expected a chat completion, got something else ({error})"
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                return None, "no answer in time"
            raise ModelError(f"judge at {self.address}: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            return None, str(error) or type(error).__name__

    def _remember(self, key: str, text: str) -> None:
        self._known[key] = text
        if self._cache_path is not None:
            line = {"key": key, "model": self.model, "prompt": PROMPT_VERSION, "reply": text}
            self._cache_path.parent.mkdir(parents=True, exist_ok=True)
            with self._cache_path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def parse_judgement(text: str) -> Judgement:
    """Understand a judge: JSON, a dict as Python writes it, or plain ``yes 4``. Never evaluated.

    Returns:
        A judgement whose ``is_right`` is None if neither yes nor no can be made out.
    """
    match = re.search(r"\{[^{}]*\}", text)
    if match is not None:
        table = _table(match.group())
        verdict = str(table.get("pred", "")).strip().casefold()
        if verdict in ("yes", "no"):
            return Judgement(verdict == "yes", _score(table.get("score")), text)
    plain = re.fullmatch(r"\W*(yes|no)\b\W*(\d+(?:\.\d+)?)?\W*", text.strip(), re.IGNORECASE)
    if plain is not None:
        return Judgement(plain.group(1).casefold() == "yes", _score(plain.group(2)), text)
    return Judgement(None, None, f"not understood: {text[:200]!r}")


def _messages(question: str, gold: str, reply: str) -> list[dict[str, str]]:
    told = f"Question: {question}\nTrue answer: {gold}\nAnswer to grade: {reply}\n\n{_FORM}"
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": told}]


def _table(text: str) -> Mapping[str, Any]:
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            content = read(text)
            if isinstance(content, dict):
                return content
    return {}


def _score(value: Any) -> float | None:
    try:
        score = float(value)
    except (TypeError, ValueError):
        return None
    return score if 0 <= score <= 5 else None


def _read_cache(path: Path) -> dict[str, str]:
    """Earlier verdicts; lines that cannot be read (the last of a killed run) are passed over."""
    if not path.exists():
        return {}
    known: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            row = json.loads(line)
            known[str(row["key"])] = str(row["reply"])
    return known
