"""The account of everything under the memory folder: asked before a byte is allocated.

An entry is an upper bound of the allocated blocks of a file, so the sum is one of the folder. The
part set aside for pictures is fixed: neither side can starve the other.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from hermes_like.errors import StorageError, TierFullError

#: Directories, the lock file and what file systems add for extents.
OVERHEAD_BYTES = 64 * 2**10
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def io_error(error: OSError, what: str) -> StorageError:
    """The error of ours for one of the operating system."""
    if error.errno in _NO_ROOM:
        return TierFullError(f"{what}: {error.strerror}")
    return StorageError(f"{what}: {error}")


def allocated(path: Path) -> int:
    """Bytes of blocks that a file takes; 0 where there is none."""
    try:
        return path.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0


class Ledger:
    """Who has claimed how many bytes, against the caps.

    Args:
        folder: The memory folder; must exist.
        cap_bytes: Cap over everything in it.
        keyframe_cap_bytes: Part of it that is set aside for pictures.
        min_free_bytes: Free space of the file system that is never used up.
    """

    def __init__(
        self, folder: Path, *, cap_bytes: int, keyframe_cap_bytes: int, min_free_bytes: int
    ) -> None:
        self.folder, self.cap_bytes = folder, cap_bytes
        self.keyframe_cap_bytes, self.min_free_bytes = keyframe_cap_bytes, min_free_bytes
        self._entries: dict[str, tuple[int, bool]] = {}
        self._used = {False: 0, True: 0}
        self._lock = threading.Lock()
        self._set("overhead", OVERHEAD_BYTES, False)

    @property
    def used_bytes(self) -> int:
        """Claimed in all."""
        return self._used[False] + self._used[True]

    @property
    def keyframe_bytes(self) -> int:
        """Claimed by pictures."""
        return self._used[True]

    def cap_of(self, *, is_keyframes: bool) -> int:
        """Cap of one side: pictures, or everything else."""
        return self.keyframe_cap_bytes if is_keyframes else self.cap_bytes - self.keyframe_cap_bytes

    def is_over(self, *, is_keyframes: bool) -> bool:
        """Whether more is there than the cap allows, as after a cap was lowered."""
        return self._used[is_keyframes] > self.cap_of(is_keyframes=is_keyframes)

    @property
    def room_bytes(self) -> int:
        """What the cap over all but pictures leaves; negative where it is passed."""
        return self.cap_of(is_keyframes=False) - self._used[False]

    def fits(self, growth_bytes: int) -> bool:
        """Whether the cap over all but pictures allows so many more bytes."""
        return self.refusal(growth_bytes, needs_free_space=False) is None

    def refusal(
        self, growth_bytes: int, *, is_keyframes: bool = False, needs_free_space: bool = True
    ) -> str | None:
        """Why so many more bytes may not be taken; None where they may."""
        cap, used = self.cap_of(is_keyframes=is_keyframes), self._used[is_keyframes]
        if used + growth_bytes > cap:
            side = "pictures" if is_keyframes else "all but pictures"
            return f"{growth_bytes} more bytes do not fit: {used} of {cap} are taken ({side})"
        if not needs_free_space:
            return None
        system = os.statvfs(self.folder)
        free = system.f_bavail * system.f_frsize
        if free - growth_bytes < self.min_free_bytes:
            return (
                f"{growth_bytes} more bytes would leave {free - growth_bytes} free on the file "
                f"system; store.min_free_bytes is {self.min_free_bytes}"
            )
        return None

    def claim(
        self,
        name: str,
        num_bytes: int,
        *,
        is_keyframes: bool = False,
        needs_free_space: bool = True,
    ) -> None:
        """Set the bound of an entry before its file grows.

        Args:
            name: Of the entry.
            num_bytes: Its new bound.
            is_keyframes: Which side it counts against.
            needs_free_space: Whether the floor of free space counts as well.

        Raises:
            TierFullError: A cap or the floor of free space forbids it; nothing has changed.
        """
        with self._lock:
            growth = num_bytes - self._entries.get(name, (0, False))[0]
            reason = None
            if growth > 0:
                reason = self.refusal(
                    growth, is_keyframes=is_keyframes, needs_free_space=needs_free_space
                )
            if reason is not None:
                raise TierFullError(f"{name}: {reason}")
            self._set(name, num_bytes, is_keyframes)

    def settle(self, name: str, num_bytes: int, *, is_keyframes: bool = False) -> None:
        """Set an entry to what is there already."""
        with self._lock:
            self._set(name, num_bytes, is_keyframes)

    def drop(self, name: str) -> None:
        """Forget an entry whose file is gone."""
        with self._lock:
            num_bytes, is_keyframes = self._entries.pop(name, (0, False))
            self._used[is_keyframes] -= num_bytes

    def entry(self, name: str) -> int:
        """Bound of an entry; 0 where there is none."""
        return self._entries.get(name, (0, False))[0]

    def _set(self, name: str, num_bytes: int, is_keyframes: bool) -> None:
        old, side = self._entries.get(name, (0, is_keyframes))
        self._used[side] -= old
        self._used[is_keyframes] += num_bytes
        self._entries[name] = (num_bytes, is_keyframes)

    def measure(self) -> int:
        """Allocated bytes of everything in the folder as the file system counts them."""
        total = allocated(self.folder)
        for root, folders, files in os.walk(self.folder):
            total += sum(allocated(Path(root, name)) for name in [*folders, *files])
        return total
