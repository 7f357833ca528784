"""Presets, environment and settings become one configuration, or a message that helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError
from hermes_like.presets import (
    ENV_PREFIX,
    config_keys,
    env_name,
    header,
    load_config,
    preset_names,
    preset_path,
    to_yaml,
)

SPRITES_PRESETS = (
    "sprites",
    "full",
    "window",
    "sink_window",
    "uniform",
    "hermes",
    "hermes_paper",
    "hermes_released",
)


@pytest.mark.parametrize("name", preset_names())
def test_preset_is_complete_and_up_to_date(name: str) -> None:
    path = preset_path(name)
    expected = to_yaml(load_config(name, env={}))
    assert path.read_text() == f"{header(path)}\n\n{expected}", "run: make presets"
    assert header(path), "a preset starts with a comment that says what it is for"


def test_presets_for_sprites_promise_the_same_cap() -> None:
    configs = [load_config(name, env={}) for name in SPRITES_PRESETS]
    assert {config.memory.device_tokens for config in configs} == {
        HermesConfig().memory.device_tokens
    }
    assert {config.model.name for config in configs} == {"sprites"}


def test_sprites_preset_is_the_default() -> None:
    assert load_config("sprites", env={}) == load_config(env={}) == HermesConfig()


def test_later_settings_win(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("memory:\n  device_tokens: 300\n  answer_tokens: 9\nsource:\n  sample_fps: 2\n")
    env = {"HERMES_LIKE__MEMORY__DEVICE_TOKENS": "400", "HERMES_LIKE__SOURCE__SAMPLE_FPS": "4"}
    config = load_config(path, {"memory.device_tokens": "500"}, env)
    assert (config.memory.device_tokens, config.memory.answer_tokens) == (500, 9)
    assert config.source.sample_fps == 4.0


def test_every_key_has_a_variable() -> None:
    config = HermesConfig()
    for key in config_keys():
        section, name = key.split(".")
        value = getattr(getattr(config, section), name)
        text = "null" if value is None else str(value)
        if isinstance(value, tuple):
            text = json.dumps(value)
        assert load_config(env={env_name(key): text}) == config, key


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("source.sample_fps", "null", None),
        ("source.skip_duplicates", "true", True),
        ("answer.temperature", "1e-3", 0.001),
        ("policy.attention", "true", "true"),
        ("policy.smoothing", "[0, 0.5, 1]", (0.0, 0.5, 1.0)),
        ("model.name", "123", "123"),
        ("model.revision", "null", None),
        ("answer.stop", '["."]', (".",)),
    ],
)
def test_text_becomes_the_type_of_the_field(key: str, text: str, expected: object) -> None:
    section, name = key.split(".")
    config = load_config(None, {key: text}, {})
    assert getattr(getattr(config, section), name) == expected


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("memry:\n  device_tokens: 1\n", ["'memry'", "did you mean 'memory'"]),
        ("memory:\n  device_token: 1\n", ["'memory.device_token'", "'memory.device_tokens'"]),
        ("policy:\n  device_tokens: 9\n", ["'policy.device_tokens'", "'memory.device_tokens'"]),
        ("memory:\n  zzz: 1\n", ["unknown key 'memory.zzz'"]),
        ("memory:\n  device_tokens: '9'\n", ["memory.device_tokens", "a whole number", "'9'"]),
        ("memory:\n  device_tokens: 9.5\n", ["memory.device_tokens", "a whole number", "9.5"]),
        ("memory:\n  device_tokens: true\n", ["a whole number, got True"]),
        ("memory:\n  device_tokens: 3\n", ["greater than or equal to 16, got 3"]),
        ("memory:\n  device_tokens:\n", ["a whole number, got None"]),
        ("source:\n  skip_duplicates: 1\n", ["true or false, got 1"]),
        ("policy:\n  attention: true\n", ["expected 'true' or 'embedding', got True"]),
        ("policy:\n  smoothing: [1]\n", ["policy.smoothing.1: expected a value"]),
        ("policy:\n  smoothing: 1\n", ["policy.smoothing: expected a list, got 1"]),
        ("memory:\n  segment_frames: 4\n  prefill_frames: 3\n", ["divisor of segment_frames (4)"]),
        ("source:\n  start_time: 2026-01-02T03:04:05\n", ["with an offset"]),
        ("answer:\n  top_p: .nan\n", ["answer.top_p", "finite"]),
        ("memory: 5\n", ["memory: expected keys below it, got 5"]),
        ("- 1\n", ["expected sections with keys"]),
        ("a: [\n", ["not a readable YAML file"]),
        ("memory:\n  device_tokens: 300\n  device_tokens: 400\n", ["'device_tokens'", "twice"]),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, content: str, parts: list[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path, env={})
    for part in [str(path), *parts]:
        assert part in str(caught.value)


def test_all_mistakes_are_reported_with_their_origin(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("memory:\n  device_tokens: 1\n")
    env = {"HERMES_LIKE__ANSWER__TOP_P": "2"}
    with pytest.raises(ConfigError) as caught:
        load_config(path, {"source.sample_fps": "fast"}, env)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert any(line.startswith(f"{path}: memory.device_tokens") for line in lines)
    assert any(line.startswith("HERMES_LIKE__ANSWER__TOP_P: answer.top_p") for line in lines)
    assert any(line.startswith("setting source.sample_fps=fast") for line in lines)


def test_unknown_variable_under_the_prefix_is_an_error() -> None:
    with pytest.raises(ConfigError, match="did you mean 'HERMES_LIKE__MEMORY__DEVICE_TOKENS'"):
        load_config(env={f"{ENV_PREFIX}MEMORY__DEVICE_TOKEN": "400"})
    assert load_config(env={"HERMES_LIKE_OTHER": "1", "PATH": "x"}) == HermesConfig()


def test_unknown_setting_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'memory\.device_tokens'"):
        load_config(None, {"device_tokens": "400"}, {})


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'sprites'"):
        load_config("sprits", env={})
    with pytest.raises(ConfigError, match="preset file not found: no/such"):
        load_config("no/such", env={})
    with pytest.raises(ConfigError, match=r"preset file not found: mine\.yaml"):
        load_config("mine.yaml", env={})


def test_start_time_is_read_in_both_spellings(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    moments = []
    for text in ("2026-01-02T03:04:05+02:00", "'2026-01-02T03:04:05+02:00'"):
        path.write_text(f"source:\n  start_time: {text}\n")
        moments.append(load_config(path, env={}).source.start_time)
    assert moments[0] == moments[1]
    assert moments[0] is not None
    assert moments[0].utcoffset() is not None


def test_configuration_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        HermesConfig().memory.device_tokens = 5  # type: ignore[misc]
