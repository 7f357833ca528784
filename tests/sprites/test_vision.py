"""The trained half against the stock model, and the search for misread frames."""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlavaOnevisionModel

from hermes_like.sprites.world import ZONES, Sprite
from pipelines.sprites_training.code import NO_DIGIT, frame_code, tables
from pipelines.sprites_training.frames import draw_content, to_patches
from pipelines.sprites_training.perception import (
    PAIR_ZONES,
    SAFE_RESIDUAL,
    PerceptionCount,
    misread_attributes,
    nearest_content,
)
from pipelines.sprites_training.vision import VisionHalf, model_config, stock_state

LEFT_STAR = Sprite("star", "red", "left", 3)
TOP_MOON = Sprite("moon", "blue", "top", 4)


def test_vision_half_computes_what_the_stock_model_does() -> None:
    torch.manual_seed(0)
    vision = VisionHalf()
    for parameter in vision.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.3)
    stock = LlavaOnevisionModel(model_config()).eval()
    state = {name.removeprefix("model."): value for name, value in stock_state(vision).items()}
    report = stock.load_state_dict(state, strict=False)
    assert not report.unexpected_keys
    assert all(name.startswith("language_model.") for name in report.missing_keys)
    pixels = torch.rand(3, 3, 64, 64) * 2 - 1
    patches = [to_patches(p.permute(1, 2, 0).contiguous().numpy()) for p in pixels]
    with torch.no_grad():
        expected = stock.get_video_features(
            pixels[None], vision_feature_layer=-1, vision_feature_select_strategy="full"
        ).pooler_output.reshape(-1, 128)
        ours = vision(torch.from_numpy(np.stack(patches)))
    torch.testing.assert_close(ours.flatten(0, 1), expected[:12], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(vision.image_newline.data, expected[12])


def test_nearest_content_finds_every_kind_of_frame() -> None:
    rng = np.random.default_rng(1)
    contents = [(), *(draw_content(rng) for _ in range(12))]
    assert {len(content) for content in contents} == {0, 1, 2}
    for content in contents:
        direction = rng.standard_normal(128)
        noise = SAFE_RESIDUAL * direction / np.linalg.norm(direction)
        read = nearest_content((frame_code(content) + noise).astype(np.float32))
        assert set(read) == set(content)


def test_safe_residual_is_below_half_the_least_swap() -> None:
    """Two sprites that swap digits, or shapes, have the nearest codes of all (by sampling)."""
    t = tables()
    least = np.inf
    for names in PAIR_ZONES:
        first, second = (ZONES.index(name) for name in names)
        for bound in (t.zone_digit, t.zone_shape):
            change = bound[first] - bound[second]
            distance = 0.125 * np.linalg.norm(change[:, None] - change[None], axis=2)
            np.fill_diagonal(distance, np.inf)
            least = min(least, distance.min())
    assert t.zone_digit.shape[1] == NO_DIGIT + 1
    assert least > 2 * SAFE_RESIDUAL


def test_count_knows_right_from_wrong() -> None:
    truth = (LEFT_STAR, TOP_MOON)
    swapped = (Sprite("star", "red", "left", 4), Sprite("moon", "blue", "top", 3))
    contents = [truth, truth, (LEFT_STAR,)]
    tokens = np.stack([np.tile(frame_code(c), (4, 1)) for c in (truth, swapped, (LEFT_STAR,))])
    count = PerceptionCount()
    count.add(contents, tokens, SAFE_RESIDUAL)
    state = count.state()
    assert state["num_frames"] == 3
    assert state["num_wrong_frames"] == 1
    assert state["num_wrong_tokens"] == 4
    assert state["wrong_frames_by_attribute"]["digit"] == 1
    assert PerceptionCount.from_state(state).state() == state


def test_misread_attributes_names_what_differs() -> None:
    assert misread_attributes((LEFT_STAR,), (LEFT_STAR, TOP_MOON)) == {"count"}
    assert misread_attributes((LEFT_STAR,), (Sprite("star", "red", "top", 3),)) == {"zone"}
    changed = Sprite("moon", "blue", "left", 3)
    assert misread_attributes((LEFT_STAR,), (changed,)) == {"shape", "color"}
