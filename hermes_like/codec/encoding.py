"""All layers of a segment on their way out: encoded side by side, copied from the device at once.

Block by block an accelerator is waited for several times per layer. Here layers of one shape are
quantised together, and while one group travels to page-locked memory the next is computed. The
bytes are those of block by block (``tests/codec/test_layers.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from hermes_like.codec import layout
from hermes_like.codec.affine import is_quantisable_each
from hermes_like.codec.base import KeyValues, KVCodec
from hermes_like.codec.pair import PairCodec
from hermes_like.codec.schemes import AS_IT_IS

#: Numbers of keys and of values that are quantised together; float32 copies of them are made.
GROUP_NUMBERS = 16 * 2**20


def encode_layers(codec: KVCodec, blocks: Sequence[KeyValues]) -> tuple[bytes, ...]:
    """Encode all layers of a segment; the bytes of every block are those of ``codec.encode``.

    Args:
        codec: How they are stored.
        blocks: One per layer, on any devices.

    Raises:
        ValueError: A block cannot be encoded by any codec.
    """
    is_accelerated = blocks and blocks[0].raw_keys.device.type == "cuda"
    if not is_accelerated or not isinstance(codec, PairCodec):
        return tuple(codec.encode(block) for block in blocks)
    return encode_side_by_side(codec, blocks)


@torch.no_grad()
def encode_side_by_side(codec: PairCodec, blocks: Sequence[KeyValues]) -> tuple[bytes, ...]:
    """Encode neighbouring layers of one shape and device together, in one copy from the device."""
    waiting: list[tuple[list[layout.Header], Tensor, torch.cuda.Event | None]] = []
    for group in _alike(codec, blocks):
        headers, rows = codec.encode_alike(*group)
        waiting.append((headers, *_to_host(rows)))
    encoded: list[bytes] = []
    for headers, rows, copied in waiting:
        if copied is not None:
            copied.synchronize()
        encoded += [
            layout.join(header, row) for header, row in zip(headers, rows.numpy(), strict=True)
        ]
    return tuple(encoded)


def _alike(
    codec: PairCodec, blocks: Sequence[KeyValues]
) -> Iterator[tuple[Sequence[KeyValues], tuple[int, int]]]:
    """Neighbours of one shape, dtype, device and pair of schemes, some at a time."""
    schemes = _schemes_of_all(codec, blocks)

    def kind(index: int) -> tuple[object, ...]:
        keys, values = blocks[index].raw_keys, blocks[index].values
        return keys.shape, values.shape, keys.dtype, values.dtype, keys.device, schemes[index]

    for _, indices in groupby(range(len(blocks)), key=kind):
        numbers = list(indices)
        size = max(1, blocks[numbers[0]].raw_keys.numel())
        step = max(1, GROUP_NUMBERS // size)
        for start in range(0, len(numbers), step):
            part = numbers[start : start + step]
            yield [blocks[index] for index in part], schemes[part[0]]


def _schemes_of_all(codec: PairCodec, blocks: Sequence[KeyValues]) -> list[tuple[int, int]]:
    """How keys and values of every layer are stored, found with one wait per device."""
    schemes = codec.key_scheme, codec.value_scheme
    if schemes == (AS_IT_IS, AS_IT_IS):
        return [schemes] * len(blocks)
    can = is_quantisable_each([t for block in blocks for t in (block.raw_keys, block.values)])
    found = []
    for block, keys, values in zip(blocks, can[0::2], can[1::2], strict=True):
        is_empty = not block.raw_keys.numel() or not block.values.numel()
        key_scheme = schemes[0] if keys and not is_empty else AS_IT_IS
        found.append((key_scheme, schemes[1] if values and not is_empty else AS_IT_IS))
    return found


def _to_host(rows: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """Begin to copy uint8 ``[layers, bytes]`` to the host; the event says when it is there."""
    if rows.device.type != "cuda":
        return rows.cpu(), None
    target = torch.empty(rows.shape, dtype=torch.uint8, device="cpu", pin_memory=True)
    target.copy_(rows, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(rows.device))
    return target, copied
