"""What was erased cannot be found in any file, and does not come back."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import numpy as np
import pytest

from hermes_like.errors import SegmentUnavailableError, TierFullError
from hermes_like.tiers.base import SegmentHead, SegmentRecord
from tests.tiers.disk_tools import blocks_of, contains, open_small, volumes_of
from tests.tiers.segments import make_head, make_pictures, make_segment, same


def traces(segment_id: int, size: int = 20_000) -> list[bytes]:
    """Byte strings that only this segment has: of every layer, picture, vector and key."""
    segment, pictures = make_segment(segment_id, size), make_pictures(segment_id)
    blocks = [bytes(layer) for layer in segment.layers]
    blocks += [bytes(image.data) for image in pictures.images]
    found = [
        block[at : at + 24] for block in blocks for at in (0, len(block) // 2, len(block) - 24)
    ]
    vectors = np.asarray(segment.head.vectors).tobytes()
    return [*found, vectors[:24], vectors[-24:], segment.head.content_key]


def haystack(folder: Path) -> bytes:
    return b"\xff".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_neither_bytes_nor_vectors_can_be_found(tmp_path: Path) -> None:
    rng = random.Random(0)
    kept = set(range(150))
    with open_small(tmp_path) as store:
        for i in range(150):
            store.segments.put(make_segment(i))
            store.keyframes.put(make_pictures(i))
        assert all(contains(tmp_path, trace) for trace in traces(40))
        while len(kept) > 40:
            ids = set(rng.sample(sorted(kept), 11))
            kept -= ids
            before = blocks_of(tmp_path)
            store.segments.remove(ids)
            store.keyframes.remove(ids)
            assert blocks_of(tmp_path) < before
            hay = haystack(tmp_path)
            found = [(i, t) for i in ids for t in traces(i) if t in hay]
            assert not found
            store.check()
        hay = haystack(tmp_path)
        assert not [i for i in set(range(150)) - kept for t in traces(i) if t in hay]
        for i in kept:
            assert same(store.segments.get(i), make_segment(i))
    hay = haystack(tmp_path)
    assert not [i for i in set(range(150)) - kept for t in traces(i) if t in hay]
    (tmp_path / "manifest.sqlite").unlink()
    with open_small(tmp_path) as store:
        assert {head.segment_id for head in store.segments.heads()} == kept
        assert {head.segment_id for head in store.keyframes.heads()} == kept
        assert not store.misses.counts


def test_large_vectors_leave_nothing_after_evictions(tmp_path: Path) -> None:
    """Heads of several pages, rows deleted by eviction in between."""

    def record(i: int) -> SegmentRecord:
        rng = np.random.default_rng(i)
        head = make_head(i)
        vectors = rng.standard_normal((4, 8, 50 + i % 90), dtype=np.float32)
        fields = {name: getattr(head, name) for name in SegmentHead.__slots__}
        return SegmentRecord(SegmentHead(**{**fields, "vectors": vectors}), (rng.bytes(6_000),))

    rng = random.Random(1)
    with open_small(tmp_path, disk_bytes=4 * 2**20) as store:
        erased: set[int] = set()
        has_evicted = False
        for i in range(170):
            try:
                store.segments.put(record(i))
            except TierFullError:
                has_evicted = True
                store.segments.evict(record(i).num_bytes)
                store.segments.put(record(i))
            if i % 12 == 11:
                ids = rng.sample([head.segment_id for head in store.segments.heads()], 2)
                store.segments.remove(ids)
                erased |= set(ids)
                hay = haystack(tmp_path)
                for gone in erased:
                    data = record(gone).head.vectors.tobytes()
                    assert not [
                        at for at in range(0, len(data) - 32, 512) if data[at : at + 32] in hay
                    ]
        store.check()
        assert has_evicted


def test_damaged_and_unknown_stretches_are_erased_too(tmp_path: Path) -> None:
    """One damaged record is known by the manifest, another has no owner any more."""
    with open_small(tmp_path) as store:
        for i in range(8):
            store.segments.put(make_segment(i))
    path = volumes_of(tmp_path)[0]
    data = bytearray(path.read_bytes())
    for i in (2, 5):
        at = data.index(bytes(make_segment(i).layers[0][:64]))
        start = at // 4096 * 4096
        if i == 5:
            data[data.rindex(b"HLrecord", 0, at)] ^= 1  # its header is gone
        else:
            data[at + 70] ^= 1
        assert start
    path.write_bytes(bytes(data))
    (tmp_path / "manifest.sqlite").unlink()
    with open_small(tmp_path) as store:
        with pytest.raises(SegmentUnavailableError):
            store.segments.get(2)
        assert contains(tmp_path, traces(5)[1])
        store.segments.remove([2, 5])
        hay = haystack(tmp_path)
        assert not [t for i in (2, 5) for t in traces(i) if t in hay]
        for i in (0, 1, 3, 4, 6, 7):
            assert same(store.segments.get(i), make_segment(i))
        assert not [loss for loss in store.misses.lost if loss.segment_id == 2]


def test_erasing_frees_blocks_and_whole_volumes(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for i in range(30):
            store.segments.put(make_segment(i, 60_000))
        before = len(volumes_of(tmp_path))
        assert before > 4
        store.segments.remove(range(29))
        assert len(volumes_of(tmp_path)) <= 2
        assert same(store.segments.get(29), make_segment(29, 60_000))
        store.check()


def test_a_removed_blob_is_overwritten(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.put_blob("state", b"personal data" * 50)
        handle = (tmp_path / "state.blob").open("rb")
        store.remove_blob("state")
        with handle:
            assert b"personal" not in handle.read()


def test_pictures_whose_row_waits_for_room_do_not_come_back(tmp_path: Path) -> None:
    """At the cap rows of pictures wait in RAM; one that is erased meanwhile is never written."""
    with open_small(tmp_path) as store:
        segment_id, names = 0, []
        with contextlib.suppress(TierFullError):
            while True:
                store.segments.put(make_segment(segment_id))
                segment_id += 1
        for size in (2**16, 2**12, 2**9):  # the rest of the cap
            with contextlib.suppress(TierFullError):
                while True:
                    store.put_blob(f"file{len(names)}", bytes(size))
                    names.append(f"file{len(names)}")
        for victim in range(1000, 1060):
            store.keyframes.put(make_pictures(victim))
        pending = [row.segment_id for row in store._shared.manifest._pending]
        waiting = [segment_id for segment_id in pending if segment_id >= 1000]
        assert waiting, "expected rows of pictures that wait"
        victim = waiting[-1]
        store.keyframes.remove([victim])
        for name in names:
            store.remove_blob(name)
        assert store.segments.evict(10**6)
        store.flush()
        assert not store._shared.manifest._pending, "expected room again"
        assert not contains(tmp_path, make_head(victim).vectors.tobytes()[:64])
    with open_small(tmp_path) as store:
        assert victim not in store.keyframes
        assert waiting[0] in store.keyframes


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_heads_of_what_is_erased_leave_ram(tmp_path: Path, is_rewritten: bool) -> None:
    """Those that opening has read and nobody has asked for yet."""
    with open_small(tmp_path) as store:
        for i in range(5):
            store.segments.put(make_segment(i))
    with open_small(tmp_path) as store:
        log = store.segments._log
        if is_rewritten:
            store.segments.rewrite(make_segment(2, 10_000, version=1))
        assert len(log._from_opening) == 5 - is_rewritten
        store.segments.remove([2])
        assert {head.segment_id for head in log._from_opening.values()} == {0, 1, 3, 4}
        assert [head.segment_id for head in store.segments.heads()] == [0, 1, 3, 4]
