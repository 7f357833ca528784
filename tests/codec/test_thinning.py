"""Taking what stands still out of stored segments, whatever codec wrote them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hermes_like.codec import CODECS, KeyValues, decode_block
from hermes_like.codec.thinning import thin_record
from hermes_like.errors import CodecError
from hermes_like.tiers.base import SegmentHead, SegmentRecord

FRAMES, PLACES, LAYERS = 5, 6, 3
#: Places that change from each frame to the next.
MOVING = (1, 4)


def segment(codec: str, *, is_moving: bool = False) -> SegmentRecord:
    """A segment of which only two places change; deeper layers change everywhere."""
    rng = torch.Generator().manual_seed(3)
    still = torch.randn(2, 1, PLACES, 16, generator=rng).expand(2, FRAMES, PLACES, 16).clone()
    noise = torch.randn(2, FRAMES, PLACES, 16, generator=rng)
    if is_moving:
        still = noise
    else:
        still[:, :, MOVING] = noise[:, :, MOVING]
    shallow = still + 0.01 * torch.randn(still.shape, generator=rng)
    blocks = [
        KeyValues(noise.flatten(1, 2) * (layer + 1), (noise if layer else shallow).flatten(1, 2))
        for layer in range(LAYERS)
    ]
    head = SegmentHead(
        segment_id=7,
        first_frame=35,
        frame_times_s=tuple(float(35 + i) for i in range(FRAMES)),
        end_s=40.0,
        frame_walls_s=(None,) * FRAMES,
        tokens_per_frame=PLACES,
        token_cells=np.arange(FRAMES * PLACES, dtype=np.uint32),
        vectors=np.ones((FRAMES, 2, 16), np.float32),
        content_key=bytes(16),
    )
    encoder = CODECS.get(codec)()
    return SegmentRecord(head, tuple(encoder.encode(block) for block in blocks))


@pytest.mark.parametrize("codec", CODECS.names())
def test_still_places_are_kept_once_and_bit_for_bit(codec: str) -> None:
    record = segment(codec)
    thinned = thin_record(record, 0.9)
    assert thinned is not None
    first = list(range(PLACES))
    later = [frame * PLACES + place for frame in range(1, FRAMES) for place in MOVING]
    assert thinned.head.token_cells.tolist() == first + later
    assert thinned.head.token_cells.dtype == np.uint32
    keep = torch.tensor(first + later)
    for before, after in zip(record.layers, thinned.layers, strict=True):
        whole, part = decode_block(before), decode_block(after)
        assert torch.equal(part.raw_keys, whole.raw_keys[:, keep])
        assert torch.equal(part.values, whole.values[:, keep])
    assert thinned.num_bytes < 0.75 * record.num_bytes
    assert thinned.head.vectors is record.head.vectors


def test_nothing_is_left_out_where_everything_moves_or_it_was_done() -> None:
    assert thin_record(segment("int8", is_moving=True), 0.9) is None
    thinned = thin_record(segment("int8"), 0.9)
    assert thinned is not None
    assert thin_record(thinned, 0.9) is None


def test_altered_blocks_are_refused() -> None:
    record = segment("int8")
    data = bytearray(record.layers[2])
    data[100] ^= 1
    with pytest.raises(CodecError):
        thin_record(SegmentRecord(record.head, (*record.layers[:2], bytes(data))), 0.9)
