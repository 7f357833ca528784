"""RAM: honest accounting, order of eviction, pins, reservations, and no borrowed buffers."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from hermes_like.errors import TierFullError
from hermes_like.tiers.base import KeyframeRecord, SegmentRecord
from hermes_like.tiers.host import HostKeyframes, HostTier, keyframe_cost, segment_cost
from tests.tiers.segments import make_pictures, make_segment, same


@pytest.mark.parametrize(("num_bytes", "layers"), [(2_000, 28), (40_000, 8), (300, 1)])
def test_what_is_counted_is_what_is_allocated(num_bytes: int, layers: int) -> None:
    """Python's own count of allocated memory is never above ours, and not far below."""
    tier, count = HostTier(2**30), 300
    tier.put(make_segment(10_000, num_bytes, layers))
    before = tier.used_bytes
    gc.collect()
    tracemalloc.start()
    try:
        for segment_id in range(count):
            tier.put(make_segment(segment_id, num_bytes, layers))
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = tier.used_bytes - before
    assert allocated <= counted, f"{allocated / count:.0f} allocated, {counted / count:.0f} counted"
    assert counted - allocated < 1_500 * count, "expected overhead that is real"


def test_pictures_are_counted_too() -> None:
    store, count = HostKeyframes(2**30), 300
    tracemalloc.start()
    try:
        for segment_id in range(count):
            store.put(make_pictures(segment_id))
        gc.collect()
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert allocated <= store.used_bytes < allocated + 1_500 * count


def test_oldest_goes_first_and_a_hit_moves_to_the_end() -> None:
    segments = [make_segment(i) for i in range(4)]
    tier = HostTier(sum(map(segment_cost, segments)))
    for segment in segments:
        tier.put(segment)
    tier.get(0)
    assert tier.evict(segment_cost(segments[0])) == [1]
    assert tier.evict(segment_cost(segments[0])) == []
    assert tier.evict(tier.cap_bytes) == [2, 3, 0]
    assert tier.used_bytes == 0


def test_pictures_keep_their_order_whatever_is_read() -> None:
    store = HostKeyframes(10 * keyframe_cost(make_pictures(0)))
    for segment_id in range(3):
        store.put(make_pictures(segment_id))
    store.get(0)
    assert store.evict(store.cap_bytes - store.used_bytes + 1) == [0]


def test_pins_and_reservations_stay_through_eviction() -> None:
    segment = make_segment(1)
    cost = segment_cost(segment)
    tier = HostTier(3 * cost)
    tier.put(segment, is_pinned=True)
    tier.reserve(cost)
    tier.put(make_segment(2))
    assert tier.held_bytes == 2 * cost
    with pytest.raises(TierFullError, match=f"{tier.used_bytes} of {tier.cap_bytes}"):
        tier.reserve(cost)
    assert tier.evict(2 * cost) == [2]
    assert same(tier.get(1), segment)
    tier.release(cost)
    tier.unpin(1)
    assert tier.evict(3 * cost) == [1]
    tier.check()


def test_views_of_a_large_buffer_are_copied() -> None:
    """A reader's staging buffer may be used again; what was put stays as it was."""
    made = make_segment(1)
    buffer = bytearray(b"".join(bytes(layer) for layer in made.layers))
    ends = np.cumsum([len(layer) for layer in made.layers]).tolist()
    views = tuple(
        memoryview(buffer)[end - len(layer) : end]
        for layer, end in zip(made.layers, ends, strict=True)
    )
    vectors = np.concatenate([made.head.vectors, made.head.vectors])
    head = replace(made.head, vectors=vectors[: made.head.num_frames])
    tier = HostTier(2**20)
    tier.put(SegmentRecord(head, views))
    buffer[:] = bytes(len(buffer))
    vectors[:] = 0
    assert same(tier.get(1), made)

    store = HostKeyframes(2**20)
    pictures = make_pictures(1)
    scratch = bytearray(pictures.images[0].data)
    borrowed = replace(pictures.images[0], data=memoryview(scratch))
    store.put(KeyframeRecord(pictures.head, (borrowed, pictures.images[1])))
    scratch[:] = bytes(len(scratch))
    assert same(store.get(1), pictures)


def test_a_second_put_replaces_the_first() -> None:
    tier = HostTier(segment_cost(make_segment(1)))
    tier.put(make_segment(1))
    newer = make_segment(1, version=1)
    tier.put(newer)
    assert same(tier.get(1), newer)
    tier.check()
    with pytest.raises(TierFullError):
        tier.put(make_segment(1, num_bytes=40_000))
    assert same(tier.get(1), newer), "a refused put may not harm what was there"
