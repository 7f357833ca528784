"""The door of a memory folder: one writer, a known version, the right fingerprint and key.

Nothing in the folder is changed before all of them agree.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path

from hermes_like.errors import MemoryLockedError, StorageError
from hermes_like.tiers import layout
from hermes_like.tiers.cipher import NO_KEY, Cipher
from hermes_like.tiers.fingerprint import Fingerprint
from hermes_like.tiers.volume import Volume

LOCK = "lock"

#: Version N to what turns a folder of version N into one of N + 1, in place and crash-safe.
MIGRATIONS: dict[int, Callable[[Path], None]] = {}


def migrate(folder: Path, version: int) -> None:
    """Bring a folder of an older format version to this one.

    Raises:
        StorageError: The version is newer, or there is no way from it.
    """
    while version != layout.FORMAT_VERSION:
        if version > layout.FORMAT_VERSION:
            raise StorageError(
                f"{folder}: written in format version {version}; this version reads up to "
                f"{layout.FORMAT_VERSION}: use a newer hermes-like"
            )
        if version not in MIGRATIONS:
            raise StorageError(f"{folder}: no migration from format version {version}")
        MIGRATIONS[version](folder)
        version += 1


def lock_folder(folder: Path, *, is_read_only: bool) -> int:
    """Create the folder if need be and lock it; returns the descriptor that holds the lock."""
    try:
        if not is_read_only:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC if is_read_only else flags, 0o600)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be opened: {error.strerror}") from error
    try:
        mode = fcntl.LOCK_SH if is_read_only else fcntl.LOCK_EX
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise MemoryLockedError(f"{folder}: another process has the memory open") from error
    if os.fstat(fd).st_nlink == 0:  # unlinked between the two calls: nobody else would meet it
        os.close(fd)
        raise MemoryLockedError(f"{folder}: another process is removing the memory; open it again")
    return fd


def inspect(
    folder: Path, fingerprint: Fingerprint, cipher: Cipher | None
) -> tuple[list[str], list[Volume]]:
    """Check version, fingerprint and key of all volumes before anything is touched."""
    found = Volume.find(folder)
    for _, _, path in found:
        version = layout.version_of(_front(path))
        if version is not None and version != layout.FORMAT_VERSION:
            migrate(folder, version)
            break
    notes: dict[str, None] = {}
    volumes = []
    for number, kind, path in Volume.find(folder):
        try:
            header = layout.unpack_volume(_front(path))
        except layout.LayoutError as error:
            notes[f"{path.name}: {error}"] = None
            volumes.append(Volume(path, number, kind, 0, 0))
            continue
        stored = Fingerprint.from_json(header.fingerprint)
        notes.update(dict.fromkeys(fingerprint.require_equal(stored)))
        _require_key(path, header, cipher)
        volumes.append(Volume(path, number, kind, header.header_bytes, header.header_bytes))
    return list(notes), volumes


def _require_key(path: Path, header: layout.VolumeHeader, cipher: Cipher | None) -> None:
    if cipher is None:
        if header.key_id != NO_KEY:
            raise StorageError(
                f"{path}: encrypted with key {header.key_id.hex()[:8]}, and no key was given"
            )
        return
    if header.key_id == NO_KEY:
        raise StorageError(f"{path}: not encrypted, but a key was given; open it without one")
    context = struct.pack("<Q", header.number) + header.digest
    if header.key_id != cipher.key_id or header.key_check != cipher.check_value(context):
        raise StorageError(
            f"{path}: wrong key: encrypted with {header.key_id.hex()[:8]}, "
            f"given {cipher.key_id.hex()[:8]}"
        )


def _front(path: Path) -> bytes:
    """The header of a volume, as far as it can be read."""
    with path.open("rb") as file:
        data = file.read(layout.BLOCK_BYTES)
        length = layout.header_length(data) if len(data) >= 24 else 0
        if layout.BLOCK_BYTES < length <= layout.MAX_HEADER_BYTES:
            data += file.read(length - layout.BLOCK_BYTES)
    return data
