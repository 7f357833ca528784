"""Options that several commands share, and how they become one configuration."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError
from hermes_like.presets import config_keys, env_name, load_config, preset_of_model


class RouteName(StrEnum):
    """Where to look, whatever the words of a question say."""

    NOW = "now"
    RECALL = "recall"
    TIME = "time"
    SCAN = "scan"


_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")

Video = Annotated[str, typer.Argument(help="Video file or folder of images.", metavar="VIDEO")]
Model = Annotated[
    str | None,
    typer.Option(
        help="sprites, easyvqa, random:<shape>, a local folder, or a hub name.", metavar="NAME"
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(help="Name of a preset or path of a YAML file.", metavar="NAME|FILE"),
]
Policy = Annotated[
    str | None, typer.Option(help="What mid-term memory keeps (policy.name).", metavar="NAME")
]
SampleFps = Annotated[
    str | None,
    typer.Option(help="Frames per second to look at; null: all of them.", metavar="FPS"),
]
StartTime = Annotated[
    str | None,
    typer.Option(help="Time on the clock of second 0, as in 2026-05-01T14:00:00+02:00."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any configuration key; may be repeated.", metavar="KEY=VALUE"),
]
Memory = Annotated[
    Path | None,
    typer.Option(
        help="Folder in which the past is kept; what it holds is not watched again.",
        metavar="DIR",
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the key of an encrypted memory, base64 of 32 bytes "
        "(else from HERMES_LIKE_MEMORY_KEY).",
        metavar="FILE",
    ),
]
Route = Annotated[
    RouteName | None, typer.Option(help="Where to look; default: by the words of the question.")
]
Since = Annotated[
    str | None,
    typer.Option(help="Look at nothing before: seconds, M:SS or H:MM:SS.", metavar="TIME"),
]
Until = Annotated[
    str | None, typer.Option(help="Look at nothing after this stream time.", metavar="TIME")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout.")]


def build_config(
    preset: str | None = None,
    model: str | None = None,
    policy: str | None = None,
    sample_fps: str | None = None,
    start_time: str | None = None,
    settings: list[str] | None = None,
    stored: Mapping[str, Mapping[str, Any]] | None = None,
) -> HermesConfig:
    """Put options on top of preset and environment; a named option wins over ``--set``.

    Without ``preset``, the preset made for ``model`` is taken if there is one. With neither, the
    configuration of the memory folder stands where the defaults would.

    Args:
        preset: Name or file.
        model: ``model.name``.
        policy: ``policy.name``.
        sample_fps: ``source.sample_fps``.
        start_time: ``source.start_time``.
        settings: Each ``KEY=VALUE``.
        stored: Configuration that a memory was made with, by section.

    Raises:
        ConfigError: A setting is not ``KEY=VALUE``, or what ``load_config`` says.
    """
    overrides = _as_settings(stored or {}) if preset is None and model is None else {}
    overrides |= dict(_key_and_value(setting) for setting in settings or [])
    named = {
        "model.name": model,
        "policy.name": policy,
        "source.sample_fps": sample_fps,
        "source.start_time": start_time,
    }
    overrides.update({key: value for key, value in named.items() if value is not None})
    if preset is None and model is not None:
        preset = preset_of_model(model)
    return load_config(preset, overrides)


def load_memory_key(path: Path | None) -> bytes | None:
    """The key of an encrypted memory: from a file, else from the environment, else None.

    Raises:
        ConfigError: It is not base64 of 32 bytes.
    """
    from hermes_like.tiers.cipher import load_key

    return load_key(path)


def stream_seconds(text: str | None, option: str) -> float | None:
    """Stream time from ``83``, ``83.5``, ``1:23`` or ``1:02:03``; None from None.

    Raises:
        ConfigError: Something else, or a negative time.
    """
    if text is None:
        return None
    match = _CLOCK.fullmatch(text.strip())
    if match is not None:
        hours, minutes, seconds = match.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)
    try:
        seconds_s = float(text)
    except ValueError:
        seconds_s = math.nan
    if not 0 <= seconds_s < math.inf:
        raise ConfigError(f"{option}: expected seconds, M:SS or H:MM:SS, got {text!r}")
    return seconds_s


def _as_settings(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A stored configuration as settings; what the environment sets is left to it.

    Keys that this release does not know are left out.
    """
    found = {}
    for key in config_keys():
        section, name = key.split(".", 1)
        if name in stored.get(section, {}) and env_name(key) not in os.environ:
            value = stored[section][name]
            found[key] = value if isinstance(value, str) else json.dumps(value)
    return found


def _key_and_value(setting: str) -> tuple[str, str]:
    key, separator, value = setting.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set: expected KEY=VALUE, got {setting!r}")
    return key.strip(), value.strip()
