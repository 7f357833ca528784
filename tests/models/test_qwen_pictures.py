"""Frames of the Qwen families: sizes, pixels and features as the library's own make them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
    Qwen2VLImageProcessorPil,
    smart_resize,
)

from hermes_like.errors import ConfigError
from hermes_like.models.pictures import fitted, frame_size
from tests.memory.streams import images

CPU = torch.device("cpu")


def processor(adapter, size: tuple[int, int]) -> Qwen2VLImageProcessorPil:
    """The library's image processor, set up for pictures of one size."""
    vision = adapter._model.config.vision_config
    edge = size[0] * size[1]
    return Qwen2VLImageProcessorPil(
        patch_size=vision.patch_size,
        merge_size=vision.spatial_merge_size,
        temporal_patch_size=vision.temporal_patch_size,
        size={"shortest_edge": edge, "longest_edge": edge},
        image_mean=list(adapter.mean),
        image_std=list(adapter.deviation),
    )


def smooth(height: int, width: int) -> np.ndarray:
    """A picture without hard edges."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 255 // width, y * 255 // height, (x + y) % 256 // 2], -1).astype(np.uint8)


def test_patches_equal_the_librarys_processor(qwen) -> None:
    """At the size of the model nothing is resized, and every number is the same."""
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*qwen.size, 3), dtype=np.uint8) for _ in range(3)]
    made = processor(qwen, qwen.size)([Image.fromarray(p) for p in pictures], return_tensors="pt")
    cut, grid = qwen.patches(pictures)
    torch.testing.assert_close(cut, made["pixel_values"], atol=1e-5, rtol=0)
    assert made["image_grid_thw"].tolist() == [[1, *grid[0, 1:].tolist()]] * 3


def test_resized_pixels_equal_the_librarys_processor(qwen) -> None:
    """Filters of two implementations: less than half a grey level apart on average."""
    tall, wide = qwen.size
    picture = smooth(tall * 5, wide * 5)
    made = processor(qwen, qwen.size)(Image.fromarray(picture), return_tensors="pt")
    cut, _ = qwen.patches([picture])
    difference = (cut - made["pixel_values"]).abs() * 255 * min(qwen.deviation)
    assert float(difference.mean()) < 0.5
    assert float(difference.max()) <= 2.01


@torch.inference_mode()
def test_features_equal_the_librarys(qwen) -> None:
    """Pictures one by one through the library, and as a video in which each stands twice."""
    pictures = images(4)
    tokens = qwen.embed_frames(pictures)
    hidden = qwen.dims.hidden_size
    where = slice(None)
    if qwen.dims.frame_text_tokens:
        where = slice(qwen._before, -qwen._after)
        outside = [tokens[:, : qwen._before], tokens[:, -qwen._after :]]
        assert not any(bool(part.any()) for part in outside)
    cut, grid = qwen.patches(pictures)
    side = grid[0, 1:].tolist()
    alone = qwen._core.get_image_features(cut, torch.tensor([[1, *side]] * 4))
    want = torch.stack(alone.pooler_output)
    torch.testing.assert_close(tokens[:, where, :hidden], want, atol=1e-6, rtol=0)
    for level, features in enumerate(getattr(alone, "deepstack_features", None) or (), 1):
        got = tokens[:, where, level * hidden : (level + 1) * hidden]
        torch.testing.assert_close(got, torch.stack(tuple(features)), atol=1e-6, rtol=0)
    assert qwen.dims.feature_levels == (3 if qwen.dims.frame_text_tokens else 1)


@pytest.mark.parametrize("unit", [28, 32])
@pytest.mark.parametrize("shape", [(9, 16), (3, 4), (1, 1), (16, 9), (480, 640)])
def test_sizes_keep_the_budget_and_the_shape(unit: int, shape: tuple[int, int]) -> None:
    """The same as the library gives a large picture of that shape, where its floats do not slip."""
    for tokens in (64, 100, 144, 150, 256, 777):
        size = frame_size(tokens * unit * unit, shape, unit)
        assert size[0] % unit == size[1] % unit == 0
        assert size[0] * size[1] <= tokens * unit * unit
        tall, wide = (1000 * part // max(shape) * 16 for part in shape)
        theirs = smart_resize(tall, wide, unit, unit * unit, tokens * unit * unit)
        assert all(0 <= ours - given <= unit for ours, given in zip(size, theirs, strict=True))
    assert frame_size(144 * unit * unit, (9, 16), unit) == (9 * unit, 16 * unit)


def test_a_budget_below_one_row_is_refused() -> None:
    with pytest.raises(ConfigError, match="frame_pixels: expected at least 1568"):
        frame_size(28 * 28, (9, 16), 28)
    assert frame_size(1568, (9, 16), 28) == (28, 28)


def test_another_shape_gets_borders_and_keeps_its_own() -> None:
    white = np.full((100, 100, 3), 255, np.uint8)
    frame = fitted(white, (252, 448), 28, CPU)[0]
    assert frame.shape == (3, 252, 448)
    columns = frame[0].mean(0)
    assert int((columns > 0).sum()) == 252, "expected a square in the middle"
    assert bool((columns[98:350] == 255).all())
    tall = fitted(np.full((400, 100, 3), 255, np.uint8), (252, 448), 28, CPU)[0]
    assert int((tall[0].mean(0) > 0).sum()) == 63


def test_about_the_same_shape_is_stretched() -> None:
    """Within one token the library stretches too; borders would be noise."""
    frame = fitted(np.full((240, 432, 3), 255, np.uint8), (252, 448), 28, CPU)
    assert bool((frame == 255).all())


@pytest.mark.parametrize("shape", [(31, 639), (2000, 8), (1, 1), (321, 241)])
def test_odd_sizes_become_one_frame(qwen, shape: tuple[int, int]) -> None:
    tokens = qwen.embed_frames([np.full((*shape, 3), 200, np.uint8)])
    assert tokens.shape == (1, qwen.dims.tokens_per_frame, qwen.dims.frame_channels)
    assert bool(torch.isfinite(tokens).all())
