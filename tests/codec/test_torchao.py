"""Scales and codes against torchao's affine primitives, written by other people."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
import torch

from hermes_like.codec import affine
from hermes_like.codec.schemes import KEYS_4, KEYS_8, SCHEMES, VALUES_4, VALUES_8
from tests.codec.blocks import block

HEADS, TOKENS, CHANNELS = 2, 48, 64


@pytest.fixture(scope="module")
def primitives() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "torchao.quantization.quant_primitives", reason="torchao is not installed"
        )


@pytest.mark.parametrize(
    ("number", "bits", "group"),
    [
        (KEYS_8, 8, (1, TOKENS, 1)),
        (KEYS_4, 4, (1, TOKENS, 1)),
        (VALUES_8, 8, (1, 1, CHANNELS)),
        (VALUES_4, 4, (1, 1, 32)),
    ],
)
def test_torchao_agrees(
    primitives: ModuleType, number: int, bits: int, group: tuple[int, int, int]
) -> None:
    """torchao counts from the middle code and we from the least: its zero is moved before use."""
    highest, middle = 2**bits - 1, 2 ** (bits - 1)
    x = block("far_channels", torch.float32, HEADS, TOKENS, CHANNELS, seed=number).raw_keys
    theirs_scale, theirs_middle = primitives._choose_qparams_affine_tinygemm(
        x,
        primitives.MappingType.ASYMMETRIC,
        group,
        torch.uint8,
        quant_min=0,
        quant_max=highest,
        eps=1e-12,
        scale_dtype=torch.float32,
        zero_point_dtype=torch.float32,
    )
    theirs_codes = primitives._quantize_affine_tinygemm(
        x, group, theirs_scale, theirs_middle, torch.uint8, 0, highest
    )
    theirs = primitives._dequantize_affine_tinygemm(
        theirs_codes, group, theirs_scale, theirs_middle, torch.uint8, 0, highest
    )
    scheme = SCHEMES[number]
    scale, zero, packed = scheme.arrays(x)
    codes = packed if bits == 8 else affine.unpack_nibbles(packed, CHANNELS)
    torch.testing.assert_close(scale.flatten(), theirs_scale.flatten(), rtol=1e-6, atol=0)
    torch.testing.assert_close(
        zero.flatten(), (theirs_middle - theirs_scale * middle).flatten(), rtol=1e-4, atol=1e-4
    )
    # Their zero is rounded once more on its way, so numbers half-way between codes may differ.
    differences = (codes.int() - theirs_codes.int()).abs()
    assert int(differences.max()) <= 1
    assert float(differences.float().mean()) < 1e-3
    ours = scheme.decode(scheme.encode(x), (HEADS, TOKENS, CHANNELS), x.dtype)
    step = scheme.error_bounds(x) * 2
    assert bool(((ours - theirs).abs() <= step * (differences > 0) + 1e-4).all())
