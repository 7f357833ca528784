"""A model over two devices: the same numbers as on one, and nothing that a real machine refuses.

There are no such devices here; ``tests/memory/pretend.py`` says what stands for them.
"""

from __future__ import annotations

import copy

import pytest
import torch

from hermes_like.config import ModelConfig
from hermes_like.errors import ConfigError, ModelError
from hermes_like.memory import cache as cache_module
from hermes_like.memory.budget import Budget
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.provenance import FrameRecord
from hermes_like.memory.snapshot import restore_snapshot, take_snapshot
from hermes_like.models import load_model
from hermes_like.models.device_map import balanced, place, read_map
from hermes_like.models.random_shapes import load
from hermes_like.policies import POLICIES
from hermes_like.presets import load_config
from tests.memory.pretend import PretendedDevices, place_of
from tests.memory.streams import append, ask_logits, images, memory

#: Not ``cuda``: for that the codecs have ways of their own, which need the real thing.
ZERO, ONE = torch.device("xpu:0"), torch.device("xpu:1")
MAP = "0-5=xpu:0,6-9=xpu:1"
SHAPES = ("llava-onevision-tiny", "qwen2.5-vl-tiny", "qwen3-vl-tiny")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> PretendedDevices:
    """Two accelerators."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: None)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available=False: ZERO
    )
    return PretendedDevices("xpu:0", "xpu:1")


def spread_out(shape: str, device_map: str = MAP):
    """The same weights on one device and on two."""
    one = load(ModelConfig(name=f"random:{shape}", device="cpu"), seed=1)
    model = place(copy.deepcopy(one._model), ModelConfig(device_map=device_map))
    size = {"size": one.size} if hasattr(one, "size") else {}
    return one, type(one)(model, one._text, name=one.name, eos_ids=one.eos_ids, **size)


def lived(adapter, policy: str, count: int = 8, **switches: object):
    """A memory that compacted several times, and its logits; frames seen two by two."""
    target = memory(adapter, policy, resident=2 * adapter.dims.tokens_per_frame, **switches)
    for seed in range(count // 4):
        append(target, images(4, seed), 2)
        target.compact()
    return target, ask_logits_there(target, [5, 6, 7])


def ask_logits_there(target, ids: list[int]) -> torch.Tensor:
    with target.cache.fork() as fork:
        embeds = torch.cat([target.adapter.video_end(), target.adapter.embed_text(ids)])
        numbers = -1 - fork.layers[0].length - torch.arange(len(embeds), device=embeds.device)
        return target.extend(fork, embeds, numbers, logits=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_on_two_devices_equals_one(two, shape: str) -> None:
    """Scores, smoothing, compaction, summaries and logits, bit for bit; caches lie with layers."""
    one, _ = spread_out(shape, "0-9=cpu")
    want, logits = lived(one, "hermes")
    with two:
        _, other = spread_out(shape)
        assert other.dims.device == ZERO
        assert other.dims.layer_devices == (ZERO,) * 6 + (ONE,) * 4
        got, there = lived(other, "hermes")
        got.check()
        assert got.num_compactions == want.num_compactions > 1
        assert place_of(there) == ZERO
        for layer, slots in enumerate(got.cache.layers):
            device = other.dims.device_of(layer)
            for kv in (slots.raw_keys, slots.keys, slots.values):
                assert place_of(kv) == device
            assert place_of(slots.ids) == place_of(slots.positions) == ZERO
        assert {move for move in two.moves if ONE in move} >= {(ZERO, ONE), (ONE, ZERO)}
    assert torch.equal(there, logits)
    for mine, theirs in zip(got.cache.layers, want.cache.layers, strict=True):
        assert torch.equal(mine.ids, theirs.ids)
        assert torch.equal(mine.raw_keys, theirs.raw_keys)


@pytest.mark.parametrize("kind", ["hermes_released", "uniform", "full"])
def test_other_policies_and_schemes(two, kind: str) -> None:
    """The released code's shortcut of attention, its positions per layer, and summaries."""
    with two:
        _, other = spread_out("qwen2.5-vl-tiny")
        chosen = load_config(kind)
        prefix = len(other.prefix_ids())
        resident = None if kind == "full" else 24
        budget = Budget(None if resident is None else prefix + 400, prefix, resident)
        policy = POLICIES.get(chosen.policy.name)(chosen.policy)
        target = DeviceMemory(other, policy, chosen.memory, budget)
        for seed in range(3):
            append(target, images(4, seed), 2)
            target.compact()
        assert bool(torch.isfinite(ask_logits_there(target, [5, 6])).all())
        tensors, state = take_snapshot(target)
        assert {place_of(t) for t in tensors.values()} == {torch.device("cpu")}
        again = DeviceMemory(other, policy, chosen.memory, budget)
        restore_snapshot(again, tensors, state)
        again.append_stored(_stored(target), [FrameRecord(12.0, None, 3)])
        assert 12 in again.resident_frames()
        again.drop_frames([11])
        assert 11 in target.resident_frames() - again.resident_frames()
        if kind != "hermes_released":
            again.check()


