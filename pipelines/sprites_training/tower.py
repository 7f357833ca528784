"""Training of the vision half on single frames: a side head at first, then the feature code too.

    python -m pipelines.sprites_training.tower --steps 8000 --out runs/sprites/tower

Stops on steps and resumes from its checkpoint. Intermediate weights appear as
``tower.safetensors`` as soon as the projector knows the code; the file ``READY`` marks the end.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from hermes_like.sprites.render import STANDARD, TRAINING, RenderStyle
from pipelines.sprites_training.code import TOKEN_ROLES
from pipelines.sprites_training.frames import (
    ANY_DIGIT_COLUMNS,
    COLOR_COLUMNS,
    DIGIT_COLUMNS,
    NUM_SHAPES,
    PAIR_COLUMNS,
    SHAPE_COLUMNS,
    ContentMix,
    FrameBatch,
    NoiseBank,
    clean,
    concatenate,
    draw_batch,
)
from pipelines.sprites_training.muon import Muon
from pipelines.sprites_training.vision import SideHead, VisionHalf, stock_state

EMPTY_ZONE_WEIGHT = 0.25
MAX_NOISE_LEVEL = 5.0
#: Plan of a run that starts from trained networks: gentler, on the code from the first step.
CONTINUED: dict[str, Any] = {
    "muon_lr": 0.01,
    "adamw_lr": 1e-3,
    "code_start": 0.0,
    "decay_start": 0.15,
    "mining_start": 0.4,
    "pair_rate": 0.5,
}
#: Residuals of the code below this norm cannot change the nearest code; see ``perception.py``.
SAFE_RESIDUAL = 1.0


@dataclass(frozen=True, slots=True)
class TowerPlan:
    """The schedule; shares are of ``num_steps``.

    Attributes:
        num_steps: Optimiser steps.
        seed: Seed of weights, frames and noise.
        batch_frames: Frames per step.
        fresh_frames: How many of them were rendered for this step.
        pool_frames: Renderings kept for reuse.
        muon_lr: Peak rate of the matrices.
        adamw_lr: Peak rate of everything else.
        code_start: When the last map is solved for and the code loss begins.
        decay_start: When the rates begin to fall linearly to zero.
        mining_start: When hard frames are preferred and standard sizes become frequent.
        polish_steps: Steps after ``num_steps`` that start at a part of the peak rates again and
            take the harder half of the fresh frames.
        polish_peak: That part.
        pair_rate: Share of frames with two sprites.
    """

    num_steps: int = 8_000
    seed: int = 7
    batch_frames: int = 96
    fresh_frames: int = 28
    pool_frames: int = 12_000
    muon_lr: float = 0.02
    adamw_lr: float = 2e-3
    code_start: float = 0.19
    decay_start: float = 0.35
    mining_start: float = 0.6
    polish_steps: int = 0
    polish_peak: float = 0.2
    pair_rate: float = 0.34

    @property
    def total_steps(self) -> int:
        """Steps with and without polish."""
        return self.num_steps + self.polish_steps


def learning_rate_factor(plan: TowerPlan, step: int) -> float:
    """Return the factor of both rates at a step: warm-up, plateau, linear decay; polish decay."""
    if step >= plan.num_steps:
        return plan.polish_peak * (plan.total_steps - step) / max(plan.polish_steps, 1)
    warmup = min(1.0, (step + 1) / 100)
    progress = step / plan.num_steps
    decay = (1.0 - progress) / (1.0 - plan.decay_start)
    return warmup * min(1.0, max(decay, 0.01))


def training_style(plan: TowerPlan, step: int) -> RenderStyle:
    """Return the style of fresh frames at a step; noise is added when a frame is used."""
    if step < plan.code_start * plan.num_steps:
        return clean(TRAINING)
    is_mining = plan.mining_start * plan.num_steps <= step < plan.num_steps
    return replace(clean(TRAINING), free_size_rate=0.3 if is_mining else 0.5)


@dataclass(slots=True)
class Losses:
    """Losses of a batch, each ``[frames]``, and their weighted sum."""

    total: torch.Tensor
    facts: torch.Tensor
    code: torch.Tensor | None


def side_losses(
    parts: list[torch.Tensor], labels: torch.Tensor, digit_weight: float
) -> torch.Tensor:
    """Loss of the side head, mean over tokens, ``[frames]``."""
    labels = labels.long()[:, TOKEN_ROLES]
    shapes = labels[..., SHAPE_COLUMNS]
    weight = torch.where(shapes == NUM_SHAPES, EMPTY_ZONE_WEIGHT, 1.0)
    weight = weight / weight.sum(dim=-1, keepdim=True)
    total = torch.zeros(len(labels))
    columns = (SHAPE_COLUMNS, COLOR_COLUMNS, DIGIT_COLUMNS)
    for logits, column, scale in zip(parts[:3], columns, (1.0, 1.0, digit_weight), strict=True):
        target = labels[..., column]
        loss = F.cross_entropy(logits.flatten(0, 2), target.flatten(), reduction="none")
        total = total + scale * (loss.view(target.shape) * weight).sum(dim=-1).mean(dim=1)
    for logits, column in zip(parts[3:], (PAIR_COLUMNS, ANY_DIGIT_COLUMNS), strict=True):
        target = labels[..., column].float()
        loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        total = total + 0.15 * loss.sum(dim=-1).mean(dim=1)
    return total


class TowerTraining:
    """Networks, optimisers, pool and counters of one run."""

    def __init__(self, plan: TowerPlan, out: Path) -> None:
        self.plan, self.out = plan, out
        torch.manual_seed(plan.seed)
        self.vision, self.head = VisionHalf(), SideHead()
        initialize_vision(self.vision)
        self.step = 0
        self.is_solved = False
        self.minutes = 0.0
        self.rng = np.random.default_rng(plan.seed)
        self.mix = ContentMix(pair_rate=plan.pair_rate)
        self.noise = NoiseBank(np.random.default_rng(plan.seed + 1))
        matrices, others = split_parameters(self.vision, self.head)
        self.muon = Muon(matrices, lr=plan.muon_lr, weight_decay=0.02, num_iterations=4)
        self.adamw = torch.optim.AdamW(
            others, lr=plan.adamw_lr, betas=(0.9, 0.98), weight_decay=0.02, foreach=True
        )
        self.parameters = [*matrices, *others]
        self.code_scale = 0.36  # mean square of the entries of the code
        self.pool: FrameBatch
        self.pool_loss = torch.ones(plan.pool_frames)
        self.pool_uses = torch.zeros(plan.pool_frames, dtype=torch.int64)

    @property
    def has_code(self) -> bool:
        """Whether the projector's last map is trained towards the code by now."""
        return self.step >= round(self.plan.code_start * self.plan.num_steps)

    @property
    def is_mining(self) -> bool:
        """Whether hard frames are preferred by now."""
        return self.step >= self.plan.mining_start * self.plan.num_steps

    def fill_pool(self) -> None:
        """Render the pool."""
        style = training_style(self.plan, self.step)
        self.pool = draw_batch(self.plan.pool_frames, self.rng, style, self.mix)

    def losses(self, batch: FrameBatch) -> Losses:
        """Return the losses of some frames with fresh noise."""
        patches = self.noise.add(batch.patches, self.rng, MAX_NOISE_LEVEL)
        activations = self.vision.activations(patches)
        digit_weight = 2.0 if self.has_code else 1.0
        facts = side_losses(self.head(activations), batch.labels, digit_weight)
        if not self.has_code:
            return Losses(facts, facts, None)
        tokens = self.vision.multi_modal_projector.linear_2(activations)
        error = (tokens - batch.codes).square().mean(dim=(1, 2)) / self.code_scale
        weight = 6.0 if self.is_mining else 3.0
        return Losses(facts + weight * error, facts, error)

    def train_step(self) -> dict[str, float]:
        """Do one optimiser step and return what is worth logging."""
        factor = learning_rate_factor(self.plan, self.step)
        for optimizer, rate in ((self.muon, self.plan.muon_lr), (self.adamw, self.plan.adamw_lr)):
            optimizer.param_groups[0]["lr"] = rate * factor
        fresh = self._draw_fresh()
        index = self._pick()
        losses = self.losses(concatenate([fresh, self.pool.select(index)]))
        losses.total.mean().backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.muon.step()
        self.adamw.step()
        self.muon.zero_grad()
        self.adamw.zero_grad()
        total = losses.total.detach()
        self.pool_loss[index] = total[len(fresh) :]
        self.pool_uses[index] += 1
        self._replace(fresh, total[: len(fresh)])
        self.step += 1
        code = 1.0 if losses.code is None else float(losses.code.detach().mean())
        facts = float(losses.facts.detach().mean())
        return {"facts": facts, "code": code, "grad_norm": float(norm), "lr_factor": factor}

    def _draw_fresh(self) -> FrameBatch:
        """Render the new frames of a step; while polishing the harder half of twice as many."""
        count, style = self.plan.fresh_frames, training_style(self.plan, self.step)
        if self.step < self.plan.num_steps:
            return draw_batch(count, self.rng, style, self.mix)
        candidates = draw_batch(2 * count, self.rng, style, ContentMix(pair_rate=0.5))
        with torch.no_grad():
            loss = self.losses(candidates).total
        return candidates.select(loss.topk(count).indices)

    def _pick(self) -> torch.Tensor:
        """Indices of the pool frames for a step; the harder of two once mining has begun."""
        count = self.plan.batch_frames - self.plan.fresh_frames
        draws = torch.from_numpy(self.rng.integers(0, self.plan.pool_frames, (2, count)))
        if not self.is_mining:
            return draws[0]
        harder = self.pool_loss[draws].argmax(dim=0)
        return draws.gather(0, harder[None])[0]

    def _replace(self, fresh: FrameBatch, loss: torch.Tensor) -> None:
        """Put fresh frames in place of old ones; of easy or worn ones once mining has begun."""
        choices = 4 if self.is_mining else 1
        draws = self.rng.integers(0, self.plan.pool_frames, (choices, len(fresh)))
        index = torch.from_numpy(draws)
        keep_value = torch.where(self.pool_uses[index] > 16, 0.0, self.pool_loss[index])
        index = index.gather(0, keep_value.argmin(dim=0)[None])[0]
        self.pool.patches[index] = fresh.patches
        self.pool.labels[index] = fresh.labels
        self.pool.codes[index] = fresh.codes
        self.pool_loss[index] = loss
        self.pool_uses[index] = 1

    @torch.no_grad()
    def solve_last_map(self) -> None:
        """Set the projector's last map to the least-squares map from activations to the code."""
        size = self.head.linear.in_features + 1
        gram, cross = torch.zeros(size, size).double(), torch.zeros(size, size - 1).double()
        for index in torch.arange(self.plan.pool_frames).split(500):
            batch = self.pool.select(index)
            x = self.vision.activations(self.noise.add(batch.patches, self.rng, MAX_NOISE_LEVEL))
            target = batch.codes.flatten(0, 1).double()
            x = F.pad(x.flatten(0, 1), (0, 1), value=1.0).double()
            gram += x.T @ x
            cross += x.T @ target
        gram += 1e-4 * gram.diagonal().mean() * torch.eye(size).double()
        solution = torch.linalg.solve(gram, cross).float()
        linear = self.vision.multi_modal_projector.linear_2
        linear.weight.copy_(solution[:-1].T)
        linear.bias.copy_(solution[-1])
        self.is_solved = True

    @torch.no_grad()
    def evaluate(self, batch: FrameBatch) -> dict[str, float]:
        """Error rates of the side head and residuals of the code on frames with their noise."""
        labels = batch.labels.long()[:, TOKEN_ROLES]
        right: dict[str, list[torch.Tensor]] = {"shape": [], "color": [], "digit": [], "frame": []}
        residuals = []
        for index in torch.arange(len(batch)).split(250):
            patches = batch.patches[index].float().sub_(127.5).mul_(1 / 127.5)
            activations = self.vision.activations(patches)
            tokens = self.vision.multi_modal_projector.linear_2(activations)
            residuals.append((tokens - batch.codes[index]).norm(dim=-1))
            parts = self.head(activations)[:3]
            columns = (SHAPE_COLUMNS, COLOR_COLUMNS, DIGIT_COLUMNS)
            hits = [
                part.argmax(dim=-1) == labels[index][..., column]
                for part, column in zip(parts, columns, strict=True)
            ]
            occupied = labels[index][..., SHAPE_COLUMNS] != NUM_SHAPES
            for name, hit in zip(right, hits, strict=False):
                right[name].append(hit[occupied])
            right["frame"].append(torch.stack(hits).all(dim=0).all(dim=2).all(dim=1))
        result = {name: float(torch.cat(hit).float().mean()) for name, hit in right.items()}
        residual = torch.cat(residuals)
        power = (batch.codes - batch.codes.mean(dim=(0, 1))).square().sum(dim=-1).mean()
        return result | {
            "r2": float(1 - residual.square().mean() / power),
            "residual_mean": float(residual.mean()),
            "residual_max": float(residual.max()),
            "unsafe": float((residual.amax(dim=1) > SAFE_RESIDUAL).float().mean()),
        }

    def save_weights(self, extra: dict[str, Any]) -> None:
        """Write ``tower.safetensors`` and ``tower.json``, each replaced in one step."""
        _save_atomically(stock_state(self.vision), self.out / "tower.safetensors")
        info = {"step": self.step, "minutes": round(self.minutes, 2), **asdict(self.plan), **extra}
        _write_atomically(json.dumps(info, indent=1), self.out / "tower.json")

    def save_checkpoint(self) -> None:
        """Write everything but the pool, which is rendered afresh after a restart."""
        tensors = {f"vision.{k}": v for k, v in self.vision.state_dict().items()}
        tensors |= {f"head.{k}": v for k, v in self.head.state_dict().items()}
        for name, optimizer in (("muon", self.muon), ("adamw", self.adamw)):
            for index, state in optimizer.state_dict()["state"].items():
                tensors |= {f"{name}.{index}.{key}": value for key, value in state.items()}
        _save_atomically(
            {k: v.detach().clone().contiguous() for k, v in tensors.items()},
            self.out / "checkpoint.safetensors",
        )
        state = {
            "step": self.step,
            "is_solved": self.is_solved,
            "minutes": self.minutes,
            "rng": self.rng.bit_generator.state,
        }
        _write_atomically(json.dumps(state), self.out / "checkpoint.json")

    def start_from(self, folder: Path) -> None:
        """Take the networks of another run's checkpoint, with fresh optimisers and counters."""
        tensors = load_file(folder / "checkpoint.safetensors")
        self.vision.load_state_dict(_with_prefix(tensors, "vision."))
        self.head.load_state_dict(_with_prefix(tensors, "head."))
        self.is_solved = True

    def load_checkpoint(self) -> bool:
        """Go on from a checkpoint if there is one; returns whether there was."""
        path = self.out / "checkpoint.safetensors"
        if not path.exists():
            return False
        tensors = load_file(path)
        self.vision.load_state_dict(_with_prefix(tensors, "vision."))
        self.head.load_state_dict(_with_prefix(tensors, "head."))
        for name, optimizer in (("muon", self.muon), ("adamw", self.adamw)):
            state: dict[int, dict[str, torch.Tensor]] = {}
            for key, value in _with_prefix(tensors, f"{name}.").items():
                index, field = key.split(".", 1)
                state.setdefault(int(index), {})[field] = value
            optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
        saved = json.loads((self.out / "checkpoint.json").read_text())
        self.step, self.minutes = saved["step"], saved["minutes"]
        self.is_solved = saved["is_solved"]
        self.rng.bit_generator.state = saved["rng"]
        return True


