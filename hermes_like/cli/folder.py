"""A memory folder seen without its model: what it is, opened for reading or for repair.

The fingerprint is taken from the folder itself, so that no weights are needed. Torch is not loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_like.cli.note import NOTE_NAME, Note
from hermes_like.cli.options import load_memory_key
from hermes_like.config import StoreConfig
from hermes_like.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from hermes_like.tiers.disk import DiskStore
    from hermes_like.tiers.fingerprint import Fingerprint

#: Name of the session's state in the folder.
STATE_NAME = "session"
#: Bytes of a volume that hold its header for certain.
_FRONT_BYTES = 2**20
#: Where a small file tells the digest of the fingerprint, behind its magic.
_DIGEST = slice(8, 40)
#: Where nobody tells the caps, nothing may be dropped for them.
_NO_CAP_BYTES = 2**60


@dataclass(frozen=True, slots=True)
class Opened:
    """An open folder.

    Attributes:
        folder: Where it lies.
        store: Its contents.
        is_encrypted: Whether a key was needed.
        fingerprint: What they depend on; None where no volume tells.
        note: What the command line noted; None where it did not, or it cannot be read.
        state: What the session knew at its last checkpoint; empty where there is none.
        problems: Small files that cannot be read, in words.
    """

    folder: Path
    store: DiskStore
    is_encrypted: bool
    fingerprint: Fingerprint | None
    note: Note | None
    state: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def caps(self) -> StoreConfig | None:
        """Caps the memory was made with; None where nobody tells."""
        config = self.state.get("config", {}) if self.note is None else self.note.config
        return store_config(config)


def is_memory(path: Path) -> bool:
    """Whether a folder is a memory."""
    from hermes_like.tiers.disk import LOCK

    return (path / LOCK).is_file()


def require_usable(folder: Path) -> None:
    """Refuse a folder that holds other things than a memory.

    Raises:
        ConfigError: It is a file, or a folder with something else in it.
    """
    if not folder.exists() or is_memory(folder):
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise ConfigError(f"{folder}: expected a memory, an empty folder or a new one")


@contextmanager
def opened(folder: Path, key: bytes | None, *, is_read_only: bool = True) -> Iterator[Opened]:
    """Open a memory without its model.

    Args:
        folder: Where it lies.
        key: For an encrypted one.
        is_read_only: Whether to leave it as it is; several processes may read.

    Raises:
        ConfigError: The folder is no memory.
        MemoryLockedError: Another process writes to it.
        StorageError: Wrong key, or the medium failed.
    """
    from hermes_like.tiers.disk import open_disk

    if not is_memory(folder):
        raise ConfigError(f"{folder}: expected the folder of a memory")
    found = find_fingerprint(folder)
    fingerprint = _by_digest(folder) if found is None else found
    with open_disk(
        folder, fingerprint=fingerprint, config=_without_caps(), key=key, read_only=True
    ) as store:
        read = _read(folder, store, found, is_encrypted=key is not None)
        if is_read_only:
            yield read
            return
    config = read.caps or _without_caps()
    with open_disk(folder, fingerprint=fingerprint, config=config, key=key) as store:
        yield _read(folder, store, found, is_encrypted=key is not None)


@dataclass(frozen=True, slots=True)
class Known:
    """A memory folder that a command was given, which may be new.

    Attributes:
        folder: Where it lies.
        key: For an encrypted one.
        note: What the command line noted there; None where there is nothing yet.
        config: Configuration it was made with, by section, as far as it is known.
    """

    folder: Path
    key: bytes | None
    note: Note | None = None
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def known(folder: Path, key_file: Path | None) -> Known:
    """What a command has to know of a memory folder before it loads a model.

    Args:
        folder: Where it lies; may be new.
        key_file: File with the key; None: look into the environment.

    Raises:
        ConfigError: The folder holds other things than a memory, or the key is none.
        StorageError: As for :func:`opened`.
    """
    key = load_memory_key(key_file)
    require_usable(folder)
    if not is_memory(folder):
        return Known(folder, key)
    with opened(folder, key) as read:
        if read.note is None and NOTE_NAME in read.store.blob_names():
            raise StorageError(f"{folder}: {'; '.join(read.problems)}")
        config = _told_config(read) if read.note is None else read.note.config
        return Known(folder, key, read.note, config)


def _told_config(memory: Opened) -> dict[str, Mapping[str, Any]]:
    """What a memory that was not made by the command line tells of its configuration."""
    if memory.state.get("config"):
        return dict(memory.state["config"])
    config: dict[str, Mapping[str, Any]] = dict(memory.state.get("settings", {}))
    if memory.fingerprint is not None:
        hard = memory.fingerprint.hard
        for section, name, key in (
            ("source", "sample_fps", "sample_fps"),
            ("store", "codec", "codec"),
            ("retrieval", "heads", "retrieval_heads"),
        ):
            if key in hard:
                config[section] = {name: hard[key]}
    return config


def require_room(folder: Path, config: StoreConfig) -> None:
    """Refuse caps below what a folder holds: opening it would drop the oldest segments.

    Raises:
        ConfigError: Names the caps and what there is.
    """
    from hermes_like.tiers.disk import keyframe_cap
    from hermes_like.tiers.layout import KEYFRAMES
    from hermes_like.tiers.ledger import allocated
    from hermes_like.tiers.volume import Volume

    pictures = sum(allocated(path) for _, kind, path in Volume.find(folder) if kind == KEYFRAMES)
    rest = sum(allocated(path) for path in folder.iterdir()) - pictures
    cap = keyframe_cap(config)
    if pictures > cap or rest > config.disk_bytes - cap:
        raise ConfigError(
            f"{folder}: holds {rest} bytes and {pictures} of pictures, but store.disk_bytes "
            f"{config.disk_bytes} with store.keyframe_bytes {config.keyframe_bytes} leaves "
            f"{config.disk_bytes - cap} and {cap}: the rest would be dropped; set both"
        )


def find_fingerprint(folder: Path) -> Fingerprint | None:
    """What the contents of a folder depend on, from the first volume whose header is whole."""
    from hermes_like.tiers.fingerprint import Fingerprint
    from hermes_like.tiers.layout import LayoutError, unpack_volume
    from hermes_like.tiers.volume import Volume

    for _, _, path in Volume.find(folder):
        try:
            with path.open("rb") as file:
                return Fingerprint.from_json(unpack_volume(file.read(_FRONT_BYTES)).fingerprint)
        except (LayoutError, OSError):
            continue
    return None


def _by_digest(folder: Path) -> Fingerprint:
    """Stands for the fingerprint where no segment was closed yet: small files tell its digest."""
    from hermes_like.tiers.fingerprint import Fingerprint

    fingerprint = Fingerprint({})
    for path in sorted(folder.glob("*.blob")):
        with path.open("rb") as file:
            # The digest is computed once and kept in the dictionary of the object.
            fingerprint.__dict__["digest"] = file.read(_DIGEST.stop)[_DIGEST]
            break
    return fingerprint


def store_config(config: Mapping[str, Mapping[str, Any]]) -> StoreConfig | None:
    """The caps in a stored configuration; None where this release cannot read them."""
    known = StoreConfig.model_fields
    try:
        return StoreConfig.model_validate(
            {key: value for key, value in config["store"].items() if key in known}
        )
    except (KeyError, ValueError):
        return None


def _without_caps() -> StoreConfig:
    return StoreConfig(disk_bytes=_NO_CAP_BYTES, keyframe_bytes=_NO_CAP_BYTES // 2)


def _read(
    folder: Path, store: DiskStore, fingerprint: Fingerprint | None, *, is_encrypted: bool
) -> Opened:
    note, state, problems = None, dict[str, Any](), list[str]()
    for name in store.blob_names():
        try:
            data = store.get_blob(name)
            if name == NOTE_NAME and data is not None:
                note = Note.from_bytes(data)
            elif name == STATE_NAME and data is not None:
                state = session_state(data)
        except StorageError as error:
            problems.append(str(error))
    return Opened(folder, store, is_encrypted, fingerprint, note, state, tuple(problems))


def session_state(data: bytes) -> dict[str, Any]:
    """What a session knew, out of its state, a safetensors file, without reading its tensors.

    Raises:
        StorageError: It is something else.
    """
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        first, last = json.loads(data[8:start])["__state__"]["data_offsets"]
        return dict(json.loads(data[start + first : start + last])["session"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"state of the session: {error}") from error
