"""Training of the easy-VQA decoder on the tower's tokens of training pictures."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Qwen2Config

from hermes_like.easyvqa.questions import COLORS, SHAPES
from pipelines.easyvqa_training.code import kind_codes, word_codes
from pipelines.easyvqa_training.pictures import LabelledPictures, Variations
from pipelines.easyvqa_training.samples import (
    GROUPS,
    Batch,
    Recipe,
    build_sample,
    collate,
)
from pipelines.easyvqa_training.streams import Kind
from pipelines.easyvqa_training.tower import tokens_of, vision_state
from pipelines.easyvqa_training.words import VOCABULARY_SIZE, vocabulary
from pipelines.sprites_training.checkpoint import load_state, save_state
from pipelines.sprites_training.dropping import Hardships
from pipelines.sprites_training.network import (
    HIDDEN,
    Decoder,
    Outputs,
    decoder_config,
    initialise_attention,
)
from pipelines.sprites_training.samples import IGNORED
from pipelines.sprites_training.schedule import Plan, Speed, replan
from pipelines.sprites_training.vision import VisionHalf

FloatArray = np.ndarray

NUM_LAYERS = 6
EMA_DECAY = 0.998
CALM = Hardships(drop_share=0.0, gap_share=0.0)


def easyvqa_decoder_config() -> Qwen2Config:
    """The sprites model's decoder with fewer layers and fewer words."""
    config = decoder_config()
    changed = {"num_hidden_layers": NUM_LAYERS, "vocab_size": VOCABULARY_SIZE}
    dropped = ("layer_types", "model_type", "transformers_version")
    kept = {name: value for name, value in config.to_dict().items() if name not in dropped}
    return Qwen2Config(**{**kept, **changed})


@dataclass(frozen=True, slots=True)
class DecoderRun:
    """Settings of one run.

    Attributes:
        folder: Where checkpoint and log go.
        minutes: How long to train; the plan is fitted to the speed as it is measured.
        steps: Train exactly so many steps instead.
        seed: Of weights and streams.
        rate: Peak learning rate.
        step_tokens: Tokens a step.
        attention_weight: Factor of all attention losses.
        decay_share: Share of the time in which the rate falls to zero.
        short_share: Share of the time with short complete streams at the beginning.
        init: Checkpoint to go on from; None: random weights.
    """

    folder: Path
    minutes: float = 25.0
    steps: int | None = None
    seed: int = 0
    rate: float = 1e-3
    step_tokens: int = 1_600
    attention_weight: float = 0.6
    decay_share: float = 0.45
    short_share: float = 0.2
    init: Path | None = None

    LOG_STEPS = 50
    CHECK_STEPS = 500


class TokenBank:
    """Tokens of many pictures of every kind.

    Args:
        tokens: float32 ``[pictures, 4, dim]``.
        shapes: ``[pictures]``, indices into ``SHAPES``.
        colors: ``[pictures]``, indices into ``COLORS``.
    """

    def __init__(self, tokens: FloatArray, shapes: FloatArray, colors: FloatArray) -> None:
        self._tokens = tokens
        self._rows = {
            (shape, color): np.flatnonzero((shapes == i) & (colors == j))
            for i, shape in enumerate(SHAPES)
            for j, color in enumerate(COLORS)
        }

    def tokens(self, kinds: list[Kind], rng: np.random.Generator) -> FloatArray:
        """See :class:`~pipelines.easyvqa_training.samples.TokenSource`."""
        rows = [self._rows[kind] for kind in kinds]
        return self._tokens[[int(found[int(rng.integers(len(found)))]) for found in rows]]


def tower_bank(tower: Path, pictures: LabelledPictures, variations: int = 3) -> TokenBank:
    """The tower's tokens of training pictures and of new ones made from them."""
    vision = VisionHalf()
    vision.load_state_dict(vision_state(tower))
    vary, rng = Variations(pictures), np.random.default_rng(5)
    every = list(range(len(pictures)))
    parts = [tokens_of(vision, pictures.pixels)]
    parts += [tokens_of(vision, vary.draw(rng, every)) for _ in range(variations)]
    times = variations + 1
    return TokenBank(
        np.concatenate(parts), np.tile(pictures.shapes, times), np.tile(pictures.colors, times)
    )


def code_bank(noise: float = 0.075, copies: int = 50, seed: int = 6) -> TokenBank:
    """The code itself with noise, for trying out the decoder without any tower."""
    rng = np.random.default_rng(seed)
    shapes = np.tile(np.repeat(np.arange(len(SHAPES)), len(COLORS)), copies)
    colors = np.tile(np.arange(len(COLORS)), len(SHAPES) * copies)
    codes = np.repeat(kind_codes()[shapes, colors][:, None], 4, axis=1)
    noisy = codes + noise * rng.standard_normal(codes.shape, dtype=np.float32)
    return TokenBank(noisy, shapes, colors)


def make_decoder(seed: int) -> Decoder:
    """A decoder with random weights whose words are anchored in the code."""
    decoder = Decoder({}, easyvqa_decoder_config())
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, std: float) -> Tensor:
        return torch.randn(*shape, generator=generator) * std

    with torch.no_grad():
        embedding = decoder.lm.model.embed_tokens.weight
        embedding.copy_(normal(*embedding.shape, std=0.25))
        for word, code in word_codes().items():
            embedding[vocabulary()[word]] = torch.from_numpy(code)
        decoder.lm.lm_head.weight.copy_(embedding)
        initialise_attention(decoder, normal)
    return decoder


