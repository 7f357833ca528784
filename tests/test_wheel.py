"""The wheel works outside the repository: weights, presets and demos travel in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel. The build back end of this environment is used, nothing is downloaded."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``hermes-like`` of a new environment that holds the wheel and sees our dependencies."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    paths = {"base": str(folder), "platbase": str(folder)}
    target = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    scripts = Path(sysconfig.get_path("scripts", scheme="venv", vars=paths))
    python = scripts / Path(sys.executable).name
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--quiet", str(wheel)], check=True, capture_output=True)
    # Only the folder itself: a ``.pth`` in it (our editable install) is not followed from there.
    (target / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return scripts / "hermes-like"


def outside(folder: Path) -> dict[str, str]:
    """Environment of a process that knows nothing of the repository."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in hidden} | {
        "HOME": str(folder)
    }


def call(command: Path, folder: Path, *arguments: str) -> str:
    """Run the installed command in a folder outside the repository and return its output."""
    result = subprocess.run(
        [str(command), *arguments],
        cwd=folder,
        env=outside(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_wheel_holds_what_it_promises(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "hermes_like/py.typed",
        "hermes_like/sprites/weights/model.safetensors",
        "hermes_like/sprites/weights/tokenizer.json",
        "hermes_like/sprites/weights/SHA256SUMS",
        "hermes_like/easyvqa/weights/model.safetensors",
        "hermes_like/easyvqa/weights/SHA256SUMS",
        "hermes_like/_presets/sprites.yaml",
        "hermes_like/_demos/quickstart.py",
    ):
        assert name in names
    presets = {Path(name).stem for name in names if name.startswith("hermes_like/_presets/")}
    assert presets == {path.stem for path in (ROOT / "configs").glob("*.yaml")}
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hermes_like"}


def test_installed_code_comes_from_the_wheel(command: Path, tmp_path: Path) -> None:
    code = "import hermes_like, hermes_like.presets as p; print(hermes_like.__file__); "
    code += "print(p.presets_folder())"
    python = command.with_name(Path(sys.executable).name)
    found = subprocess.run(
        [str(python), "-c", code],
        cwd=tmp_path,
        env=outside(tmp_path),
        check=True,
        capture_output=True,
        text=True,
    )
    for line in found.stdout.splitlines():
        assert Path(line).is_relative_to(command.parent.parent), line


def test_ask_works_outside_the_repository(
    command: Path, tmp_path: Path, sprites_video: Path
) -> None:
    out = call(command, tmp_path, "ask", str(sprites_video), "what is visible now ?", "--json")
    answer = json.loads(out)
    assert (answer["text"], answer["status"]) == ("blue ring", "ok")


def test_presets_and_doctor_work_outside_the_repository(command: Path, tmp_path: Path) -> None:
    assert "name: window" in call(command, tmp_path, "config", "--preset", "window")
    assert "sprites model" in call(command, tmp_path, "doctor")


def test_demo_works_outside_the_repository(
    command: Path, tmp_path: Path, sprites_video: Path
) -> None:
    out = call(command, tmp_path, "demo", str(sprites_video), "what is visible now ?")
    assert "A  blue ring" in out
    assert "memory of sprites.mp4" in out
