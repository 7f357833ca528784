"""``hermes-like config``: the configuration that a command would use."""

from __future__ import annotations

from typing import Annotated

import typer

from hermes_like.cli import options
from hermes_like.presets import header, load_config, preset_names, preset_path, to_yaml


def show_config(
    preset: options.Preset = None,
    settings: options.Settings = None,
    no_env: Annotated[
        bool, typer.Option("--no-env", help="Do not read HERMES_LIKE__... variables.")
    ] = False,
    names: Annotated[bool, typer.Option("--list", help="Only list the presets.")] = False,
) -> None:
    """Print the effective configuration: every key with its meaning, ready to be a preset."""
    if names:
        typer.echo("\n".join(preset_names()))
        return
    if no_env:
        config = load_config(preset, env={})
    else:
        config = options.build_config(preset, settings=settings)
    if preset is not None and (top := header(preset_path(preset))):
        typer.echo(f"{top}\n")
    typer.echo(to_yaml(config), nl=False)
