"""What the tests of the disk tier share: a small open folder and its blocks."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes_like.config import StoreConfig
from hermes_like.tiers.disk import DiskStore, open_disk
from hermes_like.tiers.fingerprint import Fingerprint

FINGERPRINT = Fingerprint.of(model="test", num_layers=3, rope_theta=1e6, torch="2.13")
MIB = 2**20


def config_of(**changes: Any) -> StoreConfig:
    """Caps of a few MiB, nothing forced to the medium."""
    values = {"disk_bytes": 6 * MIB, "keyframe_bytes": MIB, "min_free_bytes": 0}
    return StoreConfig(**{**values, "durability": "none", **changes})


def open_small(
    folder: Path,
    *,
    fingerprint: Fingerprint = FINGERPRINT,
    key: bytes | None = None,
    read_only: bool = False,
    **changes: Any,
) -> DiskStore:
    """Open a folder with :func:`config_of`."""
    return open_disk(
        folder, fingerprint=fingerprint, config=config_of(**changes), key=key, read_only=read_only
    )


def blocks_of(folder: Path) -> int:
    """Allocated bytes of a folder and everything in it, as the file system counts them."""
    total = 0
    for path in [folder, *folder.rglob("*")]:
        with suppress(FileNotFoundError):  # the writer has just renamed or removed it
            total += path.stat().st_blocks * 512
    return total


def volumes_of(folder: Path, stem: str = "kv") -> list[Path]:
    """Volume files, oldest first."""
    return sorted(folder.glob(f"{stem}-*.vol"))


def contains(folder: Path, needle: bytes) -> bool:
    """Whether any file in a folder holds a byte string."""
    return any(needle in path.read_bytes() for path in folder.rglob("*") if path.is_file())
