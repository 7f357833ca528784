"""The process dies, the disk fills, fsync fails: what was acknowledged stays, and use goes on."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_like.errors import StorageError, TierFullError
from hermes_like.tiers import failpoints
from hermes_like.tiers.disk import DiskStore
from tests.tiers.disk_tools import MIB, blocks_of, open_small, volumes_of
from tests.tiers.segments import make_pictures, make_segment, same

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def disarm() -> Iterator[None]:
    yield
    failpoints.arm("")


def crash(folder: Path, *arguments: str) -> dict[str, dict[str, object]]:
    """Run the pipeline; it forks writers from a process of its own, which has no threads."""
    command = [sys.executable, "-m", "pipelines.crash", "--folder", str(folder), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    return dict(json.loads(run.stdout.splitlines()[-1]))


def test_killed_at_random_and_at_every_named_place(tmp_path: Path) -> None:
    """Nothing wrong, nothing acknowledged lost, nothing erased back, never above the cap."""
    report = crash(tmp_path, "--kills", "20", "--flips", "0", "--sweep", "1")
    for part in ("kills", "sweep"):
        counts = {n: report[part][n] for n in ("wrong", "lost", "resurrected", "over_cap")}
        assert set(counts.values()) == {0}, counts
    assert report["sweep"]["not_reached"] == []
    assert report["sweep"]["places"] == len(failpoints.NAMES)


def test_a_failpoint_named_by_the_environment_kills(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import sys\n"
        "from tests.tiers.disk_tools import open_small\n"
        "from tests.tiers.segments import make_segment\n"
        "store = open_small(Path(sys.argv[1]))\n"
        "for i in range(9):\n"
        "    store.segments.put(make_segment(i))\n"
        "    print(i, flush=True)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, failpoints.VARIABLE: "record.torn_data=kill@6"},
    )  # fmt: skip
    assert run.returncode == -9
    assert run.stdout.split() == [str(i) for i in range(5)]
    with open_small(tmp_path) as store:
        assert [head.segment_id for head in store.segments.heads()] == list(range(5))
        (loss,) = store.misses.lost  # the head of the torn record was whole, so its time is known
        assert (loss.segment_id, loss.start_s, loss.end_s) == (5, 20.0, 24.0)
        store.segments.put(make_segment(5))
        assert not store.misses.lost
        assert same(store.segments.get(5), make_segment(5))


@pytest.mark.parametrize("text", ["nowhere=kill", "record.before_data=explode", "open"])
def test_unknown_failpoints_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="failpoint"):
        failpoints.arm(text)


def use(store: DiskStore, model: dict[int, object], first: int, count: int) -> int:
    """Put, replace, evict and save, whatever fails; returns how many calls raised."""
    rng, failed = random.Random(first), 0
    for i in range(first, first + count):
        try:
            try:
                store.segments.put(make_segment(i, 50_000))
            except TierFullError:
                for gone in store.segments.evict(60_000):
                    del model[gone]
                raise
            model[i] = make_segment(i, 50_000)
        except StorageError:
            failed += 1
        try:
            store.keyframes.put(make_pictures(i))
            if rng.random() < 0.2:
                store.put_blob("state", bytes(5_000))
            if rng.random() < 0.2:
                store.flush()
        except StorageError:
            failed += 1
    return failed


PLACES = [
    name
    for name in failpoints.NAMES
    if name.startswith(("record", "volume.before_c", "volume.before_r", "manifest", "blob", "sync"))
    and name not in ("record.after_index", "blob.after_rename")
]


@pytest.mark.parametrize("action", ["enospc", "eio"])
@pytest.mark.parametrize("name", PLACES)
def test_an_error_at_every_place_loses_nothing(name: str, action: str, tmp_path: Path) -> None:
    """The call raises or the error does no harm; either way the next ones go on."""
    model: dict[int, object] = {}
    with open_small(tmp_path, durability="strict" if "sync" in name else "none") as store:
        use(store, model, 0, 12)
        failpoints.arm(f"{name}={action}@2")
        failed = use(store, model, 100, 30)
        assert not failpoints.is_due(name)
        assert failpoints._armed[name][1] < 1, "the failpoint was not reached"
        assert failed <= 2
        if not name.startswith("manifest"):
            assert failed
        if action == "eio" and name.startswith("record"):
            assert store.num_io_errors
        assert store.state == "ok", "puts succeeded since"
        failpoints.arm("")
        for segment_id, record in model.items():
            assert same(store.segments.get(segment_id), record)  # type: ignore[arg-type]
        assert {head.segment_id for head in store.segments.heads()} == set(model)
        store.check()
    with open_small(tmp_path) as store:
        for segment_id, record in model.items():
            assert same(store.segments.get(segment_id), record)  # type: ignore[arg-type]
        assert not store.misses.counts


def test_a_volume_whose_sync_failed_is_never_written_again(tmp_path: Path) -> None:
    with open_small(tmp_path, durability="strict") as store:
        store.segments.put(make_segment(0))
        failpoints.arm("sync.before_fsync=eio")
        with pytest.raises(StorageError, match="Input/output"):
            store.segments.put(make_segment(1))
        assert store.state == "failed"
        (failed,) = volumes_of(tmp_path)
        before = failed.read_bytes()
        store.segments.put(make_segment(2))
        assert store.state == "ok"
        assert failed.read_bytes() == before
        assert len(volumes_of(tmp_path)) == 2
        assert 1 not in store.segments
        assert same(store.segments.get(0), make_segment(0))
        store.check()


LIMITED = """
import resource, sys
from pathlib import Path
from hermes_like.errors import TierFullError
from tests.tiers.disk_tools import MIB, open_small
from tests.tiers.segments import make_segment, same

