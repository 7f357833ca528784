"""A writer that can be killed at any moment, and a judge of what is left.

The writer tells each step through a pipe before and after it. What it said is done must be there,
bit for bit; of the step under way either outcome is right.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hermes_like.config import StoreConfig
from hermes_like.errors import SegmentUnavailableError, StorageError, TierFullError
from hermes_like.tiers import failpoints
from hermes_like.tiers.base import Keyframe, KeyframeRecord, SegmentHead, SegmentRecord
from hermes_like.tiers.disk import DiskStore, open_disk
from hermes_like.tiers.fingerprint import Fingerprint

FINGERPRINT = Fingerprint.of(model="crash", num_layers=3, kv_dtype="float32")
CONFIG = StoreConfig(
    disk_bytes=6 * 2**20,
    keyframe_bytes=2**20,
    min_free_bytes=0,
    durability="interval",
    sync_interval_s=0.05,
)
FRAMES = 4
_SIZES = (900, 12_000, 36_000)


def head_of(segment_id: int) -> SegmentHead:
    """The head of a segment; depends on its id alone."""
    rng = np.random.default_rng(segment_id)
    first = segment_id * FRAMES
    return SegmentHead(
        segment_id,
        first,
        tuple(float(first + i) for i in range(FRAMES)),
        float(first + FRAMES),
        (None,) * FRAMES,
        4,
        np.arange(FRAMES * 4, dtype=np.uint32)[segment_id % 3 :],
        rng.standard_normal((FRAMES, 2, 16), dtype=np.float32),
        rng.bytes(16),
    )


def segment_of(segment_id: int) -> SegmentRecord:
    """A segment that depends on its id alone."""
    rng = random.Random(segment_id)
    size = _SIZES[segment_id % len(_SIZES)]
    return SegmentRecord(head_of(segment_id), tuple(rng.randbytes(size + i) for i in range(3)))


def pictures_of(segment_id: int) -> KeyframeRecord:
    """Pictures that depend on the id alone."""
    data = random.Random(-1 - segment_id).randbytes(3_000)
    return KeyframeRecord(head_of(segment_id), (Keyframe(segment_id * FRAMES, data),))


def blob_of(turn: int) -> bytes:
    """Contents of the checkpoint of a turn; the first 8 bytes tell the turn."""
    return turn.to_bytes(8, "little") + random.Random(turn).randbytes(20_000)


@dataclass
class Ledger:
    """What must be in the folder.

    Attributes:
        present: Ids by store name.
        doubtful: Ids that may be there or not, because a step was cut short.
        evicting: Whether the oldest may be missing.
        next_id: Id of the next segment.
        blob: Turn of the last checkpoint, and of one that may have come after it.
    """

    present: dict[str, set[int]] = field(default_factory=lambda: {"kv": set(), "keyframes": set()})
    doubtful: dict[str, set[int]] = field(default_factory=lambda: {"kv": set(), "keyframes": set()})
    evicting: bool = False
    next_id: int = 0
    blob: tuple[int, int] = (-1, -1)

    def read(self, lines: list[str]) -> None:
        """Take in what a writer said."""
        for line in lines:
            verb, what, *ids = line.split()
            numbers = [int(i) for i in ids]
            if verb == "try":
                self._begin(what, numbers)
            else:
                self._done(verb, what, numbers)

    def _begin(self, what: str, ids: list[int]) -> None:
        if what == "blob":
            self.blob = (self.blob[0], ids[0])
        elif what == "evict":
            self.evicting = True
        elif what == "erase":
            for name in self.present:
                self.doubtful[name] |= set(ids) & self.present[name]
                self.present[name] -= set(ids)
        else:
            self.doubtful[what] |= set(ids)
            self.next_id = max([self.next_id, *(i + 1 for i in ids)])

    def _done(self, verb: str, what: str, ids: list[int]) -> None:
        if what == "blob":
            self.blob = (ids[0], ids[0])
            return
        if verb == "erased":
            for name in self.present:
                self.doubtful[name] -= set(ids)
                self.present[name] -= set(ids)
        elif verb == "evicted":
            self.evicting = False
            self.present[what] -= set(ids)
            self.doubtful[what] -= set(ids)
        else:
            self.doubtful[what] -= set(ids)
            self.present[what] |= set(ids)


@dataclass
class Verdict:
    """What was found wrong.

    Attributes:
        wrong: Contents that differ from what was put.
        lost: Ids that were acknowledged and are gone.
        resurrected: Ids that were erased and are back.
        over_cap: Times the folder was above its cap.
    """

    wrong: int = 0
    lost: int = 0
    resurrected: int = 0
    over_cap: int = 0

    def add(self, other: Verdict) -> None:
        """Sum up."""
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def is_clean(self) -> bool:
        """Whether nothing was wrong."""
        return not any(vars(self).values())


def work(store: DiskStore, ledger: Ledger, seed: int, out: int, steps: int) -> None:
    """Put, erase, evict and checkpoint at random, telling every step."""
    rng = random.Random(seed)

    def say(*words: object) -> None:
        os.write(out, (" ".join(map(str, words)) + "\n").encode())

    def put(name: str, segment_id: int) -> None:
        target = store.segments if name == "kv" else store.keyframes
        record = segment_of(segment_id) if name == "kv" else pictures_of(segment_id)
        for _ in range(4):
            say("try", name, segment_id)
            try:
                target.put(record)  # type: ignore[arg-type]
            except TierFullError:
                say("try", "evict")
                say("evicted", name, *target.evict(record.num_bytes + 16384))
            else:
                say("put", name, segment_id)
                return

    first = ledger.next_id
    for turn in range(steps):
        put("kv", first + turn)
        put("keyframes", first + turn)
        if rng.random() < 0.1:
            ids = rng.sample(range(first + turn + 1), min(first + turn + 1, 2))
            say("try", "erase", *ids)
            store.segments.remove(ids)
            store.keyframes.remove(ids)
            say("erased", "both", *ids)
        if rng.random() < 0.1:
            say("try", "blob", first + turn)
            with contextlib.suppress(TierFullError):
                store.put_blob("checkpoint", blob_of(first + turn))
                say("stored", "blob", first + turn)
        if rng.random() < 0.05:
            store.flush()


def run_writer(
    folder: Path, ledger: Ledger, seed: int, *, kill_after_s: float | None, arm: str = "",
    steps: int = 400,
) -> bool:  # fmt: skip
    """Fork a writer, kill it, and take in what it said.

    Args:
        folder: The memory folder.
        ledger: Brought up to date.
        seed: Of what the writer does.
        kill_after_s: When it is killed; None: it runs to the end or into a failpoint.
        arm: Failpoints of the writer.
        steps: Most turns.

    Returns:
        Whether it was killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            failpoints.arm(arm)
            store = open_disk(folder, fingerprint=FINGERPRINT, config=CONFIG)
            work(store, ledger, seed, writer, steps)
            store.close()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    lines = text.split("\n")
    ledger.read(lines[:-1])  # the last one is empty or cut
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) != 0:
        raise RuntimeError(f"the writer failed by itself; it last said {lines[-2:]}")
    return os.WIFSIGNALED(status)


