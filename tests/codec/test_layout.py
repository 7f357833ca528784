"""The bytes of a block: pinned, so that a change of the layout cannot go unnoticed."""

from __future__ import annotations

import struct

import pytest
import torch
import xxhash

from hermes_like.codec import CODECS, KeyValues, KVCodec, decode_block, describe_block
from hermes_like.codec.affine import pack_nibbles, unpack_nibbles
from hermes_like.errors import CodecError


def small_block(dtype: torch.dtype = torch.bfloat16) -> KeyValues:
    """Three tokens of two heads, exact in every dtype."""
    keys = torch.arange(2 * 3 * 5).reshape(2, 3, 5).to(dtype) - 7
    return KeyValues(keys, (keys * 3) % 11)


def forged(data: bytes, offset: int, value: bytes) -> bytes:
    """A block with other bytes somewhere and a checksum that holds."""
    body = bytearray(data)
    body[offset : offset + len(value)] = value
    digest = xxhash.xxh3_64_intdigest(bytes(body[:56]) + bytes(body[64:]))
    body[56:64] = struct.pack("<Q", digest)
    return bytes(body)


PINNED = {
    "raw": "eb53c8ccfe02bbc8",
    "int8": "cca31796491dfbf9",
    "k8v4": "da8aaf491df0f302",
    "int4": "86e539d6e1a88da0",
}


@pytest.mark.parametrize("name", PINNED)
def test_bytes_of_version_1(name: str) -> None:
    data = CODECS.get(name)().encode(small_block())
    assert xxhash.xxh3_64_hexdigest(data) == PINNED[name], "old memories could no longer be read"


def test_header() -> None:
    data = CODECS.get("k8v4")().encode(small_block())
    fields = struct.unpack("<4sH5Bx4I4x2Q8xQ", data[:64])
    keys, values = 2 * 2 * 5 * 4 + 2 * 3 * 5, 2 * 2 * 3 * 4 + 2 * 3 * 3
    assert fields[:-1] == (b"HLKV", 1, 3, 1, 2, 1, 4, 2, 3, 5, 5, keys, values)
    assert fields[-1] == xxhash.xxh3_64_intdigest(data[:56] + data[64:])
    assert len(data) == 64 + (keys + 7) // 8 * 8 + values


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (0, b"HLKW", "begins with"),
        (4, b"\x02\0", "layout version 1, got version 2: a newer release"),
        (6, b"\xc8", "unknown codec number 200.*expected one of: int4, int8, k8v4, raw"),
        (7, b"\x02", "codec 'int8'.*version 1, got number 2 version 2"),
        (8, b"\x09", "expected a dtype among .*got 9"),
        (9, b"\x63", "expected a scheme among .*got 99"),
        (16, b"\x04", "expected .* bytes of keys"),
        (32, b"\xff", "bytes, got"),
    ],
)
def test_unknown_and_impossible_headers_are_refused(offset: int, value: bytes, words: str) -> None:
    data = forged(CODECS.get("int8")().encode(small_block()), offset, value)
    with pytest.raises(CodecError, match=words):
        decode_block(data)


def test_a_damaged_codec_number_is_damage() -> None:
    data = bytearray(CODECS.get("int8")().encode(small_block()))
    data[6] = 200
    with pytest.raises(CodecError, match="altered"):
        decode_block(bytes(data))


def test_codecs_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of a plug-in are read through the same door, once it is there."""
    monkeypatch.setattr(CODECS, "_entries", dict(CODECS._entries))
    base: type[KVCodec] = CODECS.get("int8")
    plug_in = type("Mine", (base,), {"name": "mine", "codec_id": 201})
    data = plug_in().encode(small_block())
    with pytest.raises(CodecError, match=r"unknown codec number 201.*plug-in"):
        decode_block(data)
    CODECS.register("mine", plug_in)
    assert describe_block(data).codec == "mine"
    assert decode_block(data).values.shape == (2, 3, 5)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_nibbles(size: int) -> None:
    codes = torch.randint(0, 16, (3, size), generator=torch.Generator().manual_seed(size))
    packed = pack_nibbles(codes.to(torch.uint8))
    assert packed.shape == (3, (size + 1) // 2)
    assert torch.equal(unpack_nibbles(packed, size), codes.to(torch.uint8))
    assert packed[0, 0] == codes[0, 0] + 16 * (codes[0, 1] if size > 1 else 0)
