"""A19: the frame path needs neither torchvision nor torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.sources.conftest import MakeClip

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
sys.modules["torchvision"] = None
sys.modules["torch"] = None
from hermes_like.frames import sampled
from hermes_like.sources import open_source
for reference in sys.argv[1:]:
    with sampled(open_source(reference)) as feed:
        assert len(list(feed)) == 2
"""


def test_no_module_imports_torchvision() -> None:
    for path in (ROOT / "hermes_like").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "torchvision" for name in names), path


def test_the_frame_path_works_without_it(make_clip: MakeClip) -> None:
    references = [str(make_clip("plain.mp4")), "sprites:frames=2"]
    command = [sys.executable, "-W", "error", "-c", SCRIPT, *references]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
