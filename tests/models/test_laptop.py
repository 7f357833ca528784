"""Devices of a laptop: nothing that Apple's lack, nothing that only CUDA has.

There is no such device here; ``tests/memory/pretend.py`` says what stands for it.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hermes_like.config import HermesConfig, ModelConfig
from hermes_like.memory.provenance import random_priority
from hermes_like.models import load_model
from hermes_like.models.loading import resolve_dtype
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from tests.memory.pretend import PretendedDevices, place_of
from tests.memory.streams import images

MPS = torch.device("mps")
NAMES = ("sprites", "random:llava-onevision-tiny", "random:qwen2.5-vl-tiny", "random:internvl-tiny")


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch) -> PretendedDevices:
    """A Mac: filters of pictures are missing, and whoever speaks to CUDA fails."""
    waited: list[torch.device] = []

    def no_cuda(*_: object) -> None:
        raise AssertionError("asked CUDA on a Mac")

    interpolate = torch.nn.functional.interpolate

    def lacking(x, *args, **kwargs):
        is_lacking = kwargs.get("antialias") or kwargs.get("mode") == "area"
        assert not is_lacking or place_of(x) != MPS, "mps has no such filter"
        return interpolate(x, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "interpolate", lacking)
    monkeypatch.setattr(torch.cuda, "synchronize", no_cuda)
    monkeypatch.setattr(torch.cuda, "current_stream", no_cuda)
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    devices = PretendedDevices("mps")
    devices.waited = waited  # type: ignore[attr-defined]
    return devices


def answers(model, policy: str) -> list[str]:
    """A session with a store, on whatever device: now, found again, a time."""
    per_frame = model.dims.tokens_per_frame
    config = HermesConfig.model_validate(
        {
            "memory": {
                "device_tokens": 14 * per_frame + 620, "segment_frames": 4, "prefill_frames": 2,
                "question_tokens": 300, "history_tokens": 120, "answer_tokens": 8,
            },
            "policy": {"name": policy},
            "store": {"host_bytes": 2**26, "disk_bytes": 2**27, "min_free_bytes": 0},
            "retrieval": {"retrieved_tokens": 3 * per_frame, "max_frames": 3},
        }
    )  # fmt: skip
    with StreamSession(model, config) as session:
        for index, picture in enumerate(images(14)):
            session.observe(Frame(picture, index, float(index)))
        said = [
            session.ask("what is visible now ?", route="now"),
            session.ask("what color was the star ?", route="recall"),
            session.ask("what is visible now ?", route="time", since_s=2.0, until_s=5.0),
        ]
        session.memory.check()
    return [f"{answer.status} {answer.text}" for answer in said]


@pytest.mark.parametrize("name", NAMES)
def test_a_session_on_a_mac_says_the_same(apple, name: str) -> None:
    policy = "uniform" if name == "sprites" else "hermes"
    want = answers(load_model(ModelConfig(name=name, device="cpu")), policy)
    with apple:
        model = load_model(ModelConfig(name=name, device="mps", dtype="float32"))
        assert model.dims.device == MPS
        assert answers(model, policy) == want
    assert set(apple.waited) == {MPS}


def test_a_fault_of_the_kind_is_found(apple) -> None:
    """What stands in refuses what a Mac would refuse."""
    with apple:
        x = torch.ones(2, device=MPS)
        with pytest.raises(TypeError, match=r"mps has no torch\.float64"):
            x.to(torch.float64)
        with pytest.raises(RuntimeError, match="pinned memory"):
            torch.empty(2, pin_memory=True, device="cpu")
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()


def test_number_types_of_devices(apple, monkeypatch) -> None:
    """16 bits where the device has the kind with the range of float32, else 32."""
    assert resolve_dtype("auto", torch.device("cpu")) == torch.float32
    assert resolve_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert resolve_dtype("float16", MPS) == torch.float16
    with apple:
        assert resolve_dtype("auto", MPS) == torch.bfloat16

    def old(*_: object, **__: object) -> None:
        raise TypeError("BFloat16 is not supported on MPS")

    monkeypatch.setattr(torch, "zeros", old)
    assert resolve_dtype("auto", MPS) == torch.float32


def test_random_numbers_are_those_of_before() -> None:
    """Rounded once to 32 bits, not through 64, they are the same to the last bit."""
    frames = torch.arange(50_000)
    x = (frames * 0x9E3779B1 + frames % 7 * 0x85EBCA6B) & (2**32 - 1)
    for factor in (0x45D9F3B, 0x119DE1F3):
        x = ((x ^ (x >> 16)) * factor) & (2**32 - 1)
    x = (x ^ (x >> 16)).numpy()
    want = (x.astype(np.float64) / 2.0**32).astype(np.float32)
    assert np.array_equal(random_priority(frames, frames % 7).numpy(), want)
