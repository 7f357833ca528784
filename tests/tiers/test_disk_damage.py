"""Bytes at rest are altered: what is served is right or it is a counted miss, and others stay."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hermes_like.errors import SegmentUnavailableError
from hermes_like.tiers import layout
from hermes_like.tiers.disk import DiskStore
from tests.tiers.disk_tools import blocks_of, open_small, volumes_of
from tests.tiers.segments import make_head, make_pictures, make_segment, same, same_heads

COUNT = 12


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed folder with twelve segments of equal size."""
    folder = tmp_path_factory.mktemp("damage") / "memory"
    with open_small(folder) as store:
        for i in range(COUNT):
            store.segments.put(make_segment(i))
        for i in range(3):
            store.keyframes.put(make_pictures(i))
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "memory"))


def records_of(path: Path) -> list[tuple[int, layout.RecordHeader]]:
    """Offset and header of the records of a volume."""
    data, found = path.read_bytes(), []
    offset = layout.unpack_volume(data[: layout.BLOCK_BYTES]).header_bytes
    while offset < len(data):
        header = layout.unpack_record(data[offset : offset + layout.BLOCK_BYTES])
        found.append((offset, header))
        offset += header.record_bytes
    return found


def edit(path: Path, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(bytes(data))


def served(store: DiskStore) -> set[int]:
    """Ids that can be got; what is served must be right, heads too."""
    ids = set()
    for head in store.segments.heads():
        assert same_heads(head, make_head(head.segment_id))
    for i in range(COUNT):
        try:
            assert same(store.segments.get(i), make_segment(i))
        except SegmentUnavailableError:
            continue
        ids.add(i)
    return ids


ALL = set(range(COUNT))


@pytest.mark.parametrize("has_manifest", [True, False])
@pytest.mark.parametrize("region", ["magic", "header", "table", "head", "layer", "last"])
def test_each_region_of_a_record(region: str, has_manifest: bool, folder: Path) -> None:
    (path,) = volumes_of(folder)
    offset, header = records_of(path)[5]
    places = {
        "magic": offset + 2,
        "header": offset + 40,
        "table": offset + 150,
        "head": offset + header.sections[0].offset + 60,
        "layer": offset + header.sections[1].offset + 100,
        "last": offset + header.sections[-1].offset + header.sections[-1].length - 1,
    }
    edit(path, lambda data: data.__setitem__(places[region], data[places[region]] ^ 16))
    if not has_manifest:
        (folder / "manifest.sqlite").unlink()
    with open_small(folder) as store:
        assert served(store) == ALL - {5}
        assert 5 not in store.segments
        lost = [(loss.segment_id, loss.start_s, loss.end_s) for loss in store.misses.lost]
        knows = has_manifest or region in ("head", "layer", "last")
        assert lost == [(5, 20.0, 24.0) if knows else (None, None, None)]
        assert store.misses.counts["checksum"] == 1
        store.check()
        store.segments.put(make_segment(5))  # made again from its pictures
        assert served(store) == ALL
    with open_small(folder) as store:
        assert served(store) == ALL
        if knows:
            assert not store.misses.lost


def test_a_quarantined_segment_stays_so(folder: Path) -> None:
    (path,) = volumes_of(folder)
    offset, header = records_of(path)[7]
    edit(path, lambda data: data.__setitem__(offset + header.sections[2].offset, 1))
    for turn in range(2):
        with open_small(folder) as store:
            assert (7 in store.segments) is (turn == 0)
            assert served(store) == ALL - {7}
            (loss,) = store.misses.lost
            assert (loss.content, loss.segment_id, loss.start_s, loss.end_s) == (
                "kv",
                7,
                28.0,
                32.0,
            )


@pytest.mark.parametrize("has_manifest", [True, False])
def test_truncation_at_any_place(has_manifest: bool, original: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    size = volumes_of(original)[0].stat().st_size
    starts = [offset for offset, _ in records_of(volumes_of(original)[0])]
    for turn in range(12):
        folder = Path(shutil.copytree(original, tmp_path / str(turn)))
        cut = rng.choice([rng.randrange(size), rng.choice(starts)])
        with volumes_of(folder)[0].open("r+b") as file:
            file.truncate(cut)
        if not has_manifest:
            (folder / "manifest.sqlite").unlink()
        whole = {
            i for i, (a, b) in enumerate(zip(starts, [*starts[1:], size], strict=True)) if b <= cut
        }
        with open_small(folder) as store:
            assert served(store) == whole
            if has_manifest:
                assert {loss.segment_id for loss in store.misses.lost} == ALL - whole
            store.segments.put(make_segment(COUNT))
            store.check()
        with open_small(folder) as store:
            assert served(store) == whole
            assert same(store.segments.get(COUNT), make_segment(COUNT))


@pytest.mark.parametrize("has_manifest", [True, False])
def test_swapped_records_never_answer_for_each_other(has_manifest: bool, folder: Path) -> None:
    (path,) = volumes_of(folder)
    records = records_of(path)
    (one, first), (two, second) = records[2], records[8]
    assert first.record_bytes == second.record_bytes
    size = first.record_bytes

    def swap(data: bytearray) -> None:
        data[one : one + size], data[two : two + size] = (
            data[two : two + size],
            data[one : one + size],
        )

    edit(path, swap)
    if not has_manifest:
        (folder / "manifest.sqlite").unlink()
    with open_small(folder) as store:
        assert served(store) == (ALL - {2, 8} if has_manifest else ALL)


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_duplicate_over_another_record(has_manifest: bool, folder: Path) -> None:
    (path,) = volumes_of(folder)
    records = records_of(path)
    (one, header), (two, _) = records[3], records[9]

    def copy(data: bytearray) -> None:
        data[two : two + header.record_bytes] = data[one : one + header.record_bytes]

    edit(path, copy)
    if not has_manifest:
        (folder / "manifest.sqlite").unlink()
    with open_small(folder) as store:
        assert served(store) == ALL - {9}
        assert len(store.segments.heads()) == COUNT - 1
    with open_small(folder) as store:
        assert served(store) == ALL - {9}


def test_zeroed_pages(original: Path, tmp_path: Path) -> None:
    rng = random.Random(2)
    records = records_of(volumes_of(original)[0])
    for turn in range(10):
        folder = Path(shutil.copytree(original, tmp_path / str(turn)))
        (path,) = volumes_of(folder)
        page = rng.randrange(1, path.stat().st_size // 4096) * 4096
        (hit,) = [i for i, (o, h) in enumerate(records) if o <= page < o + h.record_bytes]
        edit(path, lambda data, at=page: data.__setitem__(slice(at, at + 4096), bytes(4096)))
        if turn % 2:
            (folder / "manifest.sqlite").unlink()
        with open_small(folder) as store:
            assert served(store) == ALL - {hit}
            report = store.verify()
            assert (report.num_segments, report.num_keyframes) == (COUNT - 1, 3)


def test_a_record_of_another_fingerprint_is_not_served(folder: Path) -> None:
    """Even inside a volume whose header is right."""
    (path,) = volumes_of(folder)
    offset, header = records_of(path)[4]
    foreign = layout.RecordHeader(
        header.kind, header.record_bytes, header.sequence, header.segment_id, header.start_s,
        header.end_s, bytes(32), header.key_id, header.sections,
    )  # fmt: skip
    packed = layout.pack_record(foreign)
    edit(path, lambda data: data.__setitem__(slice(offset, offset + len(packed)), packed))
    with open_small(folder) as store:
        with pytest.raises(SegmentUnavailableError) as caught:
            store.segments.get(4)
        assert caught.value.reason == "fingerprint"
        assert store.misses.counts == {"fingerprint": 1}
        assert served(store) == ALL - {4}


def test_a_damaged_volume_header_costs_nothing(folder: Path) -> None:
    (path,) = volumes_of(folder)
    for place in (0, 9, 30, 200):
        edit(path, lambda data, at=place: data.__setitem__(at, data[at] ^ 255))
        with open_small(folder) as store:
            assert served(store) == ALL
            assert any(path.name in note for note in store.notes)
    (folder / "manifest.sqlite").unlink()
    with open_small(folder) as store:
        assert served(store) == ALL


def damage_header(path: Path) -> None:
    edit(path, lambda data: data.__setitem__(slice(0, 64), bytes(64)))


def damage_pages(path: Path) -> None:
    rng = random.Random(5)

    def change(data: bytearray) -> None:
        for _ in range(200):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)

    edit(path, change)


DAMAGES = {
    "deleted": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "header": damage_header,
    "pages": damage_pages,
    "text": lambda path: path.write_bytes(b"no database at all\n" * 1000),
    "other version": lambda path: edit(path, lambda d: d.__setitem__(63, d[63] + 1)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_manifest_is_rebuilt_from_the_volumes(damage: str, folder: Path) -> None:
    with open_small(folder) as store:
        store.segments.remove([1, 6])
        before = {(h.segment_id, h.start_s, h.content_key) for h in store.segments.heads()}
    DAMAGES[damage](folder / "manifest.sqlite")
    with open_small(folder) as store:
        after = {(h.segment_id, h.start_s, h.content_key) for h in store.segments.heads()}
        assert after == before
        assert served(store) == ALL - {1, 6}
        assert len(store.keyframes.heads()) == 3
        assert not store.misses.lost
        assert not list(folder.glob("*.damaged"))
        store.check()
        assert store.rebuild() >= COUNT - 2
    with open_small(folder) as store:
        assert served(store) == ALL - {1, 6}
    assert blocks_of(folder) < 6 * 2**20


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM heads_1 WHERE sequence=4",
        "DELETE FROM heads_1",
        "UPDATE heads_1 SET head=(SELECT head FROM heads_1 WHERE sequence=7) WHERE sequence=4",
        "UPDATE heads_1 SET head=x'' WHERE sequence=12",
        "INSERT INTO heads_1 VALUES (500, x'00')",
        "INSERT INTO heads_1 VALUES (-5, x'00')",
        "UPDATE records SET kind=2 WHERE sequence=3",
        "UPDATE records SET kind=9 WHERE sequence=3",
        "DELETE FROM records WHERE sequence=3",
    ],
)
def test_heads_that_do_not_fit_their_rows(statement: str, folder: Path) -> None:
    """A manifest that is whole as a database and yet wrong, as one of another folder is."""
    with closing(sqlite3.connect(folder / "manifest.sqlite", isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount > 0
    for _ in range(2):
        with open_small(folder) as store:
            assert served(store) == ALL
            assert len(store.keyframes.heads()) == 3
            assert not store.misses.lost
            store.check()


def test_a_manifest_of_another_folder_or_time(folder: Path, tmp_path: Path) -> None:
    """From a folder of the same model; and from this one, before it went on."""
    before = (folder / "manifest.sqlite").read_bytes()
    with open_small(tmp_path / "other") as store:
        for i in range(COUNT):
            store.segments.put(make_segment(i, version=1))
    with open_small(folder) as store:
        store.segments.put(make_segment(COUNT))
        store.segments.remove([2])
    for data in ((tmp_path / "other" / "manifest.sqlite").read_bytes(), before):
        (folder / "manifest.sqlite").write_bytes(data)
        with open_small(folder) as store:
            assert served(store) == ALL - {2}
            assert same(store.segments.get(COUNT), make_segment(COUNT))
            store.check()


def test_a_write_ahead_log_that_is_cut_or_altered(original: Path, tmp_path: Path) -> None:
    """What the log of the manifest held is found in the volumes again."""
    folder = Path(shutil.copytree(original, tmp_path / "memory"))
    with open_small(folder, disk_bytes=64 * 2**20) as store:
        for i in range(COUNT, COUNT + 40):
            store.segments.put(make_segment(i))
        live = Path(shutil.copytree(folder, tmp_path / "live"))
    wal = live / "manifest.sqlite-wal"
    assert wal.stat().st_size > 10_000
    rng = random.Random(3)
    for turn in range(8):
        copy = Path(shutil.copytree(live, tmp_path / str(turn)))
        at = rng.randrange(wal.stat().st_size)
        if turn % 2:
            edit(copy / wal.name, lambda data, at=at: data.__setitem__(at, data[at] ^ 1))
        else:
            with (copy / wal.name).open("r+b") as file:
                file.truncate(at)
        with open_small(copy, disk_bytes=64 * 2**20) as store:
            assert {h.segment_id for h in store.segments.heads()} == set(range(COUNT + 40))
            assert served(store) == ALL
            assert not store.misses.counts


def test_a_missing_volume_is_a_miss_unless_it_was_the_oldest(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for i in range(40):
            store.segments.put(make_segment(i, 60_000))
    paths = volumes_of(tmp_path)
    in_middle = {header.segment_id for _, header in records_of(paths[2])}
    in_first = {header.segment_id for _, header in records_of(paths[0])}
    paths[0].unlink()
    paths[2].unlink()
    with open_small(tmp_path) as store:
        assert {loss.segment_id for loss in store.misses.lost} == in_middle
        kept = {head.segment_id for head in store.segments.heads()}
        assert kept == set(range(40)) - in_middle - in_first
        store.check()


def test_a_damaged_blob_is_refused(tmp_path: Path) -> None:
    from hermes_like.errors import StorageError

    with open_small(tmp_path) as store:
        store.put_blob("state", bytes(range(256)))
        path = tmp_path / "state.blob"
        good = path.read_bytes()
        for at in range(0, len(good), 7):
            edit(path, lambda data, at=at: data.__setitem__(at, data[at] ^ 4))
            with pytest.raises(StorageError):
                store.get_blob("state")
            path.write_bytes(good)
        path.write_bytes(good[:50])
        with pytest.raises(StorageError, match="damaged"):
            store.get_blob("state")


def test_hundreds_of_random_flips(tmp_path: Path) -> None:
    """Anywhere in any file; the pipeline does ten thousand."""
    command = [sys.executable, "-m", "pipelines.crash", "--kills", "0", "--flips", "250"]
    run = subprocess.run([*command, "--folder", str(tmp_path)], capture_output=True, text=True)
    report = json.loads(run.stdout.splitlines()[-1])
    assert run.returncode == 0, run.stdout + run.stderr
    flips = report["flips"]
    assert (flips["wrong"], flips["resurrected"], flips["most_lost_by_one"]) == (0, 0, 1)
    assert flips["lost"] > 50
