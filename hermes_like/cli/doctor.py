"""``hermes-like doctor``: what is installed, what works and what is missing, on one screen."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import typer
from packaging.requirements import Requirement
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hermes_like import __version__
from hermes_like.cli import options
from hermes_like.cli.output import size
from hermes_like.errors import ConfigError
from hermes_like.presets import load_config, preset_names

State = Literal["ok", "note", "missing"]
PACKAGE = Path(__file__).parent.parent
WEIGHTS_FOLDER = PACKAGE / "sprites" / "weights"
MIN_FREE_BYTES = 1 << 30
#: Distributions with native code, which may be installed and still not load, and their modules.
NATIVE = {
    "av": "av",
    "decord": "decord",
    "faiss-cpu": "faiss",
    "opencv-python": "cv2",
    "torch": "torch",
    "transformers": "transformers",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    found: str
    state: State = "ok"


def doctor(as_json: options.Json = False) -> None:
    """Check this installation; exit code 1 if something needed is missing."""
    checks = [check for group in GROUPS for check in group()]
    if as_json:
        for check in checks:
            typer.echo(json.dumps(dataclasses.asdict(check)))
    else:
        _print(checks)
    if any(check.state == "missing" for check in checks):
        raise typer.Exit(1)


def _print(checks: list[Check]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "missing": "[red]MISSING[/]"}
    for check in checks:
        table.add_row(marks[check.state], escape(check.name), escape(check.found))
    Console().print(table)


def check_system() -> Iterator[Check]:
    """Python, operating system, processors, free disk space."""
    version = platform.python_version()
    yield Check("python", version, "ok" if sys.version_info >= (3, 11) else "missing")
    yield Check("hermes-like", f"{__version__} on {platform.system()} {platform.machine()}")
    free = shutil.disk_usage(Path.cwd()).free
    state: State = "ok" if free >= MIN_FREE_BYTES else "note"
    yield Check("disk", f"{size(free)} free in the current folder", state)


def check_packages() -> Iterator[Check]:
    """Every declared dependency: version within its range, and importable."""
    try:
        declared = metadata.requires("hermes-like") or []
    except metadata.PackageNotFoundError:
        yield Check("packages", "hermes-like is not installed; run pip install -e .", "note")
        return
    requirements = list(map(Requirement, declared))
    names: dict[str | None, set[str]] = {}
    for requirement in requirements:
        names.setdefault(_extra_of(requirement), set()).add(requirement.name)
    dev = names.get("dev", set())
    for requirement in requirements:
        extra = _extra_of(requirement)
        # An extra that takes in everything of the developers' is told by what it adds.
        is_repeated = requirement.name in dev and dev < names[extra]
        if extra in ("dev", "all") or is_repeated:
            continue
        if requirement.marker and not requirement.marker.evaluate({"extra": extra or ""}):
            yield Check(requirement.name, "has no wheel for this machine; not needed", "note")
            continue
        yield _check_package(requirement, extra)


def _extra_of(requirement: Requirement) -> str | None:
    """The extra that a requirement belongs to, None for what is always needed."""
    if requirement.marker is None or "extra" not in str(requirement.marker):
        return None
    return str(requirement.marker).rsplit("extra == ", 1)[-1].strip("\"')")


def _check_package(requirement: Requirement, extra: str | None) -> Check:
    name, lacking = requirement.name, "note" if extra else "missing"
    state: State = "note" if lacking == "note" else "missing"
    wanted = f"wanted {requirement.specifier}"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        hint = f"pip install 'hermes-like[{extra}]'" if extra else wanted
        return Check(name, f"not installed ({hint})", state)
    if not requirement.specifier.contains(version, prereleases=True):
        return Check(name, f"{version}, {wanted}", state)
    if name in NATIVE and (problem := _import_problem(NATIVE[name])):
        return Check(name, f"{version}, but import fails: {problem}", state)
    return Check(name, version)


def _import_problem(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = " (install the system library libGL)" if "libGL" in message else ""
        return message + hint
    return None


def check_devices() -> Iterator[Check]:
    """Where models can run."""
    try:
        import torch
    except (ImportError, OSError):
        return  # reported with the packages
    yield Check("cpu", f"{os.cpu_count()} processors, {torch.get_num_threads()} torch threads")
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        yield Check(f"cuda:{index}", f"{device.name}, {size(device.total_memory)}")
    if torch.backends.mps.is_available():
        yield Check("mps", "available")
    if not torch.accelerator.is_available():
        yield Check("accelerator", "none: full-size models will be slow", "note")


def check_decoders() -> Iterator[Check]:
    """Codecs that PyAV brings along."""
    try:
        import av
    except (ImportError, OSError):
        return
    for codec in ("h264", "hevc", "vp9", "av1", "mpeg4"):
        if codec not in av.codecs_available:
            yield Check(f"codec {codec}", "PyAV cannot read it", "note")
    writer = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    state: State = "ok" if writer in av.codecs_available else "missing"
    yield Check("video writer", writer, state)


def check_weights() -> Iterator[Check]:
    """The bundled models against the checksums that lie beside them."""
    yield from _check_model("sprites model", WEIGHTS_FOLDER)
    yield from _check_model("easyvqa model", PACKAGE / "easyvqa" / "weights")


def _check_model(title: str, folder: Path) -> Iterator[Check]:
    path, sums = folder / "model.safetensors", folder / "SHA256SUMS"
    if not path.is_file():
        yield Check(title, "model.safetensors is not installed", "missing")
        return
    if not sums.is_file():
        yield Check(title, f"{size(path.stat().st_size)}, no checksums", "note")
        return
    for line in sums.read_text(encoding="utf-8").splitlines():
        wanted, name = line.split(maxsplit=1)
        if not (folder / name).is_file():
            yield Check(title, f"{name} is not installed", "missing")
        elif hashlib.sha256((folder / name).read_bytes()).hexdigest() != wanted:
            yield Check(title, f"{name} does not have its checksum", "missing")
    yield Check(title, f"{size(path.stat().st_size)}, checksums compared")


def check_presets() -> Iterator[Check]:
    """Every preset, and the variables of the environment."""
    names = preset_names()
    for name in names:
        try:
            load_config(name, env={})
        except ConfigError as error:
            yield Check(f"preset {name}", str(error), "missing")
    told = f"{len(names)} load (hermes-like config --list)" if names else "none found"
    yield Check("presets", told, "ok" if names else "missing")
    try:
        load_config()
    except ConfigError as error:
        yield Check("environment", str(error), "missing")


GROUPS: tuple[Callable[[], Iterator[Check]], ...] = (
    check_system,
    check_packages,
    check_devices,
    check_decoders,
    check_weights,
    check_presets,
)
