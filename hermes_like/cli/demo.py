"""``hermes-like demo``: the quick start, loaded by name so that nothing here depends on it."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

import typer

from hermes_like.errors import ConfigError


def demo(
    video: Annotated[str | None, typer.Argument(metavar="[VIDEO]")] = None,
    questions: Annotated[list[str] | None, typer.Argument(metavar="[QUESTION]...")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME")] = None,
) -> None:
    """Watch a rendered two-minute video (or VIDEO) and answer several questions."""
    # In the wheel the demos are a part of the package, in a checkout they lie beside it.
    for name in ("hermes_like._demos", "demos"):
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(f"{name}.quickstart").run(video, questions or [], model)
            return
    raise ConfigError("the demos are not installed: neither hermes_like._demos nor demos was found")
