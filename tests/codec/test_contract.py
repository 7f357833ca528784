"""One test that every registered codec passes, on ordinary and on awkward blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_like.codec import (
    CODECS,
    KeyValues,
    KVCodec,
    decode_block,
    describe_block,
    select_tokens,
)
from hermes_like.errors import CodecError, ConfigError
from tests.codec.blocks import DTYPES, KINDS, assert_equal, assert_within_bounds, block

NAMES = CODECS.names()
SIZES = [(2, 33, 40, 40), (1, 1, 1, 1), (3, 2, 33, 65), (1, 7, 5, 3), (2, 64, 64, 64)]


def codec(name: str) -> KVCodec:
    return CODECS.get(name)()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str, kind: str, dtype: torch.dtype) -> None:
    coder = codec(name)
    for seed, size in enumerate(SIZES):
        given_block = block(kind, dtype, *size, seed=seed)
        before = KeyValues(given_block.raw_keys.clone(), given_block.values.clone())
        data = coder.encode(given_block)
        assert data == codec(name).encode(given_block), "expected equal bytes for equal input"
        found = decode_block(data)
        assert_equal(given_block, before)
        assert found.raw_keys.dtype == found.values.dtype == dtype
        assert_within_bounds(found, given_block, coder.error_bounds(given_block))
        info = describe_block(data)
        assert (info.codec, info.version, info.dtype) == (name, coder.version, dtype)
        assert info.key_shape == tuple(given_block.raw_keys.shape)
        assert info.value_shape == tuple(given_block.values.shape)
        assert info.num_bytes == len(data)
        keep = torch.rand(size[1], generator=torch.Generator().manual_seed(seed)) < 0.5
        expected = KeyValues(found.raw_keys[:, keep], found.values[:, keep])
        thinned = select_tokens(data, keep)
        assert_equal(decode_block(thinned), expected)
        assert select_tokens(data, torch.ones_like(keep)) == data
        again = torch.zeros(int(keep.sum()), dtype=torch.bool)
        assert decode_block(select_tokens(thinned, again)).values.shape[1] == 0


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(NAMES),
    kind=st.sampled_from(list(KINDS)),
    dtype=st.sampled_from(DTYPES),
    heads=st.integers(1, 3),
    tokens=st.integers(0, 40),
    key_dim=st.integers(1, 70),
    value_dim=st.integers(1, 70),
    power=st.integers(-20, 20),
    seed=st.integers(0, 2**31),
)
def test_errors_stay_below_what_is_declared(
    name: str,
    kind: str,
    dtype: torch.dtype,
    heads: int,
    tokens: int,
    key_dim: int,
    value_dim: int,
    power: int,
    seed: int,
) -> None:
    made = block(kind, dtype, heads, tokens, key_dim, value_dim, seed)
    limit = torch.finfo(dtype).max
    given_block = KeyValues(
        *((x.double() * 2.0**power).clamp(-limit, limit).to(dtype) for x in _tensors(made))
    )
    coder = codec(name)
    found = decode_block(coder.encode(given_block))
    assert_within_bounds(found, given_block, coder.error_bounds(given_block))


def _tensors(made: KeyValues) -> tuple[torch.Tensor, torch.Tensor]:
    return made.raw_keys, made.values


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_half_a_step(name: str) -> None:
    """The declared bound is worth something: the largest errors come close to it."""
    given_block = block("normal", torch.float32, tokens=256, key_dim=64)
    bounds = codec(name).error_bounds(given_block)
    found = decode_block(codec(name).encode(given_block))
    for kind in ("raw_keys", "values"):
        error = (getattr(found, kind) - getattr(given_block, kind)).abs()
        bound = getattr(bounds, kind)
        if name == "raw":
            assert bool((bound == 0).all())
        else:
            assert float((error / bound).max()) > 0.99
            assert float(bound.max()) < (0.03 if name == "int8" else 0.3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_is_stored_as_it_is(name: str, dtype: torch.dtype, value: float) -> None:
    """The other tensor of the block is quantised all the same."""
    for spoilt in ("raw_keys", "values"):
        given_block = block("normal", dtype)
        getattr(given_block, spoilt)[1, 3, 5] = value
        data = codec(name).encode(given_block)
        found = decode_block(data)
        other = "values" if spoilt == "raw_keys" else "raw_keys"
        unspoilt = decode_block(codec(name).encode(block("normal", dtype)))
        expected = {
            spoilt: getattr(given_block, spoilt),
            other: getattr(unspoilt, other),
        }
        assert_equal(found, KeyValues(**expected))
        bounds = codec(name).error_bounds(given_block)
        assert bool((getattr(bounds, spoilt) == 0).all())
        assert name == "raw" or len(data) < len(codec("raw").encode(given_block))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_constant_groups_are_exact(name: str, dtype: torch.dtype) -> None:
    """Keys with constant channels, values with constant tokens; one token is all constant keys."""
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(2, 1, 40, generator=generator).to(dtype).expand(2, 9, 40)
    values = torch.randn(2, 9, 1, generator=generator).to(dtype).expand(2, 9, 40)
    given_block = KeyValues(keys, values)
    assert_equal(decode_block(codec(name).encode(given_block)), given_block)


@pytest.mark.parametrize("shape", [(2, 0, 8), (0, 3, 8), (2, 3, 0), (0, 0, 0)])
@pytest.mark.parametrize("name", NAMES)
def test_empty_blocks(name: str, shape: tuple[int, int, int]) -> None:
    empty = KeyValues(torch.empty(shape), torch.empty(shape))
    data = codec(name).encode(empty)
    assert_equal(decode_block(data), empty)
    assert codec(name).error_bounds(empty).values.shape == shape
    keep = torch.zeros(shape[1], dtype=torch.bool)
    assert decode_block(select_tokens(data, keep)).values.shape == (shape[0], 0, shape[2])


@pytest.mark.parametrize("name", NAMES)
def test_views_and_modes_do_not_matter(name: str) -> None:
    """Strided views, read-only buffers, tensors of inference mode and with gradients."""
    big = block("normal", torch.float32, heads=4, tokens=66)
    view = KeyValues(big.raw_keys[::2, ::2], big.values.transpose(0, 1)[:4, :33].flip(1))
    whole = KeyValues(view.raw_keys[:, :4].contiguous(), view.values[:2, :4].contiguous())
    strided = KeyValues(view.raw_keys[:, :4], view.values[:2, :4])
    data = codec(name).encode(whole)
    assert codec(name).encode(strided) == data
    with torch.inference_mode():
        inside = codec(name).encode(KeyValues(whole.raw_keys.clone(), whole.values.clone()))
    leaves = KeyValues(whole.raw_keys.requires_grad_(), whole.values.requires_grad_())
    assert inside == codec(name).encode(leaves) == data
    expected = decode_block(data)
    for form in (bytearray(data), memoryview(data), memoryview(bytearray(data))):
        assert_equal(decode_block(form), expected)
    expected.values.add_(1)  # what is decoded belongs to the caller


@pytest.mark.parametrize("name", NAMES)
def test_any_alteration_is_found(name: str) -> None:
    data = codec(name).encode(block("normal", torch.bfloat16, tokens=5, key_dim=8))
    for place in range(len(data)):
        for bit in (0, 7):
            altered = bytearray(data)
            altered[place] ^= 1 << bit
            for read in (decode_block, describe_block, codec(name).decode):
                with pytest.raises(CodecError):
                    read(bytes(altered))
    keep = torch.ones(5, dtype=torch.bool)
    for wrong in (
        b"",
        data[:3],
        data[:63],
        data[:64],
        data[:-1],
        data[1:],
        data + b"\0",
        data + data,
        bytes(len(data)),
    ):
        with pytest.raises(CodecError):
            decode_block(wrong)
        with pytest.raises(CodecError):
            select_tokens(wrong, keep)


@pytest.mark.parametrize("name", NAMES)
def test_misuse_says_what_was_expected(name: str) -> None:
    coder, good = codec(name), block("normal", torch.float32, tokens=4)
    wrong = {
        "one dtype": [
            KeyValues(good.raw_keys.double(), good.values.double()),
            KeyValues(good.raw_keys, good.values.half()),
        ],
        "same heads and tokens": [
            KeyValues(good.raw_keys, good.values[:, :3]),
            KeyValues(good.raw_keys[None], good.values[None]),
        ],
    }
    for words, blocks in wrong.items():
        for bad in blocks:
            with pytest.raises(ValueError, match=words):
                coder.encode(bad)
            with pytest.raises(ValueError, match=words):
                coder.error_bounds(bad)
    data = coder.encode(good)
    for keep in (torch.ones(3, dtype=torch.bool), torch.ones(4)):
        with pytest.raises(ValueError, match=r"keep: expected bool \[4\]"):
            select_tokens(data, keep)
    other = codec("raw" if name != "raw" else "int8")
    with pytest.raises(CodecError, match=f"expected a block of codec '{other.name}'"):
        other.decode(data)


def test_names_and_numbers_belong_to_one_codec_each() -> None:
    found = [CODECS.get(name) for name in NAMES]
    assert [c.name for c in found] == NAMES
    assert len({c.codec_id for c in found}) == len(NAMES)
    assert {c.name: c.codec_id for c in found} == {"raw": 1, "int8": 2, "k8v4": 3, "int4": 4}
    with pytest.raises(ConfigError, match="did you mean 'int8'"):
        CODECS.get("int88")


@pytest.mark.parametrize(("name", "most"), [("raw", 2.001), ("int8", 1.06), ("k8v4", 0.94)])
def test_bytes_per_value(name: str, most: float) -> None:
    """bfloat16, heads of 128, a segment of 16 frames of 49 tokens."""
    made = block("normal", torch.bfloat16, heads=2, tokens=784, key_dim=128)
    assert len(codec(name).encode(made)) / (2 * made.values.numel()) < most


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_accelerator_comes_to_the_same_bytes(name: str, dtype: torch.dtype) -> None:
    made = block("far_channels", dtype, heads=4, tokens=257, key_dim=80)
    data = codec(name).encode(made)
    on_device = KeyValues(made.raw_keys.cuda(), made.values.cuda())
    assert codec(name).encode(on_device) == data
    found = decode_block(data, "cuda")
    assert found.values.is_cuda
    assert_equal(KeyValues(found.raw_keys.cpu(), found.values.cpu()), decode_block(data))
