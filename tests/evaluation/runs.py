"""What the tests of runs share: a tiny dataset, and what two runs must have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes_like.config import HermesConfig
from hermes_like.evaluation import Dataset, load_dataset
from hermes_like.evaluation.predictions import Prediction, read_predictions
from hermes_like.evaluation.run import Place, run
from hermes_like.evaluation.settings import RunSettings, patient
from hermes_like.evaluation.standing import RunReport
from hermes_like.presets import load_config

#: What no two runs share.
TIMES = frozenset({"started_s", "ttft_s", "tpot_s"})


def settings(**changes: Any) -> RunSettings:
    """As the command line makes them; ``config`` for other configurations."""
    config: HermesConfig = changes.pop("config", load_config("sprites"))
    return RunSettings(config=patient(config), **changes)


def run_folder(folder: Path, out: Path, **options: Any) -> RunReport:
    """Run the made dataset in a folder."""
    how = options.pop("settings", settings())
    place = Place(folder, scratch=options.pop("scratch", None))
    return run(load(folder), place, how, out, **options)


def load(folder: Path) -> Dataset:
    """The made dataset in a folder."""
    return load_dataset("sprites", folder)


def essence(rows: tuple[Prediction, ...]) -> list[dict[str, Any]]:
    """Predictions without what depends on the clock of the machine."""
    return [row.model_dump(exclude=set(TIMES)) for row in rows]


def read(path: Path) -> list[dict[str, Any]]:
    """A file of predictions without times; refuses what is there twice."""
    return essence(read_predictions(path).rows)