def blocks_of(folder: Path) -> int:
    """Allocated bytes of a folder and everything in it."""
    total = folder.stat().st_blocks * 512
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder of files with its holes, so that the copy takes no more blocks."""
    target.mkdir(mode=0o700, parents=True)
    for path in source.iterdir():
        data = path.read_bytes()
        with (target / path.name).open("wb") as file:
            file.truncate(len(data))
            for at in range(0, len(data), 4096):
                if any(block := data[at : at + 4096]):
                    file.seek(at)
                    file.write(block)


def judge(store: DiskStore, ledger: Ledger) -> Verdict:
    """Compare an open folder with what was acknowledged, and go on from what is there."""
    verdict = Verdict()
    for name, target, make in (
        ("kv", store.segments, segment_of),
        ("keyframes", store.keyframes, pictures_of),
    ):
        found = {head.segment_id for head in target.heads()}
        for segment_id in sorted(found):
            try:
                is_right = same(target.get(segment_id), make(segment_id))
            except SegmentUnavailableError:
                found.discard(segment_id)
                continue
            verdict.wrong += not is_right
        expected, doubtful = ledger.present[name], ledger.doubtful[name]
        verdict.resurrected += len(found - expected - doubtful)
        missing = expected - found
        if ledger.evicting:  # whole volumes of the oldest may be gone
            oldest = min(found & expected, default=ledger.next_id)
            missing = {i for i in missing if i > oldest}
        verdict.lost += len(missing)
        ledger.present[name] = found
        ledger.doubtful[name] = set()
    ledger.evicting = False
    turn = (
        -1 if (data := store.get_blob("checkpoint")) is None else int.from_bytes(data[:8], "little")
    )
    verdict.lost += turn not in ledger.blob
    verdict.wrong += data is not None and data != blob_of(turn)
    ledger.blob = (turn, turn)
    return verdict


def same(found: SegmentRecord | KeyframeRecord, put: SegmentRecord | KeyframeRecord) -> bool:
    """Whether two records agree bit for bit."""
    if isinstance(found, SegmentRecord) and isinstance(put, SegmentRecord):
        is_same = found.layers == put.layers
    elif isinstance(found, KeyframeRecord) and isinstance(put, KeyframeRecord):
        is_same = [(i.frame, i.data) for i in found.images] == [
            (i.frame, i.data) for i in put.images
        ]
    else:
        return False
    return is_same and same_heads(found.head, put.head)


def same_heads(found: SegmentHead, put: SegmentHead) -> bool:
    """Whether two heads agree in every field."""
    return all(
        np.array_equal(getattr(found, name), getattr(put, name))
        if name in ("token_cells", "vectors")
        else getattr(found, name) == getattr(put, name)
        for name in SegmentHead.__slots__
    )


def round_of_killing(
    folder: Path, ledger: Ledger, seed: int, **options: object
) -> tuple[bool, Verdict]:
    """Write, kill, look at the cap, reopen, compare, and put once more."""
    was_killed = run_writer(folder, ledger, seed, **options)  # type: ignore[arg-type]
    over_cap = blocks_of(folder) > CONFIG.disk_bytes
    with open_disk(folder, fingerprint=FINGERPRINT, config=CONFIG) as store:
        verdict = judge(store, ledger)
        over_cap |= blocks_of(folder) > CONFIG.disk_bytes
        store.check()
        extra = ledger.next_id
        try:
            store.segments.put(segment_of(extra))
        except TierFullError:
            gone = store.segments.evict(segment_of(extra).num_bytes + 16384)
            ledger.present["kv"] -= set(gone)
            store.segments.put(segment_of(extra))
        ledger.present["kv"].add(extra)
        ledger.next_id = extra + 1
        verdict.wrong += not same(store.segments.get(extra), segment_of(extra))
    verdict.over_cap += over_cap
    return was_killed, verdict


QUICK_CONFIG = CONFIG.model_copy(update={"durability": "none"})


def flip_and_read(folder: Path, ids: dict[str, set[int]], path: Path, at: int, bit: int) -> Verdict:
    """Flip one bit of a file, read everything, and count what is wrong or gone.

    ``lost`` counts records that are not served; a flip may cost the one that it hits.
    """
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(bytes(data))
    verdict = Verdict()
    with open_disk(folder, fingerprint=FINGERPRINT, config=QUICK_CONFIG) as store:
        for name, target, make in (
            ("kv", store.segments, segment_of),
            ("keyframes", store.keyframes, pictures_of),
        ):
            heads = {head.segment_id: head for head in target.heads()}
            verdict.resurrected += len(set(heads) - ids[name])
            for segment_id in ids[name]:
                if segment_id in heads and not same_heads(heads[segment_id], head_of(segment_id)):
                    verdict.wrong += 1
                try:
                    verdict.wrong += not same(target.get(segment_id), make(segment_id))
                except SegmentUnavailableError:
                    verdict.lost += 1
        try:
            verdict.wrong += store.get_blob("checkpoint") != blob_of(0)
        except StorageError:
            verdict.lost += 1
    return verdict
