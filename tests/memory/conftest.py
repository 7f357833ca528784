"""A tiny random model of the true architecture, and streams for it."""

from __future__ import annotations

import pytest

from hermes_like.config import ModelConfig
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.models.random_shapes import load

TINY = "random:llava-onevision-tiny"


@pytest.fixture(scope="session")
def tiny() -> LlavaOnevisionAdapter:
    """Ten decoder layers, nine tokens a frame, float32, seeded."""
    return load(ModelConfig(name=TINY, device="cpu"), seed=1)
