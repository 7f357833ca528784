"""Settings of all tests: no hub, one thread. Importing this file does not import torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["GOMP_SPINCOUNT"] = "0"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"
for _name in [name for name in os.environ if name.startswith("HERMES_LIKE__")]:
    del os.environ[_name]


def pytest_runtest_setup() -> None:
    """Hold torch to one thread, even where a test (or a library) has set another number."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def sprites_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 24-second video of the sprites world; its first 12 seconds show a red star on the left."""
    from hermes_like.sprites.video import write_story_video
    from hermes_like.sprites.world import Event, Sprite, Story

    star = Event((Sprite("star", "red", "left"),), 12)
    ring = Event((Sprite("ring", "blue", "right"),), 12)
    path = tmp_path_factory.mktemp("videos") / "sprites.mp4"
    return write_story_video(Story((star, ring)), path)
