"""Who may import whom: the table of the design, held by parsing the sources."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: A module may import modules of lower rank, and those of its own rank where ``SAME_RANK`` says so.
#: The first matching pattern counts.
RANKS: tuple[tuple[str, int], ...] = (
    ("hermes_like", 0),
    ("hermes_like.errors", 0),
    ("hermes_like.records", 1),
    ("hermes_like.config", 1),
    ("hermes_like.registry", 1),
    ("hermes_like.presets", 2),
    ("hermes_like.*.base", 2),
    ("hermes_like.sprites.world", 1),
    ("hermes_like.sprites*", 7),
    ("hermes_like.evaluation*", 7),
    ("hermes_like.monitor*", 7),
    ("hermes_like.server*", 8),
    ("hermes_like.cli*", 8),
    ("pipelines*", 9),
    ("demos*", 9),
    ("hermes_like.answer", 4),
    ("hermes_like.asking", 4),
    ("hermes_like.session", 5),
    ("hermes_like.engine", 6),
    ("hermes_like.*", 3),
)
#: Ranks within which modules may import each other: stations, answering, insides of one package.
SAME_RANK = {3, 4, 7, 8, 9}
#: Folders with a seam; their implementations know other seams by ``base.py`` only.
SEAMS = ("sources", "models", "policies", "codec", "tiers", "retrieval")

#: Third-party package to the modules that may import it.
CONFINED: dict[str, tuple[str, ...]] = {
    "transformers": (
        "hermes_like.models.*",
        "hermes_like.memory.cache",
        "hermes_like.memory.attention",
        "pipelines.*",
    ),
    "tokenizers": ("hermes_like.models.*", "pipelines.*"),
    "av": (
        "hermes_like.sources.*",
        "hermes_like.sprites.video",
        "hermes_like.cli.doctor",
        "demos.preview",
    ),
    "cv2": ("hermes_like.sources.*",),
    "decord": ("hermes_like.sources.*",),
    "gradio": ("demos.*",),
    "faiss": ("hermes_like.index",),
    "cryptography": ("hermes_like.tiers.*",),
    "xxhash": ("hermes_like.tiers.*", "hermes_like.codec.*"),
    "dateparser": ("hermes_like.retrieval.*",),
    "matplotlib": ("hermes_like.cli.plot", "demos.memory_view", "pipelines.*"),
    "prometheus_client": ("hermes_like.metrics*",),
    "pydantic": (
        "hermes_like.config",
        "hermes_like.presets",
        "hermes_like.cli.watch",
        "hermes_like.evaluation*",
        "hermes_like.monitor*",
        "hermes_like.server*",
    ),
}
OWN = ("hermes_like", "pipelines", "demos")
#: Module to distribution, where the names differ.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "prometheus_client": "prometheus-client",
    "cv2": "opencv-python",
    "faiss": "faiss-cpu",
    "yaml": "pyyaml",
}
#: Modules that load without torch, so that the command line and the sprites world stay quick.
TORCH_FREE = (
    "hermes_like",
    "hermes_like.errors",
    "hermes_like.records",
    "hermes_like.config",
    "hermes_like.registry",
    "hermes_like.presets",
    "hermes_like.cli",
    "hermes_like.cli.doctor",
    "hermes_like.cli.eval",
    "hermes_like.evaluation",
    "hermes_like.metrics",
    "hermes_like.logs",
    "hermes_like.plan",
    "hermes_like.retrieval.planner",
    "hermes_like.sources",
    "hermes_like.sprites.world",
)


def modules() -> dict[str, Path]:
    """Dotted name to file of everything that is not a test."""
    found = {}
    for folder in OWN:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def rank(module: str) -> int:
    """Rank of a module of ours."""
    return next(value for pattern, value in RANKS if fnmatch(module, pattern))


def imports(module: str, *, lazy: bool = True) -> Iterator[str]:
    """Modules that a module imports; imports for type checking do not count.

    Args:
        module: Name of a module of ours.
        lazy: Whether imports inside functions count.
    """
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree) if lazy else tree.body:
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in MODULES else base


def package(module: str) -> str:
    """The folder below the top level that a module lies in, or its own name."""
    return ".".join(module.split(".")[:2])


def is_allowed(importer: str, imported: str) -> bool:
    """Whether the table lets one module of ours import another."""
    own, other = rank(importer), rank(imported)
    if package(importer) == package(imported) and not importer.endswith(".base"):
        return True
    if other > own or (other == own and own not in SAME_RANK):
        return False
    seam = importer.split(".")[1:2]
    if own == 3 and seam and seam[0] in SEAMS and imported.count(".") > 1:
        is_foreign_seam = imported.split(".")[1] in SEAMS
        return not is_foreign_seam or imported.endswith(".base")
    return True


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_table(module: str) -> None:
    wrong = [name for name in imports(module) if name in MODULES and not is_allowed(module, name)]
    assert not wrong, f"{module} (rank {rank(module)}) imports {wrong}"


@pytest.mark.parametrize("module", MODULES)
def test_libraries_stay_where_they_belong(module: str) -> None:
    for name in imports(module):
        allowed = CONFINED.get(name.split(".")[0])
        if allowed is not None:
            assert any(fnmatch(module, pattern) for pattern in allowed), f"{module} imports {name}"


def test_no_cycles() -> None:
    """Modules can be put in an order in which each is loaded after those it loads."""
    graph = {
        module: {name for name in imports(module, lazy=False) if name in MODULES}
        for module in MODULES
    }
    assert set(TopologicalSorter(graph).static_order()) == set(MODULES)


def test_every_library_is_declared() -> None:
    """What the package imports is among its dependencies, under the name of its distribution."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[^\w-]", requirement)[0] for requirement in project["dependencies"]}
    for module in MODULES:
        for name in imports(module):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names and top not in OWN:
                assert DISTRIBUTIONS.get(top, top) in declared, f"{module} imports {top}"


def test_nothing_imports_the_command_line() -> None:
    for module in MODULES:
        if not module.startswith(("hermes_like.cli", "demos", "pipelines")):
            assert not any(name.startswith("hermes_like.cli") for name in imports(module)), module


def _loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(result.stderr.splitlines())


def test_light_modules_do_not_load_torch() -> None:
    code = "\n".join(f"import {name}" for name in TORCH_FREE if name in MODULES)
    assert not {"torch", "transformers", "av", "cv2", "matplotlib"} & _loaded_after(code)


def test_help_does_not_load_torch() -> None:
    code = (
        "from hermes_like.cli import run\nfor a in ([], ['ask'], ['doctor']): run([*a, '--help'])"
    )
    assert not {"torch", "transformers", "av", "cv2", "matplotlib"} & _loaded_after(code)


def test_public_names_are_sorted_exist_and_are_documented() -> None:
    import hermes_like

    names = [name for name in hermes_like.__all__ if not name.startswith("__")]
    assert names == sorted(names)
    assert set(dir(hermes_like)) == set(hermes_like.__all__)
    assert all(getattr(hermes_like, name) is not None for name in names)
    documented = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    missing = [name for name in names if f"`{name}`" not in documented]
    assert not missing, f"not in docs/how-it-works.md: {missing}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hermes_like.nothing