def initialize_vision(vision: VisionHalf) -> None:
    """Draw all parameters anew, small where a residual stream takes them in."""
    for name, parameter in vision.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "position" in name:
            nn.init.normal_(parameter, std=0.3)
        elif parameter.dim() >= 2:
            fan_in = parameter[0].numel()
            nn.init.normal_(parameter, std=fan_in**-0.5)
            if "out_proj" in name or "fc2" in name:
                parameter.data.mul_(0.3)


def split_parameters(
    vision: VisionHalf, head: nn.Module
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices for Muon; and embeddings, vectors, the last map and the side head for AdamW."""
    matrices, others = [], []
    for name, parameter in vision.named_parameters():
        if not parameter.requires_grad or "post_layernorm" in name:
            continue
        is_matrix = parameter.dim() >= 2 and "position" not in name and "linear_2" not in name
        (matrices if is_matrix else others).append(parameter)
    return matrices, [*others, *head.parameters()]


def _with_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _save_atomically(tensors: dict[str, torch.Tensor], path: Path) -> None:
    partial = path.with_suffix(".partial")
    save_file(tensors, partial)
    os.replace(partial, path)


def _write_atomically(text: str, path: Path) -> None:
    partial = path.with_suffix(".partial-text")
    partial.write_text(text)
    os.replace(partial, path)


def evaluation_sets(plan: TowerPlan) -> dict[str, FrameBatch]:
    """Return frames never trained on: standard rendering, free sizes, held-out pairs."""
    rng = np.random.default_rng(plan.seed + 1_000_003)
    free = replace(TRAINING, free_size_rate=1.0, noise_levels=(0.0, 9.0))
    return {
        "standard": draw_batch(2000, rng, STANDARD),
        "free": draw_batch(1000, rng, free),
        "held_out": draw_batch(400, rng, STANDARD, ContentMix(held_out_only=True)),
    }


def plot_curve(log_path: Path, image_path: Path) -> None:
    """Draw losses and error rates over steps from the log."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [json.loads(line) for line in log_path.read_text().splitlines()]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    steps = [row for row in rows if "facts" in row]
    for key in ("facts", "code"):
        left.plot([row["step"] for row in steps], [row[key] for row in steps], label=key)
    left.set(yscale="log", xlabel="step", title="training loss")
    tests = [row for row in rows if "standard" in row]
    for kind in ("standard", "free", "held_out"):
        for key, style in (("frame", "-"), ("unsafe", ":")):
            values = [row[kind][key] for row in tests]
            values = [max(1 - v if key == "frame" else v, 1e-4) for v in values]
            right.plot([row["step"] for row in tests], values, style, label=f"{kind} {key}")
    right.set(yscale="log", xlabel="step", title="share of frames: any error, unsafe residual")
    for axes in (left, right):
        axes.legend(fontsize=7)
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(image_path, dpi=110)
    plt.close(figure)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the ``tower`` command."""
    plan = TowerPlan()
    parser.add_argument("--out", type=Path, default=Path("runs/sprites/tower"))
    parser.add_argument("--steps", type=int, default=plan.num_steps)
    parser.add_argument("--polish-steps", type=int, default=plan.polish_steps)
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument("--init", type=Path, help="folder of a finished run to start from")
    parser.add_argument("--batch-frames", type=int, default=plan.batch_frames)
    parser.add_argument("--fresh-frames", type=int, default=plan.fresh_frames)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--eval-every", type=int, default=500)


def run_tower(args: argparse.Namespace) -> None:
    """Train the vision half from the options, or go on with an unfinished run."""
    torch.set_num_threads(1)
    plan = TowerPlan(
        num_steps=args.steps,
        polish_steps=args.polish_steps,
        seed=args.seed,
        batch_frames=args.batch_frames,
        fresh_frames=args.fresh_frames,
    )
    if args.init:
        plan = replace(plan, **CONTINUED)
    args.out.mkdir(parents=True, exist_ok=True)
    training = TowerTraining(plan, args.out)
    if not training.load_checkpoint() and args.init:
        training.start_from(args.init)
    training.fill_pool()
    _train(training, evaluation_sets(plan), args.log_every, args.eval_every)


def _train(
    training: TowerTraining, tests: dict[str, FrameBatch], log_every: int, eval_every: int
) -> None:
    out, plan = training.out, training.plan
    log_path = out / "log.jsonl"
    before, sums, count = time.monotonic(), {"facts": 0.0, "code": 0.0}, 0
    results: dict[str, Any] = {}
    while training.step < plan.total_steps:
        if training.has_code and not training.is_solved:
            training.solve_last_map()
        values = training.train_step()
        count += 1
        for key in sums:
            sums[key] += values[key]
        if training.step % log_every == 0:
            now = time.monotonic()
            training.minutes += (now - before) / 60
            row: dict[str, Any] = {"step": training.step, "minutes": round(training.minutes, 2)}
            row |= {key: value / count for key, value in sums.items()}
            row |= {"grad_norm": values["grad_norm"], "lr_factor": values["lr_factor"]}
            row["ms_per_step"] = round((now - before) / count * 1e3, 1)
            before, sums, count = now, dict.fromkeys(sums, 0.0), 0
            if training.step % eval_every == 0 or training.step == plan.total_steps:
                results = {name: training.evaluate(batch) for name, batch in tests.items()}
                row |= results
            with log_path.open("a") as log:
                log.write(json.dumps(row) + "\n")
            if training.step % eval_every == 0:
                training.save_checkpoint()
                plot_curve(log_path, out / "curve.png")
                if training.is_solved:
                    training.save_weights(results)
    results = {name: training.evaluate(batch) for name, batch in tests.items()}
    training.save_checkpoint()
    training.save_weights(results)
    (out / "READY").write_text(f"step {training.step}, {training.minutes:.1f} minutes\n")


def main(argv: list[str] | None = None) -> None:
    """Run the ``tower`` command on its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    run_tower(parser.parse_args(argv))


if __name__ == "__main__":
    main()
