"""Options that several commands share, and how they become one configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError
from hermes_like.presets import load_config, preset_names

Video = Annotated[str, typer.Argument(help="Video file or folder of images.", metavar="VIDEO")]
Model = Annotated[
    str | None,
    typer.Option(help="sprites, random:<shape>, a local folder, or a hub name.", metavar="NAME"),
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
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout.")]


def build_config(
    preset: str | None = None,
    model: str | None = None,
    policy: str | None = None,
    sample_fps: str | None = None,
    start_time: str | None = None,
    settings: list[str] | None = None,
) -> HermesConfig:
    """Put options on top of preset and environment; a named option wins over ``--set``.

    Without ``preset``, the preset made for ``model`` is taken if there is one.

    Raises:
        ConfigError: A setting is not ``KEY=VALUE``, or what ``load_config`` says.
    """
    overrides = dict(_key_and_value(setting) for setting in settings or [])
    named = {
        "model.name": model,
        "policy.name": policy,
        "source.sample_fps": sample_fps,
        "source.start_time": start_time,
    }
    overrides.update({key: value for key, value in named.items() if value is not None})
    if preset is None and model is not None:
        preset = _preset_of_model(model)
    return load_config(preset, overrides)


def _key_and_value(setting: str) -> tuple[str, str]:
    key, separator, value = setting.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set: expected KEY=VALUE, got {setting!r}")
    return key.strip(), value.strip()


def _preset_of_model(model: str) -> str | None:
    """The preset that bears the name of the model's last part, or holds exactly this name."""
    for name in preset_names():
        if load_config(name, env={}).model.name == model or model == f"random:{name}":
            return None if name == "sprites" else name
    return None
