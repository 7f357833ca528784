"""Loading, identity and whole sessions of the Qwen families, on tiny random models."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen3_5Config

from hermes_like.config import HermesConfig, ModelConfig
from hermes_like.errors import ConfigError, FingerprintError, ModelError
from hermes_like.models import load_model
from hermes_like.models.qwen3_vl import Qwen3VLAdapter, stamp_text
from hermes_like.models.qwen_shapes import (
    SHAPES,
    SPECIAL,
    TINY_SIZE,
    adapter,
    family_of,
    tokens_per_frame,
)
from hermes_like.models.qwen_shapes import build as build_shape
from hermes_like.models.qwen_vl import QwenVLAdapter, size_of
from hermes_like.models.random_shapes import filled, load
from hermes_like.models.text import ByteTokenizer, HashTokenizer
from hermes_like.records import Frame
from hermes_like.session import StreamSession
from tests.memory.streams import images
from tests.memory.test_three_axes import one_shot

QUESTION = "who ?"
CPU = torch.device("cpu")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and the special tokens of the families."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={a: i for i, a in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>",
        additional_special_tokens=[name for name in SPECIAL if name != "<|im_end|>"],
    )  # fmt: skip


@pytest.fixture(
    scope="module",
    params=["qwen2-vl-tiny", "qwen2.5-vl-tiny", "qwen3-vl-tiny", "qwen3-vl-moe-tiny"],
)
def shape(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(shape, tmp_path_factory):
    """A checkpoint folder as the library writes it, and the model that went into it."""
    path = tmp_path_factory.mktemp("checkpoint")
    model = filled(lambda: build_shape(shape), device=CPU, dtype=torch.float32, seed=5)
    model.save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path, model


def config(tokens_per_frame: int, **store: object) -> HermesConfig:
    """Four frames a segment, room for six more, a store, and heads that the tiny shapes have."""
    return HermesConfig.model_validate(
        {
            "memory": {
                "device_tokens": 14 * tokens_per_frame + 420, "segment_frames": 4,
                "prefill_frames": 2, "protected_frames": 2, "question_tokens": 120,
                "history_tokens": 120, "answer_tokens": 8,
            },
            "policy": {"name": "hermes"},
            "store": {"host_bytes": 2**26, "disk_bytes": 2**27, "min_free_bytes": 0, **store},
            "retrieval": {
                "retrieved_tokens": 3 * tokens_per_frame, "max_frames": 3, "heads": [[3, 0], [6, 1]]
            },
        }
    )  # fmt: skip


def frames(count: int, seed: int = 0) -> list[Frame]:
    return [Frame(image, i, float(i)) for i, image in enumerate(images(count, seed))]


def state(session: StreamSession) -> list[torch.Tensor]:
    layers = session.memory.cache.layers
    return [t.clone() for s in layers for t in (s.raw_keys, s.keys, s.values, s.positions, s.ids)]


def test_a_local_folder_is_the_model_that_was_saved(folder, shape) -> None:
    """Weights, prompts, and logits of ids and pixels by the library's own forward."""
    path, model = folder
    made = load_model(ModelConfig(name=str(path), device="cpu"))
    assert type(made) is family_of(shape)[2]
    assert made.eos_ids == {256}
    assert made.prefix_ids()[0] > 256, "expected the chat template's special token"
    loaded = made._model.state_dict()
    assert all(torch.equal(loaded[name], w) for name, w in model.state_dict().items())
    assert made.dims.grid == (9, 16), "expected the default budget"
    pictures = images(2)
    with torch.inference_mode():
        cut, grid = made.patches(pictures)
        want = torch.cat(tuple(model.model.get_video_features(cut, grid).pooler_output))
    tokens = made.embed_frames(pictures)
    where = slice(made._before, -made._after) if isinstance(made, Qwen3VLAdapter) else slice(None)
    got = tokens[:, where, : made.dims.hidden_size].flatten(0, 1)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


def test_a_session_with_a_store_from_a_folder(folder, shape, tmp_path) -> None:
    """Watch, ask, find again, save, open bit for bit, go on, erase."""
    path, _ = folder
    model = load_model(ModelConfig(name=str(path), device="cpu"))
    model = family_of(shape)[2](
        model._model, model._text, name=model.name, eos_ids=model.eos_ids, size=TINY_SIZE
    )
    per_frame = model.dims.tokens_per_frame
    chosen = config(per_frame)
    with StreamSession(model, chosen, folder=tmp_path / "memory") as session:
        for frame in frames(33):
            session.observe(frame)
        session.memory.check()
        before = state(session)
        now = session.ask(QUESTION, route="now")
        again = session.ask(QUESTION, route="recall", until_s=12.0)
        past = session.ask(QUESTION, route="time", since_s=3.0, until_s=6.0)
        assert [answer.status for answer in (now, again, past)] == ["ok"] * 3
        assert past.evidence
        assert all(3.0 <= e.start_s <= 6.0 for e in past.evidence)
        assert all(map(torch.equal, before, state(session)))
        assert session.stats().peak_slots <= chosen.memory.device_tokens
    with StreamSession.open(model, tmp_path / "memory", chosen) as session:
        assert all(map(torch.equal, before, state(session)))
        session.reset_conversation()
        assert session.ask(QUESTION, route="now").text == now.text
        for frame in frames(40)[33:]:
            session.observe(frame)
        session.memory.check()
        start_s, end_s = session.erase(8.0, 12.0)
        assert (start_s, end_s) == (8.0, 12.0)
        assert session.ask("what ?", since_s=8.5, until_s=11.5).status == "no_footage"
        gone = torch.arange(8 * per_frame, 12 * per_frame)
        for slots in session.memory.cache.layers:
            assert not bool(torch.isin(slots.ids, gone).any())
        session.memory.check()
    other = load(ModelConfig(name=f"random:{shape}", device="cpu"), seed=6)
    with pytest.raises(FingerprintError, match="weights_digest"):
        StreamSession.open(other, tmp_path / "memory", chosen)


