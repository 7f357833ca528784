"""Memories of an evaluation on disk: they end with their video, whatever ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermes_like.errors import ConfigError
from hermes_like.evaluation.scratch import in_ram, on_disk
from hermes_like.presets import load_config
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from tests.evaluation.runs import read, run_folder

NUM_FRAMES = 240


def little_ram() -> Any:
    """Room in RAM for a few segments of four frames."""
    config = load_config("sprites")
    store = config.store.model_copy(update={"host_bytes": 1_500_000})
    return config.model_copy(update={"store": store})


def test_what_ram_cannot_hold_is_kept_on_disk_and_destroyed(model: Any, tmp_path: Path) -> None:
    lost = {}
    for name, make in (("ram", in_ram), ("disk", on_disk(tmp_path / "scratch"))):
        with make(model, little_ram(), name) as session:
            for second in range(NUM_FRAMES):
                session.observe(
                    Frame(np.full((64, 64, 3), second % 7, np.uint8), second, float(second))
                )
            assert session.has_folder == (name == "disk")
            assert session.long_term is not None
            session.long_term.flush()
            lost[name] = len(session.long_term.chain.lost)
            if name == "disk":
                (folder,) = (tmp_path / "scratch").iterdir()
                assert any(folder.glob("kv-*.vol"))
    assert lost["ram"] > 0, "more was seen than fits"
    assert lost["disk"] == 0
    assert list((tmp_path / "scratch").iterdir()) == []


def test_it_goes_too_when_the_pass_fails(model: Any, tmp_path: Path) -> None:
    make = on_disk(tmp_path)
    with pytest.raises(KeyError), make(model, little_ram(), "video"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_run_go_and_others_stay(model: Any, tmp_path: Path) -> None:
    with StreamSession(model, little_ram(), folder=tmp_path / "hermes-eval-dead") as session:
        session.observe(Frame(np.zeros((64, 64, 3), np.uint8), 0, 0.0))
    (tmp_path / "hermes-eval-notes").mkdir()
    (tmp_path / "hermes-eval-notes" / "mine.txt").write_text("no memory")
    with StreamSession(model, little_ram(), folder=tmp_path / "hermes-eval-live"):
        on_disk(tmp_path)
        left = sorted(path.name for path in tmp_path.iterdir())
        assert left == ["hermes-eval-live", "hermes-eval-notes"]
    assert (tmp_path / "hermes-eval-notes" / "mine.txt").read_text() == "no memory"
    with pytest.raises(ConfigError, match="no folder can be made"):
        on_disk(tmp_path / "hermes-eval-notes" / "mine.txt")


def test_a_run_with_scratch_is_another_setting(
    model: Any, made_set: Path, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Same replies here, where everything fits into RAM; but never the same file."""
    run_folder(made_set, tmp_path / "p.jsonl", model=model, scratch=tmp_path / "scratch")
    found = read(tmp_path / "p.jsonl")
    assert [row["reply"] for row in found] == [row["reply"] for row in undisturbed]
    assert {row["config_hash"] for row in found}.isdisjoint(
        row["config_hash"] for row in undisturbed
    )
    assert list((tmp_path / "scratch").iterdir()) == []
