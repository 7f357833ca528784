"""Training of the decoder: the loop, its checkpoints and its log.

Runs in one or several single-threaded processes; they draw different samples, average their
gradients and stay identical otherwise. The first process decides lengths, rates and the end.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from pipelines.sprites_training.assemble import load_stock_decoder
from pipelines.sprites_training.bank import BankFeatures
from pipelines.sprites_training.batches import Batch, collate
from pipelines.sprites_training.checkpoint import load_state, save_state
from pipelines.sprites_training.dropping import Hardships
from pipelines.sprites_training.features import CodeFeatures, FeatureSource
from pipelines.sprites_training.network import HIDDEN, Decoder, Outputs, initialise
from pipelines.sprites_training.progress import Curriculum, Emphasis, Tally, answer_hits
from pipelines.sprites_training.samples import (
    IGNORED,
    SIDE_HEADS,
    SampleRecipe,
    build_sample,
)
from pipelines.sprites_training.schedule import Plan, Speed, replan, seconds_until

SIDE_WEIGHT = 0.3
COUNT_SIDE_WEIGHT = 0.6
EMA_DECAY = 0.998
CALM = Hardships(drop_share=0.0, gap_share=0.0)


@dataclass(frozen=True, slots=True)
class DecoderRun:
    """Settings of one (part of a) run.

    Attributes:
        folder: Where checkpoints and the log go.
        seed: Seed of weights and samples.
        steps: Last step, if no clock is given.
        stop_at: Clock time (HH:MM) at which the rate reaches zero; overrides ``steps``.
        decay_share: Share of the steps in which the rate falls.
        decay_at: Clock time at which it starts to fall; overrides ``decay_share``.
        rate: Peak learning rate.
        step_tokens: Tokens per step and process.
        attention_weight: Factor of all attention losses.
        processes: How many processes train.
        bank: File with tower features; None trains on the symbolic code.
        init: Folder of a stock checkpoint to start from; None: random weights, short videos first.
        noise: Standard deviation of the noise on the code.
        check_streams: Streams per length in the checks during training.
    """

    folder: Path
    seed: int = 0
    steps: int = 10_000
    stop_at: str | None = None
    decay_share: float = 0.4
    decay_at: str | None = None
    rate: float = 1e-3
    step_tokens: int = 1_600
    attention_weight: float = 0.6
    processes: int = 1
    bank: Path | None = None
    init: Path | None = None
    noise: float = 0.075
    check_streams: int = 24

    CHECKPOINT_S = 120.0
    CHECK_S = 240.0
    LOG_STEPS = 50
    REPLAN_STEPS = 100

    def features(self) -> FeatureSource:
        """Return the source of video features."""
        return BankFeatures.load(self.bank) if self.bank else CodeFeatures(self.noise)


def train_decoder(run: DecoderRun) -> None:
    """Train, or go on training, until the plan ends."""
    run.folder.mkdir(parents=True, exist_ok=True)
    if run.processes == 1:
        _Trainer(run, rank=0).train()
        return
    store = run.folder.resolve() / f"rendezvous-{os.getpid()}"
    torch.multiprocessing.spawn(_process, args=(run, f"file://{store}"), nprocs=run.processes)
    store.unlink(missing_ok=True)


def _process(rank: int, run: DecoderRun, address: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=run.processes)
    _Trainer(run, rank).train()
    dist.destroy_process_group()


class _Trainer:
    """State of one process."""

    def __init__(self, run: DecoderRun, rank: int) -> None:
        self.run = run
        self.rank = rank
        self.decoder = Decoder({name: classes for name, (_, classes) in SIDE_HEADS.items()})
        initialise(self.decoder, run.seed)
        if run.init:
            load_stock_decoder(self.decoder, run.init)
        self.ema = {k: v.detach().clone() for k, v in self.decoder.named_parameters()}
        self.optimizer = torch.optim.AdamW(_parameter_groups(self.decoder), fused=True)
        decay_step = int(run.steps * (1 - run.decay_share))
        self.plan = Plan(run.rate, 100, decay_step, run.steps)
        self.curriculum = Curriculum.grown() if run.init else Curriculum()
        self.emphasis = Emphasis()
        self.step = 0
        self.num_tokens = 0
        self.features = run.features()
        self.recipe = SampleRecipe()
        self.speed = Speed()
        self.tallies = {"short": Tally(), "long": Tally()}
        self.losses: dict[str, float] = {}
        self.started = time.monotonic()
        self._resume()
        self.rng = np.random.default_rng([run.seed, self.step, rank])
        self.is_stopping = False

    # -- the loop --------------------------------------------------------------------------

    def train(self) -> None:
        """Step until the plan ends, with checkpoints and checks on the clock."""
        saved = checked = time.monotonic()
        self._replan()
        signal.signal(signal.SIGTERM, self._stop)
        while True:
            order = self._order()
            if order.is_over:
                break
            self._one_step(order)
            if self.rank:
                continue
            now = time.monotonic()
            if self.step % self.run.LOG_STEPS == 0:
                self._log()
            if now - checked > self.run.CHECK_S:
                checked = now
                self._check()
            if now - saved > self.run.CHECKPOINT_S:
                saved = now
                self.save()
        if self.rank == 0:
            self.save()
            self._check()

    def _stop(self, *_: object) -> None:
        """End after this step, with a checkpoint."""
        self.is_stopping = True

    def _one_step(self, order: _Order) -> None:
        recipe = self._recipe_now(order)
        room = 4 * order.num_frames + recipe.question_tokens + 3
        count = max(2, self.run.step_tokens // room)
        samples = [build_sample(self.rng, order.num_frames, recipe) for _ in range(count)]
        batch = collate(samples, self.features, self.rng, is_training=True)
        outputs = run_decoder(self.decoder, batch)
        loss, parts = total_loss(self.decoder, outputs, batch, self.run.attention_weight)
        self.optimizer.zero_grad()
        loss.backward()
        self._average_gradients()
        nn.utils.clip_grad_norm_(self.decoder.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = order.rate
        self.optimizer.step()
        self.step += 1
        self.num_tokens += batch.num_tokens * self.run.processes
        self._average_weights()
        self._note(order.num_frames, outputs, batch, parts)
        self.speed.tick()
        if self.step % self.run.REPLAN_STEPS == 0:
            self._replan()

    def _recipe_now(self, order: _Order) -> SampleRecipe:
        recipe = replace(self.recipe, type_factors=self.emphasis.factors())
        return recipe if order.is_hard else replace(recipe, hardships=CALM)

    def _order(self) -> _Order:
        """What the first process decides for this step, the same in every process."""
        frames = _draw_length(self.rng, self.curriculum)
        values = [
            float(frames),
            self.plan.rate(self.step),
            float(self.is_stopping or self.step >= self.plan.end_step),
            float(self.curriculum.max_frames > 10),
        ]
        if self.run.processes > 1:
            message = torch.tensor(values, dtype=torch.float64)
            dist.broadcast(message, 0)
            values = message.tolist()
        return _Order(int(values[0]), values[1], bool(values[2]), bool(values[3]))

    def _average_gradients(self) -> None:
        if self.run.processes == 1:
            return
        for parameter in self.decoder.parameters():
            if parameter.grad is None:  # a side head without a label in this process
                parameter.grad = torch.zeros_like(parameter)
        grads = [p.grad for p in self.decoder.parameters() if p.grad is not None]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        dist.all_reduce(flat)
        flat /= self.run.processes
        for grad, piece in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(piece.view_as(grad))

    def _average_weights(self) -> None:
        if self.rank:
            return
        pull = 1 - min(EMA_DECAY, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.values()), list(self.decoder.parameters()), pull)

    def _replan(self) -> None:
        run = self.run
        if run.stop_at is None or self.rank:
            return
        left_s = seconds_until(run.stop_at)
        decay_left_s = (
            seconds_until(run.decay_at)
            if run.decay_at
            else left_s - (run.decay_share * (time.monotonic() - self.started + left_s))
        )
        plan = replan(self.plan, self.step, self.speed.seconds_per_step, left_s, decay_left_s)
        self.plan = replace(plan, peak_rate=run.rate)

    # -- books -----------------------------------------------------------------------------

    def _note(
        self, num_frames: int, outputs: Outputs, batch: Batch, parts: dict[str, float]
    ) -> None:
        hits = answer_hits(outputs.logits.detach(), batch)
        self.emphasis.note(batch.question_types, hits)
        if self.rank:
            return
        self.curriculum.note(num_frames, batch.question_types, hits)
        self.tallies["long" if num_frames > 12 else "short"].add(batch.question_types, hits)
        for name, value in parts.items():
            self.losses[name] = self.losses.get(name, value) * 0.95 + 0.05 * value

    def _log(self) -> None:
        seconds = self.speed.seconds_per_step
        self._write(
            {
                "step": self.step,
                "minutes": round((time.monotonic() - self.started) / 60, 2),
                "clock": time.strftime("%H:%M:%S"),
                "tokens": self.num_tokens,
                "seconds_per_step": round(seconds, 3),
                "max_frames": self.curriculum.max_frames,
                "rate": round(self.plan.rate(self.step), 7),
                "decay_step": self.plan.decay_step,
                "end_step": self.plan.end_step,
                "train": {name: tally.by_group() for name, tally in self.tallies.items()},
                "losses": {name: round(value, 3) for name, value in self.losses.items()},
            }
        )
        self.tallies = {"short": Tally(), "long": Tally()}

    def _check(self) -> None:
        """Answer fixed questions about complete videos with the averaged weights."""
        with self._averaged():
            for frames in (8, 16, 32):
                tally = check(self.decoder, self.features, frames, self.run.check_streams)
                self._write(
                    {
                        "step": self.step,
                        "clock": time.strftime("%H:%M:%S"),
                        "check_frames": frames,
                        "check": tally.by_group(),
                        "check_types": tally.by_type(),
                    }
                )

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        parameters = dict(self.decoder.named_parameters())
        kept = {name: value.detach().clone() for name, value in parameters.items()}
        with torch.no_grad():
            for name, value in parameters.items():
                value.copy_(self.ema[name])
            yield
            for name, value in parameters.items():
                value.copy_(kept[name])

    def _write(self, record: dict[str, Any]) -> None:
        with (self.run.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def save(self) -> None:
        """Write the checkpoint, atomically."""
        state = {
            "decoder": self.decoder.state_dict(),
            "ema": self.ema,
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "num_tokens": self.num_tokens,
            "plan": asdict(self.plan),
            "curriculum": asdict(self.curriculum),
            "type_errors": self.emphasis.errors,
        }
        path = self.run.folder / "decoder.safetensors"
        save_state(path, state)

    def _resume(self) -> None:
        path = self.run.folder / "decoder.safetensors"
        if not path.exists():
            return
        state = load_state(path)
        self.decoder.load_state_dict(state["decoder"])
        self.ema = state["ema"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.num_tokens = state["step"], state["num_tokens"]
        self.curriculum = Curriculum(**state["curriculum"])
        self.emphasis.errors.update(state.get("type_errors", {}))
        old = Plan(**state["plan"])
        self.plan = replace(self.plan, decay_step=min(old.decay_step, self.plan.decay_step))


@dataclass(frozen=True, slots=True)
class _Order:
    """What all processes do in one step."""

    num_frames: int
    rate: float
    is_over: bool
    is_hard: bool


def _draw_length(rng: np.random.Generator, curriculum: Curriculum) -> int:
    if not curriculum.is_grown:
        return round(3 + (curriculum.max_frames - 3) * rng.random() ** 0.7)
    if rng.random() < 1 / 3:
        return int(rng.integers(24, 49))
    return int(rng.integers(2, 33))


def _parameter_groups(decoder: Decoder) -> list[dict[str, Any]]:
    """AdamW with weight decay on matrices only."""
    matrices = [p for p in decoder.parameters() if p.ndim > 1]
    vectors = [p for p in decoder.parameters() if p.ndim <= 1]
    common = {"lr": 0.0, "betas": (0.9, 0.98)}
    return [
        {"params": matrices, "weight_decay": 0.01, **common},
        {"params": vectors, "weight_decay": 0.0, **common},
    ]


def run_decoder(decoder: Decoder, batch: Batch) -> Outputs:
    """Embed a batch and run the decoder on it."""
    embeddings = decoder.lm.model.embed_tokens(batch.ids)
    embeddings = torch.where(batch.is_video[..., None], batch.features, embeddings)
    embeddings = torch.where(batch.is_newline[..., None], decoder.newline, embeddings)
    return decoder(embeddings, batch.positions, batch.bias, batch.answer_rows, batch.targets)


def total_loss(
    decoder: Decoder, outputs: Outputs, batch: Batch, attention_weight: float
) -> tuple[Tensor, dict[str, float]]:
    """Return the training loss and its unweighted parts."""
    answer = F.cross_entropy(
        outputs.logits.flatten(0, 1), batch.answer_ids.flatten(), ignore_index=IGNORED
    )
    parts = {"answer": answer.detach().item()}
    loss = answer
    for target, value in zip(batch.targets, outputs.attention_losses, strict=True):
        loss = loss + attention_weight * target.weight * value
        parts[f"look{target.layer}.{target.heads[0]}"] = value.detach().item()
    for name, (layer, _) in SIDE_HEADS.items():
        value = side_loss(decoder.side[name], outputs.hidden[layer], batch.side[name])
        loss = loss + (COUNT_SIDE_WEIGHT if "_count" in name else SIDE_WEIGHT) * value
        parts[name] = value.detach().item()
    return loss, parts


def side_loss(head: nn.Module, hidden: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy of one side head on the labelled tokens."""
    chosen = labels != IGNORED
    if not chosen.any():
        return hidden.new_zeros(())
    return F.cross_entropy(head(F.rms_norm(hidden[chosen], (HIDDEN,))), labels[chosen])


@torch.no_grad()
def check(
    decoder: Decoder, features: FeatureSource, num_frames: int, num_streams: int, seed: int = 77
) -> Tally:
    """Answer questions about complete videos that training never drew."""
    rng = np.random.default_rng([seed, num_frames])
    recipe = SampleRecipe(
        hardships=CALM,
        dialogue_share=0.0,
        newline_share=1.0,
        small_palette_share=0.1,
        look_alike_share=0.0,
        pairs_share=0.0,
    )
    tally = Tally()
    for start in range(0, num_streams, 8):
        count = min(8, num_streams - start)
        samples = [build_sample(rng, num_frames, recipe) for _ in range(count)]
        batch = collate(samples, features, rng)
        calm = replace(batch, targets=[])
        tally.add(batch.question_types, answer_hits(run_decoder(decoder, calm).logits, batch))
    return tally
