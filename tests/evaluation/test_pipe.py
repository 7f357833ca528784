"""The pipe for other harnesses, and the model of lmms-eval at its other end."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes_like.evaluation import lmms_plugin
from hermes_like.evaluation.lmms_plugin import PipeClient, PipeError, RequestError, make_class
from hermes_like.evaluation.pipe import PipeServer, serve
from tests.evaluation.runs import settings

NOW = "what is visible now ?"
COMMAND = f"{sys.executable} -m hermes_like.cli"


def test_protocol(model: Any, sprites_video: Path) -> None:
    lines = [
        {"ask": NOW},
        {"open": str(sprites_video)},
        {"ask": NOW, "at_s": 5.0},
        {"ask": NOW, "at_s": 5.0, "max_tokens": 1},
        {"ask": NOW, "at_s": 12.5, "max_tokens": 99},
        {"ask": NOW, "at_s": 4.0},
        {"ask": "was there a red star ?"},
        {"open": str(sprites_video)},
        {"ask": NOW, "at_s": 4.0},
        {"close": True},
        {"ask": NOW},
        {"open": str(sprites_video.with_name("absent.mp4"))},
        {"say": 1},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + "no json\n[]\n"
    out = io.StringIO()
    serve(PipeServer(model, settings()), io.StringIO(text), out)
    hello, *replies = map(json.loads, out.getvalue().splitlines())
    assert (hello["protocol"], hello["model"], len(hello["ready"])) == (1, "sprites", 32)
    assert len(replies) == len(lines) + 2
    told = [reply.get("text", next(iter(reply))) for reply in replies]
    assert told == [
        "error", "opened", "red star", "red", "blue ring", "error", "yes", "opened", "red star",
        "closed", "error", "error", "error", "error", "error",
    ]  # fmt: skip
    assert "no video is open" in replies[0]["error"]
    assert [replies[i]["last_frame_s"] for i in (2, 3, 4, 6, 8)] == [5.0, 5.0, 12.0, 23.0, 4.0]
    assert replies[6]["frames_seen"] == 24
    assert "asked at 4 s, and a frame of 12 s has been seen" in replies[5]["error"]
    assert "absent.mp4" in replies[11]["error"]
    assert "expected open, ask or close, got ['say']" in replies[12]["error"]


class _Base:
    """What the class of lmms-eval has that a model uses."""

    def __init__(self) -> None:
        self.task_dict: dict[str, Any] = {}


@dataclass
class _Request:
    """An instance of lmms-eval, as far as a model sees it."""

    args: tuple[Any, ...]


def test_model_of_lmms_eval_over_a_real_pipe(sprites_video: Path) -> None:
    documents = [
        {"video": str(sprites_video), "at": 20.0},
        {"video": str(sprites_video), "at": 3.0},
        {"video": str(sprites_video.with_name("absent.mp4")), "at": 3.0},
        {"video": str(sprites_video), "at": None},
    ]

    def visuals(document: dict[str, Any]) -> list[str]:
        return [document["video"]]

    requests = [
        _Request((NOW, {"max_new_tokens": 16}, visuals, number, "task", "test"))
        for number in range(len(documents))
    ]
    built = make_class(_Base)(command=COMMAND, model="sprites", time_field="at", batch_size=1)
    try:
        built.task_dict = {"task": {"test": documents}}
        assert built.generate_until(requests) == ["blue ring", "red star", "", "blue ring"]
        for kind in ("loglikelihood", "generate_until_multi_round"):
            with pytest.raises(RequestError, match=f"expected .* generate_until, got {kind}"):
                getattr(built, kind)(requests)
    finally:
        built.clean()
    assert built._client._process.returncode == 0, "it ends when nobody listens any more"


def test_a_process_that_ends_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipeError, match="ended with status 3"):
        PipeClient([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(PipeError, match="cannot be started"):
        PipeClient([str(tmp_path / "absent")])


def test_the_plug_in_needs_none_of_our_libraries() -> None:
    code = (
        "import sys\n"
        "for name in 'torch numpy pydantic transformers av cv2 yaml tqdm typer PIL'.split():\n"
        "    sys.modules[name] = None\n"
        "import hermes_like.evaluation.lmms_plugin as plugin\n"
        "print(plugin._CLASS)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert found.strip() == f"{lmms_plugin.__name__}.HermesLike"
