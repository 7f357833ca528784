"""``hermes-like demo``: the page or the quick start, loaded by name; nothing depends on them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from hermes_like.errors import ConfigError

MIB = 2**20


def demo(
    video: Annotated[
        str | None, typer.Argument(help="In text: watch this video.", metavar="[VIDEO]")
    ] = None,
    questions: Annotated[
        list[str] | None, typer.Argument(help="What to ask at its end.", metavar="[QUESTION]...")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="No page: answers in the terminal.")] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="sprites, random:<shape>, a local folder, or a hub name; may be repeated.",
            metavar="NAME",
        ),
    ] = None,
    models_root: Annotated[
        Path | None, typer.Option(help="Folder of model folders to choose from.", metavar="DIR")
    ] = None,
    memory_root: Annotated[
        Path, typer.Option(help="Where memories and clips are kept.", metavar="DIR")
    ] = Path("runs/demo/memories"),
    host: Annotated[
        str, typer.Option(help="Other than this machine: needs --user and a password.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Default: the first free one from 7860.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            help="Name to log in with; the password comes from HERMES_LIKE_DEMO_PASSWORD.",
            metavar="NAME",
        ),
    ] = None,
    max_upload_mib: Annotated[int, typer.Option(min=1, help="Largest file that is taken.")] = 512,
    quota_mib: Annotated[
        int, typer.Option(min=64, help="Most that clips and memories may take together.")
    ] = 8192,
    max_visitors: Annotated[int, typer.Option(min=1, help="Pages open at once.")] = 8,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any configuration key; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Open a page to watch and ask (with VIDEO or --text: watch and answer in the terminal)."""
    if text or video is not None:
        _module("quickstart").run(video, questions or [], model[0] if model else None)
        return
    chosen = _module("settings").DemoSettings(
        host=host,
        port=port,
        user=user,
        password=os.environ.get(_module("settings").PASSWORD_VARIABLE),
        models=tuple(model or ["sprites"]),
        models_root=models_root,
        memory_root=memory_root,
        max_upload_bytes=max_upload_mib * MIB,
        quota_bytes=quota_mib * MIB,
        max_visitors=max_visitors,
        overrides=tuple(settings or ()),
    )
    _module("app").serve(chosen)


def _module(name: str) -> ModuleType:
    """A module of the demos: in the wheel they are a part of the package."""
    if importlib.util.find_spec("hermes_like._demos") is not None:
        # They know each other as ``demos``, wherever they lie.
        sys.modules["demos"] = importlib.import_module("hermes_like._demos")
    elif importlib.util.find_spec("demos") is None:
        raise ConfigError(
            "the demos are not installed: neither hermes_like._demos nor demos was found"
        )
    return importlib.import_module(f"demos.{name}")
