"""A folder of one process: removed at its end, or by the next process if it was killed.

Other processes beside us keep theirs: a lock tells the living from the dead.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from pathlib import Path

LOCK = "lock"


class OwnFolder:
    """Makes a folder below a root, and clears away those of processes that are gone.

    Args:
        root: Made if it is missing.

    Attributes:
        path: The folder.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = root / secrets.token_hex(8)
        self.path.mkdir(mode=0o700)
        self._lock_fd = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for folder in root.iterdir():
            if folder != self.path and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_fd)


def _is_abandoned(folder: Path) -> bool:
    try:
        lock_fd = os.open(folder / LOCK, os.O_RDWR)
    except OSError:  # one that is being made has no lock for a moment: left to the next start
        return False
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock_fd)
    return True
