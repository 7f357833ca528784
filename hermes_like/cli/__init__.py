"""The command line ``hermes-like``. Loading it imports neither torch nor a decoder.

Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 source unreadable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from hermes_like import __version__
from hermes_like.cli import ask, config, demo, doctor, memory, plan, show_memory, watch
from hermes_like.cli import eval as evaluate
from hermes_like.errors import ConfigError, HermesError, SourceError

DONE, FAILURE, USAGE, SOURCE_UNREADABLE = 0, 1, 2, 3

app = typer.Typer(
    name="hermes-like",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("ask", no_args_is_help=True)(ask.ask)
app.command("watch", no_args_is_help=True)(watch.watch)
app.add_typer(memory.app, name="memory")
app.add_typer(evaluate.app, name="eval")
# The name of ``memory show`` in earlier releases.
app.command("show-memory", no_args_is_help=True, hidden=True)(show_memory.show_memory)
app.command("plan")(plan.plan)
app.command("demo")(demo.demo)
app.command("config")(config.show_config)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hermes-like {__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Ask questions about a video while it plays; answers come with the moments they rest on."""


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line and return its exit code."""
    arguments = list(arguments)
    try:
        app(args=arguments, prog_name="hermes-like")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILURE
    except HermesError as error:
        if "--debug" in arguments:
            raise
        typer.echo(f"hermes-like: {error}", err=True)
        return _exit_code(error)
    return DONE


def _exit_code(error: HermesError) -> int:
    if isinstance(error, ConfigError):
        return USAGE
    return SOURCE_UNREADABLE if isinstance(error, SourceError) else FAILURE


def main() -> None:
    """Entry point of the installed command."""
    # Threads of torch that wait must sleep: several of them spin on the same cores otherwise, and
    # everything is many times slower. Has to be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    sys.exit(run(sys.argv[1:]))
