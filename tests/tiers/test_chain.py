"""The chain of tiers: write-through, promotion, caps, failures, deadlines, erasing, threads."""

from __future__ import annotations

import gc
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hermes_like.config import StoreConfig
from hermes_like.errors import (
    ConfigError,
    SegmentUnavailableError,
    SessionStateError,
    StorageError,
    TierFullError,
)
from hermes_like.records import Tier as TierName
from hermes_like.tiers import TierChain, open_tiers
from hermes_like.tiers.base import KeyframeRecord, SegmentRecord
from hermes_like.tiers.host import HostKeyframes, HostTier, keyframe_cost, segment_cost
from hermes_like.tiers.write_queue import WriteJob
from tests.tiers.disk_tools import open_small
from tests.tiers.segments import make_pictures, make_segment, same
from tests.tiers.test_contract import open_folder

COST = segment_cost(make_segment(0))
PICTURES_COST = keyframe_cost(make_pictures(0))


class RamDisk(HostTier):
    """A tier of the second level whose medium can be told to fail, to hang or to misbehave."""

    name: ClassVar[TierName] = "disk"

    def __init__(self, cap_bytes: int) -> None:
        super().__init__(cap_bytes)
        self.put_error: Exception | None = None
        self.get_error: Exception | None = None
        self.may_put, self.may_get = threading.Event(), threading.Event()
        self.may_put.set()
        self.may_get.set()
        self.entered = threading.Event()

    def put(self, record: SegmentRecord, *, is_pinned: bool = False) -> None:
        self.entered.set()
        assert self.may_put.wait(20)
        if self.put_error is not None:
            raise self.put_error
        super().put(record, is_pinned=is_pinned)

    def get(self, segment_id: int) -> SegmentRecord:
        self.entered.set()
        assert self.may_get.wait(20)
        if self.get_error is not None:
            raise self.get_error
        return super().get(segment_id)


@contextmanager
def chain_of(
    host: int | None, disk: int | None = 1000, pictures: int | None = 1000, **options: Any
) -> Iterator[tuple[TierChain, Any, Any, list[int]]]:
    """A chain with caps in segments; yields it with its disk, its pictures and who has gone.

    RAM has room for the pictures of one segment more, which are there until they are written.
    """
    gone: list[int] = []
    tiers = (
        None if host is None else HostTier(host * COST + PICTURES_COST),
        None if disk is None else RamDisk(disk * (COST + 200)),
        None if pictures is None else HostKeyframes(pictures * (PICTURES_COST + 200)),
    )
    options = {"first_pause_s": 0.01, "put_wait_s": 0.05, **options}
    chain = TierChain(*tiers, on_evicted=gone.extend, **options)
    try:
        yield chain, tiers[1], tiers[2], gone
    finally:
        if tiers[1] is not None:
            tiers[1].may_put.set()
            tiers[1].may_get.set()
        chain.close(2)
    left = [t.name for t in threading.enumerate() if t.name.startswith("hermes-like")]
    assert not left, f"threads left: {left}"