def _stored(target: DeviceMemory) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The newest tokens of each layer, on the CPU, as a codec may give them."""
    per_frame = target.tokens_per_frame
    found = []
    for slots in target.cache.layers:
        last = slots.raw_keys[0, :, -per_frame:], slots.values[0, :, -per_frame:]
        found.append((last[0].cpu(), last[1].cpu()))
    return found


def test_a_forgotten_copy_is_found(two, monkeypatch) -> None:
    """The devices that stand in refuse what real ones would: take one copy away, and it fails."""
    monkeypatch.setattr(cache_module, "moved", lambda rotation, device: rotation)
    with two:
        _, other = spread_out("llava-onevision-tiny")
        with pytest.raises(RuntimeError, match="tensors on xpu:0 and xpu:1"):
            lived(other, "hermes", 4)


def test_maps_are_read_and_refused(two) -> None:
    with two:
        assert read_map("0-1=xpu:0, 2=xpu:1", 3) == [ZERO, ZERO, ONE]
        for text, reason in (
            ("0-9=xpu:0,9=xpu:1", "layer 9 is named twice"),
            ("0-8=xpu:0", "a device for every layer, got none for 9"),
            ("0-10=xpu:0", "expected layers from 0 to 9, got '0-10=xpu:0'"),
            ("5-3=xpu:0", "expected layers from 0 to 9, got '5-3=xpu:0'"),
            ("0-9=xpu:7", "'xpu:7' cannot be used here"),
            ("0-9=nonsense", "'nonsense' cannot be used here"),
            ("0-4=xpu:0,5-9=cpu", "cannot be offloaded to the CPU: every frame passes"),
            ("0-4=xpu:0,5-9=disk", "cannot be offloaded to disk"),
            ("sequential", "expected auto, balanced or ranges of layers such as"),
        ):
            with pytest.raises(ConfigError, match=r"model\.device_map: .*" + reason):
                read_map(text, 10)
        config = ModelConfig(name="random:qwen2-vl-tiny", device="xpu:1", device_map=MAP)
        with pytest.raises(ConfigError, match="expected auto or a kind of device"):
            load_model(config)


def test_layers_are_balanced_by_bytes() -> None:
    assert balanced([1] * 8, 0, 2) == [0] * 4 + [1] * 4
    assert balanced([1] * 8, 4, 2) == [0, 0] + [1] * 6
    assert balanced([1] * 8, 0, 3) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert balanced([1] * 4, 100, 2) == [0, 1, 1, 1], "the first layer stays with the embeddings"
    assert balanced([1] * 2, 0, 4) == [0, 1]


def test_automatic_maps(two, monkeypatch) -> None:
    """``auto`` takes as few devices as hold the weights, ``balanced`` all of them."""
    free = {"room": 2**40}
    monkeypatch.setattr(
        torch.accelerator, "get_memory_info", lambda device: (free["room"], free["room"])
    )
    name = "random:qwen2.5-vl-tiny"
    with two:
        both = load_model(ModelConfig(name=name, device_map="balanced"))
        assert set(both.dims.devices) == {ZERO, ONE}
        assert both.dims.dtype == torch.bfloat16
        alone = load_model(ModelConfig(name=name, device_map="auto"))
        assert alone.dims.devices == (ZERO,)
        assert not alone.dims.layer_devices
        num_bytes = sum(p.numel() * p.element_size() for p in alone._model.parameters())
        free["room"] = num_bytes
        assert load_model(ModelConfig(name=name, device_map="auto")).dims.devices == (ZERO, ONE)
        free["room"] = num_bytes // 4
        with pytest.raises(ModelError, match="do not fit into 80% of what is free on 2 devices"):
            load_model(ModelConfig(name=name, device_map="auto"))


def test_one_device_has_no_hooks() -> None:
    """The way of one device is what it was: no copies, no hooks, no list of devices."""
    model = load_model(ModelConfig(name="random:llava-onevision-tiny", device_map="auto",
                                   device="cpu"))  # fmt: skip
    assert not any(layer._forward_pre_hooks for layer in model._decoder.layers)
    assert model.dims.devices == (torch.device("cpu"),)
    logits = ask_logits(lived(model, "hermes")[0], [5, 6])
    assert bool(torch.isfinite(logits).all())
