"""Training of the easy-VQA model: pictures keep their labels, questions their answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hermes_like.easyvqa.package import package_folder, read_split
from hermes_like.easyvqa.questions import COLORS, FORMS, SHAPES
from hermes_like.models import load_model
from hermes_like.models.easyvqa import weights_folder
from pipelines.easyvqa_train import main
from pipelines.easyvqa_training.decoder import DecoderRun, code_bank, train_decoder
from pipelines.easyvqa_training.pictures import Variations, load_pictures
from pipelines.easyvqa_training.samples import Recipe, build_sample, collate
from pipelines.easyvqa_training.streams import draw_kinds, draw_questions
from pipelines.easyvqa_training.tower import tokens_of
from pipelines.easyvqa_training.words import encode, vocabulary
from pipelines.sprites_training.vision import VisionHalf, load_vision, stock_state
from tests.easyvqa_copy import RGB, write_copy


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory):
    copy = write_copy(tmp_path_factory.mktemp("package"), num_images=48)
    return load_pictures(read_split(package_folder(copy.folder), "train"))


def test_the_tower_sees_in_training_what_the_model_sees(pictures) -> None:
    trained = tokens_of(load_vision(weights_folder()).float(), pictures.pixels[:4])
    model = load_model("easyvqa")
    used = model.embed_frames(list(pictures.pixels[:4])).numpy()
    np.testing.assert_allclose(trained, used, atol=1e-4)


def test_new_pictures_keep_colour_and_form(pictures) -> None:
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(pictures), size=60).tolist()
    drawn = Variations(pictures).draw(rng, chosen)
    assert drawn.shape == (60, 64, 64, 3)
    assert (drawn != pictures.pixels[chosen]).any(axis=(1, 2, 3)).mean() > 0.5
    for index, picture in zip(chosen, drawn, strict=True):
        color = COLORS[pictures.colors[index]]
        mask = (picture == np.array(RGB[color])).all(axis=2)
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        filled = mask.sum() / (height * width)
        shape = SHAPES[pictures.shapes[index]]
        # A rectangle fills its box, a circle about 79 % of it, a triangle about half.
        assert {"rectangle": 0.97, "circle": 0.7, "triangle": 0.42}[shape] < filled
        assert filled <= {"rectangle": 1.0, "circle": 0.9, "triangle": 0.68}[shape]
        if shape == "circle":
            assert abs(height - width) <= 2
        if shape == "triangle":
            assert mask[rows[-1]].sum() > mask[rows[0]].sum(), "it stands upright"


def test_questions_are_answered_alike_by_what_is_left_and_by_everything() -> None:
    rng = np.random.default_rng(1)
    groups = {"now": 0, "what": 0, "yes_no": 0}
    for _ in range(60):
        kinds = draw_kinds(rng, int(rng.integers(2, 20)))
        seen = sorted({*rng.integers(len(kinds), size=8).tolist(), len(kinds) - 1})
        for _, asked in zip(range(8), draw_questions(rng, kinds, seen), strict=False):
            groups[asked.group] += 1
            words = asked.text.rstrip("?").split()
            assert set(encode(asked.text)) <= set(vocabulary().values())
            if asked.group == "now":
                assert asked.evidence == (len(kinds) - 1,)
                assert asked.answer in ("yes", "no", *kinds[-1])
                continue
            (word,) = asked.named
            fits = [frame for frame in seen if word in kinds[frame]]
            assert list(asked.evidence) == fits
            everywhere = [kind for kind in kinds if word in kind]
            if asked.group == "what":
                other = {kind[1 - kind.index(word)] for kind in everywhere}
                assert other == {asked.answer}
            else:
                assert bool(fits) == bool(everywhere)
                is_negated = bool({"not", "no"} & set(words))
                assert asked.answer == ("yes" if bool(fits) != is_negated else "no")
    assert min(groups.values()) > 40, groups


def test_rows_look_at_visible_tokens() -> None:
    rng, bank = np.random.default_rng(2), code_bank(copies=2)
    samples = [build_sample(rng, frames, Recipe()) for frames in (3, 9, 17)]
    batch = collate(samples, bank, rng)
    for target in batch.targets[1:]:
        for index, sample in enumerate(samples):
            for number, row in enumerate(sample.rows):
                visible = batch.bias[index, 0, row] == 0
                wanted = target.wanted[index, number] > 0
                assert (wanted & visible).any(), "something that it may look at"
                assert int(target.rows[index, number]) == row


def test_a_checkpoint_is_trained_and_put_together(tmp_path: Path) -> None:
    train_decoder(DecoderRun(tmp_path / "decoder", steps=2, step_tokens=200), code_bank(copies=2))
    torch.manual_seed(0)
    tower = tmp_path / "tower.safetensors"
    save_file(stock_state(VisionHalf()), tower)
    checkpoint = tmp_path / "decoder" / "decoder.safetensors"
    arguments = ["assemble", "--tower", str(tower), "--decoder", str(checkpoint)]
    assert main([*arguments, "--out", str(tmp_path / "weights")]) == 0
    config = json.loads((tmp_path / "weights" / "config.json").read_text())
    shipped = json.loads((weights_folder() / "config.json").read_text())
    assert config == shipped, "the shipped weights have the shape that is trained"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        made = (tmp_path / "weights" / name).read_bytes()
        assert made == (weights_folder() / name).read_bytes()


def test_the_vocabulary_has_every_word() -> None:
    for form in FORMS:
        for text in (form.present, form.past):
            if text is not None:
                filled = text.replace("{thing}", "teal shape").replace("{shape}", "circle")
                assert encode(filled.replace("{color}", "red"))
