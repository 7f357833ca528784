"""Random use against a dictionary; the blocks on disk are summed after every step."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes_like.errors import SegmentUnavailableError, TierFullError
from hermes_like.tiers.base import KeyframeStore, SegmentRecord, Tier
from hermes_like.tiers.disk import DiskStore
from tests.tiers.disk_tools import MIB, blocks_of, open_small
from tests.tiers.segments import make_pictures, make_segment, same

STEPS = 350


class Driver:
    """Does random things to a folder and to two dictionaries."""

    def __init__(self, folder: Path, seed: int, key: bytes | None) -> None:
        self.folder, self.rng, self.key = folder, random.Random(seed), key
        self.cap = self.rng.choice([4 * MIB, 5 * MIB, 8 * MIB])
        self.kv: dict[int, Any] = {}
        self.pictures: dict[int, Any] = {}
        self.blob: bytes | None = None
        self.next_id = 0
        self.store = self.open()

    def open(self) -> DiskStore:
        return open_small(self.folder, disk_bytes=self.cap, key=self.key)

    def put(self) -> None:
        size = int(2 ** self.rng.uniform(8, 16.5))
        segment_id = self.next_id
        if self.rng.random() < 0.1 and self.kv:
            segment_id = self.rng.choice(list(self.kv))
        self.next_id = max(self.next_id, segment_id + 1)
        record = make_segment(segment_id, size, version=self.rng.randrange(4))
        self.fit(self.store.segments, self.kv, record)
        if self.rng.random() < 0.7:
            self.fit(self.store.keyframes, self.pictures, make_pictures(segment_id, size // 4 + 50))

    def fit(self, target: Tier | KeyframeStore, model: dict[int, Any], record: Any) -> None:
        for _ in range(3):
            try:
                target.put(record)
            except TierFullError:
                for gone in target.evict(record.num_bytes):
                    del model[gone]
            else:
                model[record.head.segment_id] = record
                return
        raise AssertionError(f"no room for {record.num_bytes} after eviction")

    def rewrite(self) -> None:
        """A smaller form takes the place of a segment, where there is room for both."""
        if not self.kv:
            return
        segment_id = self.rng.choice(list(self.kv))
        record = self.kv[segment_id]
        head = replace(record.head, token_cells=record.head.token_cells[::2].copy())
        layers = tuple(bytes(layer[::2]) for layer in record.layers)
        try:
            self.store.segments.rewrite(SegmentRecord(head, layers))
        except TierFullError:
            assert same(self.store.segments.get(segment_id), record)
        else:
            self.kv[segment_id] = SegmentRecord(head, layers)

    def get(self) -> None:
        for target, model in (
            (self.store.segments, self.kv),
            (self.store.keyframes, self.pictures),
        ):
            wanted = self.rng.randrange(self.next_id + 1)
            if wanted in model:
                assert same(target.get(wanted), model[wanted])
            else:
                with pytest.raises(SegmentUnavailableError):
                    target.get(wanted)

    def remove(self) -> None:
        ids = {self.rng.randrange(self.next_id + 1) for _ in range(self.rng.randint(1, 4))}
        for target, model in (
            (self.store.segments, self.kv),
            (self.store.keyframes, self.pictures),
        ):
            if self.rng.random() < 0.7:
                target.remove(ids)
                for gone in ids & set(model):
                    del model[gone]

    def save(self) -> None:
        data = self.rng.randbytes(int(2 ** self.rng.uniform(4, 17)))
        try:
            self.store.put_blob("state", data)
        except TierFullError:
            for gone in self.store.make_room(len(data)):
                del self.kv[gone]
            self.store.put_blob("state", data)
        self.blob = data

    def evict(self) -> None:
        for gone in self.store.segments.evict(self.rng.randrange(self.cap // 4)):
            del self.kv[gone]

    def reopen(self) -> None:
        self.store.close()
        self.look()
        self.store = self.open()

    def flush(self) -> None:
        self.store.flush()

    def look(self) -> None:
        blocks = blocks_of(self.folder)
        assert blocks <= self.cap, f"{blocks} of {self.cap}"

    def check(self) -> None:
        self.look()
        self.store.check()
        assert {head.segment_id for head in self.store.segments.heads()} == set(self.kv)
        assert {head.segment_id for head in self.store.keyframes.heads()} == set(self.pictures)
        assert self.store.get_blob("state") == self.blob


@pytest.mark.parametrize("seed", range(4))
def test_random_use(seed: int, tmp_path: Path) -> None:
    driver = Driver(tmp_path, seed, bytes(32) if seed == 3 else None)
    steps = [
        (12, driver.put),
        (3, driver.rewrite),
        (3, driver.get),
        (2, driver.remove),
        (1, driver.save),
        (0.2, driver.evict),
        (0.3, driver.reopen),
        (0.5, driver.flush),
    ]
    weights, actions = zip(*steps, strict=True)
    for _ in range(STEPS):
        driver.rng.choices(actions, weights)[0]()
        driver.check()
    for segment_id, record in driver.kv.items():
        assert same(driver.store.segments.get(segment_id), record)
    for segment_id, record in driver.pictures.items():
        assert same(driver.store.keyframes.get(segment_id), record)
    assert not [r for r in driver.store.misses.counts if r != "absent"]
    driver.store.close()
    driver.look()
    (tmp_path / "manifest.sqlite").unlink()
    driver.store = driver.open()
    driver.check()
    driver.store.close()
