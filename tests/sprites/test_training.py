"""The decoder's training: masks, positions and code against the stock model run piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hermes_like.sprites.world import Sprite
from pipelines.sprites_training.assemble import whole_config
from pipelines.sprites_training.bank import BankFeatures, save_bank
from pipelines.sprites_training.batches import collate
from pipelines.sprites_training.checkpoint import load_state
from pipelines.sprites_training.code import frame_code
from pipelines.sprites_training.decoder import DecoderRun, run_decoder, total_loss, train_decoder
from pipelines.sprites_training.dropping import NEVER, Hardships
from pipelines.sprites_training.features import CodeFeatures
from pipelines.sprites_training.network import Decoder, initialise
from pipelines.sprites_training.samples import IGNORED, SIDE_HEADS, SampleRecipe, build_sample
from pipelines.sprites_training.schedule import Plan, replan

HARD = SampleRecipe(hardships=Hardships(drop_share=1.0, gap_share=0.7), question_tokens=40)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    torch.set_num_threads(1)
    decoder = Decoder({name: classes for name, (_, classes) in SIDE_HEADS.items()})
    initialise(decoder, 3)
    return decoder.eval()


@torch.no_grad()
def test_one_masked_pass_equals_the_stock_model_on_each_dialogue(decoder: Decoder) -> None:
    rng = np.random.default_rng(4)
    samples = [build_sample(rng, frames, HARD) for frames in (5, 9, 3)]
    batch = collate(samples, CodeFeatures(), rng)
    logits = run_decoder(decoder, batch).logits
    embeddings = decoder.lm.model.embed_tokens(batch.ids)
    embeddings = torch.where(batch.is_video[..., None], batch.features, embeddings)
    embeddings = torch.where(batch.is_newline[..., None], decoder.newline, embeddings)
    for row, sample in enumerate(samples):
        if (sample.evict_times != NEVER).any():
            continue
        for dialogue in range(1, sample.dialogues.max() + 1):
            chosen = np.flatnonzero((sample.dialogues == 0) | (sample.dialogues == dialogue))
            expected = decoder.lm(
                inputs_embeds=embeddings[row, chosen][None],
                position_ids=batch.positions[row, chosen][None],
            ).logits[0]
            for number, answer_row in enumerate(sample.answer_rows):
                if sample.dialogues[answer_row] == dialogue:
                    place = int(np.searchsorted(chosen, answer_row))
                    assert torch.allclose(logits[row, number], expected[place], atol=2e-4)


@torch.no_grad()
def test_evicted_tokens_do_not_reach_later_ones(decoder: Decoder) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        sample = build_sample(rng, 8, HARD)
        if (sample.evict_times != NEVER).any():
            break
    evicted = torch.from_numpy(sample.evict_times != NEVER)
    batch = collate([sample], CodeFeatures(), rng)
    is_after = torch.from_numpy(sample.times >= sample.evict_times[evicted.numpy()].max())
    seen = batch.bias[0, 0][is_after][:, evicted] == 0
    assert is_after.any()
    assert not seen.any()
    assert (batch.bias[0, 0][evicted][:, evicted].diagonal() == 0).all()


def test_the_loss_has_a_gradient_everywhere(decoder: Decoder) -> None:
    rng = np.random.default_rng(1)
    batch = collate([build_sample(rng, 10, HARD) for _ in range(3)], CodeFeatures(), rng)
    decoder.zero_grad()
    loss, parts = total_loss(decoder, run_decoder(decoder, batch), batch, 0.5)
    loss.backward()
    assert all(np.isfinite(value) and value >= -1e-3 for value in parts.values())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in decoder.parameters())


def test_answers_survive_what_the_sample_loses() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        sample = build_sample(rng, 12, HARD)
        assert len(sample.answer_rows) == len(sample.answer_ids) == len(sample.answer_questions)
        assert (sample.ids[sample.answer_rows + 1] == sample.answer_ids).all()
        assert (np.diff(sample.positions[: sample.num_video]) > 0).all()
        for target in sample.targets.values():
            assert target.wanted.shape == (len(target.rows), len(sample.ids))
            rows, tokens = np.nonzero(target.wanted)
            assert (tokens <= target.rows[rows]).all()
        labels = sample.side["start"][1 : 1 + len(sample.frames)]
        assert (labels != IGNORED).all()


def test_real_features_take_the_place_of_the_code(tmp_path: Path) -> None:
    lone = (Sprite("star", "red", "left", 3),)
    pair = (Sprite("moon", "blue", "left"), Sprite("ring", "green", "right", 1))
    contents = [lone, lone, (), pair]
    rng = np.random.default_rng(0)
    codes = np.stack([frame_code(sprites) for sprites in contents])
    features = (codes + 0.01 * rng.standard_normal((4, 4, 128))).astype(np.float32)
    save_bank(tmp_path / "bank.safetensors", contents, features)
    bank = BankFeatures.load(tmp_path / "bank.safetensors")
    other_pair = (Sprite("star", "red", "right"), Sprite("moon", "white", "left", 5))
    frames = [lone, (), other_pair]
    token_frames = np.array([0, 0, 0, 0, 1, 2, 2])
    token_places = np.array([0, 1, 2, 3, 2, 1, 3])
    tokens = bank.tokens(frames, token_frames, token_places, rng)
    codes = [frame_code(sprites) for sprites in frames]
    wanted = np.stack([codes[f][p] for f, p in zip(token_frames, token_places, strict=True)])
    assert tokens.shape == (7, 128)
    assert np.abs(tokens - wanted).max() < 0.1


def test_a_plan_falls_to_zero_and_follows_the_clock() -> None:
    plan = Plan(peak_rate=1.0, warmup_steps=10, decay_step=60, end_step=100)
    assert plan.rate(0) == pytest.approx(0.1)
    assert plan.rate(30) == 1.0
    assert plan.rate(80) == pytest.approx(0.5)
    assert plan.rate(100) == 0.0
    later = replan(plan, 40, seconds_per_step=2.0, left_s=400.0, decay_left_s=200.0)
    assert (later.decay_step, later.end_step) == (140, 240)
    assert replan(later, 150, 1.0, 50.0, -100.0).decay_step == 140


def test_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    for steps in (2, 3):
        train_decoder(DecoderRun(tmp_path, steps=steps, step_tokens=300, check_streams=1))
    state = load_state(tmp_path / "decoder.safetensors")
    assert state["step"] == 3


def test_the_whole_configuration_is_the_stock_class() -> None:
    config = whole_config()
    assert config.model_type == "llava_onevision"
    assert (config.video_token_index, config.text_config.hidden_size) == (4, 128)
