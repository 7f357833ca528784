"""Many streams on one model: the same memories as alone, fair shares, questions first."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from hermes_like.config import EngineConfig, HermesConfig
from hermes_like.engine import Engine
from hermes_like.errors import BudgetError, SessionStateError
from hermes_like.models import load_model
from hermes_like.models.base import ModelAdapter
from hermes_like.presets import load_config
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from hermes_like.sources import open_source

WAIT_S = 60.0
NOW = "what is visible now ?"


@pytest.fixture(scope="module")
def config() -> HermesConfig:
    return load_config("sprites")


@pytest.fixture(scope="module")
def model(config: HermesConfig) -> ModelAdapter:
    return load_model(config.model)


def frames_of(seed: int, count: int) -> list[Frame]:
    with open_source(f"sprites:seed={seed},frames={count}") as source:
        return list(source)


def session_of(model: ModelAdapter, config: HermesConfig, name: str = "stream") -> StreamSession:
    return StreamSession(model, config, name=name)


def state_of(session: StreamSession) -> list[torch.Tensor]:
    layers = session.memory.cache.layers
    return [part for layer in layers for part in (layer.raw_keys, layer.values)]


@pytest.fixture
def engine(model: ModelAdapter) -> Iterator[Engine]:
    with Engine(model, EngineConfig(batch_frames=3, inbox_frames=2)) as engine:
        yield engine
        for name in engine.names:
            engine.remove(name).close()


def test_each_stream_remembers_what_it_would_alone(
    model: ModelAdapter, config: HermesConfig, engine: Engine
) -> None:
    counts = {"a": 13, "b": 9, "c": 17}
    films = {name: frames_of(seed, counts[name]) for seed, name in enumerate(counts)}
    for name in films:
        engine.add(name, session_of(model, config, name))

    def feed(name: str) -> None:
        for frame in films[name]:
            assert engine.put(name, frame, WAIT_S)

    threads = [threading.Thread(target=feed, args=(name,)) for name in films]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    for name, film in films.items():
        assert engine.drain(name, WAIT_S)
        with session_of(model, config, name) as alone:
            for frame in film:
                alone.observe(frame)
            together = engine.session(name)
            assert together.stats().num_frames == len(film)
            for one, other in zip(state_of(together), state_of(alone), strict=True):
                # Pictures encoded in one batch differ in the last bits from pictures on their own.
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
            assert engine.ask(name, NOW).text == alone.ask(NOW).text


def test_ingest_is_shared_by_weight(model: ModelAdapter, config: HermesConfig) -> None:
    engine = Engine(model, EngineConfig(batch_frames=4, inbox_frames=100))
    frame = frames_of(0, 1)[0]
    try:
        for name, weight in (("busy", 1.0), ("heavy", 3.0)):
            engine.add(name, session_of(model, config, name), weight=weight)
            for index in range(60):
                assert engine.put(name, replace(frame, index=index, pts_s=float(index)), 0.0)
        batches = [engine._next_batch() for _ in range(10)]
        names = [seat.name for batch in batches if batch is not None for seat, _ in batch]
        assert names.count("heavy") == 30
        # A stream that comes late gets its share from now on, and nothing for the past.
        engine.add("late", session_of(model, config, "late"))
        for index in range(20):
            assert engine.put("late", replace(frame, index=index, pts_s=float(index)), 0.0)
        batch = engine._next_batch()
        assert batch is not None
        assert 1 <= [seat.name for seat, _ in batch].count("late") <= 2
    finally:
        engine._busy.clear()
        engine.stop()
        for name in engine.names:
            engine.remove(name).close()


def test_a_stream_fed_alone_for_long_is_not_made_to_wait_for_it(
    model: ModelAdapter, config: HermesConfig
) -> None:
    engine = Engine(model, EngineConfig(batch_frames=4, inbox_frames=100))
    frame = frames_of(0, 1)[0]
    times = iter(range(1000))

    def put(name: str, count: int) -> None:
        for index in (next(times) for _ in range(count)):
            assert engine.put(name, replace(frame, index=index, pts_s=float(index)), 0.0)

    try:
        for name in ("alone", "idle"):
            engine.add(name, session_of(model, config, name))
        put("alone", 80)
        while engine.queue_depth("alone"):
            engine._next_batch()
        put("idle", 20)  # comes first, while nobody waits
        put("alone", 20)
        batches = [engine._next_batch() or [] for _ in range(4)]
        names = [seat.name for batch in batches for seat, _ in batch]
        assert 7 <= names.count("alone") <= 9
    finally:
        engine._busy.clear()
        engine.stop()
        for name in engine.names:
            engine.remove(name).close()


def test_a_full_inbox_holds_its_source_back(model: ModelAdapter, config: HermesConfig) -> None:
    engine = Engine(model, EngineConfig(inbox_frames=2))
    engine.add("a", session_of(model, config))
    first, second, third = frames_of(1, 3)
    assert engine.put("a", first, 0.0)
    assert engine.put("a", second, 0.0)
    assert not engine.put("a", third, 0.05)
    assert engine.queue_depth("a") == 2
    engine.start()
    assert engine.put("a", third, WAIT_S)
    assert engine.drain("a", WAIT_S)
    assert engine.session("a").stats().num_frames == 3
    engine.stop()
    assert not engine.put("a", third, WAIT_S)
    engine.remove("a").close()


def test_questions_while_watching_stall_neither(
    model: ModelAdapter, config: HermesConfig, engine: Engine
) -> None:
    film = frames_of(3, 60)
    engine.add("a", session_of(model, config))
    assert engine.put("a", film[0], WAIT_S)
    assert engine.drain("a", WAIT_S)
    done = threading.Event()

    def feed() -> None:
        for frame in film[1:]:
            assert engine.put("a", frame, WAIT_S)
        done.set()

    thread = threading.Thread(target=feed)
    thread.start()
    seen: list[int] = []
    while not done.is_set():
        pieces = engine.ask_stream("a", NOW, min_tokens=8)
        for _ in pieces:
            seen.append(engine.session("a").stats().num_frames)
        assert pieces.answer.num_tokens >= 8
    thread.join(WAIT_S)
    assert engine.drain("a", WAIT_S)
    assert engine.session("a").stats().num_frames == len(film)
    assert len(set(seen)) > 3, "frames went on between the tokens of answers"


def test_a_scan_lets_frames_through(
    model: ModelAdapter, config: HermesConfig, engine: Engine
) -> None:
    engine.add("a", session_of(model, config))
    film = frames_of(4, 120)
    for frame in film[:80]:
        assert engine.put("a", frame, WAIT_S)
    assert engine.drain("a", WAIT_S)

    def feed() -> None:
        for frame in film[80:]:
            engine.put("a", frame, WAIT_S)

    thread = threading.Thread(target=feed)
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        if done == 1:
            thread.start()
        seen.append(engine.session("a").stats().num_frames)

    answer = engine.ask("a", "how often was there a red star ?", on_progress=progress)
    thread.join(WAIT_S)
    assert answer.route == "scan"
    assert seen[-1] > seen[0], "frames were prefilled while the scan went on"


def test_an_answer_broken_off_leaves_the_model_free(
    model: ModelAdapter, config: HermesConfig, engine: Engine
) -> None:
    engine.add("a", session_of(model, config))
    engine.put("a", frames_of(5, 1)[0], WAIT_S)
    assert engine.drain("a", WAIT_S)
    pieces = engine.ask_stream("a", NOW, min_tokens=10)
    next(iter(pieces))
    pieces.close()
    assert engine.ask("a", NOW).num_tokens > 0


def test_one_stream_that_fails_does_not_end_the_others(
    model: ModelAdapter, config: HermesConfig, engine: Engine
) -> None:
    engine.add("good", session_of(model, config))
    engine.add("bad", session_of(model, config))
    first, second = frames_of(6, 2)
    assert engine.put("bad", second, WAIT_S)
    assert engine.put("bad", first, WAIT_S)  # time runs backwards
    engine.drain("bad", WAIT_S)
    assert "pts_s" in str(engine.failure("bad"))
    with pytest.raises(ValueError, match="pts_s"):
        engine.put("bad", second, WAIT_S)
    assert engine.put("good", first, WAIT_S)
    assert engine.drain("good", WAIT_S)
    assert engine.failure("good") is None
    assert engine.session("good").stats().num_frames == 1


def test_a_picture_the_model_cannot_take_ends_its_own_stream_only(
    config: HermesConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(config.model)
    embed = model.embed_frames

    def fail_on_small(images: Sequence[np.ndarray]) -> torch.Tensor:
        if any(image.shape[0] < 16 for image in images):
            raise RuntimeError("too small for this model")
        return embed(images)

    monkeypatch.setattr(model, "embed_frames", fail_on_small)
    first, second = frames_of(8, 2)
    small = replace(first, image=np.zeros((8, 8, 3), np.uint8))
    engine = Engine(model, EngineConfig(batch_frames=4, inbox_frames=4))
    for name in ("good", "bad"):
        engine.add(name, session_of(model, config, name))
    for name, frame in (("good", first), ("bad", small), ("good", second)):
        assert engine.put(name, frame, 0.0)  # all of them lie in one batch
    with engine:
        assert engine.drain("good", WAIT_S)
        engine.drain("bad", WAIT_S)
        assert engine.session("good").stats().num_frames == 2
        assert engine.failure("good") is None
        assert "too small" in str(engine.failure("bad"))
    for name in engine.names:
        engine.remove(name).close()


def test_wrong_pictures_are_refused_at_the_door(
    model: ModelAdapter, config: HermesConfig, engine: Engine
) -> None:
    engine.add("a", session_of(model, config))
    grey = Frame(np.zeros((8, 8), np.uint8), 0, 0.0)
    with pytest.raises(ValueError, match=r"expected uint8 \[H, W, 3\], got uint8 \[8, 8\]"):
        engine.put("a", grey)


@pytest.mark.parametrize(("cap", "section"), [("device_bytes", "memory"), ("host_bytes", "store")])
def test_the_sum_of_promises_stays_below_the_caps_of_the_engine(
    model: ModelAdapter, config: HermesConfig, cap: str, section: str
) -> None:
    with session_of(model, config) as one, session_of(model, config) as other:
        each = {
            "device_bytes": one.promised_device_bytes,
            "host_bytes": config.store.host_bytes,
        }[cap]
        assert each > 0
        engine = Engine(model, EngineConfig.model_validate({cap: 2 * each - 1}))
        engine.add("one", one)
        with pytest.raises(BudgetError, match=f"engine.{cap} is {2 * each - 1}.*{2 * each}"):
            engine.add("other", other)
        roomy = Engine(model, EngineConfig.model_validate({cap: 2 * each}))
        roomy.add("one", one)
        roomy.add("other", other)


def test_a_promise_covers_what_the_device_holds(model: ModelAdapter, config: HermesConfig) -> None:
    with session_of(model, config) as session:
        for frame in frames_of(7, 40):
            session.observe(frame)
            assert session.stats().device_bytes <= session.promised_device_bytes


def test_misuse_is_named(model: ModelAdapter, config: HermesConfig, engine: Engine) -> None:
    session = session_of(model, config)
    engine.add("a", session)
    with pytest.raises(SessionStateError, match="'a' is there already"):
        engine.add("a", session)
    with pytest.raises(SessionStateError, match=r"unknown stream 'b'.*: a"):
        engine.ask("b", NOW)
    with pytest.raises(ValueError, match="weight: expected more than 0, got 0"):
        engine.add("c", session, weight=0)
    other = load_model(config.model)
    with (
        session_of(other, config) as foreign,
        pytest.raises(SessionStateError, match="another model"),
    ):
        engine.add("d", foreign)
