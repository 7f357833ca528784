"""All layers at once against block after block: the same numbers and the same bytes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hermes_like.codec import (
    CODECS,
    KeyValues,
    decode_block,
    decode_layers,
    encode_layers,
    encoding,
    layers,
    layout,
)
from hermes_like.codec.encoding import encode_side_by_side
from hermes_like.codec.pair import PairCodec
from hermes_like.errors import CodecError
from tests.codec.blocks import DTYPES, KINDS, assert_equal, block

NAMES = CODECS.names()
TOKENS = 33
KEEPS = {
    "all": None,
    "a stretch": torch.arange(7, 19),
    "here and there": torch.tensor([3, 30, 4, 4, 0]),
    "one": torch.tensor([TOKENS - 1]),
    "none": torch.empty(0, dtype=torch.int64),
}


def coder(name: str) -> PairCodec:
    codec = CODECS.get(name)()
    assert isinstance(codec, PairCodec)
    return codec


def segment(name: str, dtype: torch.dtype = torch.bfloat16) -> list[KeyValues]:
    """Seven layers: five alike, one that no scheme can hold, one of another length."""
    made = [block("far_channels", dtype, seed=seed, tokens=TOKENS) for seed in range(6)]
    made[3].raw_keys[0, 0, 0] = float("nan")
    return [*made, block("normal", dtype, seed=9, tokens=TOKENS + 2)]


def picked(block: KeyValues, keep: Tensor | None) -> KeyValues:
    if keep is None:
        return block
    return KeyValues(block.raw_keys[:, keep], block.values[:, keep])


@pytest.mark.parametrize("keep", KEEPS.values(), ids=KEEPS)
@pytest.mark.parametrize("name", NAMES)
def test_layers_are_decoded_as_blocks_are(name: str, keep: Tensor | None) -> None:
    data = [coder(name).encode(one) for one in segment(name)]
    found = decode_layers(data, keep=keep)
    assert len(found) == len(data)
    for one, other in zip(data, found, strict=True):
        assert_equal(other, picked(decode_block(one), keep))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_numbers(kind: str, dtype: torch.dtype) -> None:
    keep = torch.tensor([5, 1, 2])
    for name in NAMES:
        blocks = [block(kind, dtype, 3, 11, 33, 20, seed=seed) for seed in range(3)]
        data = [coder(name).encode(one) for one in blocks]
        assert list(encode_side_by_side(coder(name), blocks)) == data
        for one, found in zip(data, decode_layers(data, keep=keep), strict=True):
            assert_equal(found, picked(decode_block(one), keep))


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_encoded_as_blocks_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = segment(name)
    expected = tuple(coder(name).encode(one) for one in blocks)
    assert encode_layers(coder(name), blocks) == expected
    assert encode_side_by_side(coder(name), blocks) == expected
    monkeypatch.setattr(encoding, "GROUP_NUMBERS", 2 * blocks[0].raw_keys.numel())
    assert encode_side_by_side(coder(name), blocks) == expected
    empty = [block("normal", torch.float16, tokens=0) for _ in range(2)]
    assert encode_side_by_side(coder(name), empty) == tuple(map(coder(name).encode, empty))


def test_layers_travel_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours that are alike are staged together, as many as a group may hold."""
    data = [coder("int8").encode(one) for one in segment("int8")]
    sizes: list[int] = []
    stage = layers.stage

    def counted(header, payloads, keep, *, is_pinned):  # type: ignore[no-untyped-def]
        sizes.append(len(payloads))
        assert not is_pinned, "nothing is page-locked for a CPU"
        return stage(header, payloads, keep, is_pinned=is_pinned)

    monkeypatch.setattr(layers, "stage", counted)
    decode_layers(data)
    assert sizes == [3, 1, 2, 1]
    sizes.clear()
    monkeypatch.setattr(layers, "CPU_GROUP_BYTES", 2 * len(data[0]))
    decode_layers(data)
    assert sizes == [2, 1, 1, 2, 1]


def test_staged_bytes_are_those_of_the_wanted_tokens() -> None:
    """What travels for one of sixteen frames is about a sixteenth."""
    data = coder("int8").encode(block("normal", torch.bfloat16, 2, 160, 64))
    header, payload = coder("int8").open(data)
    whole = layers.stage(header, [payload], None, is_pinned=False)
    part = layers.stage(header, [payload], layers.as_indices(torch.arange(10)), is_pinned=False)
    assert whole.numel() == pytest.approx(len(data) - layout.HEADER_BYTES, abs=64)
    scales = 2 * 2 * 64 * 4  # per channel, whatever is wanted
    assert part.numel() == pytest.approx((whole.numel() - scales) / 16 + scales, abs=64)


def test_damage_is_refused() -> None:
    data = [bytearray(coder("int8").encode(one)) for one in segment("int8")]
    data[2][-1] ^= 1
    with pytest.raises(CodecError, match="altered"):
        decode_layers(data, keep=torch.tensor([0]))
    # Whoever says that it was proved elsewhere gets what is there, if it has the right length.
    whole = [coder("int8").encode(one) for one in segment("int8")]
    for one, other in zip(
        decode_layers(whole), decode_layers(whole, is_verified=True), strict=True
    ):
        assert_equal(one, other)
    decode_layers(data, is_verified=True)
    data[2] = data[2][:-1]
    with pytest.raises(CodecError, match="expected a block of"):
        decode_layers(data, is_verified=True)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (torch.tensor([0, TOKENS]), "from 0 to 32, got 0 to 33"),
        (torch.tensor([-1]), "got -1 to -1"),
        (torch.tensor([True]), "expected int64"),
    ],
)
def test_tokens_that_are_not_there(keep: Tensor, message: str) -> None:
    data = [coder("int8").encode(block("normal", torch.bfloat16))]
    with pytest.raises(ValueError, match=message):
        decode_layers(data, keep=keep)


def test_a_codec_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows nothing of schemes is decoded block by block, among others that do."""
    from hermes_like import codec as package

    pair = type("Pair", (PairCodec,), {})
    data = [coder("int8").encode(block("normal", torch.bfloat16, seed=seed)) for seed in range(3)]
    expected = [decode_block(one) for one in data]
    monkeypatch.setattr(package, "PairCodec", pair)
    keep = torch.tensor([2, 9])
    for found, whole in zip(decode_layers(data, keep=keep), expected, strict=True):
        assert_equal(found, picked(whole, keep))
    with pytest.raises(ValueError, match="got 2 to 99"):
        decode_layers(data, keep=torch.tensor([2, 99]))
