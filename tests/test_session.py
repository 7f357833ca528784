"""The life of a stream: watching, asking, and that asking leaves no trace."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from hermes_like.config import AnswerConfig, HermesConfig, MemoryConfig, ModelConfig, PolicyConfig
from hermes_like.errors import BudgetError, ConfigError, SessionStateError
from hermes_like.models import load_model
from hermes_like.models.random_shapes import load
from hermes_like.records import Frame
from hermes_like.session import Segment, StreamSession
from tests.memory.streams import ask_logits, images

QUESTION = "what ?"


@pytest.fixture(scope="module")
def tiny():
    return load(ModelConfig(name="random:llava-onevision-tiny", device="cpu"), seed=1)


def config(policy: str = "hermes", **memory: object) -> HermesConfig:
    values = {
        "device_tokens": 452, "segment_frames": 4, "protected_frames": 1,
        "question_tokens": 120, "history_tokens": 150, "answer_tokens": 12,
    } | memory  # fmt: skip
    return HermesConfig(memory=MemoryConfig(**values), policy=PolicyConfig(name=policy))


def frames(count: int, seed: int = 0) -> list[Frame]:
    return [Frame(image, i, i * 0.5) for i, image in enumerate(images(count, seed))]


def state(session: StreamSession) -> list[torch.Tensor]:
    layers = session.memory.cache.layers
    return [t.clone() for s in layers for t in (s.raw_keys, s.keys, s.values, s.positions, s.ids)]


@pytest.mark.parametrize("policy", ["full", "window", "hermes"])
@pytest.mark.parametrize("prefill_frames", [1, 2])
def test_a_stream_that_was_asked_equals_its_twin(tiny, policy: str, prefill_frames: int) -> None:
    """Bit for bit, questions in the middle of segments and with pending frames included."""
    chosen = config(policy, prefill_frames=prefill_frames)
    with StreamSession(tiny, chosen) as asked, StreamSession(tiny, chosen) as silent:
        for i, frame in enumerate(frames(26)):
            asked.observe(frame)
            silent.observe(frame)
            if i % 4 == 1:
                asked.ask(QUESTION)
                with asked.ask_stream(QUESTION, min_tokens=6) as stream:
                    next(iter(stream), None)  # left in the middle
        assert all(map(torch.equal, state(asked), state(silent)))
        assert asked.memory.scheme.starts([s.positions for s in asked.memory.cache.layers]) == (
            silent.memory.scheme.starts([s.positions for s in silent.memory.cache.layers])
        )
        asked.memory.check()


def test_frames_observed_while_an_answer_streams(tiny) -> None:
    """The answer is about the moment it was asked; the stream goes on and is not disturbed."""
    with StreamSession(tiny, config()) as one, StreamSession(tiny, config()) as two:
        for frame in frames(13):
            one.observe(frame)
            two.observe(frame)
        want = two.ask(QUESTION, min_tokens=8)
        stream = one.ask_stream(QUESTION, min_tokens=8)
        pieces = iter(stream)
        text = next(pieces)
        for frame in frames(30)[13:]:
            one.observe(frame)
            two.observe(frame)
        text += "".join(pieces)
        assert stream.answer.text == want.text
        assert text.strip() == want.text
        assert all(map(torch.equal, state(one), state(two)))


@pytest.mark.parametrize("policy", ["window", "hermes"])
def test_the_cap_is_kept_however_long_the_stream(tiny, policy: str) -> None:
    chosen = config(policy, device_tokens=432, segment_frames=4)
    with StreamSession(tiny, chosen) as session:
        bytes_seen = set()
        for i, frame in enumerate(frames(8) * 20):
            session.observe(Frame(frame.image, i, float(i)))
            if i % 40 == 39:
                session.ask("why " * 21, min_tokens=12)
                bytes_seen.add(session.stats().device_bytes)
        stats = session.stats()
        assert stats.peak_slots <= 400
        assert stats.peak_slots > 300, "expected the budget to be used"
        assert len(bytes_seen) == 1
        assert stats.device_bytes == stats.expected_bytes
        assert len(session.memory.frames) <= 400


def test_pending_frames_are_part_of_the_answer(tiny) -> None:
    """With prefill in pairs, a question after an odd frame still sees that frame."""
    pairs, single = config(prefill_frames=2), config(prefill_frames=1)
    with StreamSession(tiny, pairs) as one, StreamSession(tiny, single) as two:
        for frame in frames(7):
            one.observe(frame)
            two.observe(frame)
        assert one.ask(QUESTION, min_tokens=5).text == two.ask(QUESTION, min_tokens=5).text
        assert one.stats().num_frames == 7


def test_the_write_through_point_gets_every_segment_whole(tiny) -> None:
    """Un-rotated keys of all layers, before compaction, once."""
    got: list[Segment] = []
    with StreamSession(tiny, config(), on_segment=got.append) as session:
        for frame in frames(18):
            session.observe(frame)
    assert [s.segment_id for s in got] == [0, 1, 2, 3]
    assert [(s.start_s, s.end_s) for s in got] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    per_segment = 4 * tiny.dims.tokens_per_frame
    embeds = tiny.embed_frames([f.image for f in frames(18)]).flatten(0, 1)
    for segment in got:
        assert len(segment.blocks) == tiny.dims.num_layers
        first = segment.segment_id * per_segment
        own = torch.arange(first, first + per_segment)
        for block in segment.blocks:
            assert torch.equal(block.ids, own)
        raw = tiny.raw_query_key(0, embeds[own])[1]
        torch.testing.assert_close(segment.blocks[0].raw_keys, raw, atol=1e-6, rtol=0)


def test_nothing_seen_is_said_by_code(tiny) -> None:
    with StreamSession(tiny, config()) as session:
        answer = session.ask("what happened yesterday ?")
        assert answer.status == "no_footage"
        assert answer.num_tokens == 0
        assert answer.text == "No footage has been seen yet."


def test_misuse_is_told(tiny) -> None:
    session = StreamSession(tiny, config(), name="door")
    good = frames(3)
    session.observe(good[1])
    with pytest.raises(ValueError, match=r"pts_s of at least 0\.5, got 0\.0"):
        session.observe(good[0])
    with pytest.raises(ValueError, match=r"expected uint8 \[H, W, 3\], got float32 \[4, 4, 3\]"):
        session.observe(Frame(np.zeros((4, 4, 3), np.float32), 9, 9.0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pts_s"):
        session.observe(Frame(good[2].image, 9, float("nan")))
    with pytest.raises(ValueError, match="expected some words"):
        session.ask("  ")
    with pytest.raises(BudgetError, match=r"memory\.question_tokens = 120"):
        session.ask("why " * 60)
    with pytest.raises(BudgetError, match=r"answer\.max_tokens: expected at most .* 12, got 13"):
        session.ask(QUESTION, max_tokens=13)
    with pytest.raises(ValueError, match="temprature"):
        session.ask(QUESTION, temprature=1.0)
    session.close()
    session.close()
    with pytest.raises(SessionStateError, match="'door' is closed"):
        session.ask(QUESTION)
    with pytest.raises(SessionStateError):
        session.observe(good[2])


def test_an_unknown_policy_is_told(tiny) -> None:
    with pytest.raises(ConfigError, match="did you mean 'window'"):
        StreamSession(tiny, config("windw"))


def test_asking_from_several_threads(tiny) -> None:
    """Watching and asking from different threads: no answer is lost, the cap holds."""
    answers, failures = [], []
    with StreamSession(tiny, config()) as session:
        session.observe(frames(1)[0])
        done = threading.Event()

        def ask() -> None:
            try:
                while not done.is_set():
                    answers.append(session.ask(QUESTION, min_tokens=3, keep_conversation=False))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for i, frame in enumerate(frames(30)[1:], 1):
            session.observe(Frame(frame.image, i, float(i)))
        done.set()
        for thread in threads:
            thread.join(timeout=20)
        assert not failures
        assert answers
        session.memory.check()
        assert session.stats().peak_slots <= 452


def test_conversation_is_seen_and_stays_out_of_the_memory(tiny) -> None:
    with StreamSession(tiny, config()) as one, StreamSession(tiny, config()) as two:
        for frame in frames(6):
            one.observe(frame)
            two.observe(frame)
        one.ask("who ?", min_tokens=4)
        talk = one._answerer.conversation
        told, fresh = (talk.prompt(tiny, "and then ?", room) for room in (150, 0))
        assert tiny.decode_text(told).count("who ?") == 1
        assert fresh == tiny.question_ids("and then ?", is_first=True)
        later, alone = ask_logits(one.memory, told), ask_logits(one.memory, fresh)
        assert float((later - alone).abs().max()) > 1e-3, "expected the earlier turn to matter"
        assert all(map(torch.equal, state(one), state(two)))
        one.reset_conversation()
        assert talk.prompt(tiny, "and then ?", 150) == fresh


def test_old_turns_give_way_to_new_ones(tiny) -> None:
    with StreamSession(tiny, config()) as session:
        session.observe(frames(1)[0])
        for i in range(6):
            session.ask(f"question {i} ?", min_tokens=2)
        text = tiny.decode_text(session._answerer.conversation.prompt(tiny, "last ?", 150))
        assert "question 5" in text
        assert "question 0" not in text
        assert session.stats().peak_slots <= 452


@pytest.fixture(scope="module")
def sprites():
    return load_model("sprites")


def test_unknown_words_get_a_note(sprites) -> None:
    with StreamSession(sprites) as session:
        session.observe(Frame(np.zeros((60, 80, 3), np.uint8), 0, 0.0))
        answer = session.ask("what color was the elephant near the sofa ?")
    assert "'elephant', 'near', 'sofa'" in answer.text
    assert answer.notes == (answer.text,)
    assert answer.num_tokens == 0


def test_answer_settings_are_frozen_and_strict() -> None:
    with pytest.raises(ValueError, match="top_p"):
        AnswerConfig(top_p=0.0)
    with pytest.raises(ValueError, match="frozen"):
        AnswerConfig().top_p = 0.5  # type: ignore[misc]