def allocated(path: Path) -> int:
    """Bytes of blocks of a file; 0 when the writer has just removed it."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def wait_until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.002)


def reason_of(chain: TierChain, segment_id: int, deadline_s: float | None = None) -> str:
    """Why a segment cannot be got."""
    with pytest.raises(SegmentUnavailableError) as caught:
        chain.get(segment_id, deadline_s)
    return caught.value.reason


# -- write-through and promotion -----------------------------------------------------------------


def test_segments_go_to_every_tier_as_they_are() -> None:
    with chain_of(3) as (chain, disk, pictures, gone):
        for i in range(8):
            assert chain.put(make_segment(i), make_pictures(i))
            assert chain.flush()
        chain.check()
        assert [chain.where(i) for i in range(8)] == ["disk"] * 5 + ["host"] * 3
        assert [head.segment_id for head in chain.heads()] == list(range(8))
        for i in range(8):
            assert same(disk.get(i), make_segment(i))
            assert same(pictures.get(i), make_pictures(i))
        record, tier = chain.get(1)
        assert tier == "disk"
        assert same(record, make_segment(1))
        assert chain.where(1) == chain.get(1)[1] == "host"
        assert chain.where(5) == "disk", "expected the least recently used one to make room"
        assert reason_of(chain, 99) == "absent"
        stats = chain.stats()
        assert (stats.tiers["host"].hits, stats.tiers["disk"].hits) == (1, 1)
        assert stats.misses == {"absent": 1}
        assert (stats.tiers["disk"].segments, stats.tiers["source"].segments) == (8, 8)
        assert (stats.queue_bytes, stats.state, stats.lost, gone) == (0, "ok", (), [])


def test_what_waits_to_be_written_can_be_read() -> None:
    with chain_of(4) as (chain, disk, _, _):
        disk.may_put.clear()
        assert chain.put(make_segment(1), make_pictures(1))
        assert chain.put(make_segment(2))
        assert same(chain.get(2)[0], make_segment(2))
        assert chain.where(2) == "host"
        assert same(chain.pictures(1), make_pictures(1))
        assert {head.segment_id for head in chain.heads()} == {1, 2}
        stats = chain.stats()
        assert stats.queued == 3
        assert stats.queue_bytes == 2 * COST + PICTURES_COST
        assert stats.tiers["host"].used_bytes >= stats.queue_bytes
        disk.may_put.set()
        assert chain.flush()
        chain.check()


def test_without_ram_segments_still_reach_the_disk() -> None:
    with chain_of(None, queue_bytes=2 * COST) as (chain, _, _, gone):
        for i in range(6):
            assert chain.put(make_segment(i))
            assert chain.flush()
        assert [chain.where(i) for i in range(6)] == ["disk"] * 6
        assert same(chain.get(3)[0], make_segment(3))
        assert chain.where(3) == "disk"
        assert chain.prefetch([1, 2]) == 0
        assert not gone
        chain.check()


def test_without_a_disk_pictures_remain() -> None:
    with chain_of(3, disk=None) as (chain, _, _, gone):
        for i in range(6):
            assert chain.put(make_segment(i), make_pictures(i) if i else None)
            assert chain.flush()
        chain.check()
        assert gone == [0]
        assert chain.lost == [(0.0, 4.0, "evicted")]
        assert [chain.where(i) for i in range(6)] == [None, *["source"] * 2, *["host"] * 3]
        assert [head.segment_id for head in chain.heads()] == [1, 2, 3, 4, 5]
        assert same(chain.pictures(1), make_pictures(1))
        assert reason_of(chain, 1) == "absent"
        with pytest.raises(SegmentUnavailableError):
            chain.pictures(0)


def test_a_segment_made_again_from_pictures_can_be_put_again() -> None:
    with chain_of(2, disk=None) as (chain, _, _, _):
        for i in range(4):
            chain.put(make_segment(i), make_pictures(i))
        again = make_segment(0, version=1)
        assert chain.put(again)
        assert same(chain.get(0)[0], again)
        assert chain.put(make_segment(0), make_pictures(0)), "held already"
        assert same(chain.get(0)[0], again)
        chain.flush()
        chain.check()


# -- caps ----------------------------------------------------------------------------------------


def test_at_the_disk_cap_keys_and_values_go_first() -> None:
    with chain_of(2, disk=4) as (chain, _, _, gone):
        for i in range(9):
            chain.put(make_segment(i), make_pictures(i))
            chain.flush()
        chain.check()
        on_disk = [i for i in range(9) if chain.where(i) in ("host", "disk")]
        assert on_disk == list(range(9 - len(on_disk), 9))
        assert [chain.where(i) for i in range(9 - len(on_disk))] == ["source"] * (9 - len(on_disk))
        assert len(on_disk) >= 3
        assert (gone, chain.lost) == ([], [])
        assert len(chain.heads()) == 9


def test_forgetting_takes_pictures_and_heads_along() -> None:
    with chain_of(1, disk=4, at_disk_cap=("forget",)) as (chain, _, pictures, gone):
        for i in range(9):
            chain.put(make_segment(i), make_pictures(i))
            chain.flush()
        chain.check()
        kept = [head.segment_id for head in chain.heads()]
        assert kept == list(range(9 - len(kept), 9))
        assert gone == list(range(9 - len(kept)))
        assert [head.segment_id for head in pictures.heads()] == kept
        assert chain.lost == [(0.0, 4.0 * len(gone), "evicted")]


def test_pictures_have_a_cap_of_their_own() -> None:
    with chain_of(1, disk=100, pictures=3) as (chain, _, pictures, gone):
        for i in range(7):
            chain.put(make_segment(i), make_pictures(i))
            chain.flush()
        chain.check()
        assert len(pictures.heads()) < 4
        assert all(chain.where(i) in ("host", "disk") for i in range(7)), "no keys may go for it"
        assert not gone


def test_with_no_steps_the_disk_keeps_the_oldest() -> None:
    with chain_of(2, disk=3, at_disk_cap=()) as (chain, disk, _, gone):
        for i in range(8):
            chain.put(make_segment(i))
            chain.flush()
        assert [head.segment_id for head in disk.heads()] == [0, 1, 2]
        assert [chain.where(i) for i in (6, 7)] == ["host", "host"]
        assert gone == [3, 4, 5]
        assert chain.stats().dropped_writes == 5
        chain.check()


def test_what_can_never_fit_takes_nothing_from_the_disk() -> None:
    with chain_of(9, disk=4, pictures=None) as (chain, disk, _, _):
        for i in range(3):
            chain.put(make_segment(i))
        assert chain.put(make_segment(3, num_bytes=6 * COST)), "RAM holds it"
        chain.flush()
        assert [head.segment_id for head in disk.heads()] == [0, 1, 2]
        assert chain.stats().dropped_writes == 1
        assert not chain.put(make_segment(4, num_bytes=20 * COST))
        chain.check()


def test_nothing_of_ours_goes_for_a_disk_that_others_filled() -> None:
    with chain_of(9, disk=20, pictures=None, longest_pause_s=0.02) as (chain, disk, _, _):
        for i in range(3):
            chain.put(make_segment(i))
        chain.flush()
        disk.put_error = TierFullError("no space left on device")
        for i in range(3, 6):
            assert chain.put(make_segment(i))
        assert not chain.flush()
        assert chain.state == "failed"
        assert [head.segment_id for head in disk.heads()] == [0, 1, 2]
        disk.put_error = None
        wait_until(lambda: chain.stats().queued == 0)
        assert [head.segment_id for head in disk.heads()] == list(range(6))
        assert chain.stats().dropped_writes == 0
        chain.check()


def test_one_write_that_always_fails_lets_the_others_go_first() -> None:
    class Picky(RamDisk):
        def put(self, record: SegmentRecord, *, is_pinned: bool = False) -> None:
            if record.head.segment_id == 0:
                raise StorageError("not this one")
            super().put(record, is_pinned=is_pinned)

    disk = Picky(100 * COST)
    chain = TierChain(HostTier(10 * COST), disk, None, first_pause_s=0.001, longest_pause_s=0.01)
    for i in range(5):
        assert chain.put(make_segment(i))
    wait_until(lambda: len(disk.heads()) == 4)
    assert same(chain.get(0)[0], make_segment(0))
    chain.close()
    assert chain.lost == [(0.0, 4.0, "dropped")]


def test_ram_reserved_by_others_counts() -> None:
    with chain_of(3) as (chain, _, _, _):
        for i in range(3):
            chain.put(make_segment(i))
        chain.flush()
        assert chain.reserve_host(2 * COST)
        assert [chain.where(i) for i in range(3)] == ["disk", "disk", "host"]
        assert not chain.reserve_host(2 * COST)
        assert chain.reserve_host(-2 * COST)
        chain.check()


# -- failures ------------------------------------------------------------------------------------


def test_while_the_disk_fails_watching_goes_on_and_ram_keeps_what_fits() -> None:
    with chain_of(4, longest_pause_s=0.02, pictures=None) as (chain, disk, _, gone):
        chain.put(make_segment(0))
        chain.flush()
        disk.put_error = StorageError("input/output error")
        held = [chain.put(make_segment(1))]
        wait_until(lambda: chain.state == "failed")
        started = time.monotonic()
        held += [chain.put(make_segment(i)) for i in range(2, 20)]
        assert time.monotonic() - started < 1.0, "watching waited for a failed disk"
        assert held == [True] * 4 + [False] * 15
        assert [chain.where(i) for i in range(6)] == ["disk", *["host"] * 4, None]
        assert same(chain.get(0)[0], make_segment(0)), "what was written can still be read"
        assert not chain.flush()
        stats = chain.stats()
        assert (stats.dropped_writes, stats.state) == (15, "failed")
        assert stats.lost == ((20.0, 80.0, "dropped"),)
        disk.put_error = None
        wait_until(lambda: chain.stats().queued == 0)
        assert chain.state == "ok"
        assert [i in disk for i in range(6)] == [True] * 5 + [False]
        assert chain.put(make_segment(20))
        assert gone == list(range(5, 20)), "the index is told what never got anywhere"
        chain.flush()
        chain.check()


def test_pictures_are_kept_when_a_segment_finds_no_room() -> None:
    with chain_of(3) as (chain, disk, _, _):
        chain.reserve_host(COST)
        disk.may_put.clear()
        assert chain.put(make_segment(0))
        assert chain.put(make_segment(1))
        chain.reserve_host(-COST // 2)
        assert not chain.put(make_segment(2), make_pictures(2))
        assert chain.where(2) == "source"
        assert chain.lost == [(8.0, 12.0, "dropped")]
        disk.may_put.set()
        chain.flush()
        chain.check()


def test_a_put_waits_for_a_slow_disk_but_not_long() -> None:
    with chain_of(2, put_wait_s=0.3, pictures=None) as (chain, disk, _, _):
        disk.may_put.clear()
        assert chain.put(make_segment(0))
        assert chain.put(make_segment(1))
        started = time.monotonic()
        assert not chain.put(make_segment(2))
        assert 0.25 < time.monotonic() - started < 2.0
        threading.Timer(0.05, disk.may_put.set).start()
        assert chain.put(make_segment(3)), "room came in time"
        assert chain.lost == [(8.0, 12.0, "dropped")]


def test_one_faulty_write_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    with chain_of(9) as (chain, disk, _, _), caplog.at_level(logging.WARNING):
        disk.put_error = ZeroDivisionError("a bug in a tier")
        chain.put(make_segment(0))
        wait_until(lambda: chain.stats().queued == 0)
        disk.put_error = None
        chain.put(make_segment(1))
        assert chain.flush()
        assert (0 in disk, 1 in disk) == (False, True)
        assert chain.where(0) == "host"
        assert chain.stats().dropped_writes == 1
        assert "a bug in a tier" in caplog.text
        chain.check()


def test_a_listener_that_fails_does_not_stop_the_writer() -> None:
    def fail(ids: Sequence[int]) -> None:
        raise RuntimeError("the index is broken")

    chain = TierChain(HostTier(2 * COST), None, None, on_evicted=fail)
    for i in range(5):
        assert chain.put(make_segment(i))
    chain.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SegmentUnavailableError(0, "checksum"), "checksum"),
        (StorageError("disk on fire"), "io_error"),
        (KeyError("a bug"), "io_error"),
    ],
)
def test_reads_that_fail_are_counted_misses(error: Exception, reason: str) -> None:
    with chain_of(1) as (chain, disk, _, _):
        for i in range(3):
            chain.put(make_segment(i))
            chain.flush()
        disk.get_error = error
        assert reason_of(chain, 0) == reason
        assert chain.stats().misses == {reason: 1}
        disk.get_error = None
        assert same(chain.get(0)[0], make_segment(0)), "a failed read may not stick"


def test_a_segment_that_the_disk_has_lost_is_told() -> None:
    with chain_of(1, pictures=None) as (chain, disk, _, gone):
        for i in range(3):
            chain.put(make_segment(i))
            chain.flush()
        disk.remove([0])
        assert reason_of(chain, 0) == "absent"
        assert gone == [0]
        assert chain.where(0) is None
        chain.check()


# -- deadlines and prefetch ----------------------------------------------------------------------


def test_a_late_segment_is_a_miss_and_serves_the_next_question() -> None:
    with chain_of(2) as (chain, disk, _, _):
        for i in range(4):
            chain.put(make_segment(i))
            chain.flush()
        disk.may_get.clear()
        started = time.monotonic()
        assert reason_of(chain, 0, deadline_s=0.05) == "deadline"
        assert time.monotonic() - started < 1.0
        assert chain.stats().misses == {"deadline": 1}
        disk.may_get.set()
        wait_until(lambda: chain.where(0) == "host")
        assert same(chain.get(0, deadline_s=0.05)[0], make_segment(0))


def test_prefetch_brings_segments_and_a_get_waits_for_one_on_its_way() -> None:
    with chain_of(6) as (chain, disk, _, _):
        for i in range(12):
            chain.put(make_segment(i))
            chain.flush()
        disk.may_get.clear()
        disk.entered.clear()
        assert chain.prefetch([0, 11, 0, 1, 2, 3, 4, 5]) == 3, "half of what fits, once each"
        assert chain.stats().reading == 3
        threading.Timer(0.05, disk.may_get.set).start()
        assert same(chain.get(0)[0], make_segment(0))
        wait_until(lambda: chain.stats().reading == 0)
        assert [chain.where(i) for i in (0, 1, 2, 3)] == ["host", "host", "host", "disk"]
        chain.check()


# -- erasing -------------------------------------------------------------------------------------


def test_erased_is_gone_from_every_tier() -> None:
    with chain_of(3) as (chain, disk, pictures, gone):
        for i in range(6):
            chain.put(make_segment(i), make_pictures(i))
        chain.flush()
        chain.remove([0, 5, 77])
        for i in (0, 5):
            assert (i in disk, i in pictures, chain.where(i)) == (False, False, None)
            assert reason_of(chain, i) == "absent"
            with pytest.raises(SegmentUnavailableError):
                chain.pictures(i)
        assert [head.segment_id for head in chain.heads()] == [1, 2, 3, 4]
        assert (gone, chain.lost) == ([], []), "erasing is neither eviction nor loss"
        chain.check()


def test_erasing_reaches_the_queue_and_the_write_under_way() -> None:
    with chain_of(9) as (chain, disk, pictures, _):
        disk.may_put.clear()
        for i in range(3):
            chain.put(make_segment(i), make_pictures(i))
        assert disk.entered.wait(5), "segment 0 is being written"
        chain.remove([1])
        assert chain.where(1) is None
        eraser = threading.Thread(target=chain.remove, args=([0],))
        eraser.start()
        wait_until(lambda: chain.where(0) is None)
        assert reason_of(chain, 0) == "absent"
        assert not chain.put(make_segment(0)), "it is being erased"
        disk.may_put.set()
        eraser.join(5)
        chain.flush()
        assert [i in disk for i in range(3)] == [False, False, True]
        assert [i in pictures for i in range(3)] == [False, False, True]
        chain.check()


def test_erasing_reaches_a_read_under_way() -> None:
    with chain_of(2) as (chain, disk, _, _):
        for i in range(5):
            chain.put(make_segment(i))
            chain.flush()
        disk.may_get.clear()
        disk.entered.clear()
        assert chain.prefetch([0]) == 1
        assert disk.entered.wait(5)
        chain.remove([0])
        disk.may_get.set()
        wait_until(lambda: chain.stats().reading == 0)
        time.sleep(0.02)
        assert chain.where(0) is None
        assert reason_of(chain, 0) == "absent"
        chain.check()


def test_erasing_while_writes_fail() -> None:
    with chain_of(5, longest_pause_s=0.02) as (chain, disk, _, _):
        disk.put_error = StorageError("failed")
        for i in range(3):
            chain.put(make_segment(i), make_pictures(i))
        wait_until(lambda: chain.state == "failed")
        chain.remove([0, 2])
        disk.put_error = None
        chain.flush()
        wait_until(lambda: chain.stats().queued == 0)
        assert [i in disk for i in range(3)] == [False, True, False]
        chain.check()


# -- life cycle ----------------------------------------------------------------------------------


def test_close_writes_what_waits_and_can_be_repeated() -> None:
    with chain_of(9) as (chain, disk, _, _):
        for i in range(9):
            chain.put(make_segment(i))
        chain.close()
        chain.close()
        assert len(disk.heads()) == 9
        assert chain.state == "closed"
        for call in (lambda: chain.put(make_segment(10)), lambda: chain.get(1)):
            with pytest.raises(SessionStateError):
                call()


def test_close_counts_what_could_not_be_written() -> None:
    with chain_of(9, first_pause_s=60, pictures=None) as (chain, disk, _, _):
        disk.put_error = StorageError("failed")
        chain.put(make_segment(0))
        chain.put(make_segment(1))
        wait_until(lambda: chain.state == "failed")
        started = time.monotonic()
        chain.close()
        assert time.monotonic() - started < 2.0, "closing waited for the pause"
        assert chain.lost == [(0.0, 8.0, "dropped")]
        assert chain.stats().dropped_writes == 2


def test_a_chain_knows_what_its_tiers_held_before() -> None:
    disk, pictures = RamDisk(100 * COST), HostKeyframes(100 * COST)
    for i in range(3):
        disk.put(make_segment(i))
    for i in range(2, 5):
        pictures.put(make_pictures(i))
    chain = TierChain(HostTier(2 * COST), disk, pictures)
    assert [chain.where(i) for i in range(6)] == [*["disk"] * 3, "source", "source", None]
    assert same(chain.get(1)[0], make_segment(1))
    chain.check()
    chain.close()


# -- at random -----------------------------------------------------------------------------------


def drive(
    chain: TierChain,
    caps: Callable[[], None],
    gone: list[int],
    seed: int,
    steps: int,
    num_bytes: int = 20_000,
    toggle: Callable[[bool], None] | None = None,
) -> None:
    """Random steps against a dictionary of all that was ever put; caps are checked after each."""
    rng = random.Random(seed)
    model: dict[int, tuple[SegmentRecord, KeyframeRecord | None]] = {}
    erased: set[int] = set()
    for _ in range(steps):
        action = rng.random()
        some = rng.sample(list(model), min(len(model), 3))
        if action < 0.4:
            new = len(model)
            pictures = make_pictures(new) if rng.random() < 0.7 else None
            record = make_segment(new, rng.randrange(num_bytes // 4, num_bytes))
            model[new] = record, pictures
            chain.put(record, pictures)
        elif action < 0.7 and some:
            try:
                record, tier = chain.get(some[0], rng.choice([None, 5.0]))
            except SegmentUnavailableError:
                pass
            else:
                assert some[0] not in erased
                assert tier in ("host", "disk")
                assert same(record, model[some[0]][0])
        elif action < 0.78 and some:
            try:
                stored = chain.pictures(some[0])
            except SegmentUnavailableError:
                pass
            else:
                wanted = model[some[0]][1]
                assert some[0] not in erased
                assert wanted is not None
                assert same(stored, wanted)
        elif action < 0.85:
            chain.prefetch(some)
        elif action < 0.92:
            chain.remove(some)
            erased.update(some)
            assert all(chain.where(i) is None for i in some)
        elif action < 0.96:
            chain.flush(5)
        elif toggle is not None:
            toggle(rng.random() < 0.5)
        caps()
    if toggle is not None:
        toggle(False)
    wait_until(lambda: chain.stats().queued == chain.stats().reading == 0, 10)
    assert chain.flush()
    caps()
    chain.check()
    known = {head.segment_id for head in chain.heads()}
    assert not known & erased
    assert not known & set(gone)
    assert known | erased | set(gone) == set(model), "a segment vanished without a word"
    for segment_id in known:
        where = chain.where(segment_id)
        if where is None:
            assert segment_id in gone, "reading others has pushed the only copy out of RAM"
        elif where == "source":
            assert same(chain.pictures(segment_id), model[segment_id][1])  # type: ignore[arg-type]
        else:
            assert same(chain.get(segment_id)[0], model[segment_id][0])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("host", "disk", "pictures", "steps"),
    [
        (4, 8, 8, ("drop_kv", "forget")),
        (3, 6, 12, ("forget",)),
        (4, None, 6, ()),
        (None, 8, 4, ("drop_kv",)),
        (3, 8, None, ()),
    ],
)
def test_random_steps(
    host: int | None, disk: int | None, pictures: int | None, steps: Any, seed: int
) -> None:
    options = {"at_disk_cap": steps, "queue_bytes": 3 * COST, "longest_pause_s": 0.02}
    with chain_of(host, disk, pictures, **options) as (chain, medium, _, gone):

        def caps() -> None:
            for tier in chain.stats().tiers.values():
                assert tier.used_bytes <= tier.cap_bytes

        def toggle(is_failing: bool) -> None:
            if medium is not None:
                medium.put_error = StorageError("failed") if is_failing else None

        drive(chain, caps, gone, seed, 150, toggle=toggle)


@pytest.mark.parametrize("seed", range(2))
def test_random_steps_on_a_real_disk(seed: int, tmp_path: Path) -> None:
    gone: list[int] = []
    caps_of = {"host_bytes": 2 * 2**20, "disk_bytes": 24 * 2**20, "keyframe_bytes": 2**20}
    config = StoreConfig(**caps_of)
    chain = open_tiers(
        config, store=open_folder(tmp_path / "memory", **caps_of), on_evicted=gone.extend
    )

    def caps() -> None:
        for tier in chain.stats().tiers.values():
            assert tier.used_bytes <= tier.cap_bytes
        assert sum(map(allocated, tmp_path.rglob("*"))) <= config.disk_bytes

    with closing(chain):
        drive(chain, caps, gone, seed, 120, num_bytes=600_000)
        heads = [head.segment_id for head in chain.heads()]
    again = open_tiers(config, store=open_folder(tmp_path / "memory", **caps_of))
    assert [head.segment_id for head in again.heads()] == heads, "RAM held nothing of its own"
    again.close()


def test_threads_share_a_chain() -> None:
    """Four threads with their own segments and a medium that fails now and then."""
    errors: list[BaseException] = []
    options = {"at_disk_cap": ("drop_kv", "forget"), "longest_pause_s": 0.01, "put_wait_s": 0.01}
    with chain_of(6, 12, 10, **options) as (chain, disk, _, gone):

        def work(worker: int) -> None:
            rng, mine = random.Random(worker), {}
            erased: set[int] = set()
            try:
                for turn in range(60):
                    new = 1000 * worker + turn
                    mine[new] = make_segment(new, rng.randrange(4_000, 20_000))
                    chain.put(mine[new], make_pictures(new) if turn % 2 else None)
                    chain.prefetch(rng.sample(list(mine), min(4, len(mine))))
                    for segment_id in rng.sample(list(mine), min(3, len(mine))):
                        try:
                            record, _ = chain.get(segment_id, 2.0)
                        except SegmentUnavailableError:
                            continue
                        assert segment_id not in erased, f"{segment_id} was erased"
                        assert same(record, mine[segment_id])
                    if turn % 5 == 4:
                        wanted = rng.sample(list(mine), 2)
                        chain.remove(wanted)
                        erased.update(wanted)
                        assert all(chain.where(i) is None for i in wanted)
                    if worker == 0:
                        disk.put_error = StorageError("failed") if turn % 7 == 0 else None
                    stats = chain.stats()
                    assert all(t.used_bytes <= t.cap_bytes for t in stats.tiers.values())
            except BaseException as error:  # reported by the test
                errors.append(error)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        disk.put_error = None
        wait_until(lambda: chain.stats().queued == chain.stats().reading == 0, 10)
        chain.check()
        assert not {head.segment_id for head in chain.heads()} & set(gone)


def test_closing_ends_puts_and_gets_that_wait() -> None:
    ended: list[object] = []
    with chain_of(2, put_wait_s=20, pictures=None) as (chain, disk, _, _):
        disk.may_put.clear()
        chain.put(make_segment(0))
        chain.put(make_segment(1))
        putter = threading.Thread(target=lambda: ended.append(chain.put(make_segment(2))))
        putter.start()
        time.sleep(0.05)
        threading.Timer(0.1, disk.may_put.set).start()
        chain.close(5)
        putter.join(5)
        assert ended == [False]
        assert chain.lost == [(8.0, 12.0, "dropped")]
        assert len(disk.heads()) == 2


# -- as configured -------------------------------------------------------------------------------


def test_open_tiers_without_a_folder_shares_ram() -> None:
    chain = open_tiers(StoreConfig(host_bytes=8 * 2**20, keyframe_bytes=2**30))
    tiers = chain.stats().tiers
    assert {name: tier.cap_bytes for name, tier in tiers.items()} == {
        "host": 6 * 2**20,
        "source": 2 * 2**20,
    }
    chain.close()


def test_open_tiers_names_the_least_ram() -> None:
    with pytest.raises(ConfigError, match=r"store.host_bytes: expected at least \d+"):
        open_tiers(StoreConfig(host_bytes=8 * 2**20), segment_bytes=4 * 2**20)


def test_open_tiers_names_the_least_disk(tmp_path: Path) -> None:
    with open_folder(tmp_path) as store:
        config = StoreConfig(disk_bytes=24 * 2**20, host_bytes=2**30)
        with pytest.raises(
            ConfigError, match=r"store.disk_bytes: expected at least (\d+)"
        ) as error:
            open_tiers(config, store=store, segment_bytes=2 * 2**20)
    enough = int(str(error.value).split("at least ")[1].split()[0])
    with open_folder(tmp_path / "larger", disk_bytes=enough) as store:
        chain = open_tiers(config, store=store, segment_bytes=2 * 2**20)
        assert chain.put(make_segment(0, 2 * 2**20 - 4096))
        assert chain.flush()
        assert 0 in store.segments
        chain.close()


def test_a_folder_survives_a_restart(tmp_path: Path) -> None:
    config = StoreConfig()
    chain = open_tiers(config, store=open_folder(tmp_path))
    for i in range(5):
        assert chain.put(make_segment(i), make_pictures(i))
    chain.close()
    again = open_tiers(config, store=open_folder(tmp_path))
    assert [again.where(i) for i in range(5)] == ["disk"] * 5
    assert same(again.get(3)[0], make_segment(3))
    assert same(again.pictures(3), make_pictures(3))
    again.check()
    again.close()


def test_nothing_of_what_was_erased_lives_on_in_the_writer(tmp_path: Path) -> None:
    """The thread waits for the next segment without the last one in its hands."""
    store = open_small(tmp_path)
    chain = TierChain(HostTier(2**24), store.segments, store.keyframes, on_close=store.close)
    segment_id = 987_654  # no other test's
    chain.put(make_segment(segment_id), make_pictures(segment_id))
    chain.flush()
    chain.remove([segment_id])

    def left() -> list[str]:
        jobs = [it for it in gc.get_objects() if type(it) is WriteJob]
        return [type(job.payload).__name__ for job in jobs if job.segment_id == segment_id]

    wait_until(lambda: left() == [])
    chain.close()
