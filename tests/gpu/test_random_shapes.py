"""Random shapes on a GPU: made in place, in half precision, and able to watch and answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hermes_like.models import load_model
from hermes_like.presets import load_config
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from pipelines.bench import preset_of_shape

pytestmark = pytest.mark.gpu
TINY = ("llava-onevision-tiny", "qwen2-vl-tiny", "qwen2.5-vl-tiny", "qwen3-vl-tiny")


@pytest.mark.parametrize("shape", TINY)
def test_a_stream(shape: str, device: torch.device) -> None:
    settings = {
        "model.name": f"random:{shape}",
        "memory.device_tokens": "2800",
        "memory.segment_frames": "4",
        "memory.prefill_frames": "4",
    }
    config = load_config(preset_of_shape(shape), settings, {})
    model: Any = load_model(config.model)
    assert model.dims.dtype == torch.bfloat16
    assert {p.device for p in model._model.parameters()} == {device}
    rng = np.random.default_rng(0)
    with StreamSession(model, config) as session:
        for number in range(16):
            image = rng.integers(0, 256, (90, 160, 3), dtype=np.uint8)
            session.observe(Frame(image, number, float(number)))
        answer = session.ask("What is happening?", route="recall", max_tokens=4, min_tokens=4)
        assert answer.num_tokens == 4
        session.memory.check()
