"""The trained half against the stock model, and the search for misread frames."""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlavaOnevisionModel

from hermes_like.models.sprites import weights_folder
from hermes_like.sprites.world import Sprite
from pipelines.sprites_training.code import frame_code, token_code
from pipelines.sprites_training.frames import ContentMix, to_patches
from pipelines.sprites_training.perception import (
    SAFE_RESIDUAL,
    STYLES,
    PerceptionCount,
    all_codes,
    all_sprites,
    count_frames,
    misread_attributes,
    nearest_sprite,
)
from pipelines.sprites_training.vision import VisionHalf, load_vision, model_config, stock_state

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


def test_the_nearest_code_survives_noise_up_to_the_safe_residual() -> None:
    rng = np.random.default_rng(1)
    everything = all_sprites()
    for index in [0, *rng.integers(1, len(everything), 30).tolist()]:
        direction = rng.standard_normal(128)
        noise = SAFE_RESIDUAL * direction / np.linalg.norm(direction)
        token = (token_code(everything[index]) + noise).astype(np.float32)
        assert nearest_sprite(token) == everything[index]


def test_safe_residual_is_below_half_the_least_distance() -> None:
    codes = all_codes().astype(np.float64)
    norms = (codes**2).sum(1)
    least = np.inf
    for start in range(0, len(codes), 500):
        squares = (
            norms[start : start + 500, None] + norms - 2 * codes[start : start + 500] @ codes.T
        )
        rows = np.arange(len(squares))
        squares[rows, start + rows] = np.inf
        least = min(least, float(squares.min()))
    assert least**0.5 > 2 * SAFE_RESIDUAL


def test_count_knows_right_from_wrong() -> None:
    truth = (LEFT_STAR, TOP_MOON)
    swapped = (Sprite("star", "red", "left", 4), Sprite("moon", "blue", "top", 3))
    contents = [truth, truth, (LEFT_STAR,), ()]
    tokens = np.stack([frame_code(c) for c in (truth, swapped, (LEFT_STAR,), ())])
    count = PerceptionCount()
    count.add(contents, tokens, SAFE_RESIDUAL)
    state = count.state()
    assert state["num_frames"] == 4
    assert state["num_wrong_frames"] == 1
    assert state["num_wrong_tokens"] == 4
    assert state["wrong_frames_by_attribute"]["digit"] == 1
    assert PerceptionCount.from_state(state).state() == state


def test_misread_attributes_names_what_differs() -> None:
    assert misread_attributes(LEFT_STAR, None) == {"presence"}
    assert misread_attributes(None, None) == set()
    assert misread_attributes(LEFT_STAR, Sprite("star", "red", "top", 3)) == {"zone"}
    assert misread_attributes(LEFT_STAR, Sprite("moon", "blue", "left", 3)) == {"shape", "color"}


def test_the_bundled_model_reads_rendered_frames() -> None:
    count = PerceptionCount()
    rng = np.random.default_rng(3)
    vision = load_vision(weights_folder())
    count_frames(vision, count, rng, 200, STYLES["standard"], ContentMix())
    assert count.num_frames == 200
    assert count.num_wrong_frames == 0
    assert count.residual_max < 2 * SAFE_RESIDUAL
