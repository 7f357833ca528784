"""Scripted sprites as a stream: exact ground truth, drawn as it is read.

This module knows nothing of questions.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.records import Frame, Image
from hermes_like.registry import unknown_name
from hermes_like.sources.base import Wanted
from hermes_like.sources.owned import OwnedSource
from hermes_like.sprites.render import STANDARD_HEIGHT, STANDARD_WIDTH, render_frame
from hermes_like.sprites.stories import draw_story
from hermes_like.sprites.world import Sprite, Story

#: Keys of a reference with their defaults: ``sprites:seed=3,frames=120,fps=1``.
REFERENCE_KEYS: dict[str, float] = {
    "seed": 0,
    "frames": 120,
    "fps": 1.0,
    "min_event_frames": 2,
    "width": STANDARD_WIDTH,
    "height": STANDARD_HEIGHT,
}

_PIXEL_STREAM = 1


def picture_of(
    story: Story,
    index: int,
    seed: int,
    width: int = STANDARD_WIDTH,
    height: int = STANDARD_HEIGHT,
) -> Image:
    """Draw frame ``index`` of a story, ``[height, width, 3]`` uint8 RGB.

    The picture depends on its arguments only, not on which frames were drawn before.
    """
    event = story.events[story.frame_events()[index]]
    return _draw(event.sprites, index, seed, width, height)


def _draw(sprites: tuple[Sprite, ...], index: int, seed: int, width: int, height: int) -> Image:
    rng = np.random.default_rng([seed, _PIXEL_STREAM, index])
    return render_frame(sprites, rng, width=width, height=height)


class SpritesSource(OwnedSource):
    """Frames of a story.

    Args:
        story: What is shown.
        fps: Frames per second of stream time.
        seed: Seed of jitter, background and noise.
        width: Frame width in pixels.
        height: Frame height in pixels.
        config: ``start_time`` is used here.
        name: Name in messages.
    """

    def __init__(
        self,
        story: Story,
        *,
        fps: float = 1.0,
        seed: int = 0,
        width: int = STANDARD_WIDTH,
        height: int = STANDARD_HEIGHT,
        config: SourceConfig | None = None,
        name: str = "sprites",
    ) -> None:
        super().__init__(name, config or SourceConfig())
        self.story = story
        self.fps = fps
        self.seed = seed
        self._size = (width, height)

    @property
    def duration_s(self) -> float | None:
        """Length of the story in seconds."""
        return self.story.num_frames / self.fps

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        for index, sprites in enumerate(self.story.frames()):
            pts_s = index / self.fps
            if wanted(pts_s):
                yield self._frame(_draw(sprites, index, self.seed, *self._size), index, pts_s)


def open_sprites(reference: str, config: SourceConfig) -> SpritesSource:
    """Open ``sprites:key=value,...``; see :data:`REFERENCE_KEYS`.

    Raises:
        SourceOpenError: Unknown key or impossible value.
    """
    values = _parse(reference)
    seed, min_event_frames = int(values["seed"]), int(values["min_event_frames"])
    story = draw_story(
        np.random.default_rng(seed), int(values["frames"]), min_event_frames=min_event_frames
    )
    return SpritesSource(
        story,
        fps=values["fps"],
        seed=seed,
        width=int(values["width"]),
        height=int(values["height"]),
        config=config,
        name=reference,
    )


def _parse(reference: str) -> dict[str, float]:
    values = dict(REFERENCE_KEYS)
    for item in filter(None, reference.partition(":")[2].split(",")):
        key, _, text = (part.strip() for part in item.partition("="))
        if key not in values:
            raise SourceOpenError(f"{reference}: {unknown_name('key', key, list(REFERENCE_KEYS))}")
        kind = float if isinstance(REFERENCE_KEYS[key], float) else int
        try:
            values[key] = kind(text)
        except ValueError:
            raise SourceOpenError(f"{reference}: {key}: expected a number, got {text!r}") from None
        least = 0 if key == "seed" else 1e-3 if key == "fps" else 1
        if not least <= values[key] < 2**32:
            raise SourceOpenError(f"{reference}: {key}: expected at least {least}, got {text}")
    return values
