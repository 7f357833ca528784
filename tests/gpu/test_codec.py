"""Codecs on a GPU: the numbers and bytes of the CPU, whichever way they take."""

from __future__ import annotations

import pytest
import torch

from hermes_like.codec import (
    CODECS,
    KeyValues,
    decode_block,
    decode_layers,
    encode_layers,
    layers,
)
from tests.codec.blocks import KINDS, assert_equal, block

pytestmark = pytest.mark.gpu
NAMES = CODECS.names()


def moved(one: KeyValues, device: torch.device | str) -> KeyValues:
    return KeyValues(one.raw_keys.to(device), one.values.to(device))


def segment(kind: str, tokens: int = 64) -> list[KeyValues]:
    made = [block(kind, torch.bfloat16, 2, tokens, 64, seed=seed) for seed in range(5)]
    made[2].values[0, 0, 0] = float("inf")  # stored as it is, among others that are not
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_numbers_are_those_of_the_cpu(name: str, kind: str, device: torch.device) -> None:
    codec = CODECS.get(name)()
    blocks = segment(kind)
    data = encode_layers(codec, [moved(one, device) for one in blocks])
    assert data == tuple(codec.encode(one) for one in blocks)
    keep = torch.tensor([3, 9, 10, 60])
    for found, one in zip(decode_layers(data, device, keep), data, strict=True):
        whole = decode_block(one)
        assert found.raw_keys.device == device
        assert_equal(moved(found, "cpu"), KeyValues(whole.raw_keys[:, keep], whole.values[:, keep]))


def test_copies_that_overlap_bring_the_right_bytes(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staging buffers are used again while earlier copies and kernels are still in line."""
    monkeypatch.setattr(layers, "GROUP_BYTES", 1 << 18)
    codec = CODECS.get("int8")()
    blocks = [block("far_channels", torch.bfloat16, 4, 1024, 128, seed=seed) for seed in range(12)]
    data = [codec.encode(one) for one in blocks]
    busy = torch.randn(4096, 4096, device=device)
    found = []
    for _ in range(3):
        busy = (busy @ busy).tanh()
        found.append(decode_layers(data, device))
    for blocks_found in found:
        for one, other in zip(data, blocks_found, strict=True):
            assert_equal(moved(other, "cpu"), decode_block(one))


def test_what_travels_is_page_locked(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[torch.Tensor] = []
    to_device = layers.to_device

    def watched(staged: torch.Tensor, device: torch.device) -> torch.Tensor:
        sent.append(staged)
        return to_device(staged, device)

    monkeypatch.setattr(layers, "to_device", watched)
    codec = CODECS.get("int8")()
    data = [codec.encode(one) for one in segment("normal")]
    decode_layers(data, device, torch.arange(4))
    assert sent
    assert all(staged.is_pinned() for staged in sent)
    assert sum(staged.numel() for staged in sent) < sum(map(len, data)) / 2
