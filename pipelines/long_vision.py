"""Vision tokens of long stories: rendered and encoded once, kept in files, read by many sessions.

Tokens depend on the vision part of the model alone, so that a new decoder reads the same files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hermes_like.models import ModelAdapter, load_model
from hermes_like.sprites.render import STANDARD_HEIGHT, STANDARD_WIDTH, render_frame
from hermes_like.sprites.world import Story
from pipelines.long_jobs import replace_file, use_weights

VISION_BATCH = 16
#: Frames that one process encodes at a time.
PART_FRAMES = 8192


@dataclass(frozen=True, slots=True)
class Film:
    """A story and the file for its tokens.

    Attributes:
        story: What is shown.
        seed: Of the pictures.
        file: float32 ``[pictures, tokens_per_frame, hidden]``.
        variants: Most different pictures of the same sprites; further frames show them again. None:
            every frame is a picture of its own.
    """

    story: Story
    seed: tuple[int, ...]
    file: Path
    variants: int | None = None

    def pictures(self) -> tuple[list[int], npt.NDArray[np.int64]]:
        """Frames that are drawn, ascending, and which of their pictures each frame shows."""
        times: dict[object, int] = {}
        known: dict[object, int] = {}
        drawn: list[int] = []
        shown = np.empty(self.story.num_frames, np.int64)
        for number, sprites in enumerate(self.story.frames()):
            key: object = number
            if self.variants is not None:
                key = sprites, times.get(sprites, 0) % self.variants
                times[sprites] = times.get(sprites, 0) + 1
            if key not in known:
                known[key] = len(drawn)
                drawn.append(number)
            shown[number] = known[key]
        return drawn, shown


@dataclass(frozen=True, slots=True)
class _Part:
    film: Film
    file: Path
    start: int
    stop: int
    weights: Path | None


def vision_digest(model: ModelAdapter) -> str:
    """The first digits of a hash of all weights that pictures pass through."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model._model.state_dict().items()):  # type: ignore[attr-defined]
        if "language_model" not in name and "lm_head" not in name:
            digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def read_tokens(film: Film) -> Tensor:
    """Tokens of a film, ``[frames, tokens_per_frame, hidden]``, read from the file as needed."""
    tokens = torch.from_numpy(np.load(film.file, mmap_mode="c"))
    return tokens if film.variants is None else tokens[torch.from_numpy(film.pictures()[1])]


def encode_films(
    model: ModelAdapter, films: Sequence[Film], jobs: int = 1, weights: Path | None = None
) -> None:
    """Render and encode what is not there yet.

    Args:
        model: For the shape of the tokens.
        films: Stories and files.
        jobs: Processes.
        weights: See :func:`use_weights`.
    """
    parts: list[_Part] = []
    fresh: dict[Path, Path] = {}
    picture = np.zeros((STANDARD_HEIGHT, STANDARD_WIDTH, 3), np.uint8)
    shape = model.embed_frames([picture]).shape[1:]
    for film in films:
        if film.file.exists() or film.file in fresh:
            continue
        film.file.parent.mkdir(parents=True, exist_ok=True)
        count = len(film.pictures()[0])
        fresh[film.file] = temporary = film.file.with_suffix(".part.npy")
        np.lib.format.open_memmap(temporary, "w+", np.float32, (count, *shape)).flush()
        parts += [
            _Part(film, temporary, start, min(start + PART_FRAMES, count), weights)
            for start in range(0, count, PART_FRAMES)
        ]
    run_all(_encode, parts, jobs)
    for file, temporary in fresh.items():
        replace_file(temporary, file)


def _encode(part: _Part) -> None:
    """Render and encode some frames into their place in the file."""
    torch.set_num_threads(1)
    use_weights(part.weights)
    model = load_model("sprites")
    frames, seed = list(part.film.story.frames()), part.film.seed
    drawn = part.film.pictures()[0]
    tokens = np.load(part.file, mmap_mode="r+")
    for start in range(part.start, part.stop, VISION_BATCH):
        numbers = drawn[start : min(start + VISION_BATCH, part.stop)]
        images = [render_frame(frames[n], np.random.default_rng([*seed, n])) for n in numbers]
        tokens[start : start + len(images)] = model.embed_frames(images).numpy()
    tokens.flush()


def run_all(work: Callable[[Any], object], items: Sequence[Any], jobs: int) -> None:
    """Do some work for all items, in processes if there are several of both."""
    if jobs > 1 and len(items) > 1:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            list(pool.map(work, items))
    else:
        for item in items:
            work(item)
