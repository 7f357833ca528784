"""What fits on a card, against the real cache and the real budget; and every preset's comment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hermes_like.card import GIB, STEP_TOKENS, Card, fit
from hermes_like.cli import run
from hermes_like.cli.plan_card import fit_cards
from hermes_like.cli.plan_model import model_shape, random_twin
from hermes_like.config import HermesConfig
from hermes_like.errors import BudgetError, ModelNotFoundError
from hermes_like.models import load_model
from hermes_like.plan import Assumptions, ModelShape, TierPlan, make_plan, usual_picture_bytes
from hermes_like.presets import header, load_config, preset_names, preset_path
from hermes_like.session import StreamSession

#: One line for each of them.
TABLE = Path(__file__).parents[1] / "docs" / "models.md"
#: Presets whose first comment has the arithmetic of three cards.
NAMES = (
    "llava-onevision-0.5b",
    "llava-onevision-7b",
    "qwen2-vl-7b",
    "qwen2.5-vl-3b",
    "qwen2.5-vl-7b",
    "qwen3-vl-2b",
    "qwen3-vl-4b",
    "qwen3-vl-8b",
    "qwen3-vl-moe-30b",
    "internvl3-8b",
    "llava-onevision-72b",
    "qwen2.5-vl-72b",
)


@pytest.mark.parametrize("name", ["llava-onevision-tiny", "qwen3-vl-tiny"])
def test_slots_and_least_tokens_are_those_of_a_session(name: str) -> None:
    preset = "llava-onevision-0.5b" if name.startswith("llava") else "qwen3-vl-2b"
    settings = {"model.name": f"random:{name}", "memory.segment_frames": "4"}
    settings |= {"memory.prefill_frames": "4", "store.host_bytes": str(2**28)}
    config = load_config(preset, settings, {})
    model = load_model(config.model)
    card = fit(config, model, 0, 1000.0)

    def session(device_tokens: int) -> StreamSession:
        memory = config.memory.model_copy(update={"device_tokens": device_tokens})
        return StreamSession(model, config.model_copy(update={"memory": memory}))

    with session(card.least_tokens) as held:
        layers = model.dims.num_layers
        assert card.slot_bytes == held.memory.slot_bytes * layers
        assert held.stats().device_bytes == card.least_tokens * card.slot_bytes
        budget = held.memory.budget
        assert budget.resident_tokens is not None
        overhead = card.least_tokens - budget.resident_tokens
    assert card.device_tokens == model.dims.max_positions
    assert card.resident_tokens == card.device_tokens - overhead
    with pytest.raises(BudgetError):
        session(card.least_tokens - 1)


def needed(card: Card, device_tokens: int) -> int:
    return card.weight_bytes + card.reserve_bytes + card.caches * device_tokens * card.slot_bytes


def test_what_is_offered_fits_and_more_does_not() -> None:
    config = load_config("qwen3-vl-8b", env={})
    for streams in (1, 4):
        for card in fit_cards(config, [8, 24, 80], streams=streams, reserve_gb=2.0):
            if not card.device_tokens:
                assert needed(card, card.least_tokens) > card.gpu_gb * GIB - STEP_TOKENS * 10**6
                continue
            assert card.caches == streams + 1
            assert card.device_tokens >= card.least_tokens
            assert needed(card, card.device_tokens) <= card.gpu_gb * GIB
            assert needed(card, card.device_tokens + STEP_TOKENS) > card.gpu_gb * GIB


@pytest.mark.parametrize("name", NAMES)
def test_comments_of_presets_say_what_the_command_says(name: str) -> None:
    config = load_config(name, env={})
    text = header(preset_path(name)).replace("\n# ", " ")
    cards = fit_cards(config, [8, 24, 80], streams=1, reserve_gb=2.0)
    fits = [f"{card.gpu_gb:g} GB: {card.device_tokens or 'does not fit'}" for card in cards]
    assert ", ".join(fits) in text
    assert f"Weights take {cards[0].weight_bytes / 1e9:.2f} GB" in text
    shape = model_shape(config.model)
    assert f"1.5 x {shape.kv_bytes_per_token} bytes" in text
    assert f"{shape.tokens_per_frame} tokens each" in text
    tokens = config.memory.device_tokens
    assert f"{tokens} slots take {tokens * cards[0].slot_bytes / 1e9:.2f} GB" in text
    if "over several cards" in text:
        (both,) = fit_cards(config, [282], streams=1, reserve_gb=4.0)
        assert f"--gpu-gb 282 --reserve-gb 4): {both.device_tokens}" in text
        cards.append(both)
    assert any(card.device_tokens >= tokens for card in cards), "the preset fits on a card"
    disk, fps = _tiers(config, shape)["disk"], config.source.sample_fps
    assert f"off the device is {disk.bytes_per_token:.0f} bytes in int8" in text
    assert f"at {fps:g} frames a second {disk.bytes_per_hour / 1e9:.1f} GB" in text
    assert _table_row(name, config, shape, cards) in TABLE.read_text(encoding="utf-8")


def _tiers(config: HermesConfig, shape: ModelShape) -> dict[str, TierPlan]:
    assumed = Assumptions(usual_picture_bytes(config))
    return make_plan(config, shape, cameras=1, days=1, assumptions=assumed).tiers


def _table_row(name: str, config: HermesConfig, shape: ModelShape, cards: Sequence[Card]) -> str:
    """The line of docs/models.md about a preset."""
    source = config.source.model_copy(update={"sample_fps": 1.0})
    tiers = _tiers(config.model_copy(update={"source": source}), shape)
    cells = [
        f"`{name}`", shape.tokens_per_frame, f"{cards[0].weight_bytes / 1e9:.1f}",
        *(card.device_tokens or "-" for card in cards[:3]), shape.kv_bytes_per_token,
        f"{tiers['disk'].bytes_per_hour / 1e9:.1f} GB",
        f"{tiers['keyframes'].bytes_per_hour / 1e6:.0f} MB",
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_can_be_planned(preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(preset, env={})
    if config.source.sample_fps is None:
        pytest.skip("a preset without a frame rate needs --fps")
    assert run(["plan", "--preset", preset, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["shape"]
    if config.model.name.isidentifier():  # bundled: the real thing is small
        model: Any = load_model(config.model)
    else:
        model = load_model(random_twin(config.model))
    dims = model.dims
    assert found["tokens_per_frame"] == dims.tokens_per_frame
    assert (found["num_layers"], found["num_kv_heads"]) == (dims.num_layers, dims.num_kv_heads)
    assert (found["head_dim"], found["itemsize"]) == (dims.head_dim, dims.dtype.itemsize)


def test_command_prints_cards(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "--model", "random:qwen3-vl-2b", "--gpu-gb", "4", "--gpu-gb", "24"]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "does not fit" in out
    assert run([*arguments, "--json"]) == 0
    small, large = json.loads(capsys.readouterr().out)["cards"]
    assert small["device_tokens"] == 0 < large["device_tokens"]
    assert str(large["device_tokens"]) in out
    assert large["weight_bytes"] == 2 * 2_127_532_032


def test_a_bundled_model_has_no_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--gpu-gb", "8"]) == 1
    assert "a hub name that a preset has" in capsys.readouterr().err
    with pytest.raises(ModelNotFoundError):
        random_twin(load_config("sprites", env={}).model)
