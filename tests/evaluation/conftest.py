"""One tiny dataset and one undisturbed run of it, for all tests of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.evaluation import runs


@pytest.fixture(scope="session")
def made_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos of 14 seconds with four questions each. Not to be changed."""
    from hermes_like.evaluation.scripted import make_sprites

    folder = tmp_path_factory.mktemp("made") / "set"
    make_sprites(folder, num_videos=3, seconds=14, num_questions=4, seed=5)
    return folder


@pytest.fixture(scope="session")
def model() -> Any:
    """The bundled model."""
    from hermes_like.evaluation.worker import load
    from hermes_like.presets import load_config

    return load(load_config("sprites").model)


@pytest.fixture(scope="session")
def undisturbed(
    made_set: Path, model: Any, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """Predictions of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("undisturbed") / "predictions.jsonl"
    runs.run_folder(made_set, out, model=model)
    return runs.read(out)
