"""The step ``thin``: the oldest segments are stored again, smaller, and the caps hold meanwhile."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermes_like.config import StoreConfig
from hermes_like.errors import CodecError, SegmentUnavailableError
from hermes_like.tiers import Thinning, TierChain, open_tiers
from hermes_like.tiers.base import SegmentRecord
from tests.tiers.disk_tools import MIB, blocks_of, contains, open_small, volumes_of
from tests.tiers.segments import FRAMES, make_pictures, make_segment, same

CAPS = {"host_bytes": 2 * MIB, "disk_bytes": 6 * MIB, "keyframe_bytes": MIB, "min_free_bytes": 0}
STEPS = ("thin", "drop_kv", "forget")


def whole(segment_id: int, num_bytes: int = 60_000) -> SegmentRecord:
    """A segment with every token."""
    record = make_segment(segment_id, num_bytes)
    cells = np.arange(6 * FRAMES, dtype=np.uint32)
    return replace(record, head=replace(record.head, token_cells=cells))


def halved(record: SegmentRecord) -> SegmentRecord | None:
    """Every other token and half of each block; in every fifth segment nothing stands still."""
    if record.head.segment_id % 5 == 4:
        return None
    layers = tuple(bytes(layer[: len(layer) // 2]) for layer in record.layers)
    return SegmentRecord(
        replace(record.head, token_cells=record.head.token_cells[::2].copy()), layers
    )


def open_chain(
    folder: Path, thin: Any = halved, steps: tuple[str, ...] = STEPS, **changes: Any
) -> tuple[TierChain, list[int]]:
    gone: list[int] = []
    config = StoreConfig(**{**CAPS, "durability": "none", **changes})
    chain = open_tiers(
        config.model_copy(update={"at_disk_cap": steps}),
        store=open_small(folder, **{**CAPS, **changes}),
        on_evicted=gone.extend,
        thinning=Thinning(thin, keep_whole=8),
    )
    return chain, gone


def on_disk(chain: TierChain, segment_id: int) -> SegmentRecord:
    """A segment as it is on the disk, past what RAM still holds."""
    assert chain._disk is not None
    return chain._disk.get(segment_id)


def test_the_oldest_are_thinned_before_any_goes(tmp_path: Path) -> None:
    chain, gone = open_chain(tmp_path)
    with closing(chain):
        for i in range(76):
            chain.put(whole(i))
            assert chain.flush()
            assert blocks_of(tmp_path) <= CAPS["disk_bytes"]
        stats = chain.stats()
        thinned = [i for i in range(76) if same(on_disk(chain, i), halved(whole(i)) or whole(i))]
        assert thinned[: stats.thinned] == list(range(stats.thinned))
        assert stats.thinned > 20
        assert stats.thinned_bytes == pytest.approx(30_000 * stats.thinned, rel=0.1)
        assert not gone
        assert not chain.stats().lost
        assert all(same(on_disk(chain, i), whole(i)) for i in range(68, 76)), "the newest are whole"
        chain.check()
    plain, gone = open_chain(tmp_path / "plain", steps=("forget",))
    with closing(plain):
        for i in range(76):
            plain.put(whole(i))
            assert plain.flush()
        assert gone, "the same does not fit as it is"


def test_after_thinning_the_next_step_takes_the_oldest(tmp_path: Path) -> None:
    chain, gone = open_chain(tmp_path, steps=("thin", "forget"))
    with closing(chain):
        for i in range(400):
            chain.put(whole(i))
            assert chain.flush()
            assert blocks_of(tmp_path) <= CAPS["disk_bytes"]
        left = [head.segment_id for head in chain.heads()]
        assert sorted([*gone, *left]) == list(range(400))
        assert max(gone) - min(left) < 24, "by age, as far as whole volumes allow"
        chain.check()
    again, _ = open_chain(tmp_path)
    with closing(again):
        assert [head.segment_id for head in again.heads()] == left
        for i in left:
            assert same(on_disk(again, i), whole(i)) or same(on_disk(again, i), halved(whole(i)))
        again.put(whole(400))
        assert again.flush()
        again.check()


def test_what_is_erased_while_it_is_thinned_stays_erased(tmp_path: Path) -> None:
    """The erasure comes between reading the larger form and writing the smaller one."""
    entered, may_go = threading.Event(), threading.Event()

    def slow(record: SegmentRecord) -> SegmentRecord | None:
        if record.head.segment_id == 3:
            entered.set()
            assert may_go.wait(20)
        return halved(record)

    chain, _ = open_chain(tmp_path, thin=slow)
    with closing(chain):
        for i in range(90):
            chain.put(whole(i))
            if entered.is_set():
                break
            chain.flush(0.5)
        assert entered.wait(20)
        eraser = threading.Thread(target=chain.remove, args=([3, 5],))
        eraser.start()
        eraser.join(0.2)
        assert eraser.is_alive(), "it waits for the segment that is being stored again"
        may_go.set()
        eraser.join(20)
        assert chain.flush()
        for i in (3, 5):
            assert chain.where(i) is None
            for layer in whole(i).layers:
                assert not contains(tmp_path, bytes(layer[:32]))
            assert not contains(tmp_path, whole(i).head.vectors.tobytes()[:32])
        chain.check()


@pytest.mark.parametrize("error", [CodecError("altered"), None])
def test_what_cannot_be_thinned_stays_as_it_is(error: Exception | None, tmp_path: Path) -> None:
    calls: list[int] = []

    def never(record: SegmentRecord) -> None:
        calls.append(record.head.segment_id)
        if error is not None:
            raise error

    chain, gone = open_chain(tmp_path, thin=never)
    with closing(chain):
        for i in range(100):
            chain.put(whole(i))
            assert chain.flush()
        assert calls == sorted(set(calls)), "each is looked at once"
        assert chain.stats().thinned == 0
        for head in chain.heads():
            assert same(on_disk(chain, head.segment_id), whole(head.segment_id))
        assert gone
        chain.check()


def test_a_crash_between_the_two_forms_leaves_one_of_them(tmp_path: Path) -> None:
    """The smaller one is there and the larger one is not erased yet."""
    with open_small(tmp_path) as store:
        for i in range(4):
            store.segments.put(whole(i))
    original = {path: path.read_bytes() for path in volumes_of(tmp_path)}
    smaller = halved(whole(2))
    assert smaller is not None
    with open_small(tmp_path) as store:
        store.segments.rewrite(smaller)
        assert len(volumes_of(tmp_path)) == 2, "what is stored again has volumes of its own"
    for path, data in original.items():
        path.write_bytes(data)
    (tmp_path / "manifest.sqlite").unlink()
    for _ in range(2):
        with open_small(tmp_path) as store:
            assert same(store.segments.get(2), smaller)
            assert [head.segment_id for head in store.segments.heads()] == list(range(4))
            assert not contains(tmp_path, bytes(whole(2).layers[2][-32:]))
            store.check()


@pytest.mark.parametrize("seed", range(3))
def test_random_use_holds_the_cap(seed: int, tmp_path: Path) -> None:
    """Puts, reads, erasures and restarts against a dictionary; blocks are summed after each."""
    rng, model = random.Random(seed), {}
    erased: set[int] = set()
    thinned = 0
    chain, gone = open_chain(tmp_path)
    lost: set[int] = set()
    for turn in range(200):
        action = rng.random()
        if action < 0.8 or not model:
            model[turn] = whole(turn, rng.randrange(10_000, 90_000))
            chain.put(model[turn], make_pictures(turn, 2_000) if turn % 3 else None)
        elif action < 0.87:
            ids = rng.sample(sorted(model), min(3, len(model)))
            chain.remove(ids)
            erased |= set(ids)
        elif action < 0.97:
            chain.flush()
        else:
            assert chain.flush()
            thinned += chain.stats().thinned
            kept = {i for i in model if i in chain._disk or chain.has_pictures(i)}
            chain.close()
            chain, gone = open_chain(tmp_path)
            assert {head.segment_id for head in chain.heads()} == kept
            lost |= set(model) - kept - erased  # their only copy was in RAM
        lost |= set(gone)
        assert blocks_of(tmp_path) <= CAPS["disk_bytes"]
        for tier in chain.stats().tiers.values():
            assert tier.used_bytes <= tier.cap_bytes
        for i in rng.sample(sorted(model), min(4, len(model))):
            try:
                found = chain.get(i)[0]
            except SegmentUnavailableError:
                continue
            assert i not in erased
            assert same(found, model[i]) or same(found, halved(model[i]) or model[i])
    assert chain.flush()
    lost |= set(gone)
    known = {head.segment_id for head in chain.heads()}
    assert not known & erased
    assert known | erased | lost == set(model), "a segment vanished without a word"
    assert thinned + chain.stats().thinned > 20
    chain.check()
    chain.close()
