"""The arithmetic of the promised cap."""

from __future__ import annotations

import pytest

from hermes_like.config import MemoryConfig
from hermes_like.errors import BudgetError
from hermes_like.memory.budget import plan_budget


def plan(config: MemoryConfig, **changes):
    """Budget of a model with four tokens a frame and a prefix of one."""
    values = {
        "unlimited": False, "tokens_per_frame": 4, "prefix_tokens": 1, "video_end_tokens": 1,
        "guidance_tokens": 12,
    } | changes  # fmt: skip
    return plan_budget(config, **values)


def test_the_fuller_moment_decides() -> None:
    config = MemoryConfig(
        device_tokens=256, segment_frames=4, question_tokens=32, history_tokens=64, answer_tokens=16
    )
    # Asking before the last frame of a segment: 3 frames, newline, history, question, answer.
    assert plan(config).resident_tokens == 256 - 1 - (3 * 4 + 1 + 64 + 32 + 16)
    # With long guidance the end of a segment is fuller.
    assert plan(config, guidance_tokens=200).resident_tokens == 256 - 1 - (4 * 4 + 200)


def test_too_small_a_cap_says_what_would_do() -> None:
    config = MemoryConfig(device_tokens=100, protected_frames=0)
    with pytest.raises(
        BudgetError, match=r"device_tokens: expected at least (\d+).* got 100"
    ) as error:
        plan(config)
    least = int(str(error.value).split("at least ")[1].split()[0])
    assert plan(MemoryConfig(device_tokens=least, protected_frames=0)).resident_tokens == 5
    with pytest.raises(BudgetError):
        plan(MemoryConfig(device_tokens=least - 1, protected_frames=0))


def test_protected_frames_need_room() -> None:
    with pytest.raises(BudgetError, match="resident 129"):
        plan(MemoryConfig(device_tokens=200, protected_frames=32))


def test_unlimited_has_no_cap() -> None:
    assert plan(MemoryConfig(device_tokens=16), unlimited=True).device_tokens is None
