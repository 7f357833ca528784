"""Small named files in the memory folder: written aside, synced, renamed, checked when read."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from xxhash import xxh3_64_intdigest as checksum

from hermes_like.errors import FingerprintError, StorageError
from hermes_like.tiers import failpoints
from hermes_like.tiers.cipher import OVERHEAD_BYTES
from hermes_like.tiers.layout import BLOCK_BYTES, Buffer, aligned
from hermes_like.tiers.ledger import allocated, io_error
from hermes_like.tiers.shared import Shared
from hermes_like.tiers.volume import UNFINISHED, sync_folder, write_all

_MAGIC = b"HLblob01"
_HEADER = struct.Struct("<8s32s16sQQQ")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SUFFIX = ".blob"


class Blobs:
    """Named contents of one folder; each is whole or is refused.

    Args:
        shared: State of the folder.
    """

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def put(self, name: str, data: Buffer) -> None:
        """Store under a name, replacing what was there at once or not at all.

        Raises:
            TierFullError: No room for the new file beside the old one.
            StorageError: The medium failed, or the name has other characters than ``a-z0-9_-``.
        """
        shared, path = self.shared, self._path(name)
        unfinished = path.with_name(path.name + UNFINISHED)
        with shared.lock:
            shared.require_open(for_writing=True)
            try:
                shared.ledger.claim(unfinished.name, self.bound(len(data)))
                self._write(unfinished, path, data, name)
            except OSError as error:
                failure = io_error(error, path.name)
                shared.note_error(failure)
                raise failure from error
            except StorageError as error:
                shared.note_error(error)
                raise
            finally:
                if not unfinished.exists():
                    shared.ledger.drop(unfinished.name)
                shared.ledger.settle(path.name, allocated(path))

    def _write(self, unfinished: Path, path: Path, data: Buffer, name: str) -> None:
        shared = self.shared
        sealed = data if shared.cipher is None else shared.cipher.seal(data, self._place(name))
        body = struct.pack("<Q", len(name)) + name.encode()
        digest = checksum(sealed)
        header = _HEADER.pack(
            _MAGIC, shared.digest, shared.key_id, len(sealed), digest, checksum(body)
        )
        header += struct.pack("<Q", checksum(header))
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, [header, sealed], 0)
            if shared.is_durable:
                os.fsync(fd)
            failpoints.hit("blob.before_rename")
            os.rename(unfinished, path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        failpoints.hit("blob.after_rename")
        if shared.is_durable:
            sync_folder(shared.folder)

    def get(self, name: str) -> bytes | None:
        """What was stored under a name, verified; None where there is nothing.

        Raises:
            StorageError: It was altered, or cannot be read.
            FingerprintError: It was written by another model.
        """
        shared, path = self.shared, self._path(name)
        shared.require_open(for_writing=False)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise io_error(error, path.name) from error
        size = _HEADER.size + 8
        if len(data) < size or struct.unpack_from("<Q", data, _HEADER.size)[0] != checksum(
            data[: _HEADER.size]
        ):
            raise StorageError(f"{path.name}: header is damaged")
        magic, digest, key_id, length, content, named = _HEADER.unpack_from(data)
        sealed = memoryview(data)[size:]
        body = struct.pack("<Q", len(name)) + name.encode()
        if magic != _MAGIC or length != len(sealed) or content != checksum(sealed):
            raise StorageError(f"{path.name}: contents are damaged")
        if named != checksum(body):
            raise StorageError(f"{path.name}: was stored under another name")
        if digest != shared.digest:
            raise FingerprintError(f"{path.name}: written by another model or format")
        if key_id != shared.key_id:
            raise StorageError(f"{path.name}: encrypted with another key")
        if shared.cipher is None:
            return bytes(sealed)
        try:
            return shared.cipher.open(sealed, self._place(name))
        except ValueError as error:
            raise StorageError(f"{path.name}: {error}") from error

    def remove(self, name: str) -> None:
        """Overwrite and remove; nothing happens where there is nothing."""
        shared, path = self.shared, self._path(name)
        with shared.lock:
            shared.require_open(for_writing=True)
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            try:
                write_all(fd, [bytes(os.fstat(fd).st_size)], 0)
                if shared.is_durable:
                    os.fsync(fd)
                path.unlink()
            except OSError as error:
                raise io_error(error, path.name) from error
            finally:
                os.close(fd)
            shared.ledger.drop(path.name)

    def names(self) -> list[str]:
        """Names in use, sorted."""
        return sorted(path.stem for path in self.shared.folder.glob("*" + _SUFFIX))

    def settle(self) -> None:
        """Account the files that are there."""
        for path in self.shared.folder.glob("*" + _SUFFIX):
            self.shared.ledger.settle(path.name, allocated(path))

    def _place(self, name: str) -> bytes:
        return b"blob:" + name.encode() + self.shared.digest

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise StorageError(f"blob name: expected up to 64 of a-z 0-9 _ -, got {name!r}")
        return self.shared.folder / (name + _SUFFIX)

    @staticmethod
    def bound(num_bytes: int) -> int:
        """Most blocks a file of so many bytes takes."""
        whole = aligned(_HEADER.size + 8 + OVERHEAD_BYTES + num_bytes)
        return whole + BLOCK_BYTES + whole // 1024