folder = Path(sys.argv[1])
store = open_small(folder, disk_bytes=32 * MIB)  # volumes of nearly 2 MiB
for i in range(5):
    store.segments.put(make_segment(i, 60_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
full = 0
for i in range(5, 60):
    try:
        store.segments.put(make_segment(i, 60_000))
    except TierFullError:
        full += 1
        assert store.state == "full"
assert full > 20
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.segments.put(make_segment(100, 60_000))
assert store.state == "ok"
for head in store.segments.heads():
    assert same(store.segments.get(head.segment_id), make_segment(head.segment_id, 60_000))
print(*[head.segment_id for head in store.segments.heads()])
store.check()
store.close()
"""


def test_a_limit_of_file_sizes(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    ids = {int(word) for word in run.stdout.split()}
    assert {0, 1, 2, 3, 4, 100} <= ids
    with open_small(tmp_path, disk_bytes=32 * MIB) as store:
        assert {head.segment_id for head in store.segments.heads()} == ids
        for i in ids:
            assert same(store.segments.get(i), make_segment(i, 60_000))


FULL_DISK = """
import os, sys
from pathlib import Path
from hermes_like.errors import TierFullError
from tests.tiers.disk_tools import MIB, open_small
from tests.tiers.segments import make_segment, same

mount = Path(sys.argv[1])
store = open_small(mount / "memory", disk_bytes=16 * MIB)
put = []
filler = None
for i in range(200):
    if i == 30:  # another program fills the disk
        filler = os.open(mount / "filler", os.O_CREAT | os.O_WRONLY)
        try:
            while True:
                os.write(filler, bytes(4096))
        except OSError:
            pass
    try:
        store.segments.put(make_segment(i, 50_000))
        put.append(i)
    except TierFullError:
        break
assert store.state == "full", store.state
assert filler is not None
assert [head.segment_id for head in store.segments.heads()] == put
store.segments.remove([put[0], put[1]])  # the ballast lets rows go on a full disk
assert put[0] not in store.segments
gone = store.segments.evict(60_000)
assert gone == [i for i in put[2:] if i in gone] and gone
store.segments.put(make_segment(500, 50_000))
assert store.state == "ok"
kept = [i for i in put[2:] if i not in gone] + [500]
for i in kept:
    assert same(store.segments.get(i), make_segment(i, 50_000))
os.close(filler)
os.unlink(mount / "filler")
store.check()
store.close()
store = open_small(mount / "memory", disk_bytes=16 * MIB)
assert [head.segment_id for head in store.segments.heads()] == kept
for i in range(600, 640):
    store.segments.put(make_segment(i, 50_000))
store.check()
store.close()
print("done")
"""


def test_a_full_file_system(tmp_path: Path) -> None:
    """A memory file system of 8 MiB in a mount namespace of its own."""
    mount = tmp_path / "mount"
    mount.mkdir()
    script = 'mount -t tmpfs -o size=8m none "$1" && exec "$2" -c "$3" "$1"'
    prefix = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not there")
    probe = [*prefix, "sh", "-c", 'mount -t tmpfs -o size=1m none "$1"', "sh", str(mount)]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("this process may not mount a file system of its own")
    run = subprocess.run(
        [*prefix, "sh", "-c", script, "sh", str(mount), sys.executable, FULL_DISK],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert run.stdout.split() == ["done"], run.stderr
    assert not list(mount.iterdir())


INJECTED = """
import sys
from pathlib import Path
from hermes_like.errors import StorageError
from tests.tiers.disk_tools import open_small
from tests.tiers.segments import make_segment, same

store = open_small(Path(sys.argv[1]), durability="strict")
put, failed = [], []
for i in range(12):
    try:
        store.segments.put(make_segment(i))
        put.append(i)
    except StorageError:
        assert store.state == "failed"
        failed.append(i)
for i in put:
    assert same(store.segments.get(i), make_segment(i))
assert not any(i in store.segments for i in failed)
print(len(failed), len(list(Path(sys.argv[1]).glob("kv-*.vol"))))
"""


def test_the_system_reports_an_error_of_fsync(tmp_path: Path) -> None:
    """Injected by strace below Python: the fifth fdatasync fails."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not there")
    volume = tmp_path / "memory" / "kv-00000001.vol"
    options = ["-f", "-qq", "-o", str(tmp_path / "trace"), "-P", str(volume)]
    options += ["-e", "trace=fdatasync"]
    inject = ["-e", "inject=fdatasync:error=EIO:when=5"]
    probe = [strace, *options, *inject, "true"]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("this process may not trace others")
    run = subprocess.run(
        [strace, *options, *inject, sys.executable, "-c", INJECTED, str(tmp_path / "memory")],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "INJECTED" in (tmp_path / "trace").read_text()
    failed, volumes = map(int, run.stdout.split())
    assert (failed, volumes) == (1, 2)
    with open_small(tmp_path / "memory") as store:
        assert store.verify().num_segments >= 11


def test_short_writes_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may move fewer bytes than asked for."""
    rng = random.Random(4)
    write, read = os.pwritev, os.preadv

    def short_write(fd: int, buffers: list[memoryview], offset: int) -> int:
        count = rng.randrange(1, 5_000)
        first = memoryview(buffers[0])[:count]
        return write(fd, [first], offset)

    def short_read(fd: int, buffers: list[memoryview], offset: int) -> int:
        return read(fd, [buffers[0][: rng.randrange(1, 5_000)]], offset)

    monkeypatch.setattr(os, "pwritev", short_write)
    monkeypatch.setattr(os, "preadv", short_read)
    with open_small(tmp_path) as store:
        for i in range(5):
            store.segments.put(make_segment(i))
        for i in range(5):
            assert same(store.segments.get(i), make_segment(i))
    monkeypatch.undo()
    (tmp_path / "manifest.sqlite").unlink()
    with open_small(tmp_path) as store:
        assert store.verify().num_segments == 5


def test_an_error_of_reading_is_a_miss_and_no_quarantine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with open_small(tmp_path) as store:
        store.segments.put(make_segment(0))
        monkeypatch.setattr(os, "preadv", broken)
        with pytest.raises(StorageError, match="io_error"):
            store.segments.get(0)
        assert store.misses.counts == {"io_error": 1}
        assert store.state == "failed"
        monkeypatch.undo()
        assert same(store.segments.get(0), make_segment(0))


def test_a_crash_while_the_cap_is_reached(tmp_path: Path) -> None:
    """What was preallocated counts after a crash as before, and is given back at the next open."""
    model: dict[int, object] = {}
    store = open_small(tmp_path / "one")
    use(store, model, 0, 90)
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # as a killed process leaves it
    store.close()
    with open_small(tmp_path / "two") as again:
        assert blocks_of(tmp_path / "two") <= 6 * MIB
        for segment_id, record in model.items():
            assert same(again.segments.get(segment_id), record)  # type: ignore[arg-type]
        again.check()


def test_nothing_here_needs_libc_to_punch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where blocks cannot be given back, erased records are zeros."""
    monkeypatch.setattr(sys, "platform", "other")
    with open_small(tmp_path) as store:
        for i in range(3):
            store.segments.put(make_segment(i))
        store.segments.remove([1])
        assert bytes(make_segment(1).layers[0][:32]) not in volumes_of(tmp_path)[0].read_bytes()
        assert same(store.segments.get(2), make_segment(2))
        store.check()
    assert ctypes.sizeof(ctypes.c_int64) == 8
