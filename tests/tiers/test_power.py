"""The power goes: what was forced to the medium is there, the rest is right or is gone."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from hermes_like.tiers.volume import Volume
from pipelines.crash_power import KINDS, Durability, power_cuts
from pipelines.power_medium import SECTOR_BYTES, File, PowerMedium


@pytest.mark.parametrize("durability", KINDS)
def test_power_cuts(durability: Durability, tmp_path: Path) -> None:
    """Nothing wrong, nothing erased back, the cap holds; with strict nothing acknowledged lost."""
    report = power_cuts(tmp_path / "cuts", 8, seed=3, durability=durability)
    assert report.cuts == 8
    assert report.verdict.is_clean, report


def test_a_sync_that_is_forgotten_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Volume, "sync", lambda volume: None)
    report = power_cuts(tmp_path / "cuts", 8, seed=3, durability="strict")
    assert report.verdict.lost > 0
    assert report.verdict.wrong == 0


def test_of_what_was_not_synced_sectors_survive_or_not() -> None:
    file = File()
    file.write(0, b"a" * 2 * SECTOR_BYTES)
    file.sync()
    file.write(SECTOR_BYTES, b"b" * 2 * SECTOR_BYTES)
    assert file.sizes == [2 * SECTOR_BYTES, 3 * SECTOR_BYTES]
    rng = random.Random(1)
    parts = {file.image(lambda: rng.random() < 0.5, 3 * SECTOR_BYTES) for _ in range(30)}
    a, b, gap = b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES, bytes(SECTOR_BYTES)
    assert parts == {a + second + third for second in (a, b) for third in (gap, b)}
    file.resize(10)
    assert file.image(lambda: True, 10) == b"a" * 10
    file.resize(20)
    assert file.image(lambda: True, 20) == b"a" * 10 + bytes(10), "what was cut off is gone"


def test_names_are_certain_once_the_folder_is_synced(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    medium = PowerMedium(memory, lambda: None)

    def images(number: int) -> set[tuple[str, ...]]:
        found = set()
        for turn in range(40):
            target = tmp_path / f"image-{number}-{turn}"
            medium.image(target, random.Random(turn))
            found.add(tuple(sorted(path.name for path in target.iterdir())))
        return found

    with medium.noting():
        fd = os.open(memory / "a.new", os.O_RDWR | os.O_CREAT)
        os.pwritev(fd, [b"text"], 0)
        os.rename(memory / "a.new", memory / "a")
        assert images(0) == {(), ("a.new",), ("a",)}
        folder = os.open(memory, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        assert images(1) == {("a",)}
        os.unlink(memory / "a")
        assert images(2) == {(), ("a",)}
        os.close(fd)