def test_a_conversation_equals_the_library_at_once(shape) -> None:
    """The second answer of a conversation, token by token, from one forward over everything."""
    model = load(ModelConfig(name=f"random:{shape}", device="cpu"), seed=1)
    chosen = HermesConfig.model_validate(
        {
            "memory": {"segment_frames": 4, "history_tokens": 400, "question_tokens": 200},
            "policy": {"name": "full"}, "store": {"enabled": False},
        }
    )  # fmt: skip
    pictures = images(6)
    with StreamSession(model, chosen) as session:
        for index, picture in enumerate(pictures):
            session.observe(Frame(picture, index, float(index)))
        seen = state(session)
        first = session.ask(QUESTION, max_tokens=3)
        second = session.ask("and now ?", max_tokens=3)
        assert all(map(torch.equal, seen, state(session)))
        turns = session._answerer.conversation.turns
        prompt = [
            *model.question_ids(QUESTION, is_first=True), *turns[0][1],
            *model.turn_end_ids(), *model.question_ids("and now ?", is_first=False),
        ]  # fmt: skip
        said: list[int] = []
        for _ in range(3):
            said.append(int(_library(model, pictures, prompt + said, session).argmax()))
        assert model.decode_text(said).strip() == second.text
        assert first.num_tokens == 3


def _library(model, pictures, text: list[int], session) -> torch.Tensor:
    """Logits of the library's forward over prefix, video and text, at our positions."""
    held = session.memory.cache.layers[0].positions
    own = (torch.arange(len(text)) + int(held.max()) + 1).expand(3, -1)
    return one_shot(model, pictures, torch.cat([held, own], 1), text)


def test_stamps_are_words_of_one_length() -> None:
    assert stamp_text(0.0) == ("<000000.0 seconds><|vision_start|>", "<|vision_end|>")
    assert stamp_text(86_399.96)[0].startswith("<086400.0 ")
    assert stamp_text(1_000_000.5)[0].startswith("<000000.5 ")
    model = load(ModelConfig(name="random:qwen3-vl-tiny", device="cpu"))
    tokens = model.embed_frames(images(2))
    kept = tokens.clone()
    stamped = model.stamp(tokens, [2.0, 34.5])
    assert torch.equal(tokens, kept), "the given tokens changed"
    for index, time_s in enumerate((2.0, 34.5)):
        before, after = (model._text.encode(part) for part in stamp_text(time_s))
        words = stamped[index, :, : model.dims.hidden_size]
        assert torch.equal(words[: len(before)], model.embed_text(before))
        assert torch.equal(words[-len(after) :], model.embed_text(after))
    assert torch.equal(stamped[:, len(before) : -len(after)], kept[:, len(before) : -len(after)])
    assert model.stamp(tokens[:0], []).shape[0] == 0


def test_a_tokenizer_of_uneven_stamps_is_refused() -> None:
    class Uneven(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return super().encode(text.replace("00", "0"))

    model = load(ModelConfig(name="random:qwen3-vl-tiny", device="cpu"))
    with pytest.raises(ModelError, match="equally many tokens"):
        Qwen3VLAdapter(model._model, Uneven(SPECIAL), name="x", eos_ids=frozenset())


def test_large_random_shapes_count_stamps_as_released_tokenizers_do() -> None:
    """A token for each digit, mark, word and special name: 11 for the stamp, 2 for the picture."""
    from hermes_like.models.qwen_shapes import WORDS

    words = HashTokenizer(151_936, WORDS)
    assert [len(words.encode(part)) for part in stamp_text(12.5)] == [12, 1]


def test_features_of_middle_layers_reach_the_decoder() -> None:
    """Qwen3-VL without them answers otherwise; with zeros it is as if there were none."""
    model = load(ModelConfig(name="random:qwen3-vl-tiny", device="cpu"), seed=1)
    hidden = model.dims.hidden_size
    chosen = HermesConfig.model_validate({"policy": {"name": "full"}, "store": {"enabled": False}})
    logits = []
    for levels in (3, 1, 0):
        with StreamSession(model, chosen) as session:
            tokens = model.embed_frames(images(2))
            if levels == 1:
                tokens = torch.nn.functional.pad(tokens[..., :hidden], (0, 2 * hidden))
            elif levels == 0:
                tokens = tokens[..., :hidden]
            for index in range(2):
                session.observe(Frame(images(1)[0], index, float(index)), tokens[index])
            with session.memory.cache.fork() as cache:
                text = model.embed_text([5, 6])
                ids = -900 - torch.arange(2)
                logits.append(session.memory.extend(cache, text, ids, logits=True))
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)
    assert torch.equal(logits[1], logits[2])


