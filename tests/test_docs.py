"""What the documents say is true: examples run, commands, files and options exist."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import typer.main

from demos.camera import PORT, CameraServer
from hermes_like.cli import app
from hermes_like.sprites.world import Event, Sprite, Story

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def code_lines(text: str) -> list[str]:
    """Lines of indented code blocks, and `code` in running text."""
    indented = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [*indented, *re.findall(r"`([^`\n]+)`", text)]


def run_example(example: str, folder: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-c", example],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_python_example_runs(sprites_video: Path, tmp_path: Path) -> None:
    example = examples()[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 11
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    shutil.copy(sprites_video, tmp_path / "runs" / "demo" / "sprites.mp4")
    assert run_example(example, tmp_path).startswith("blue ring [(")


def test_monitoring_example_runs_as_written_against_a_loopback_camera(tmp_path: Path) -> None:
    example = examples()[1]
    assert len([line for line in example.splitlines() if line.strip()]) == 5
    story = Story((Event((Sprite("star", "red", "left"),), 600),))
    with CameraServer(PORT, story) as camera:
        assert camera.address in example
        thread = threading.Thread(target=camera.serve_forever, args=(0.05,))
        thread.start()
        try:
            # The wait alone is shortened.
            shown = run_example(example.replace("timeout_s=20", "timeout_s=4"), tmp_path)
        finally:
            camera.shutdown()
            thread.join()
    assert shown == "red star\n"
    assert (tmp_path / "memory" / "gate").is_dir()


def test_readme_begins_with_the_two_commands() -> None:
    commands = [
        line.strip()
        for line in (ROOT / "README.md").read_text().splitlines()
        if line.startswith("    ")
    ]
    assert commands[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("name", NAMES)
def test_relative_links_resolve(name: str) -> None:
    path = ROOT / name
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if not target.startswith(("http://", "https://", "#")):
            assert (path.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_make_targets_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in code_lines((ROOT / name).read_text()):
        if match := re.match(r"make ([a-z-]+)\b", line):
            assert match.group(1) in targets, line


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_their_options_exist(name: str) -> None:
    command = typer.main.get_command(app)
    known = {
        sub: {
            option
            for part in (entry, *getattr(entry, "commands", {}).values())
            for parameter in part.params
            for option in parameter.opts
        }
        for sub, entry in command.commands.items()  # type: ignore[attr-defined]
    }
    for line in code_lines((ROOT / name).read_text()):
        if match := re.match(r"(?:[A-Z_]+=\S+ )?hermes-like (.+)", line):
            sub, *words = shlex.split(match.group(1))
            assert sub in known, line
            options = {word.split("=")[0] for word in words if word.startswith("--")}
            assert options <= known[sub], line


@pytest.mark.parametrize("name", NAMES)
def test_modules_that_are_run_exist(name: str) -> None:
    for line in code_lines((ROOT / name).read_text()):
        if match := re.match(r"python -m ([a-z_.]+)", line):
            assert importlib.util.find_spec(match.group(1)) is not None, line


@pytest.mark.parametrize("name", NAMES)
def test_folders_and_files_exist(name: str) -> None:
    pattern = r"(?:hermes_like|configs|demos|examples|pipelines|tests|docs)/(?:[a-z_./]*)?"
    for code in code_lines((ROOT / name).read_text()):
        if re.fullmatch(pattern, code):
            assert (ROOT / code).exists(), code


def test_command_table_is_complete() -> None:
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(rows) == sorted(n for n, command in commands.items() if not command.hidden)


def test_presets_named_in_documents_exist() -> None:
    from hermes_like.presets import preset_names

    for path in DOCUMENTS:
        for name in re.findall(r"--preset ([a-z_0-9.-]+)", path.read_text()):
            assert name in preset_names(), f"{path.name}: {name}"
