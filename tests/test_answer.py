"""Decoding: against the library's own generation, and every control of it."""

from __future__ import annotations

import copy

import pytest
import torch

from hermes_like.answer import _cut, _without_partial
from hermes_like.config import AnswerConfig, HermesConfig, MemoryConfig, ModelConfig, PolicyConfig
from hermes_like.errors import ModelError, SessionStateError
from hermes_like.models.random_shapes import load
from hermes_like.records import Frame
from hermes_like.sampling import Sampler
from hermes_like.session import StreamSession
from tests.memory.streams import images


@pytest.fixture(scope="module")
def tiny():
    return load(ModelConfig(name="random:llava-onevision-tiny", device="cpu"), seed=2)


@pytest.fixture
def session(tiny):
    memory = MemoryConfig(question_tokens=200, answer_tokens=120)
    chosen = HermesConfig(memory=memory, policy=PolicyConfig(name="full"))
    with StreamSession(tiny, chosen) as opened:
        for i, image in enumerate(images(5)):
            opened.observe(Frame(image, i, float(i)))
        yield opened


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_greedy_equals_the_librarys_generate(tiny, session, penalty: float) -> None:
    """The stock model with stock cache and attention, on ids and pixels."""
    model = copy.deepcopy(tiny._model)
    model.set_attn_implementation("sdpa")
    count = 5 * tiny.dims.tokens_per_frame + 1
    question = tiny.question_ids("who ?", is_first=True)
    ids = torch.tensor([tiny.prefix_ids() + [model.config.video_token_id] * count + question])
    with torch.inference_mode():
        tokens: list[int] = []
        pixels = tiny.pixels(images(5))[None]
        for _ in range(24):
            full = torch.cat([ids, torch.tensor([tokens], dtype=torch.int64)], 1)
            logits = model(input_ids=full, pixel_values_videos=pixels).logits[0, -1]
            for seen in set(tokens):
                logits[seen] = (
                    logits[seen] / penalty if logits[seen] > 0 else logits[seen] * penalty
                )
            tokens.append(int(logits.argmax()))
    answer = session.ask("who ?", max_tokens=24, min_tokens=24, repetition_penalty=penalty)
    assert answer.text == tiny.decode_text(tokens).strip()
    assert answer.num_tokens == 24


def test_streamed_text_adds_up(session) -> None:
    for temperature in (0.0, 1.0):
        with session.ask_stream(
            "who ?", min_tokens=100, temperature=temperature, max_tokens=110
        ) as s:
            pieces = list(s)
        assert len(pieces) > 20
        assert "".join(pieces).strip() == s.answer.text
        assert s.answer.num_tokens >= 100
        assert s.answer.ttft_s > 0
        assert s.answer.tpot_s > 0


def test_an_unfinished_answer_cannot_be_read(session) -> None:
    stream = session.ask_stream("who ?", min_tokens=5)
    with pytest.raises(SessionStateError, match="read the stream to its end"):
        _ = stream.answer
    next(iter(stream))
    stream.close()
    assert list(stream) == []
    with pytest.raises(SessionStateError):
        _ = stream.answer


def test_sampling_repeats_with_its_seed(session) -> None:
    options = {"temperature": 1.0, "min_tokens": 20, "keep_conversation": False}
    one, two = (session.ask("who ?", seed=7, **options).text for _ in range(2))
    other = session.ask("who ?", seed=8, **options).text
    assert one == two
    assert one != other


def test_stop_text_ends_and_is_cut(session) -> None:
    options = {"min_tokens": 30, "max_tokens": 40, "keep_conversation": False}
    whole = session.ask("who ?", **options).text
    stop = whole[8:10]
    pieces = list(stream := session.ask_stream("who ?", stop=(stop,), **options))
    assert stream.answer.text == whole[: whole.index(stop)].strip()
    assert "".join(pieces).strip() == stream.answer.text
    assert stream.answer.num_tokens < 30


def test_stop_text_over_several_tokens_is_held_back() -> None:
    assert _cut("red star END and", ["END"]) == ("red star ", True)
    assert _without_partial("red star EN", ["END", "FIN"]) == "red star "
    assert _without_partial("red star", ["END"]) == "red star"
    assert _without_partial("caf\ufffd", []) == "caf"


def test_eos_ends_and_is_not_text() -> None:
    sampler = Sampler(AnswerConfig(min_tokens=2), frozenset({3}))
    logits = torch.tensor([0.0, 1.0, 0.5, 9.0])
    assert sampler.next(logits, []) == 1
    assert sampler.next(logits, [1, 1]) == 3


def test_logits_that_are_not_finite_are_an_error() -> None:
    """A24: 300 squared overflows in float16; sampling from NaN is nonsense."""
    overflow = (torch.tensor([300.0, 1.0], dtype=torch.float16) ** 2).float()
    with pytest.raises(ModelError, match="not finite"):
        Sampler(AnswerConfig(), frozenset()).next(overflow, [])
    with pytest.raises(ModelError, match="float32 or bfloat16"):
        Sampler(AnswerConfig(), frozenset()).next(torch.tensor([float("nan"), 1.0]), [])


def test_top_p_keeps_the_smallest_sufficient_set() -> None:
    sampler = Sampler(AnswerConfig(temperature=1.0, top_p=0.6), frozenset())
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    assert {sampler.next(logits, []) for _ in range(200)} == {0, 1}


def test_temperature_follows_the_distribution() -> None:
    sampler = Sampler(AnswerConfig(temperature=1.0), frozenset())
    logits = torch.tensor([0.7, 0.2, 0.1]).log()
    counts = torch.bincount(
        torch.tensor([sampler.next(logits, []) for _ in range(2000)]), minlength=3
    )
    torch.testing.assert_close(counts / 2000, torch.tensor([0.7, 0.2, 0.1]), atol=0.05, rtol=0)
