"""One test that every tier passes, and its counterpart for stores of pictures."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_like.config import StoreConfig
from hermes_like.errors import SegmentUnavailableError, TierFullError
from hermes_like.tiers.base import KeyframeRecord, KeyframeStore, SegmentRecord, Tier
from hermes_like.tiers.disk import DiskStore, open_disk
from hermes_like.tiers.fingerprint import Fingerprint
from hermes_like.tiers.host import HostKeyframes, HostTier
from tests.tiers.segments import make_pictures, make_segment, same, same_heads

FINGERPRINT = Fingerprint.of(model="test", codec="raw")


def open_folder(folder: Path, **changes: Any) -> DiskStore:
    """A small disk store."""
    values = {"disk_bytes": 24 * 2**20, "keyframe_bytes": 4 * 2**20, "min_free_bytes": 0}
    values["durability"] = "none"  # syncing has tests of its own
    config = StoreConfig(**{**values, **changes})
    return open_disk(folder, fingerprint=FINGERPRINT, config=config)


@contextmanager
def host_tier(folder: Path) -> Iterator[Tier]:
    yield HostTier(900_000)


@contextmanager
def disk_tier(folder: Path) -> Iterator[Tier]:
    store = open_folder(folder)
    yield store.segments
    store.close()


@contextmanager
def host_keyframes(folder: Path) -> Iterator[KeyframeStore]:
    yield HostKeyframes(120_000)


@contextmanager
def disk_keyframes(folder: Path) -> Iterator[KeyframeStore]:
    store = open_folder(folder)
    yield store.keyframes
    store.close()


#: How to open a tier, and the bytes of a segment of which about forty fit.
TIERS = [
    pytest.param(host_tier, 20_000, id="host"),
    pytest.param(disk_tier, 400_000, id="disk"),
]
STORES = [
    pytest.param(host_keyframes, 2_500, id="host"),
    pytest.param(disk_keyframes, 80_000, id="disk"),
]
Store = Tier | KeyframeStore
Make = Callable[[int], SegmentRecord | KeyframeRecord]


def put(store: Store, record: Any) -> list[int]:
    """Store a record, evicting where there is no room; returns what went."""
    gone: list[int] = []
    for _ in range(4):
        try:
            store.put(record)
        except TierFullError:
            gone += store.evict(record.num_bytes + 16 * 1024)
        else:
            return gone
    raise AssertionError("no room after four evictions")


@contextmanager
def watched(store: Store) -> Iterator[list[int]]:
    """Look at the account from another thread all the time; yields what was above the cap."""
    above: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            used = store.used_bytes
            if used > store.cap_bytes:
                above.append(used)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield above
    finally:
        done.set()
        thread.join()


def follow_a_dictionary(store: Store, make: Make, steps: int) -> None:
    """Random puts, gets, removals and evictions, compared with a dictionary after each."""
    rng, model, next_id = random.Random(7), {}, 0
    removed: set[int] = set()
    for _ in range(steps):
        action = rng.random()
        if action < 0.5:
            record = make(next_id)
            for segment_id in put(store, record):
                del model[segment_id]
            model[next_id] = record
            next_id += 1
        elif action < 0.8 and next_id:
            wanted = rng.randrange(next_id)
            if wanted in model:
                assert same(store.get(wanted), model[wanted])
            else:
                with pytest.raises(SegmentUnavailableError) as caught:
                    store.get(wanted)
                assert caught.value.segment_id == wanted
        elif action < 0.93 and next_id:
            ids = rng.sample(range(next_id), min(next_id, rng.randint(1, 3)))
            store.remove(ids)
            removed.update(ids)
            for segment_id in ids:
                model.pop(segment_id, None)
        elif rng.random() < 0.5:
            wanted_bytes = rng.randrange(store.cap_bytes // 3)
            for segment_id in store.evict(wanted_bytes):
                del model[segment_id]
            assert store.used_bytes + wanted_bytes <= store.cap_bytes or not model
        assert store.used_bytes <= store.cap_bytes
        assert {i for i in range(next_id) if i in store} == set(model)
    assert removed
    assert not removed & set(model)
    heads = store.heads()
    assert [head.segment_id for head in heads] == sorted(model)
    for head, outline in zip(heads, store.outlines(), strict=True):
        assert same_heads(head, model[head.segment_id].head)
        for name in ("segment_id", "start_s", "end_s", "is_whole"):
            assert getattr(outline, name) == getattr(head, name)
    for segment_id, record in model.items():
        assert same(store.get(segment_id), record)


def run_threads(store: Store, make: Make) -> None:
    """Four threads put, get and remove their own ids; nobody ever sees wrong bytes."""
    errors: list[BaseException] = []

    def work(worker: int) -> None:
        rng, mine = random.Random(worker), {}
        try:
            for turn in range(12):
                record = make(100 * worker + turn)
                mine[record.head.segment_id] = record
                put(store, record)
                for segment_id in rng.sample(list(mine), min(3, len(mine))):
                    try:
                        assert same(store.get(segment_id), mine[segment_id])
                    except SegmentUnavailableError:
                        continue  # another thread made room
                if turn % 4 == 3:
                    gone = rng.choice(list(mine))
                    store.remove([gone])
                    del mine[gone]
                    assert gone not in store
        except BaseException as error:  # reported by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


@pytest.mark.parametrize(("open_tier", "num_bytes"), TIERS)
def test_tier_follows_a_dictionary(open_tier: Any, num_bytes: int, tmp_path: Path) -> None:
    sizes = random.Random(3)
    with open_tier(tmp_path) as tier, watched(tier) as above:
        follow_a_dictionary(
            tier, lambda i: make_segment(i, sizes.randrange(num_bytes // 8, num_bytes)), 150
        )
        tier.check()
    assert not above


@pytest.mark.parametrize(("open_store", "num_bytes"), STORES)
def test_pictures_follow_a_dictionary(open_store: Any, num_bytes: int, tmp_path: Path) -> None:
    sizes = random.Random(3)
    with open_store(tmp_path) as store, watched(store) as above:
        follow_a_dictionary(
            store, lambda i: make_pictures(i, sizes.randrange(num_bytes // 8, num_bytes)), 150
        )
    assert not above


@pytest.mark.parametrize(("open_tier", "num_bytes"), TIERS)
def test_tier_serves_threads(open_tier: Any, num_bytes: int, tmp_path: Path) -> None:
    with open_tier(tmp_path) as tier, watched(tier) as above:
        run_threads(tier, lambda i: make_segment(i, num_bytes))
        tier.check()
    assert not above


@pytest.mark.parametrize(("open_store", "num_bytes"), STORES)
def test_pictures_serve_threads(open_store: Any, num_bytes: int, tmp_path: Path) -> None:
    with open_store(tmp_path) as store, watched(store) as above:
        run_threads(store, lambda i: make_pictures(i, num_bytes))
    assert not above


@pytest.mark.parametrize(("open_tier", "num_bytes"), TIERS)
def test_what_never_fits_is_refused_and_harms_nothing(
    open_tier: Any, num_bytes: int, tmp_path: Path
) -> None:
    with open_tier(tmp_path) as tier:
        kept = make_segment(1, num_bytes)
        tier.put(kept)
        with pytest.raises(TierFullError):
            tier.put(make_segment(2, tier.cap_bytes + 1))
        assert 2 not in tier
        assert same(tier.get(1), kept)
        tier.remove([5, 99])
        assert same(tier.get(1), kept)


@pytest.mark.parametrize(("open_tier", "num_bytes"), TIERS)
def test_eviction_takes_the_oldest_first(open_tier: Any, num_bytes: int, tmp_path: Path) -> None:
    with open_tier(tmp_path) as tier:
        for segment_id in range(20):
            tier.put(make_segment(segment_id, num_bytes))
        evicted = list(tier.evict(tier.cap_bytes - tier.used_bytes + 1))
        assert evicted
        assert sorted(evicted) == list(range(len(evicted)))
