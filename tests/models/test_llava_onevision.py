"""The adapter of LLaVA-OneVision, on random weights of the true architecture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from hermes_like.config import HermesConfig, ModelConfig
from hermes_like.errors import ConfigError, ModelError, ModelNotFoundError
from hermes_like.models import load_model
from hermes_like.models.random_shapes import SHAPES, build, load
from hermes_like.models.text import HashTokenizer
from hermes_like.records import Frame
from hermes_like.session import StreamSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint folder as the library writes it, with a byte-level tokenizer."""
    path = tmp_path_factory.mktemp("checkpoint")
    shape = SHAPES["llava-onevision-tiny"]
    build(shape, device=torch.device("cpu"), dtype=torch.float32, seed=5).save_pretrained(path)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: i for i, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip
    fast.save_pretrained(path)
    return path


def test_a_local_folder_loads_and_answers(folder) -> None:
    model = load_model(ModelConfig(name=str(folder), device="cpu"))
    assert model.dims.dtype == torch.float32
    assert model.eos_ids == {256}
    assert model.prefix_ids()[0] == 257, "expected the chat template's special token"
    rng = np.random.default_rng(0)
    config = HermesConfig.model_validate(
        {"memory": {"device_tokens": 600, "question_tokens": 120}, "policy": {"name": "hermes"}}
    )
    with StreamSession(model, config) as session:
        for i in range(9):
            session.observe(Frame(rng.integers(0, 255, (30, 50, 3), dtype=np.uint8), i, float(i)))
        assert session.ask("who ?").status == "ok"
        session.memory.check()


def test_a_missing_checkpoint_gives_one_line(tmp_path) -> None:
    for name in ("nobody/nothing-here", str(tmp_path)):
        with pytest.raises(ModelNotFoundError) as error:
            load_model(name)
        message = str(error.value)
        assert "\n" not in message
        assert name in message
        assert "looked in" in message
        assert "--model sprites needs no download" in message


def test_another_family_is_refused_by_name(tmp_path) -> None:
    config = Qwen2Config(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, vocab_size=32,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(
        ModelError, match=r"expected a model of type llava_onevision or .*, got 'qwen2'"
    ):
        load_model(str(tmp_path))


def test_layers_that_drop_tokens_are_refused() -> None:
    from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
    from hermes_like.models.text import ByteTokenizer

    shape = SHAPES["llava-onevision-tiny"]
    model = build(shape, device=torch.device("cpu"), dtype=torch.float32, seed=0)
    model.config.text_config.layer_types[3] = "sliding_attention"
    with pytest.raises(ModelError, match="sliding_attention"):
        LlavaOnevisionAdapter(model, ByteTokenizer(), name="x", eos_ids=frozenset())


def test_unknown_shape_and_device_are_told() -> None:
    with pytest.raises(ConfigError, match="did you mean 'llava-onevision-7b'"):
        load_model("random:llava-onevision-7")
    with pytest.raises(ModelError, match=r"model\.device: 'nonsense'"):
        load_model(ModelConfig(name="random:llava-onevision-tiny", device="nonsense"))


@pytest.mark.parametrize(
    ("name", "per_frame", "kv_bytes"),
    [
        ("llava-onevision-0.5b", 196, 12_288),
        ("llava-onevision-7b", 196, 57_344),
        ("llava-onevision-72b", 196, 327_680),
    ],
)
def test_released_shapes(name: str, per_frame: int, kv_bytes: int) -> None:
    """Tokens a frame and bytes a token in 16 bits, as published (built without memory)."""
    from hermes_like.models.llava_onevision import LlavaOnevisionAdapter

    model = build(SHAPES[name], device=torch.device("meta"), dtype=torch.bfloat16, seed=0)
    dims = LlavaOnevisionAdapter(model, HashTokenizer(1000), name=name, eos_ids=frozenset()).dims
    assert dims.tokens_per_frame == per_frame
    assert dims.kv_bytes_per_token == kv_bytes
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters == pytest.approx(
        {"0.5b": 1.03e9, "7b": 8.03e9, "72b": 73.2e9}[name.split("-")[-1]], rel=0.02
    )


def test_pixels_equal_the_librarys_processor() -> None:
    """The image processor of the family that works without torchvision, same size and filter."""
    from PIL import Image
    from transformers import SiglipImageProcessor

    tiny = load(ModelConfig(name="random:llava-onevision-tiny", device="cpu"))
    size = tiny._image_size
    y, x = np.mgrid[0:90, 0:120]
    smooth = np.stack([x * 2, y * 2, (x + y)], -1).astype(np.uint8)
    processor = SiglipImageProcessor(size={"height": size, "width": size})
    want = torch.as_tensor(np.array(processor(Image.fromarray(smooth))["pixel_values"][0]))
    difference = (tiny.pixels([smooth])[0] - want).abs()
    assert float(difference.mean()) < 4e-3, "expected less than half a grey level on average"
    assert float(difference.max()) < 0.05


@pytest.mark.parametrize("shape", [(31, 639), (2000, 8), (1, 1), (321, 241)])
def test_odd_sizes_become_one_frame(shape: tuple[int, int]) -> None:
    """A21: no aspect ratio breaks preprocessing."""
    tiny = load(ModelConfig(name="random:llava-onevision-tiny", device="cpu"))
    picture = np.full((*shape, 3), 200, np.uint8)
    tokens = tiny.embed_frames([picture])
    assert tokens.shape == (1, 9, 64)
    assert bool(torch.isfinite(tokens).all())


def test_no_pictures_give_no_tokens() -> None:
    tiny = load(ModelConfig(name="random:llava-onevision-tiny", device="cpu"))
    assert tiny.embed_frames([]).shape == (0, 9, 64)


def test_the_bundled_model_is_small_and_true() -> None:
    sprites = load_model("sprites")
    from hermes_like.models.sprites import weights_folder

    size = sum(p.stat().st_size for p in weights_folder().iterdir())
    assert size <= 12 * 1024**2
    assert type(sprites._model).__name__ == "LlavaOnevisionForConditionalGeneration"
    assert sprites.dims.tokens_per_frame == 4
