"""Power cuts: whether a memory survives what a medium may hold when the power goes.

A process that is killed loses nothing that it wrote: the system still has it. A power cut loses
whatever was not synced, in any order and in parts. Here a writer works, at random calls an image of
the folder is built (:mod:`pipelines.power_medium`), and each image is opened and judged:

* of bytes that were not synced, any sectors of 512 bytes may be there or not;
* names (made, renamed, removed) are there in order, at least up to the last sync of the folder;
* sizes change in order, at least up to the last sync of the file;
* of the SQLite manifest an earlier copy may be there, a cut one, or none.

With ``strict`` everything that was acknowledged must be there; otherwise what is there must be
right. What was erased may never be back. Files that give room at the cap may be back after a cut,
and go again.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hermes_like.errors import StorageError, TierFullError
from hermes_like.tiers.disk import open_disk
from pipelines import crash_kit
from pipelines.crash_kit import CONFIG, FINGERPRINT, Ledger, Verdict
from pipelines.power_medium import PowerMedium

Durability = Literal["none", "interval", "strict"]
KINDS: tuple[Durability, ...] = ("strict", "interval", "none")


@dataclass
class PowerReport:
    """What became of some power cuts.

    Attributes:
        cuts: Images that were opened.
        verdict: What was wrong, summed up; ``lost`` only for ``strict``.
        unsynced: Acknowledged records that were gone, where not everything is synced at once.
        unreadable: Checkpoints that were refused as damaged, likewise.
    """

    cuts: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    unsynced: int = 0
    unreadable: int = 0


@dataclass
class _Cut:
    """An image, and what had been acknowledged when it was taken."""

    folder: Path
    ledger: Ledger


def power_cuts(folder: Path, count: int, seed: int, durability: Durability) -> PowerReport:
    """Let writers work in ``folder`` until so many images were taken, and judge each.

    Args:
        folder: Not there yet.
        count: Images.
        seed: Decides what is written, when the power goes and what is left.
        durability: Of the store.
    """
    report, turn = PowerReport(), 0
    while report.cuts < count:
        for cut in _writer(folder / f"writer{turn}", seed + turn, durability, count - report.cuts):
            report.cuts += 1
            _judge(cut, durability, report)
            shutil.rmtree(cut.folder)
        shutil.rmtree(folder / f"writer{turn}")
        turn += 1
    return report


def _writer(folder: Path, seed: int, durability: Durability, most: int) -> list[_Cut]:
    """One writer from an empty folder on, with the images that were taken of it."""
    rng, cuts, said = random.Random(seed), list[_Cut](), list[str]()
    reader, writer = os.pipe()
    os.set_blocking(reader, False)

    def on_step() -> None:
        said.extend(_lines(reader))
        if rng.random() < 0.1:
            medium.keep_manifest()
        if len(cuts) < min(most, 12) and rng.random() < 0.02:
            ledger = Ledger()
            ledger.read(said)
            _allow_evicted(ledger, said)
            cuts.append(_Cut(folder / f"cut{len(cuts)}", ledger))
            medium.image(cuts[-1].folder, rng)

    memory = folder / "memory"
    medium = PowerMedium(memory, on_step)
    config = CONFIG.model_copy(update={"durability": durability, "sync_interval_s": 0.02})
    try:
        with (
            medium.noting(),
            open_disk(memory, fingerprint=FINGERPRINT, config=config) as store,
        ):
            crash_kit.work(store, Ledger(), seed, writer, steps=60)
    finally:
        os.close(reader)
        os.close(writer)
    return cuts


def _lines(pipe: int) -> list[str]:
    """What the writer said since; every line came in one call."""
    try:
        return os.read(pipe, 2**16).decode().splitlines()
    except BlockingIOError:
        return []


def _allow_evicted(ledger: Ledger, said: list[str]) -> None:
    """Files removed for room may be back: their names were not forced to the medium."""
    erased = {word for line in said if line.startswith("try erase") for word in line.split()[2:]}
    for line in said:
        verb, name, *ids = line.split()
        if verb == "evicted":
            ledger.doubtful[name] |= {int(i) for i in ids if i not in erased}


def _judge(cut: _Cut, durability: Durability, report: PowerReport) -> None:
    with open_disk(cut.folder, fingerprint=FINGERPRINT, config=CONFIG) as store:
        try:
            store.get_blob("checkpoint")
        except StorageError:  # it may be cut, and must then say so
            report.unreadable += 1
            report.verdict.lost += durability == "strict"
            store.remove_blob("checkpoint")
            cut.ledger.blob = (-1, -1)
        verdict = crash_kit.judge(store, copy.deepcopy(cut.ledger))
        store.check()
        verdict.over_cap += crash_kit.blocks_of(cut.folder) > CONFIG.disk_bytes
        extra = cut.ledger.next_id
        record = crash_kit.segment_of(extra)
        try:
            store.segments.put(record)
        except TierFullError:
            store.segments.evict(record.num_bytes + 16384)
            store.segments.put(record)
        verdict.wrong += not crash_kit.same(store.segments.get(extra), record)
    if durability != "strict":
        report.unsynced, verdict.lost = report.unsynced + verdict.lost, 0
    report.verdict.add(verdict)
