"""Whole sessions on two devices: store, index, retrieval and answers as on one.

``tests/memory/pretend.py`` says what stands for devices; the test marked ``gpu`` takes real ones.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from hermes_like.config import HermesConfig, ModelConfig
from hermes_like.models.device_map import place
from hermes_like.models.random_shapes import load
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from tests.memory.streams import images
from tests.models.test_device_map import lived, spread_out, two

__all__ = ["two"]


def session_config(per_frame: int) -> HermesConfig:
    return HermesConfig.model_validate(
        {
            "memory": {
                "device_tokens": 14 * per_frame + 420, "segment_frames": 4, "prefill_frames": 2,
                "protected_frames": 2, "question_tokens": 250, "history_tokens": 120,
                "answer_tokens": 8,
            },
            "policy": {"name": "hermes"},
            "store": {"host_bytes": 2**26, "disk_bytes": 2**27, "min_free_bytes": 0},
            "retrieval": {
                "retrieved_tokens": 3 * per_frame, "max_frames": 3, "heads": [[3, 0], [8, 1]],
                "verify_frames": 4,
            },
        }
    )  # fmt: skip


def told(model, folder) -> list[object]:
    """What a session with a store says: now, found again, a time, a scan; and after opening."""
    chosen = session_config(model.dims.tokens_per_frame)
    said: list[object] = []
    with StreamSession(model, chosen, folder=folder) as session:
        for index, picture in enumerate(images(18)):
            session.observe(Frame(picture, index, float(index)))
        said.append(session.ask("who ?", route="now"))
        said.append(session.ask("who ?", route="recall", until_s=12.0))
        said.append(session.ask("what ?", route="time", since_s=3.0, until_s=6.0))
        said.append(session.ask("how often did it rain ?", route="scan", since_s=0.0, until_s=17.0))
    with StreamSession.open(model, folder, chosen) as session:
        session.reset_conversation()
        said.append(session.ask("who ?", route="now"))
        session.erase(8.0, 12.0)
        session.memory.check()
    return [(a.status, a.text, a.route, [(e.start_s, e.score) for e in a.evidence]) for a in said]


def test_a_session_on_two_devices_says_the_same(two, tmp_path) -> None:
    """Store, index, fetch, merge, isolate, rows side by side, snapshot, resume, erase."""
    one, _ = spread_out("llava-onevision-tiny", "0-9=cpu")
    want = told(one, tmp_path / "one")
    with two:
        _, other = spread_out("llava-onevision-tiny")
        assert told(other, tmp_path / "two") == want


@pytest.mark.gpu
@pytest.mark.skipif(torch.accelerator.device_count() < 1, reason="needs an accelerator")
def test_real_devices_answer_alike(tmp_path) -> None:
    """Two of them where there are two, else one, in float32."""
    count = torch.accelerator.device_count()
    kind = torch.accelerator.current_accelerator().type
    last = f"{kind}:{min(1, count - 1)}"
    device_map = f"0-5={kind}:0,6-9={last}"
    one = load(ModelConfig(name="random:llava-onevision-tiny", device="cpu"), seed=1)
    model = place(copy.deepcopy(one._model), ModelConfig(device_map=device_map))
    other = type(one)(model, one._text, name=one.name, eos_ids=one.eos_ids)
    assert other.dims.device_of(9) == torch.device(last)
    logits = [lived(adapter, "full")[1].cpu().numpy() for adapter in (one, other)]
    np.testing.assert_allclose(logits[1], logits[0], atol=2e-3)
    assert [line[0] for line in told(other, tmp_path)][:3] == ["ok"] * 3
