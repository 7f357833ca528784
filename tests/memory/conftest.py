"""A tiny random model of the true architecture, and streams for it."""

from __future__ import annotations

import pytest

from hermes_like.config import ModelConfig
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.models.qwen_vl import QwenVLAdapter
from hermes_like.models.random_shapes import load

TINY = "random:llava-onevision-tiny"
QWEN = ("qwen2-vl-tiny", "qwen2.5-vl-tiny", "qwen3-vl-tiny")


@pytest.fixture(scope="session")
def tiny() -> LlavaOnevisionAdapter:
    """Ten decoder layers, nine tokens a frame, float32, seeded."""
    model = load(ModelConfig(name=TINY, device="cpu"), seed=1)
    assert isinstance(model, LlavaOnevisionAdapter)
    return model


@pytest.fixture(scope="session", params=QWEN)
def qwen(request) -> QwenVLAdapter:
    """Ten decoder layers on three rotary axes, six vision tokens a frame, float32, seeded."""
    model = load(ModelConfig(name=f"random:{request.param}", device="cpu"), seed=1)
    assert isinstance(model, QwenVLAdapter)
    return model
