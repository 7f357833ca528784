"""Pictures to bytes and back, and which frames get one."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from hermes_like.errors import StorageError
from hermes_like.tiers.keyframes import choose_keyframes, decode_picture, encode_picture


def blocks(height: int, width: int) -> np.ndarray:
    """Coloured blocks of 16 pixels, a picture that compresses well."""
    rng = np.random.default_rng(5)
    small = rng.integers(0, 256, (-(-height // 16), -(-width // 16), 3), dtype=np.uint8)
    return small.repeat(16, axis=0).repeat(16, axis=1)[:height, :width]


@pytest.mark.parametrize("format", ["jpeg", "webp"])
def test_round_trip_is_close_and_repeatable(format: Literal["jpeg", "webp"]) -> None:
    image = blocks(96, 128)
    data = encode_picture(image, format, 95)
    assert data == encode_picture(np.asfortranarray(image), format, 95)
    seen = decode_picture(memoryview(data))
    assert (seen.shape, seen.dtype) == (image.shape, np.uint8)
    error = np.abs(seen.astype(int) - image).mean()
    assert error < (2 if format == "jpeg" else 12), error
    coarse = encode_picture(image, format, 10)
    assert len(coarse) < len(data)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((480, 640), (240, 320)),
        ((640, 480), (320, 240)),
        ((30, 20), (30, 20)),
        ((1, 999), (1, 320)),
    ],
)
def test_only_larger_pictures_shrink(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    seen = decode_picture(encode_picture(blocks(*shape), longest_side=320))
    assert seen.shape == (*expected, 3)


def test_shrinking_keeps_colours_where_they_were() -> None:
    image = np.zeros((400, 800, 3), dtype=np.uint8)
    image[:, 400:] = (250, 20, 20)
    seen = decode_picture(encode_picture(image, longest_side=100)).astype(int)
    assert np.abs(seen[:, 60:] - (250, 20, 20)).max() < 12
    assert seen[:, :40].max() < 12


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4), dtype=np.uint8),
        np.zeros((4, 4, 4), dtype=np.uint8),
        np.zeros((4, 4, 3), dtype=np.float32),
        np.zeros((0, 4, 3), dtype=np.uint8),
    ],
)
def test_other_arrays_are_refused(image: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"expected \[H, W, 3\] uint8"):
        encode_picture(image)


def test_broken_files_are_refused() -> None:
    data = encode_picture(blocks(64, 64))
    for broken in (b"", b"GIF89a" + data, data[: len(data) // 3], b"\0" * 100):
        with pytest.raises(StorageError, match="expected a JPEG or WebP picture"):
            decode_picture(broken)


def test_keyframes_are_spread_evenly() -> None:
    assert choose_keyframes(16, 1) == [8]
    assert choose_keyframes(16, 2) == [4, 12]
    assert choose_keyframes(5, 5) == choose_keyframes(5, 9) == [0, 1, 2, 3, 4]
    assert choose_keyframes(0, 3) == choose_keyframes(7, 0) == []
    for frames in range(1, 40):
        for count in range(1, frames + 1):
            chosen = choose_keyframes(frames, count)
            assert len(set(chosen)) == count
            assert chosen == sorted(chosen)
            steps = np.diff([-chosen[0] - 1, *chosen, 2 * frames - chosen[-1]])
            assert max(steps[1:-1], default=0) - min(steps[1:-1], default=0) <= 1
