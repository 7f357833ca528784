"""A medium on which only what was synced is certain: notes calls, and builds images of a folder.

Knows files, sectors and names. Knows nothing of records.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from hermes_like.tiers import manifest, volume

SECTOR_BYTES = 512
#: Earlier copies of the manifest that are kept to choose from.
MAX_MANIFESTS = 8


@dataclass
class File:
    """One file, whatever its name is.

    Attributes:
        synced: Contents at the last sync.
        writes: Offset and bytes written since, in order.
        sizes: Sizes since, in order; that of the last sync comes first.
    """

    synced: bytes = b""
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=lambda: [0])

    def write(self, offset: int, data: bytes) -> None:
        """Bytes that may or may not reach the medium."""
        self.writes.append((offset, data))
        self.resize(max(self.sizes[-1], offset + len(data)))

    def resize(self, size: int) -> None:
        """A size that may or may not reach the medium."""
        if size < self.sizes[-1]:
            # What lay behind the new end reads as zeros if the file grows again.
            self.writes.append((size, bytes(self.sizes[-1] - size)))
        if size != self.sizes[-1]:
            self.sizes.append(size)

    def sync(self) -> None:
        """Everything reaches the medium."""
        self.synced = self.image(lambda: True, self.sizes[-1])
        self.writes, self.sizes = [], self.sizes[-1:]

    def image(self, survives: Callable[[], bool], size: int) -> bytes:
        """Contents, if each sector that was not synced survives or not."""
        data = bytearray(max([*self.sizes, len(self.synced)]))
        data[: len(self.synced)] = self.synced
        for offset, written in self.writes:
            for at in range(0, len(written), SECTOR_BYTES):
                if survives():
                    part = written[at : at + SECTOR_BYTES]
                    data[offset + at : offset + at + len(part)] = part
        return bytes(data[:size])


class PowerMedium:
    """Notes what the disk tier asks of the system, for one folder, while it is carried out.

    Args:
        folder: The memory folder.
        on_step: Called before every call that changes something.
    """

    def __init__(self, folder: Path, on_step: Callable[[], None]) -> None:
        self.folder, self._on_step = folder.absolute(), on_step
        self._lock = threading.RLock()
        self._fds: dict[int, File | None] = {}
        self._names: dict[str, File] = {}
        self._certain: dict[str, File] = {}
        #: What happened to names since the folder was synced: the names after each step.
        self._uncertain: list[dict[str, File]] = []
        self._manifests: list[dict[str, bytes]] = []

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """While this is open, calls are carried out and noted."""
        with contextlib.ExitStack() as stack:
            for module, name, note, is_step in (
                (os, "open", self._note_open, True),
                (os, "close", self._note_close, False),
                (os, "dup", self._note_dup, False),
                (os, "pwritev", self._note_write, True),
                (os, "posix_fallocate", self._note_allocate, True),
                (os, "ftruncate", self._note_truncate, True),
                (os, "fsync", self._note_sync, True),
                (os, "fdatasync", self._note_sync, True),
                (os, "rename", self._note_rename, True),
                (os, "unlink", self._note_unlink, True),
                (volume, "punch_hole", self._note_punch, True),
            ):
                patched = self._noted(getattr(module, name), note, is_step)
                stack.enter_context(mock.patch.object(module, name, patched))
            yield

    def _noted(
        self, call: Callable[..., Any], note: Callable[..., None], is_step: bool
    ) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                if is_step and self._is_ours(arguments[0]):
                    self._on_step()
                result = call(*arguments, **options)
                note(result, *arguments)
            return result

        return noted

    def _is_ours(self, what: Any) -> bool:
        return what in self._fds if isinstance(what, int) else self._name(what) is not None

    def _name(self, path: Any) -> str | None:
        """Name of a file of the folder; None for other paths and for the manifest's files."""
        found = Path(os.fsdecode(path)).absolute()
        if found.parent != self.folder or found.name.startswith(manifest.NAME):
            return None
        return found.name

    # -- what calls mean -------------------------------------------------------------------------

    def _note_open(self, fd: int, path: Any, flags: int, *_: Any) -> None:
        if Path(os.fsdecode(path)).absolute() == self.folder:
            self._fds[fd] = None
            return
        name = self._name(path)
        if name is None:
            return
        if name not in self._names:
            self._renamed({**self._names, name: File()})
        if flags & os.O_TRUNC:
            self._names[name].resize(0)
        self._fds[fd] = self._names[name]

    def _note_close(self, _: None, fd: int) -> None:
        self._fds.pop(fd, None)

    def _note_dup(self, copy: int, fd: int) -> None:
        if fd in self._fds:
            self._fds[copy] = self._fds[fd]

    def _note_write(self, count: int, fd: int, buffers: Sequence[Any], offset: int) -> None:
        if (file := self._fds.get(fd)) is not None:
            file.write(offset, b"".join(bytes(buffer) for buffer in buffers)[:count])

    def _note_allocate(self, _: None, fd: int, offset: int, length: int) -> None:
        if (file := self._fds.get(fd)) is not None:
            file.resize(max(file.sizes[-1], offset + length))

    def _note_truncate(self, _: None, fd: int, size: int) -> None:
        if (file := self._fds.get(fd)) is not None:
            file.resize(size)

    def _note_punch(self, _: None, fd: int, offset: int, num_bytes: int) -> None:
        if (file := self._fds.get(fd)) is not None:
            file.write(offset, bytes(num_bytes))

    def _note_sync(self, _: None, fd: int) -> None:
        if fd not in self._fds:
            return
        file = self._fds[fd]
        if file is None:
            self._certain, self._uncertain = dict(self._names), []
        else:
            file.sync()

    def _note_rename(self, _: None, source: Any, target: Any) -> None:
        old, new = self._name(source), self._name(target)
        if old is not None and new is not None:
            names = dict(self._names)
            names[new] = names.pop(old)
            self._renamed(names)

    def _note_unlink(self, _: None, path: Any) -> None:
        name = self._name(path)
        if name is not None and name in self._names:
            self._renamed({key: file for key, file in self._names.items() if key != name})

    def _renamed(self, names: dict[str, File]) -> None:
        self._names = names
        self._uncertain.append(names)

    # -- images ----------------------------------------------------------------------------------

    def keep_manifest(self) -> None:
        """Keep a copy of the manifest as it is now, for images to choose from."""
        with self._lock:
            found = {
                path.name: path.read_bytes()
                for path in self.folder.glob(f"{manifest.NAME}*")
                if not path.name.endswith("-shm")
            }
            self._manifests = [*self._manifests[1 - MAX_MANIFESTS :], found]

    def image(self, target: Path, rng: random.Random) -> None:
        """Write the folder as the medium might hold it if the power went now.

        Args:
            target: A folder that is not there yet.
            rng: Decides.
        """
        with self._lock:
            names = rng.choice([self._certain, *self._uncertain, self._names])
            share = rng.choice((0.0, 0.5, 0.95, 1.0))
            target.mkdir(mode=0o700, parents=True)
            for name, file in names.items():
                data = file.image(lambda: rng.random() < share, rng.choice(file.sizes))
                _write_sparse(target / name, data)
            for name, data in rng.choice([{}, *self._manifests]).items():
                is_cut = name.endswith("-wal") and rng.random() < 0.3
                size = rng.randrange(len(data) + 1) if is_cut else len(data)
                (target / name).write_bytes(data[:size])


def _write_sparse(path: Path, data: bytes) -> None:
    """Zeros take no blocks, as in a file that was preallocated and not written."""
    with path.open("wb") as file:
        file.truncate(len(data))
        for at in range(0, len(data), 4096):
            if any(block := data[at : at + 4096]):
                file.seek(at)
                file.write(block)
