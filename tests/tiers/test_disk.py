"""The disk tier in fair weather: reopening, replacing, caps at the door, locks, blobs, modes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from hermes_like.errors import (
    ConfigError,
    FingerprintError,
    MemoryLockedError,
    SegmentUnavailableError,
    StorageError,
    TierFullError,
)
from hermes_like.tiers import disk, layout
from hermes_like.tiers.base import SegmentRecord
from hermes_like.tiers.disk import MIN_DISK_BYTES
from hermes_like.tiers.fingerprint import Fingerprint
from tests.tiers.disk_tools import FINGERPRINT, MIB, blocks_of, open_small, volumes_of
from tests.tiers.segments import make_head, make_pictures, make_segment, same, same_heads


def test_what_was_put_is_there_after_reopening(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "memory"
    with open_small(folder) as store:
        for i in range(20):
            store.segments.put(make_segment(i))
            store.keyframes.put(make_pictures(i))
    with open_small(folder) as store:
        assert [head.segment_id for head in store.segments.heads()] == list(range(20))
        for i, head in enumerate(store.segments.heads()):
            assert same_heads(head, make_head(i))
            assert same(store.segments.get(i), make_segment(i))
            assert same(store.keyframes.get(i), make_pictures(i))
        report = store.verify()
        assert (report.num_segments, report.num_keyframes, report.damaged) == (20, 20, ())
        assert not store.misses.counts
        store.check()


def test_odd_segments_survive(tmp_path: Path) -> None:
    """No layers, empty layers, no vectors, no cells, many sections."""
    head = make_head(1)
    bare = type(head)(2, 8, (8.0,), 9.0, (None,), 0, np.zeros(0, np.uint32),
                      np.zeros((1, 0, 0), np.float32), b"")  # fmt: skip
    records = [
        SegmentRecord(head, ()),
        SegmentRecord(bare, (b"", memoryview(b"xy"))),
        SegmentRecord(make_head(3), tuple(bytes([i % 256]) * (i % 5) for i in range(700))),
    ]
    with open_small(tmp_path) as store:
        for record in records:
            store.segments.put(record)
    (tmp_path / "manifest.sqlite").unlink()
    with open_small(tmp_path) as store:
        for record in records:
            assert same(store.segments.get(record.head.segment_id), record)


def test_reading_does_not_alias(tmp_path: Path) -> None:
    """What one read gave stays as it is while others use the same buffers."""
    with open_small(tmp_path) as store:
        for i in range(6):
            store.segments.put(make_segment(i, 30_000))
        first = store.segments.get(0)
        for i in range(1, 6):
            store.segments.get(i)
        assert same(first, make_segment(0, 30_000))
        assert 0 < store.staging_bytes <= 64 * MIB


def test_putting_again_replaces_and_wipes(tmp_path: Path) -> None:
    old, new = make_segment(4), make_segment(4, version=2)
    with open_small(tmp_path) as store:
        store.segments.put(old)
        store.segments.put(make_segment(5))
        store.segments.put(new)
        assert same(store.segments.get(4), new)
        assert not any(bytes(old.layers[0][:64]) in p.read_bytes() for p in volumes_of(tmp_path))
    for _ in range(2):
        with open_small(tmp_path) as store:
            assert same(store.segments.get(4), new)
            assert len(store.segments.heads()) == 2
            assert not store.misses.counts
        (tmp_path / "manifest.sqlite").unlink()


def test_a_bad_head_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    head = make_head(1)
    wrong = type(head)(
        1, 0, head.frame_times_s, 4.0, (None,), 6, head.token_cells, head.vectors, b""
    )
    with open_small(tmp_path) as store:
        with pytest.raises(StorageError, match="wall times"):
            store.segments.put(SegmentRecord(wrong, (b"x",)))
        assert not volumes_of(tmp_path)


def test_modes_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with open_small(folder) as store:
        store.segments.put(make_segment(0))
        store.keyframes.put(make_pictures(0))
        store.put_blob("state", b"x")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_caps_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="disk_bytes"):
        open_small(tmp_path / "a", disk_bytes=MIN_DISK_BYTES - 1)
    assert not (tmp_path / "a").exists()
    with open_small(tmp_path / "b", disk_bytes=MIN_DISK_BYTES) as store:
        store.segments.put(make_segment(0))
        with pytest.raises(TierFullError, match="does not fit a volume"):
            store.segments.put(make_segment(1, 2 * MIB))
        assert store.state == "full"
        assert store.segments.evict(2 * MIN_DISK_BYTES) == []
        store.segments.put(make_segment(2))
        assert store.state == "ok"
        store.check()


def test_a_lowered_cap_holds_from_the_start(tmp_path: Path) -> None:
    with open_small(tmp_path, disk_bytes=12 * MIB) as store:
        for i in range(200):
            store.segments.put(make_segment(i, 40_000))
    assert blocks_of(tmp_path) > 6 * MIB
    with open_small(tmp_path, disk_bytes=6 * MIB) as store:
        assert blocks_of(tmp_path) <= 6 * MIB
        store.check()
        kept = [head.segment_id for head in store.segments.heads()]
        assert kept == list(range(kept[0], 200))
        assert 0 < kept[0] < 200
        assert not store.misses.counts


def test_the_floor_of_free_space_is_kept(tmp_path: Path) -> None:
    system = os.statvfs(tmp_path)
    free = system.f_bavail * system.f_frsize
    with open_small(tmp_path, min_free_bytes=2 * free) as store:
        with pytest.raises(TierFullError, match="min_free_bytes"):
            store.segments.put(make_segment(0))
        assert store.state == "full"
    with open_small(tmp_path) as store:
        store.segments.put(make_segment(0))
        assert store.state == "ok"


def test_pictures_have_a_cap_of_their_own(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        evicted = []
        for i in range(200):
            record = make_pictures(i, 12_000)
            try:
                store.keyframes.put(record)
            except TierFullError:
                # What is refused is really at its cap, so that nobody drops segments for it.
                assert store.keyframes.used_bytes + record.num_bytes + 32_768 > MIB
                evicted += store.keyframes.evict(record.num_bytes)
                store.keyframes.put(record)
            assert store.keyframes.used_bytes <= store.keyframes.cap_bytes == MIB
        assert evicted == list(range(len(evicted)))
        assert store.segments.used_bytes < MIB
        store.check()
    with open_small(tmp_path / "none", keyframes_per_segment=0) as store:
        assert store.keyframes.cap_bytes == 0
        with pytest.raises(TierFullError):
            store.keyframes.put(make_pictures(1))


def test_one_writer_or_many_readers(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import sys\n"
        "from hermes_like.errors import MemoryLockedError\n"
        "from tests.tiers.disk_tools import open_small\n"
        "try:\n    open_small(Path(sys.argv[1]), read_only=sys.argv[2] == 'r').close()\n"
        "except MemoryLockedError:\n    sys.exit(7)\n"
    )

    def other(mode: str) -> int:
        return subprocess.run([sys.executable, "-c", code, str(tmp_path), mode]).returncode

    with open_small(tmp_path) as store:
        store.segments.put(make_segment(0))
        with pytest.raises(MemoryLockedError, match="another process"):
            open_small(tmp_path)
        assert other("w") == 7
    with open_small(tmp_path, read_only=True), open_small(tmp_path, read_only=True) as store:
        assert same(store.segments.get(0), make_segment(0))
        with pytest.raises(StorageError, match="reading only"):
            store.segments.put(make_segment(1))
        with pytest.raises(MemoryLockedError):
            open_small(tmp_path)
        assert other("r") == 0


def test_reading_only_changes_nothing(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for i in range(10):
            store.segments.put(make_segment(i))
    volume = volumes_of(tmp_path)[0]
    data = bytearray(volume.read_bytes())
    data[9_000] ^= 1
    volume.write_bytes(bytes(data))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with open_small(tmp_path, read_only=True) as store:
        with pytest.raises(SegmentUnavailableError, match="checksum"):
            store.segments.get(0)
        assert same(store.segments.get(1), make_segment(1))
        store.flush()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(StorageError, match="cannot be opened"):
        open_small(tmp_path / "nothing", read_only=True)


def test_closing_twice_and_using_it_afterwards(tmp_path: Path) -> None:
    store = open_small(tmp_path, durability="interval", sync_interval_s=0.01)
    store.segments.put(make_segment(0))
    store.segments.close()
    store.close()
    for use in (lambda: store.segments.get(0), lambda: store.segments.put(make_segment(1))):
        with pytest.raises(StorageError, match="closed"):
            use()
    assert not [thread for thread in threading.enumerate() if thread.name == "disk-sync"]
    open_small(tmp_path).close()


@pytest.mark.parametrize("durability", ["none", "interval", "strict"])
def test_data_reaches_the_medium_as_promised(
    durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), real(fd))[1])
    with open_small(tmp_path, durability=durability, sync_interval_s=0.02) as store:
        store.segments.put(make_segment(0))
        if durability == "strict":
            assert len(synced) == 1
        if durability == "interval":
            deadline = time.monotonic() + 10
            while not synced and time.monotonic() < deadline:
                time.sleep(0.01)
            assert synced
        if durability == "none":
            time.sleep(0.1)
            assert not synced
        store.flush()
        assert synced


def test_blobs_are_replaced_whole(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        assert store.get_blob("state") is None
        store.put_blob("state", b"one" * 1000)
        store.put_blob("state", b"two" * 2000)
        store.put_blob("other_1", b"")
        assert store.get_blob("state") == b"two" * 2000
        assert store.blob_names() == ["other_1", "state"]
        with pytest.raises(TierFullError):
            store.put_blob("state", bytes(8 * MIB))
        assert store.get_blob("state") == b"two" * 2000
        store.check()
        store.remove_blob("other_1")
        store.remove_blob("other_1")
        for name in ("../up", "", "A", ".hidden", "x" * 65):
            with pytest.raises(StorageError, match="blob name"):
                store.put_blob(name, b"")
    (tmp_path / "left.blob.new").write_bytes(b"torn")
    with open_small(tmp_path) as store:
        assert store.blob_names() == ["state"]
        assert not (tmp_path / "left.blob.new").exists()
        assert store.get_blob("state") == b"two" * 2000
    (tmp_path / "state.blob").rename(tmp_path / "moved.blob")
    with open_small(tmp_path) as store, pytest.raises(StorageError, match="another name"):
        store.get_blob("moved")
    with open_small(tmp_path, fingerprint=Fingerprint.of(model="other")) as store:
        (tmp_path / "moved.blob").rename(tmp_path / "state.blob")
        with pytest.raises(FingerprintError):
            store.get_blob("state")


def test_room_for_a_blob_is_made_from_the_oldest(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for i in range(300):
            try:
                store.segments.put(make_segment(i, 40_000))
            except TierFullError:
                break
        with pytest.raises(TierFullError):
            store.put_blob("state", bytes(MIB))
        gone = store.make_room(MIB)
        assert gone == list(range(len(gone)))
        assert gone
        store.put_blob("state", bytes(MIB))
        store.check()


def test_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer format is refused; an older one passes through the migrations, in order."""
    with open_small(tmp_path) as store:
        store.segments.put(make_segment(0))
    monkeypatch.setattr(layout, "FORMAT_VERSION", 0)
    with pytest.raises(StorageError, match="format version 1; this version reads up to 0"):
        open_small(tmp_path)
    monkeypatch.setattr(layout, "FORMAT_VERSION", 3)
    with pytest.raises(StorageError, match="no migration from format version 1"):
        open_small(tmp_path)
    steps: list[int] = []
    monkeypatch.setitem(disk.MIGRATIONS, 1, lambda folder: steps.append(1))
    monkeypatch.setitem(disk.MIGRATIONS, 2, lambda folder: steps.append(2))
    disk.migrate(tmp_path, 1)
    assert steps == [1, 2]
    monkeypatch.undo()
    with open_small(tmp_path) as store:
        assert same(store.segments.get(0), make_segment(0))


def test_no_descriptors_or_threads_are_leaked(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for i in range(30):
            store.segments.put(make_segment(i))
        before = len(os.listdir("/proc/self/fd")), threading.active_count()
        for turn in range(200):
            with pytest.raises(SegmentUnavailableError):
                store.segments.get(1000 + turn)
            store.segments.get(turn % 30)
        assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before
        assert store.misses.counts == {"absent": 200}


def test_the_fingerprint_stands_in_every_volume(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for i in range(40):
            store.segments.put(make_segment(i, 40_000))
        store.keyframes.put(make_pictures(0))
    paths = volumes_of(tmp_path) + volumes_of(tmp_path, "keyframes")
    assert len(paths) > 3
    for path in paths:
        header = layout.unpack_volume(path.read_bytes()[: layout.BLOCK_BYTES])
        assert Fingerprint.from_json(header.fingerprint) == FINGERPRINT
        assert header.digest == FINGERPRINT.digest
