"""InternVL: pixels and features as the library's own make them, words of one length per frame."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

from hermes_like.config import ModelConfig
from hermes_like.models.internvl import FRAME_TEXT, InternVLAdapter
from hermes_like.models.internvl_shapes import (
    SHAPES,
    WORDS,
    adapter,
    build,
    tokens_per_frame,
)
from hermes_like.models.random_shapes import filled, load
from hermes_like.models.text import HashTokenizer
from tests.memory.streams import append, images, memory


@pytest.fixture(scope="module")
def model() -> InternVLAdapter:
    made = load(ModelConfig(name="random:internvl-tiny", device="cpu"), seed=1)
    assert isinstance(made, InternVLAdapter)
    return made


def processor(model: InternVLAdapter) -> GotOcr2ImageProcessorPil:
    """The library's image processor, without tiles, as it treats frames of a video."""
    tall, wide = model._size
    return GotOcr2ImageProcessorPil(
        size={"height": tall, "width": wide},
        image_mean=list(model.mean),
        image_std=list(model.deviation),
        crop_to_patches=False,
    )


def test_pixels_equal_the_librarys_processor(model) -> None:
    """At the size of the tower every number; resized, less than half a grey level on average."""
    rng = np.random.default_rng(0)
    exact = rng.integers(0, 256, (*model._size, 3), dtype=np.uint8)
    y, x = np.mgrid[0:90, 0:120]
    smooth = np.stack([x * 2, y * 2, (x + y)], -1).astype(np.uint8)
    want = [
        torch.as_tensor(np.array(processor(model)(Image.fromarray(p))["pixel_values"][0]))
        for p in (exact, smooth)
    ]
    got = model.pixels([exact, smooth])
    torch.testing.assert_close(got[0], want[0], atol=1e-5, rtol=0)
    difference = (got[1] - want[1]).abs() * 255 * min(model.deviation)
    assert float(difference.mean()) < 0.5
    assert float(difference.max()) <= 2.01


@torch.inference_mode()
def test_features_equal_the_librarys(model) -> None:
    pictures = images(3)
    tokens = model.stamp(model.embed_frames(pictures), [0.0, 1.0, 2.0])
    want = model._model.get_image_features(
        model.pixels(pictures), vision_feature_layer=-1, vision_feature_select_strategy="default"
    ).pooler_output
    before, after = (model.encode_text(part) for part in FRAME_TEXT)
    torch.testing.assert_close(tokens[:, len(before) : -len(after)], want, atol=1e-6, rtol=0)
    for frame in tokens:
        assert torch.equal(frame[: len(before)], model.embed_text(before))
        assert torch.equal(frame[-len(after) :], model.embed_text(after))


@torch.inference_mode()
def test_logits_equal_the_librarys_ids_and_pixels(model) -> None:
    """Prompt, words of frames and pictures as the family's processor would write them."""
    pictures, text = images(4), [72, 105]
    target = memory(model, "full", resident=None)
    append(target, pictures, 2)
    with target.cache.fork() as cache:
        ids = -500 - torch.arange(2)
        got = target.extend(cache, model.embed_text(text), ids, logits=True)
    place = model._model.config.image_token_id
    before, after = (model.encode_text(part) for part in FRAME_TEXT)
    frame = [*before, *[place] * (model.dims.grid[0] * model.dims.grid[1]), *after]
    written = torch.tensor([[*model.prefix_ids(), *frame * 4, *text]])
    fresh = load(ModelConfig(name="random:internvl-tiny", device="cpu"), seed=1)._model
    fresh.set_attn_implementation("sdpa")
    want = fresh(input_ids=written, pixel_values=model.pixels(pictures)).logits[0, -1]
    torch.testing.assert_close(got, want, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "kv_bytes", "parameters"),
    [
        ("internvl3-1b", 12_288, 0.94e9),
        ("internvl3-2b", 28_672, 2.09e9),
        ("internvl3-8b", 57_344, 7.94e9),
        ("internvl3.5-8b", 147_456, 8.53e9),
    ],
)
def test_released_shapes(name: str, kv_bytes: int, parameters: float) -> None:
    """256 tokens a picture, bytes a token in 16 bits, and parameters as published."""
    made = filled(lambda: build(name), device=torch.device("meta"), dtype=torch.bfloat16, seed=0)
    dims = adapter(made, name, ModelConfig(name=f"random:{name}")).dims
    assert dims.grid == (16, 16)
    assert tokens_per_frame(SHAPES[name]["vision"]) == dims.tokens_per_frame == 262
    assert tokens_per_frame({"image_size": [448, 448], "patch_size": [14, 14]}) == 262
    assert dims.kv_bytes_per_token == kv_bytes
    assert sum(p.numel() for p in made.parameters()) == pytest.approx(parameters, rel=0.01)


def test_large_random_shapes_count_words_as_released_tokenizers_do() -> None:
    words = HashTokenizer(151_674, WORDS)
    assert [len(words.encode(part)) for part in FRAME_TEXT] == [4, 2]
