"""What a memory of many segments keeps in RAM of each of them; heads are not part of it."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from pathlib import Path

from hermes_like.tiers.catalog import Catalog
from hermes_like.tiers.chain import TierChain
from hermes_like.tiers.chain_stats import Tally
from hermes_like.tiers.host import HostTier
from tests.tiers.disk_tools import MIB, open_small, volumes_of
from tests.tiers.segments import make_head, make_pictures, make_segment, same_heads

COUNT = 400


def test_tables_take_what_they_say_and_no_heads(tmp_path: Path) -> None:
    """By Python's own count of allocated memory; the heads of these segments are larger."""
    with open_small(tmp_path, disk_bytes=64 * MIB, keyframe_bytes=16 * MIB) as store:
        for i in range(8):
            store.segments.put(make_segment(i, 64, 1))
            store.keyframes.put(make_pictures(i))
        before = store.segments.table_bytes + store.keyframes.table_bytes
        gc.collect()
        tracemalloc.start()
        try:
            for i in range(8, 8 + COUNT):
                store.segments.put(make_segment(i, 64, 1))
                store.keyframes.put(make_pictures(i))
            store.flush()
            gc.collect()
            allocated = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        counted = store.segments.table_bytes + store.keyframes.table_bytes - before
    assert 0.4 * counted < allocated <= counted, f"{allocated} allocated, {counted} counted"


def test_the_catalog_takes_what_it_says() -> None:
    catalog = Catalog(threading.Condition(threading.RLock()), HostTier(2**20), Tally(), None)
    heads = [make_head(i) for i in range(COUNT)]
    gc.collect()
    tracemalloc.start()
    try:
        for head in heads:
            catalog.add(head).is_on_disk = True
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.3 * catalog.num_bytes < allocated <= catalog.num_bytes, allocated / COUNT


def test_heads_are_the_same_at_hand_and_read_back(tmp_path: Path) -> None:
    """The first call after opening hands over what opening has read, the second one reads."""
    with open_small(tmp_path) as store:
        for i in range(20):
            store.segments.put(make_segment(i))
            store.keyframes.put(make_pictures(i))
        written = store.segments.heads()
    with open_small(tmp_path) as store:
        for target in (store.segments, store.keyframes):
            for heads in (target.heads(), target.heads()):
                assert len(heads) == len(written)
                assert all(map(same_heads, heads, written))


def test_a_segment_and_its_pictures_share_one_head_while_opening(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for i in range(5):
            store.segments.put(make_segment(i))
            store.keyframes.put(make_pictures(i))
    with open_small(tmp_path) as store:
        pairs = zip(store.segments.heads(), store.keyframes.heads(), strict=True)
        assert all(head is other for head, other in pairs)


def test_a_head_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """It is still listed: reading the segment itself says what is wrong with it."""
    with open_small(tmp_path) as store:
        for i in range(5):
            store.segments.put(make_segment(i))
        (volume,) = volumes_of(tmp_path)
        data = volume.read_bytes()
        at = data.index(make_head(2).vectors.tobytes())
        with volume.open("r+b") as file:
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))
        assert [head.segment_id for head in store.segments.heads()] == [0, 1, 3, 4]
        assert [known.segment_id for known in store.segments.outlines()] == [0, 1, 2, 3, 4]


def test_a_chain_counts_its_tables(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    chain = TierChain(HostTier(2**24), store.segments, store.keyframes, on_close=store.close)
    assert chain.table_bytes == 0
    for i in range(6):
        chain.put(make_segment(i), make_pictures(i))
    chain.flush()
    assert chain.table_bytes >= 6 * 3 * 100
    whole = chain.table_bytes
    chain.remove(range(6))
    assert chain.table_bytes < whole, "what is left are places that were given back"
    chain.close()
