"""All layers of a segment on their way in: staged, copied and decoded in few pieces of work.

One block after the other costs an accelerator a dozen small launches per layer. Here the layers
that lie on one device are laid side by side along the axis of the heads, where every scheme treats
them alike, so that the numbers are the same bit for bit (``tests/codec/test_layers.py``).

Only the wanted tokens are copied, in their encoded form, from page-locked memory, on a stream
beside the one that computes; numbers are restored on the device. While one group of layers travels,
the next is verified and staged. On a CPU the same functions run one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hermes_like.codec import layout
from hermes_like.codec.base import KeyValues
from hermes_like.codec.schemes import SCHEMES, Section, Shape

#: Staged bytes that travel in one copy. Large enough for the full rate of a link, small enough that
#: the copy of one group hides the staging of the next.
GROUP_BYTES = 8 * 2**20
#: The same on a CPU, where nothing travels and what fits into its caches is quicker.
CPU_GROUP_BYTES = 2**20
#: Arrays in the staging buffer begin at multiples of this, so that any dtype may lie there.
ALIGNMENT = 16


Indices = npt.NDArray[np.int64]
#: A verified block: its header and what lies behind it.
Opened = tuple[layout.Header, memoryview]


def as_indices(keep: Tensor) -> Indices:
    """Token numbers for :func:`decode_run`.

    Args:
        keep: int64 ``[tokens]``, on any device.

    Raises:
        ValueError: Another dtype or shape.
    """
    if keep.dtype != torch.int64 or keep.dim() != 1:
        raise ValueError(f"keep: expected int64 [tokens], got {keep.dtype} {list(keep.shape)}")
    found: Indices = keep.cpu().numpy()
    return found


def taken(block: KeyValues, keep: Indices | None) -> KeyValues:
    """Some tokens of a decoded block; for codecs that cannot be decoded side by side."""
    if keep is None:
        return block
    _check_range(keep, block.values.shape[1])
    chosen = torch.from_numpy(keep).to(block.values.device)
    return KeyValues(block.raw_keys[:, chosen], block.values[:, chosen])


def decode_run(
    opened: Sequence[Opened], device: torch.device, keep: Indices | None
) -> list[KeyValues]:
    """Decode verified blocks of one header, side by side.

    Args:
        opened: What :meth:`PairCodec.open` gave, the same header in all of them.
        device: Where the tensors shall be.
        keep: Which tokens, in the order wanted; None: all of them.

    Returns:
        One block per layer: views of two tensors ``[layers, kv_heads, tokens, head_dim]``.

    Raises:
        ValueError: ``keep`` names a token that the blocks do not have.
    """
    header = opened[0][0]
    if keep is not None:
        _check_range(keep, header.tokens)
    payloads = [payload for _, payload in opened]
    staged = to_device(stage(header, payloads, keep, is_pinned=device.type == "cuda"), device)
    tokens = header.tokens if keep is None else len(keep)
    keys, values = restore(header, len(payloads), tokens, staged)
    return [KeyValues(k, v) for k, v in zip(keys, values, strict=True)]


def runs_of(
    opened: Iterator[tuple[layout.Header, memoryview, torch.device]], keep: Indices | None
) -> Iterator[tuple[torch.device, list[Opened]]]:
    """Put neighbours together that can be decoded side by side, up to ``GROUP_BYTES`` of them.

    Blocks are asked for one by one, so that those of the next run are verified while the copy of
    this one is under way.
    """
    for (header, device), group in groupby(opened, key=lambda one: (one[0], one[2])):
        share = 1.0 if keep is None else len(keep) / max(1, header.tokens)
        limit = CPU_GROUP_BYTES if device.type == "cpu" else GROUP_BYTES
        most = max(1, round(limit / max(1.0, header.block_bytes * share)))
        run: list[Opened] = []
        for _, payload, _ in group:
            run.append((header, payload))
            if len(run) == most:
                yield device, run
                run = []
        if run:
            yield device, run


# -- staging -------------------------------------------------------------------------------------


def _sections(header: layout.Header, tokens: int) -> list[tuple[Section, Section]]:
    """Every array of keys, then of values: as stored, and as staged with so many tokens."""
    pairs = []
    for number, (heads, stored, channels) in (
        (header.key_scheme, header.key_shape),
        (header.value_scheme, header.value_shape),
    ):
        scheme = SCHEMES[number]
        before = scheme.sections((heads, stored, channels), header.dtype)
        after = scheme.sections((heads, tokens, channels), header.dtype)
        pairs += list(zip(before, after, strict=True))
    return pairs


def _places(sections: Sequence[Section], layers: int) -> tuple[list[int], int]:
    """Where each array of all layers begins in the staging buffer, and where the last ends."""
    places, end = [], 0
    for section in sections:
        places.append(end)
        end += -(-layers * section.num_bytes // ALIGNMENT) * ALIGNMENT
    return places, end


def stage(
    header: layout.Header, payloads: Sequence[memoryview], keep: Indices | None, *, is_pinned: bool
) -> Tensor:
    """The wanted tokens of all layers, encoded as they are, section by section.

    Args:
        header: Of every block.
        payloads: What lies behind it in each.
        keep: As for :func:`decode_run`.
        is_pinned: Whether the buffer shall be page-locked.

    Returns:
        uint8 ``[bytes]`` on the CPU.
    """
    pairs = _sections(header, header.tokens if keep is None else len(keep))
    places, num_bytes = _places([after for _, after in pairs], len(payloads))
    # The allocator of page-locked memory keeps blocks and gives none away while a copy reads it.
    staging = torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)
    target = staging.numpy()
    wanted = slice(None) if keep is None else _as_slice(keep)
    first_of_values = len(pairs) - _num_value_sections(header)
    for layer, payload in enumerate(payloads):
        source = np.frombuffer(payload, dtype=np.uint8)
        offset = 0
        for index, ((before, after), place) in enumerate(zip(pairs, places, strict=True)):
            offset = header.values_at if index == first_of_values else offset
            begin = place + layer * after.num_bytes
            stored = source[offset : offset + before.num_bytes]
            _copy(stored, before, target[begin : begin + after.num_bytes], wanted)
            offset += before.num_bytes
    return staging


def _num_value_sections(header: layout.Header) -> int:
    return len(SCHEMES[header.value_scheme].sections(header.value_shape, header.dtype))


def _check_range(keep: Indices, tokens: int) -> None:
    if len(keep) and not 0 <= keep.min() <= keep.max() < tokens:
        raise ValueError(
            f"keep: expected tokens from 0 to {tokens - 1}, got {keep.min()} to {keep.max()}"
        )


def _as_slice(keep: Indices) -> slice | Indices:
    """A stretch of neighbours as a slice, which is copied in one piece per head."""
    if len(keep) and keep[-1] - keep[0] == len(keep) - 1 and bool((np.diff(keep) == 1).all()):
        return slice(int(keep[0]), int(keep[-1]) + 1)
    return keep


def _copy(
    stored: npt.NDArray[np.uint8],
    section: Section,
    target: npt.NDArray[np.uint8],
    wanted: slice | Indices,
) -> None:
    if not section.has_tokens or not stored.size:
        target[:] = stored
        return
    heads, tokens = section.shape[:2]
    rows = stored.reshape(heads, tokens, -1)
    aimed = target.reshape(heads, len(target) // (heads * rows.shape[2]), rows.shape[2])
    if isinstance(wanted, slice):
        aimed[:] = rows[:, wanted]
    else:
        # Indices are known to be in range; with "raise" numpy would buffer the result.
        np.take(rows, wanted, axis=1, out=aimed, mode="clip")


def to_device(staged: Tensor, device: torch.device) -> Tensor:
    """Copy staged bytes; on CUDA beside the computing stream, which is made to wait for them."""
    if device.type == "cpu":
        return staged
    if device.type != "cuda":
        return staged.to(device)
    side, current = _side_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(side):
        small = staged.to(device, non_blocking=True)
    current.wait_stream(side)
    small.record_stream(current)
    return small


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def restore(
    header: layout.Header, layers: int, tokens: int, staged: Tensor
) -> tuple[Tensor, Tensor]:
    """Numbers of keys and of values, ``[layers, kv_heads, tokens, head_dim]``, on the device."""
    pairs = _sections(header, tokens)
    places, _ = _places([after for _, after in pairs], layers)
    arrays = [
        staged[place : place + layers * section.num_bytes]
        .view(section.dtype)
        .view(layers * section.shape[0], *section.shape[1:])
        for (_, section), place in zip(pairs, places, strict=True)
    ]
    split = len(arrays) - _num_value_sections(header)
    found = []
    for number, parts, channels in (
        (header.key_scheme, arrays[:split], header.key_dim),
        (header.value_scheme, arrays[split:], header.value_dim),
    ):
        shape: Shape = (layers * header.heads, tokens, channels)
        numbers = SCHEMES[number].restore(parts, shape, header.dtype)
        found.append(numbers.view(layers, header.heads, tokens, channels))
    return found[0], found[1]