@pytest.mark.parametrize("window", [True, False])
def test_layers_that_do_not_keep_every_token_are_refused(tmp_path, window: bool) -> None:
    """Before any weight is read: the folder holds nothing but a configuration."""
    text = {**SHAPES["qwen2.5-vl-tiny"]["text"], "bos_token_id": None, "eos_token_id": None}
    if window:
        sliding = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 4}
        Qwen2_5_VLConfig(text_config={**text, **sliding}).save_pretrained(tmp_path)
        reason = "sliding_attention"
    else:
        Qwen3_5Config().save_pretrained(tmp_path)
        reason = "linear_attention"
    with pytest.raises(ModelError, match=f"has {reason} layers, which do not keep every token"):
        load_model(str(tmp_path))


def test_code_of_a_checkpoint_is_never_run(tmp_path) -> None:
    """A folder that wants to bring its own code is refused, and the code is not imported."""
    marker = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    content = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="no usable model"):
        load_model(str(tmp_path))
    assert not marker.exists()


def test_what_frames_depend_on_is_in_the_fingerprint() -> None:
    """Another size of frames, other keys: a memory of one is no use to the other."""
    model = load(ModelConfig(name="random:qwen2.5-vl-tiny", device="cpu"))
    wide = QwenVLAdapter(
        model._model, model._text, name=model.name, eos_ids=model.eos_ids, size=(16, 32)
    )
    one, two = model.identity(), wide.identity()
    assert [name for name in one if one[name] != two[name]] == ["processor_digest"]
    assert one["rope_scaling"]["mrope_section"] == [2, 3, 3]


def test_frames_are_made_of_whole_tokens() -> None:
    model = load(ModelConfig(name="random:qwen2-vl-tiny", device="cpu"))
    for size in ((16, 20), (0, 8)):
        with pytest.raises(ConfigError, match="expected multiples of 8 pixels"):
            QwenVLAdapter(model._model, model._text, name="x", eos_ids=frozenset(), size=size)


def test_a_budget_of_pixels_gives_the_size() -> None:
    class Budget:
        frame_pixels = 200_704
        frame_shape = (3, 4)

    assert size_of(Budget(), 28) == (13 * 28, 18 * 28)  # type: ignore[arg-type]
    assert size_of(ModelConfig(), 28) is None
    tower = SHAPES["qwen3-vl-8b"]["vision"]
    assert tokens_per_frame(Budget(), tower) == 12 * 16 + 13  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "per_frame", "kv_bytes", "parameters"),
    [
        ("qwen2-vl-7b", 144, 57_344, 8.29e9),
        ("qwen2.5-vl-3b", 144, 36_864, 3.75e9),
        ("qwen2.5-vl-7b", 144, 57_344, 8.29e9),
        ("qwen3-vl-2b", 157, 114_688, 2.13e9),
        ("qwen3-vl-4b", 157, 147_456, 4.44e9),
        ("qwen3-vl-8b", 157, 147_456, 8.77e9),
        ("qwen3-vl-moe-30b", 157, 98_304, 31.07e9),
        ("qwen2-vl-72b", 144, 327_680, 73.4e9),
        ("qwen2.5-vl-72b", 144, 327_680, 73.4e9),
    ],
)
def test_released_shapes(name: str, per_frame: int, kv_bytes: int, parameters: float) -> None:
    """Tokens a frame, bytes a token in 16 bits, and parameters (built without memory)."""
    model = filled(
        lambda: build_shape(name), device=torch.device("meta"), dtype=torch.bfloat16, seed=0
    )
    assert tokens_per_frame(ModelConfig(), SHAPES[name]["vision"]) == per_frame
    dims = adapter(model, name, ModelConfig(name=f"random:{name}")).dims
    assert dims.grid == (9, 16)
    assert dims.tokens_per_frame == per_frame
    assert dims.kv_bytes_per_token == kv_bytes
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(parameters, rel=0.01)


def test_noise_of_any_kind_gives_finite_answers(shape) -> None:
    """The usual numbers of a stream in half precision, in which memory keeps its invariants."""
    model = load(ModelConfig(name=f"random:{shape}", device="cpu", dtype="bfloat16"))
    rng = np.random.default_rng(3)
    with StreamSession(model, config(model.dims.tokens_per_frame)) as session:
        for index in range(18):
            picture = rng.integers(0, 256, (30, 50, 3), dtype=np.uint8)
            session.observe(Frame(picture, index, index * 0.5))
        assert session.ask(QUESTION).status == "ok"
        session.memory.check()
