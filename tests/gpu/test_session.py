"""A stream on a GPU: caps hold, what comes back is what was stored, asking changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hermes_like.models import load_model
from hermes_like.models.base import ModelAdapter
from hermes_like.presets import load_config
from hermes_like.session import StreamSession
from hermes_like.sprites.source import open_sprites

pytestmark = pytest.mark.gpu
FRAMES = 48


@pytest.fixture
def model(device: torch.device) -> ModelAdapter:
    config = load_config("sprites", {"model.device": "cuda", "model.dtype": "float32"}, {})
    return load_model(config.model)


def watched(model: ModelAdapter, folder: Path | None) -> StreamSession:
    config = load_config("sprites", {"answer.keep_conversation": "false"}, {})
    session = StreamSession(model, config, folder=folder)
    with open_sprites(f"sprites:seed=5,frames={FRAMES}", config.source) as source:
        for frame in source:
            session.observe(frame)
    return session


@torch.inference_mode()
def test_frames_come_back_as_they_were_stored(model: ModelAdapter, tmp_path: Path) -> None:
    with watched(model, tmp_path / "memory") as session:
        long_term = session.long_term
        assert long_term is not None
        _, blocks = long_term.read_segment(0)
        found = long_term.fetch({0: [1, 2]}, deadline_s=30.0)
        per_frame = model.dims.tokens_per_frame
        wanted = slice(per_frame, 3 * per_frame)
        for tokens, block in zip(found.tokens, blocks, strict=True):
            assert tokens.raw_keys.device.type == "cuda"
            assert torch.equal(tokens.raw_keys, block.raw_keys[:, wanted])
            assert torch.equal(tokens.values, block.values[:, wanted])
            assert tokens.ids.tolist() == list(range(per_frame, 3 * per_frame))


def test_asking_leaves_the_memory_as_it_was(model: ModelAdapter, tmp_path: Path) -> None:
    with watched(model, tmp_path / "a") as asked, watched(model, tmp_path / "b") as twin:
        answer = asked.ask("what color was the star ?", route="recall")
        assert answer.text
        asked.memory.check()
        for one, other in zip(asked.memory.cache.layers, twin.memory.cache.layers, strict=True):
            assert torch.equal(one.raw_keys, other.raw_keys)
            assert torch.equal(one.values, other.values)
        stats = asked.stats()
        assert stats.device_tokens is not None
        assert stats.peak_slots <= stats.device_tokens
        assert stats.device_bytes == stats.expected_bytes


def test_device_memory_is_flat(model: ModelAdapter) -> None:
    config = load_config("sprites", {}, {})
    with (
        StreamSession(model, config) as session,
        open_sprites("sprites:seed=6,frames=240", config.source) as source,
    ):
        held = []
        for frame in source:
            session.observe(frame)
            if frame.index % config.memory.segment_frames == config.memory.segment_frames - 1:
                held.append(torch.cuda.memory_allocated())
        settled = held[len(held) // 2 :]
        assert max(settled) - settled[0] < 2**20
