"""Where a pass keeps the past while it runs: in RAM, or in a folder that ends with the pass.

Knows sessions and folders. Knows no dataset.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError, MemoryLockedError, StorageError
from hermes_like.models.base import ModelAdapter
from hermes_like.session import StreamSession
from hermes_like.tiers.destroy import destroy_memory

logger = logging.getLogger(__name__)

#: Opens the session of a pass.
MakeSession = Callable[[ModelAdapter, HermesConfig, str], AbstractContextManager[StreamSession]]

_PREFIX = "hermes-eval-"


def in_ram(model: ModelAdapter, config: HermesConfig, name: str) -> StreamSession:
    """A session that remembers in RAM alone."""
    return StreamSession(model, config, name=name)


def on_disk(scratch: Path) -> MakeSession:
    """Sessions with a folder each, which is destroyed when the session ends.

    Folders that a killed run has left behind are destroyed first; one that is in use is left alone.

    Args:
        scratch: Where the folders are made; made if it is not there.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        scratch.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--scratch {scratch}: no folder can be made: {error}") from error
    for folder in sorted(scratch.glob(f"{_PREFIX}*")):
        _destroy(folder)

    @contextmanager
    def make(model: ModelAdapter, config: HermesConfig, name: str) -> Iterator[StreamSession]:
        folder = scratch / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
        try:
            session = StreamSession(model, config, folder=folder, name=name)
            try:
                yield session
            finally:
                session.close(save=False)
        finally:
            if folder.exists():  # else the session was refused before
                _destroy(folder)

    return make


def _destroy(folder: Path) -> None:
    """Remove a folder of ours; whatever hinders it is no reason to lose a run."""
    try:
        destroy_memory(folder)
    except MemoryLockedError:
        return  # a run that is going on
    except StorageError as error:
        logger.warning("%s", error)