def train_decoder(run: DecoderRun, bank: TokenBank) -> dict[str, float]:
    """Train; write ``decoder.safetensors`` and ``log.jsonl``.

    Returns:
        Shares of right answers of the last check.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    decoder = make_decoder(run.seed)
    if run.init is not None:
        decoder.load_state_dict(load_state(run.init)["decoder"])
    ema = {name: value.detach().clone() for name, value in decoder.named_parameters()}
    optimizer = torch.optim.AdamW(
        decoder.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    steps = run.steps or 10_000
    plan = Plan(run.rate, 100, int(steps * (1 - run.decay_share)), steps)
    speed, started = Speed(), time.monotonic()
    hits: Counter[str] = Counter()
    step, num_tokens = 0, 0
    while step < plan.end_step:
        num_frames, recipe = _draw_length(rng, run, step / plan.end_step)
        room = 4 * num_frames + recipe.question_tokens
        samples = [
            build_sample(rng, num_frames, recipe) for _ in range(max(2, run.step_tokens // room))
        ]
        batch = collate(samples, bank, rng)
        outputs = run_decoder(decoder, batch)
        loss = total_loss(outputs, batch, run.attention_weight)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = plan.rate(step)
        optimizer.step()
        step, num_tokens = step + 1, num_tokens + batch.num_tokens
        pull = 1 - min(EMA_DECAY, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(list(ema.values()), list(decoder.parameters()), pull)
        hits.update(_count(outputs, batch))
        speed.tick()
        if run.steps is None and step % 20 == 0:
            left_s = run.minutes * 60 - (time.monotonic() - started)
            decay_left_s: float = left_s - run.decay_share * run.minutes * 60
            plan = replan(plan, step, speed.seconds_per_step, max(0.0, left_s), decay_left_s)
        if step % run.LOG_STEPS == 0:
            row = {"step": step, "minutes": round((time.monotonic() - started) / 60, 2)}
            row |= {"tokens": num_tokens, "loss": round(loss.item(), 4), "end_step": plan.end_step}
            _log(run, row | {"rate": plan.rate(step)} | _shares(hits))
            hits.clear()
        if step % run.CHECK_STEPS == 0:
            _save(run, decoder, ema, step)
            _log(run, {"step": step, "check": check(ema, bank)})
    _save(run, decoder, ema, step)
    found = check(ema, bank)
    _log(run, {"step": step, "check": found, "plan": asdict(plan)})
    return found


def _draw_length(rng: np.random.Generator, run: DecoderRun, done: float) -> tuple[int, Recipe]:
    """Frames of the next batch: short and complete at first, then up to 64 with losses."""
    if done < run.short_share:
        return int(rng.integers(3, 13)), Recipe(hardships=CALM)
    longest = 40 if rng.random() < 0.8 else 65
    return int(rng.integers(2, longest)), Recipe()


def run_decoder(decoder: Decoder, batch: Batch) -> Outputs:
    """Embed a batch and run the decoder on it."""
    embeddings = decoder.lm.model.embed_tokens(batch.ids)
    embeddings = torch.where(batch.is_video[..., None], batch.features, embeddings)
    embeddings = torch.where(batch.is_newline[..., None], decoder.newline, embeddings)
    return decoder(embeddings, batch.positions, batch.bias, batch.answer_rows, batch.targets)


def total_loss(outputs: Outputs, batch: Batch, attention_weight: float) -> Tensor:
    """The training loss: answers, and where chosen heads look."""
    loss = F.cross_entropy(
        outputs.logits.flatten(0, 1), batch.answer_ids.flatten(), ignore_index=IGNORED
    )
    for target, value in zip(batch.targets, outputs.attention_losses, strict=True):
        loss = loss + attention_weight * target.weight * value
    return loss


def check(weights: dict[str, Tensor], bank: TokenBank, seed: int = 77) -> dict[str, float]:
    """Answer questions about complete streams that training never drew, with given weights."""
    decoder = make_decoder(0)
    decoder.load_state_dict(weights)
    hits: Counter[str] = Counter()
    for num_frames in (8, 24, 48):
        rng = np.random.default_rng([seed, num_frames])
        samples = [build_sample(rng, num_frames, Recipe(hardships=CALM)) for _ in range(16)]
        with torch.no_grad():
            batch = replace(collate(samples, bank, rng), targets=[])
            counted = _count(run_decoder(decoder, batch), batch)
        hits.update({f"{name} {num_frames}": count for name, count in counted.items()})
    return _shares(hits)


def _count(outputs: Outputs, batch: Batch) -> Counter[str]:
    """Right and asked, by group."""
    right = outputs.logits.detach().argmax(-1) == batch.answer_ids
    found: Counter[str] = Counter()
    for index, name in enumerate(GROUPS):
        chosen = batch.groups == index
        found[f"asked {name}"], found[f"right {name}"] = int(chosen.sum()), int(right[chosen].sum())
    return found


def _shares(hits: Counter[str]) -> dict[str, float]:
    return {
        name.removeprefix("asked "): round(
            100 * hits["right " + name.removeprefix("asked ")] / count, 1
        )
        for name, count in hits.items()
        if name.startswith("asked ") and count
    }


def _save(run: DecoderRun, decoder: Decoder, ema: dict[str, Tensor], step: int) -> None:
    state = {"decoder": decoder.state_dict(), "ema": ema, "step": step}
    save_state(run.folder / "decoder.safetensors", state)


def _log(run: DecoderRun, row: dict[str, object]) -> None:
    with (run.folder / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


assert kind_codes().shape[-1] == HIDDEN, "the code and the decoder have one width"
