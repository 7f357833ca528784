"""Clips are written once per run; readers that are not installed are skipped with a reason."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sources.clip_factory import write_clip
from tests.sources.real_clips import real_clips

__all__ = ["make_clip", "real_clips", "skip_without_reader"]

MODULES = {"pyav": "av", "opencv": "cv2", "decord": "decord"}

MakeClip = Callable[..., Path]


@pytest.fixture(scope="session")
def make_clip(tmp_path_factory: pytest.TempPathFactory) -> MakeClip:
    """Write a barcode clip, or return the one of that name written before."""
    folder = tmp_path_factory.mktemp("clips")

    def make(name: str, **spec: Any) -> Path:
        path = folder / name
        return path if path.exists() else write_clip(path, **spec)

    return make


def skip_without_reader(reader: str) -> None:
    if importlib.util.find_spec(MODULES[reader]) is None:
        pytest.skip(f"{MODULES[reader]} is not installed")
