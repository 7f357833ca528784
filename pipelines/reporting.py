"""What every measurement prints beside its figures: where it ran, with what, and how sure it is.

This module knows no experiment; it holds the few helpers the pipelines share.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
import transformers
from rich.console import Console
from rich.table import Table

from hermes_like.config import HermesConfig
from hermes_like.models.sprites import weights_folder
from hermes_like.presets import to_yaml

ROOT = Path(__file__).parent.parent


def commit_hash() -> str:
    """The commit of the checkout, with ``+`` if files differ from it; ``unknown`` outside one."""
    try:
        commit, changes = (
            subprocess.run(
                ["git", *command], cwd=ROOT, capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for command in (
                ["rev-parse", "--short=12", "HEAD"],
                ["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"],
            )
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return commit + ("+" if changes else "")


def hardware() -> str:
    """Processor, cores, threads in use and accelerator, in one line."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    name = names[0] if names else platform.processor() or platform.machine()
    line = f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads"
    return line + (f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else "")


@cache
def weights_digest() -> str:
    """The first digits of the SHA-256 of the bundled weights."""
    data = (weights_folder() / "model.safetensors").read_bytes()
    return hashlib.sha256(data).hexdigest()[:12]


def bundled_model() -> str:
    """The bundled model as a fact beside its figures, which weights it has included."""
    return f"sprites, bundled, weights {weights_digest()}; never stands for a real model"


def environment() -> dict[str, str]:
    """Where a figure was made: hardware, software and commit."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "hardware": hardware(),
        "load_average": load,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "commit": commit_hash(),
    }


def print_header(title: str, facts: dict[str, object]) -> dict[str, str]:
    """Print what a reader needs beside the figures; returns :func:`environment`."""
    where = environment()
    print(title)
    for name, value in {**where, **facts}.items():
        print(f"  {name}: {value}")
    return where


def save_config(config: HermesConfig, path: Path) -> Path:
    """Write a resolved configuration beside the output."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_yaml(config), encoding="utf-8")
    return path


def wilson(hits: int, asked: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share."""
    if asked == 0:
        return 0.0, 1.0
    share = hits / asked
    middle = share + z * z / (2 * asked)
    spread = z * math.sqrt(share * (1 - share) / asked + z * z / (4 * asked * asked))
    scale = 1 + z * z / asked
    return (middle - spread) / scale, (middle + spread) / scale


def share(results: Sequence[bool]) -> dict[str, object]:
    """Hits, number, percentage and its 95 % interval, ready for JSON."""
    low, high = wilson(sum(results), len(results))
    return {
        "hits": sum(results),
        "asked": len(results),
        "percent": round(100 * sum(results) / max(1, len(results)), 1),
        "interval": [round(100 * low, 1), round(100 * high, 1)],
    }


def share_text(cell: dict[str, object] | None) -> str:
    """A share for a table: percentage, interval, number asked; ``-`` where nothing was asked."""
    if not cell or not cell["asked"]:
        return "-"
    low, high = cell["interval"]  # type: ignore[misc]
    return f"{cell['percent']:.0f} ({low:.0f}-{high:.0f}) n={cell['asked']}"


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Print a table that is wide enough for its content; returns it as Markdown.

    Raises:
        ValueError: A row has another number of cells than there are columns.
    """
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"{title}: expected {len(columns)} cells, got {len(row)}: {row}")
    table = Table()
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console = Console(width=240)
    console.print(f"[bold]{title}[/bold]", table, sep="\n")
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return f"{title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_tables(tables: Sequence[str], path: Path) -> None:
    """Write Markdown tables, ready for ``docs/results.md``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(tables), encoding="utf-8")


def print_json(result: dict[str, object]) -> None:
    """Print a result as the last line of the output: one JSON object."""
    print(json.dumps(result), flush=True)
