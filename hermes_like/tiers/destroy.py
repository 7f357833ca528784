"""The end of a memory folder: every file of it overwritten and removed, and nothing else touched.

Knows the names of files and how they begin; needs neither fingerprint nor key, and reads no record.
Links are never followed. What an interrupted call leaves is still a memory to the next one: the
lock goes last.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from hermes_like.errors import MemoryLockedError, StorageError
from hermes_like.tiers.admission import LOCK
from hermes_like.tiers.ledger import io_error
from hermes_like.tiers.manifest import NAME as MANIFEST
from hermes_like.tiers.shared import BALLAST
from hermes_like.tiers.volume import write_all

logger = logging.getLogger(__name__)

#: Names that only a memory gives, finished or not; every file so named is one of it.
_NAMES = re.compile(
    rf"(?:kv|keyframes)-\d{{8,}}\.vol(?:\.new)?|{re.escape(MANIFEST)}(?:\.damaged)?"
    rf"(?:-wal|-shm|-journal)?|{BALLAST}"
)
#: Others may name their files like our small ones, so these must begin like one of ours as well.
_BLOB_NAMES = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\.blob(?:\.new)?")
_BLOB_MAGIC = b"HLblob"
#: What stays of a file until it is unlinked: with it, it is known again after an interruption.
_KEPT_BYTES = 8
_ZEROS = bytes(2**20)


def destroy_memory(folder: Path | str) -> int:
    """Remove a memory with everything in it, for good. An encrypted one needs no key.

    Contents are overwritten before files are unlinked, so that a process that still has one open
    reads zeros; copies that a file system or a drive keeps are beyond reach. May be called again
    after an interruption, and then finishes.

    Args:
        folder: Where the memory lies; removed as well, unless it holds something else.

    Returns:
        Bytes that were freed.

    Raises:
        MemoryLockedError: Somebody has it open; nothing was touched.
        StorageError: It is no memory (nothing was touched), the medium failed, or the folder holds
            something that is no part of a memory: that is left and named, all else is gone.
    """
    folder = Path(folder)
    try:
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StorageError(
            f"{folder}: expected the folder of a memory, and no link to one: {error.strerror}"
        ) from error
    try:
        num_bytes, foreign = _empty(folder, folder_fd)
        if foreign:
            raise StorageError(
                f"{folder}: the memory is gone ({num_bytes} bytes); what is no part of one was "
                f"left: {_listed(foreign)}"
            )
        _remove_folder(folder, folder_fd)
    except OSError as error:
        raise io_error(error, f"{folder}: not all of it could be removed") from error
    finally:
        os.close(folder_fd)
    return num_bytes


def _empty(folder: Path, folder_fd: int) -> tuple[int, list[str]]:
    """Remove all files of the memory; returns the bytes they took, and what else is there."""
    if not os.listdir(folder_fd):
        return 0, []  # an earlier call came to within a step of its end
    _entries(folder, folder_fd)
    lock_fd = _locked(folder, folder_fd)
    try:
        # Again, because whoever had it open until now may have added to it.
        own, foreign = _entries(folder, folder_fd)
        num_bytes, failures = 0, list[str]()
        for name in own:
            try:
                num_bytes += _destroy(folder_fd, name)
            except OSError as error:  # one that stays is no reason to let the others stay
                failures.append(f"{name} ({error.strerror})")
        os.fsync(folder_fd)  # the lock may not be gone while a file is still there
        if failures:
            raise StorageError(f"{folder}: could not be removed: {'; '.join(failures)}")
        os.unlink(LOCK, dir_fd=folder_fd)
        os.fsync(folder_fd)
    finally:
        os.close(lock_fd)
    return num_bytes, foreign


def _entries(folder: Path, folder_fd: int) -> tuple[list[str], list[str]]:
    """Names of the memory's files beside the lock, and of everything else.

    Raises:
        StorageError: The folder is no memory.
    """
    names = sorted(os.listdir(folder_fd))
    own = [name for name in names if name != LOCK and _is_own(folder_fd, name)]
    foreign = [name for name in names if name != LOCK and name not in own]
    if not _is_lock(folder_fd) or (foreign and not own):
        raise StorageError(
            f"{folder}: expected the folder of a memory, with an empty file {LOCK!r}, volumes "
            f"(kv-*.vol) and {MANIFEST}; got {_listed(names)}; nothing was removed"
        )
    return own, foreign


def _is_own(folder_fd: int, name: str) -> bool:
    """Whether an entry is a file that a memory has made; a link never is."""
    if not stat.S_ISREG(_state(folder_fd, name).st_mode):
        return False
    if _NAMES.fullmatch(name):
        return True
    if not _BLOB_NAMES.fullmatch(name):
        return False
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        front = os.read(fd, len(_BLOB_MAGIC))
    finally:
        os.close(fd)
    # One whose writing or erasing was broken off is empty, or begins with zeros.
    return front == _BLOB_MAGIC or not front.strip(b"\0")


def _is_lock(folder_fd: int) -> bool:
    try:
        state = _state(folder_fd, LOCK)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(state.st_mode) and state.st_size == 0


def _state(folder_fd: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder_fd, follow_symlinks=False)


def _locked(folder: Path, folder_fd: int) -> int:
    """Take the lock, so that nobody has the memory open; returns the descriptor that holds it."""
    fd = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise MemoryLockedError(
            f"{folder}: expected a memory that nobody uses, got one that is open; "
            "close it first; nothing was removed"
        ) from error
    return fd


def _destroy(folder_fd: int, name: str) -> int:
    """Overwrite a file and unlink it; returns the bytes it took."""
    state = _state(folder_fd, name)
    # A second name for it elsewhere is somebody's copy, and not ours to spoil.
    if state.st_nlink == 1:
        try:
            _overwrite(folder_fd, name)
        except OSError as error:  # a failing medium must not keep the file alive
            logger.warning("%s: not overwritten, only removed: %s", name, error)
    os.unlink(name, dir_fd=folder_fd)
    return state.st_blocks * 512


def _overwrite(folder_fd: int, name: str) -> None:
    fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
    try:
        for start, end in _written(fd):
            for offset in range(max(start, _KEPT_BYTES), end, len(_ZEROS)):
                write_all(fd, [_ZEROS[: end - offset]], offset)
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _written(fd: int) -> Iterator[tuple[int, int]]:
    """Stretches of a file that hold data; holes would take space if they were written to."""
    size, end = os.fstat(fd).st_size, 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


def _remove_folder(folder: Path, folder_fd: int) -> None:
    """Remove the empty folder itself, if it still is the one that was emptied."""
    parent_fd = os.open(folder.absolute().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name, now = folder.absolute().name, os.fstat(folder_fd)
        there = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        if (there.st_dev, there.st_ino) == (now.st_dev, now.st_ino):
            os.rmdir(name, dir_fd=parent_fd)
            os.fsync(parent_fd)
    finally:
        os.close(parent_fd)


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:8]))
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
