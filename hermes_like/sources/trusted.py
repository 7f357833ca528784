"""Decoding packets one by one, and keeping back pictures that build on damaged or missing ones.

Works on what PyAV hands out and imports nothing of it but its error; whether packets come from a
file or from a camera it does not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from av.error import FFmpegError

from hermes_like.sources.key_frame_gate import KeyFrameGate

_MAX_ORDERS = 4096
_MAX_READ_ERRORS = 16


def guarded_packets(
    container: Any, stream: Any, gate: KeyFrameGate, before: Callable[[], None] = lambda: None
) -> Iterator[Any]:
    """Yield packets, and at the end None, which makes the decoder give what it still holds.

    Damage between packets is reported to the gate and read over, up to a number of times in a row.

    Args:
        container: Open.
        stream: Which of its streams.
        gate: Is told of damage.
        before: Called with every packet, empty ones included; may raise to end the reading.

    Raises:
        OSError: The medium failed; whoever reads knows how to name it.
    """
    num_errors = 0
    while num_errors < _MAX_READ_ERRORS:
        try:
            for packet in container.demux(stream):
                num_errors = 0
                before()
                if packet.size:
                    yield packet
            break
        except OSError:
            raise
        except FFmpegError:
            num_errors += 1
            gate.damage(None)
    yield None


def trusted_pictures(
    codec_context: Any, packets: Iterable[Any], gate: KeyFrameGate
) -> Iterator[Any]:
    """Yield the decoded pictures that can be trusted, in order of presentation.

    A picture shown early may build on one shown later, so a few are held until it is known that
    those are whole.

    Args:
        codec_context: Decodes a packet.
        packets: In order; None at the end makes the decoder give what it still holds.
        gate: Is told of damage, and decides what passes.
    """
    held: deque[tuple[Any, int | None]] = deque()
    orders: dict[int | None, int] = {}
    is_started = False
    order = 0
    for order, packet in enumerate(packets):
        is_started = is_started or packet is None or gate.passes(packet.is_keyframe, order)
        if not is_started:
            continue
        if packet is not None:
            orders[packet.pts] = order
            if packet.is_corrupt and is_started:
                gate.damage(order)
        try:
            pictures = codec_context.decode(packet)
        except FFmpegError:
            gate.damage(order)
            continue
        for picture in pictures:
            own_order = orders.pop(picture.pts, None)
            if picture.is_corrupt:
                gate.damage(own_order)
                held = deque(item for item in held if not _is_later(item[1], own_order))
            is_key = picture.key_frame and not picture.is_corrupt
            if gate.passes(is_key, own_order):
                held.append((picture, own_order))
        while len(held) > codec_context.reorder_depth:
            yield held.popleft()[0]
        if len(orders) > _MAX_ORDERS:
            orders.clear()
    yield from (picture for picture, _ in held)
    gate.settle(order)


def _is_later(order: int | None, than: int | None) -> bool:
    return order is not None and than is not None and order > than
