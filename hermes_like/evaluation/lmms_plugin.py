"""hermes_like as a model of lmms-eval, from another environment than its own.

lmms-eval needs other releases of the same libraries than we do, so this module uses none of ours:
it starts ``hermes-like eval serve-pipe`` where that is installed and talks to it through a pipe.
Install the package beside lmms-eval with ``pip install --no-deps`` and name the command:

    lmms-eval --model hermes_like --tasks TASK \\
        --model_args command=/other/.venv/bin/hermes-like,model=sprites

Videos are watched once each, their questions in order of time; ``time_field`` names the field of a
document that holds a question's time in seconds. Without it the whole video is seen first, as the
harness does it.
"""

from __future__ import annotations

import importlib
import json
import math
import shlex
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_NAME = "hermes_like"
_CLASS = f"{__name__}.HermesLike"


def manifest() -> Any:
    """What the entry point group ``lmms_eval.models`` finds."""
    registry = importlib.import_module("lmms_eval.models.registry_v2")
    return registry.ModelManifest(model_id=_NAME, simple_class_path=_CLASS)


class PipeError(RuntimeError):
    """The process at the other end has ended, or could not be started."""


class PipeClient:
    """The other end of ``hermes-like eval serve-pipe``.

    Args:
        command: To start it with, without shell.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
            )
        except OSError as error:
            raise PipeError(f"{command[0]}: cannot be started: {error.strerror}") from error
        #: What it said first.
        self.hello = self._read()

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send one message and wait for its reply.

        Raises:
            PipeError: The process has ended.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # shows as the end of the replies
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process; safe to call twice."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            self.close()
            status = self._process.returncode
            raise PipeError(f"{shlex.join(self._command)}: ended with status {status}")
        found: dict[str, Any] = json.loads(line)
        return found


class RequestError(RuntimeError):
    """A task of a kind that a streaming session cannot answer."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"hermes_like: expected requests of kind generate_until, got {kind}")


class _Asked(NamedTuple):
    """One question: when, its place among the requests, its words, its longest answer."""

    at_s: float
    number: int
    question: str
    max_tokens: int | None


class _Requests:
    """Answers requests of lmms-eval through a pipe.

    Args:
        command: How to call hermes-like; may hold arguments.
        model: ``--model`` of it.
        preset: ``--preset``.
        settings: ``--set``, several separated by semicolons.
        route: ``--route``.
        time_field: Field of a document with the time of its question in seconds.
        options: What the harness gives every model (batch size, device); not used here.
    """

    is_simple = True
    #: Set by the harness: task, split, documents.
    task_dict: dict[str, Any]

    def __init__(
        self,
        command: str = "hermes-like",
        model: str = "",
        preset: str = "",
        settings: str = "",
        route: str = "",
        time_field: str = "",
        **options: Any,
    ) -> None:
        super().__init__()
        arguments = [*shlex.split(command), "eval", "serve-pipe"]
        named = {"--model": model, "--preset": preset, "--route": route}
        for name, value in named.items():
            arguments += [name, str(value)] if value else []
        for setting in filter(None, str(settings).split(";")):
            arguments += ["--set", setting]
        self._time_field = time_field
        self._client = PipeClient(arguments)

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Replies in the order of the requests; questions go by video and by time."""
        replies = [""] * len(requests)
        groups: dict[tuple[str, ...], list[_Asked]] = defaultdict(list)
        pictures: dict[tuple[str, ...], list[Any]] = {}
        for number, request in enumerate(requests):
            context, options, doc_to_visual, doc_id, task, split = request.args
            document = self.task_dict[task][split][doc_id]
            visuals = list(doc_to_visual(document))
            key = tuple(v if isinstance(v, str) else f"{task}/{doc_id}" for v in visuals)
            pictures[key] = visuals
            at_s = document.get(self._time_field) if self._time_field else None
            order_s = math.inf if at_s is None else float(at_s)
            most = (options or {}).get("max_new_tokens")
            groups[key].append(_Asked(order_s, number, str(context), most))
        for key, asked in groups.items():
            with tempfile.TemporaryDirectory() as folder:
                path = _on_disk(pictures[key], Path(folder))
                for number, text in self._watch(path, sorted(asked, key=lambda a: a[:2])):
                    replies[number] = text
        return replies

    def _watch(self, path: str, asked: Sequence[_Asked]) -> list[tuple[int, str]]:
        opened = self._client.call({"open": path})
        if "error" in opened:
            # The harness has no word for a broken video; an empty reply is wrong there.
            return [(one.number, "") for one in asked]
        found = []
        for one in asked:
            message: dict[str, Any] = {"ask": one.question}
            if one.at_s != math.inf:
                message["at_s"] = one.at_s
            if one.max_tokens is not None:
                message["max_tokens"] = one.max_tokens
            found.append((one.number, str(self._client.call(message).get("text", ""))))
        self._client.call({"close": True})
        return found

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Refused: the harness must have the method, and a task of this kind cannot be answered."""
        raise RequestError("generate_until_multi_round")

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Refused: a session gives text, not the likelihood of a given one."""
        raise RequestError("loglikelihood")

    def clean(self) -> None:
        """End the process behind the pipe."""
        self._client.close()


def make_class(base: type) -> type:
    """The model class on the harness's own base class.

    Args:
        base: ``lmms_eval.api.model.lmms``.
    """
    names = {"__module__": __name__, "__doc__": _Requests.__doc__}
    return type("HermesLike", (_Requests, base), names)


def _on_disk(visuals: Sequence[Any], folder: Path) -> str:
    """A path that the other process can open: the video, or pictures written in order."""
    if len(visuals) == 1 and isinstance(visuals[0], str):
        return str(Path(visuals[0]).resolve())
    for number, visual in enumerate(visuals):
        if isinstance(visual, str):
            (folder / f"{number:06}{Path(visual).suffix}").symlink_to(Path(visual).resolve())
        else:
            visual.convert("RGB").save(folder / f"{number:06}.png")
    return str(folder)


def __getattr__(name: str) -> Any:
    """Make the class when the harness asks for it: its base is not there before."""
    if name == "HermesLike":
        made = make_class(importlib.import_module("lmms_eval.api.model").lmms)
        globals()[name] = made
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
