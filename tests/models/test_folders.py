"""A checkpoint folder of every family, as the library writes it, answers from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hermes_like.cli import run
from hermes_like.config import ModelConfig
from hermes_like.errors import ModelNotFoundError
from hermes_like.models import load_model
from hermes_like.models.internvl import InternVLAdapter
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.models.loading import SUPPORTED
from hermes_like.models.qwen3_vl import Qwen3VLAdapter
from hermes_like.models.qwen_vl import QwenVLAdapter
from hermes_like.models.random_shapes import load
from hermes_like.tiers.fingerprint import Fingerprint

#: Model type, as configuration files call it, to a tiny shape of it and its adapter.
FAMILIES = {
    "llava_onevision": ("llava-onevision-tiny", LlavaOnevisionAdapter),
    "qwen2_vl": ("qwen2-vl-tiny", QwenVLAdapter),
    "qwen2_5_vl": ("qwen2.5-vl-tiny", QwenVLAdapter),
    "qwen3_vl": ("qwen3-vl-tiny", Qwen3VLAdapter),
    "qwen3_vl_moe": ("qwen3-vl-moe-tiny", Qwen3VLAdapter),
    "internvl": ("internvl-tiny", InternVLAdapter),
}
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<img>", "</img>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_folder(path: Path, model_type: str) -> torch.nn.Module:
    """Weights of a tiny random model, a tokenizer of bytes with a chat template, picture values."""
    model = load(ModelConfig(name=f"random:{FAMILIES[model_type][0]}", device="cpu"), seed=5)._model
    model.save_pretrained(path)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={a: i for i, a in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        additional_special_tokens=[name for name in SPECIAL if name != "<|im_end|>"],
        chat_template=CHAT,
    )
    fast.save_pretrained(path)
    values = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (path / "preprocessor_config.json").write_text(json.dumps(values))
    return model


def test_no_family_is_left_out() -> None:
    assert set(FAMILIES) == set(SUPPORTED)


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_a_folder_answers(model_type: str, sprites_video, tmp_path, capsys) -> None:
    """The adapter of the family with the saved weights; then a question about a video."""
    saved = save_folder(tmp_path, model_type)
    made = load_model(ModelConfig(name=str(tmp_path), device="cpu", frame_pixels=784))
    assert type(made) is FAMILIES[model_type][1]
    loaded = made._model.state_dict()
    assert all(torch.equal(loaded[name], w) for name, w in saved.state_dict().items())
    settings = {
        "source.sample_fps": 0.25, "memory.device_tokens": 3000, "memory.question_tokens": 400,
        "model.frame_pixels": 784, "policy.name": "window", "answer.max_tokens": 3,
    }  # fmt: skip
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    arguments = ["ask", str(sprites_video), "who ?", "--model", str(tmp_path), "--json", *options]
    assert run(arguments) == 0
    (answer,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answer["status"] == "ok"
    assert answer["num_tokens"] > 0


@pytest.mark.parametrize("model_type", ["qwen3_vl", "internvl"])
def test_prompts_are_those_of_the_chat_template(model_type: str, tmp_path) -> None:
    """What stands around the video and the question, for families without a system prompt."""
    save_folder(tmp_path, model_type)
    made = load_model(ModelConfig(name=str(tmp_path), device="cpu"))
    question = "What is on the table?"
    want = made._text.tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
    )
    assert made.prefix_ids() + made.question_ids(question, is_first=True) == made._text.encode(want)


def test_picture_values_of_a_checkpoint_count(tmp_path) -> None:
    """InternVL: mean and deviation come from the folder, and without a file from the family."""
    save_folder(tmp_path, "internvl")
    made = load_model(ModelConfig(name=str(tmp_path), device="cpu"))
    assert (made.mean, made.deviation) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    before = made.identity()
    (tmp_path / "preprocessor_config.json").unlink()
    other = load_model(ModelConfig(name=str(tmp_path), device="cpu"))
    assert other.mean == (0.485, 0.456, 0.406)
    after = other.identity()
    assert [name for name in before if before[name] != after[name]] == ["processor_digest"]


def test_a_revision_of_a_hub_model_is_pinned(tmp_path, monkeypatch) -> None:
    """A branch leads to the commit it stood for when it was loaded; the fingerprint names that."""
    hub, name = tmp_path / "hub", "someone/tiny"
    folder = hub / "models--someone--tiny"
    commits = {"main": "1" * 40, "v2": "2" * 40}
    for number, (branch, commit) in enumerate(commits.items()):
        snapshot = folder / "snapshots" / commit
        snapshot.mkdir(parents=True)
        model = save_folder(snapshot, "internvl")
        with torch.no_grad():
            model.lm_head.weight.add_(number)
        model.save_pretrained(snapshot)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / branch).write_text(commit)
    for module in (huggingface_hub.constants, transformers.utils.hub.constants):
        monkeypatch.setattr(module, "HF_HUB_CACHE", str(hub))
    made = {
        revision: load_model(ModelConfig(name=name, device="cpu", revision=revision)).identity()
        for revision in (None, "v2", commits["v2"])
    }
    assert made[None]["revision"] == commits["main"]
    assert made["v2"]["revision"] == made[commits["v2"]]["revision"] == commits["v2"]
    assert made["v2"]["weights_digest"] != made[None]["weights_digest"]
    for wanted in (None, "v2"):
        assert Fingerprint.of(**made[wanted]).hard["revision"] == made[wanted]["revision"]
    with pytest.raises(ModelNotFoundError, match="'someone/tiny' at revision 'v3'"):
        load_model(ModelConfig(name=name, device="cpu", revision="v3"))
