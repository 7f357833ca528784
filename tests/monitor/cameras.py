"""Loopback cameras that show a scripted story, and waiting for what they should bring about."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

from PIL import Image

from hermes_like.sprites.source import picture_of
from hermes_like.sprites.world import Event, Sprite, Story
from tests.sources.live_servers import BOUNDARY, Camera

WAIT_S = 60.0


def story(*shown: tuple[str, str], frames: int = 1000) -> Story:
    """A story in which one sprite after the other is shown, each for so many frames."""
    return Story(tuple(Event((Sprite(shape, colour, "left"),), frames) for colour, shape in shown))


RED_STAR, BLUE_RING = story(("red", "star")), story(("blue", "ring"))


class SpritesCamera(Camera):
    """Sends the pictures of a story as multipart JPEG; see :class:`Camera` for its failures."""

    def __init__(self, shown: Story = RED_STAR, seed: int = 0, **failures: object) -> None:
        super().__init__(**{"fps": 10.0, **failures})  # type: ignore[arg-type]
        self.shown, self.seed = shown, seed

    def _part(self, number: int) -> bytes:
        frozen = self.frozen_from
        if frozen is not None and frozen <= number < self.frozen_to:
            number = frozen
        buffer = io.BytesIO()
        picture = picture_of(self.shown, number % self.shown.num_frames, self.seed)
        Image.fromarray(picture).save(buffer, "JPEG", quality=92)
        data = buffer.getvalue()
        head = b"--%s\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n"
        return head % (BOUNDARY, len(data)) + data + b"\r\n"


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Fail unless something comes true in time."""
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s, f"waited in vain for: {what}"
        time.sleep(0.02)
