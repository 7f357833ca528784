"""Kill a writer at random moments and flip random bits; nothing wrong may be served, nothing lost.

    python -m pipelines.crash --kills 1000 --flips 10000

``--sweep 1 2 5`` also kills at every named place of the disk tier, at the first, second and fifth
arrival. ``--power-cuts 1000`` opens what a medium may hold after so many power cuts, with each kind
of durability. The last line is JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from hermes_like.tiers import failpoints
from hermes_like.tiers.disk import open_disk
from pipelines import crash_kit
from pipelines.crash_kit import Ledger, Verdict
from pipelines.crash_power import KINDS, power_cuts


def kill_loop(folder: Path, kills: int, seed: int) -> tuple[Verdict, int]:
    """Kill at random moments; returns what was wrong and the number of acknowledged segments."""
    rng, ledger, total = random.Random(seed), Ledger(), Verdict()
    for turn in range(kills):
        delay_s = rng.uniform(0, 0.4) if turn % 4 else rng.uniform(0, 0.03)
        _, verdict = crash_kit.round_of_killing(folder, ledger, seed + turn, kill_after_s=delay_s)
        if not verdict.is_clean:
            print(f"kill {turn} after {delay_s:.4f} s: {verdict}")
        total.add(verdict)
        if turn % 100 == 99:
            print(f"{turn + 1} kills, {ledger.next_id} segments written: {total}", flush=True)
    return total, ledger.next_id


def sweep(folder: Path, counts: tuple[int, ...]) -> tuple[Verdict, list[str]]:
    """Kill at every named place; returns what was wrong and the places that were not reached."""
    total, missed = Verdict(), []
    full, filled = folder / "full", Ledger()
    crash_kit.run_writer(full, filled, 0, kill_after_s=None, steps=140)
    for index, name in enumerate(failpoints.NAMES):
        reached = False
        ledger, place = copy.deepcopy(filled), folder / f"{index}"
        crash_kit.copy_folder(full, place)
        for count in counts:
            was_killed, verdict = crash_kit.round_of_killing(
                place, ledger, index + count, kill_after_s=None, steps=60,
                arm=f"{name}=kill@{count}",
            )  # fmt: skip
            reached |= was_killed
            if not verdict.is_clean:
                print(f"{name}@{count}: {verdict}")
            total.add(verdict)
        if not reached:
            missed.append(name)
        shutil.rmtree(place)
    return total, missed


def flip_loop(folder: Path, flips: int, seed: int) -> tuple[Verdict, int]:
    """Flip single bits anywhere; returns what was wrong and the most records one flip cost."""
    rng, total, most = random.Random(seed), Verdict(), 0
    original, altered = folder / "original", folder / "altered"
    ids = {"kv": set(range(9)), "keyframes": set(range(6))}
    with open_disk(original, fingerprint=crash_kit.FINGERPRINT, config=crash_kit.CONFIG) as store:
        for segment_id in sorted(ids["kv"]):
            store.segments.put(crash_kit.segment_of(segment_id))
        for segment_id in sorted(ids["keyframes"]):
            store.keyframes.put(crash_kit.pictures_of(segment_id))
        store.put_blob("checkpoint", crash_kit.blob_of(0))
    names = sorted(p.name for p in original.iterdir() if p.stat().st_size and p.name != "ballast")
    for turn in range(flips):
        shutil.rmtree(altered, ignore_errors=True)
        shutil.copytree(original, altered, ignore=shutil.ignore_patterns("ballast"))
        path = altered / rng.choice(names)
        verdict = crash_kit.flip_and_read(
            altered, ids, path, rng.randrange(path.stat().st_size), rng.randrange(8)
        )
        most = max(most, verdict.lost)
        if verdict.wrong or verdict.resurrected or verdict.lost > 1:
            print(f"flip {turn} in {path.name}: {verdict}")
        total.add(verdict)
        if turn % 1000 == 999:
            print(f"{turn + 1} flips: {total}", flush=True)
    return total, most


def main(argv: list[str] | None = None) -> int:
    """Run the loops and print the report; returns 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="pipelines.crash", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--flips", type=int, default=10000)
    parser.add_argument(
        "--sweep", type=int, nargs="*", default=(), metavar="COUNT",
        help="kill at every named place, at these arrivals",
    )  # fmt: skip
    parser.add_argument("--power-cuts", type=int, default=0, help="with each kind of durability")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    arguments = parser.parse_args(argv)
    start = time.monotonic()
    report: dict[str, object] = {"report": "crash", "seed": arguments.seed}
    is_clean = True
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        if arguments.kills:
            verdict, written = kill_loop(folder / "kills", arguments.kills, arguments.seed)
            report["kills"] = {"count": arguments.kills, "segments": written, **vars(verdict)}
            is_clean &= verdict.is_clean
        if arguments.sweep:
            verdict, missed = sweep(folder / "sweep", tuple(arguments.sweep))
            places = len(failpoints.NAMES)
            report["sweep"] = {"places": places, "not_reached": missed, **vars(verdict)}
            is_clean &= verdict.is_clean and not missed
        if arguments.flips:
            verdict, most = flip_loop(folder / "flips", arguments.flips, arguments.seed)
            counts = {"count": arguments.flips, "most_lost_by_one": most, **vars(verdict)}
            report["flips"] = counts
            is_clean &= not verdict.wrong and not verdict.resurrected and most <= 1
        for durability in KINDS if arguments.power_cuts else ():
            found = power_cuts(
                folder / durability, arguments.power_cuts, arguments.seed, durability
            )
            report[f"power_cuts_{durability}"] = {
                "count": found.cuts, "unsynced": found.unsynced, "unreadable": found.unreadable,
                **vars(found.verdict),
            }  # fmt: skip
            is_clean &= found.verdict.is_clean
    report |= {"is_clean": is_clean, "seconds": round(time.monotonic() - start, 1)}
    print(json.dumps(report))
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
