"""Training of the vision half on pictures of the training split.

Each of a frame's four tokens learns to carry the code of the picture on its own; a side head that
reads shape and colour from each token is trained with it and thrown away.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from hermes_like.easyvqa.questions import COLORS, SHAPES
from pipelines.easyvqa_training.code import CODE_DIM, kind_codes
from pipelines.easyvqa_training.pictures import LabelledPictures, Variations, to_patches
from pipelines.sprites_training.muon import Muon
from pipelines.sprites_training.tower import initialize_vision, split_parameters
from pipelines.sprites_training.vision import VisionHalf, stock_state


@dataclass(frozen=True, slots=True)
class TowerRun:
    """Settings of one run.

    Attributes:
        folder: Where weights and log go.
        steps: How many; the rate falls to zero over the last 60 %.
        batch_frames: Pictures a step.
        seed: Of weights and pictures.
        muon_rate: Peak rate of matrices.
        adamw_rate: Peak rate of everything else.
        code_weight: Of the distance from the code, against reading shape and colour.
        held_out: Pictures of the training split that are never trained on, to watch the run by.
        init: Weights to go on from; None: random ones.
    """

    folder: Path
    steps: int = 2500
    batch_frames: int = 64
    seed: int = 0
    muon_rate: float = 0.015
    adamw_rate: float = 1.5e-3
    code_weight: float = 2.0
    held_out: int = 300
    init: Path | None = None

    WARMUP_STEPS = 100
    DECAY_SHARE = 0.6
    LOG_STEPS = 100

    def rate_factor(self, step: int) -> float:
        """Share of the peak rate at one step."""
        left = (self.steps - step) / (self.DECAY_SHARE * self.steps)
        return min(1.0, (step + 1) / self.WARMUP_STEPS, left)


def train_tower(run: TowerRun, pictures: LabelledPictures) -> dict[str, float]:
    """Train; write ``tower.safetensors`` and ``log.jsonl``.

    Returns:
        Errors on the held-out pictures, as :func:`judge` gives them.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    order = rng.permutation(len(pictures))
    held, used = order[: run.held_out], order[run.held_out :]
    variations = Variations(pictures)
    vision, head = VisionHalf(), nn.Linear(CODE_DIM, len(SHAPES) + len(COLORS))
    initialize_vision(vision)
    if run.init is not None:
        vision.load_state_dict(vision_state(run.init))
    matrices, others = split_parameters(vision, head)
    muon = Muon(matrices, lr=run.muon_rate)
    adamw = torch.optim.AdamW(others, lr=run.adamw_rate, betas=(0.9, 0.98), weight_decay=0.02)
    started, found = time.monotonic(), {}
    for step in range(run.steps):
        for optimizer, rate in ((muon, run.muon_rate), (adamw, run.adamw_rate)):
            for group in optimizer.param_groups:
                group["lr"] = rate * run.rate_factor(step)
        chosen = used[rng.integers(len(used), size=run.batch_frames)]
        patches = to_patches(variations.draw(rng, chosen.tolist()))
        loss = _loss(run, vision, head, patches, pictures, chosen)
        muon.zero_grad()
        adamw.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*matrices, *others], 1.0)
        muon.step()
        adamw.step()
        if (step + 1) % run.LOG_STEPS == 0:
            found = judge(vision, pictures, held)
            row = {"step": step + 1, "minutes": (time.monotonic() - started) / 60}
            with (run.folder / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(row | {"loss": loss.item()} | found) + "\n")
    save_file(stock_state(vision), run.folder / "tower.safetensors")
    return found


def vision_state(tower: Path) -> dict[str, torch.Tensor]:
    """Parameters of a trained vision half by their names in :class:`VisionHalf`."""
    state = load_file(tower)
    return {name.removeprefix("model."): value for name, value in state.items()}


def _loss(
    run: TowerRun,
    vision: VisionHalf,
    head: nn.Linear,
    patches: torch.Tensor,
    pictures: LabelledPictures,
    chosen: np.ndarray,
) -> torch.Tensor:
    shapes = torch.from_numpy(pictures.shapes[chosen])
    colors = torch.from_numpy(pictures.colors[chosen])
    codes = torch.from_numpy(kind_codes()[pictures.shapes[chosen], pictures.colors[chosen]])
    activations = vision.activations(patches)
    tokens = vision.multi_modal_projector.linear_2(activations)
    read = head(activations)
    every = activations.shape[1]
    facts = F.cross_entropy(
        read[..., : len(SHAPES)].flatten(0, 1), shapes.repeat_interleave(every)
    ) + F.cross_entropy(read[..., len(SHAPES) :].flatten(0, 1), colors.repeat_interleave(every))
    distance = (tokens - codes[:, None]).square().mean() / codes.square().mean()
    return facts + run.code_weight * distance


@torch.no_grad()
def tokens_of(vision: VisionHalf, pixels: np.ndarray, batch: int = 256) -> np.ndarray:
    """Tokens of pictures, float32 ``[frames, 4, dim]``."""
    parts = [vision(to_patches(pixels[i : i + batch])) for i in range(0, len(pixels), batch)]
    return torch.cat(parts).numpy()


def judge(vision: VisionHalf, pictures: LabelledPictures, chosen: np.ndarray) -> dict[str, float]:
    """Share of tokens whose nearest code is another picture's, and distance from their own code."""
    tokens = tokens_of(vision, pictures.pixels[chosen])
    codes = kind_codes().reshape(-1, CODE_DIM)
    truth = pictures.shapes[chosen] * len(COLORS) + pictures.colors[chosen]
    nearest = ((tokens[:, :, None] - codes) ** 2).sum(-1).argmin(-1)
    own = codes[truth][:, None]
    return {
        "wrong_tokens": float((nearest != truth[:, None]).mean()),
        "unexplained": float(((tokens - own) ** 2).mean() / (codes**2).mean()),
    }
