"""Named places at which a test can make the disk tier fail; nothing happens unless asked for.

``HERMES_LIKE_FAILPOINTS="record.before_index=kill@3,blob.before_rename=enospc"`` kills the process
the third time the first place is reached and raises "no space left" the first time at the second.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping

VARIABLE = "HERMES_LIKE_FAILPOINTS"

#: Every place, so that a test can sweep them.
NAMES = (
    "volume.before_create",
    "volume.before_rename",
    "volume.after_create",
    "record.before_data",
    "record.torn_data",
    "record.before_sync",
    "record.before_index",
    "record.after_index",
    "volume.before_seal",
    "volume.after_seal",
    "manifest.before_commit",
    "manifest.before_checkpoint",
    "erase.after_intent",
    "erase.after_wipe",
    "erase.after_rows",
    "erase.before_rebuild",
    "evict.after_unlink",
    "evict.after_rows",
    "blob.before_rename",
    "blob.after_rename",
    "open.before_recovery",
    "open.after_recovery",
    "sync.before_fsync",
)
_ERRORS = {"enospc": errno.ENOSPC, "eio": errno.EIO, "efbig": errno.EFBIG}
_armed: dict[str, tuple[str, int]] = {}


def arm(text: str) -> None:
    """Set what happens where, replacing what was set before.

    Args:
        text: ``name=action`` or ``name=action@count``, separated by commas; the action is ``kill``,
            ``enospc``, ``eio`` or ``efbig``, and the count says which arrival it strikes.

    Raises:
        ValueError: Unknown name or action.
    """
    parsed: dict[str, tuple[str, int]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = item.partition("=")
        action, _, count = action.partition("@")
        if name not in NAMES or (action != "kill" and action not in _ERRORS):
            raise ValueError(f"failpoint: expected NAME=ACTION[@COUNT], got {item!r}")
        parsed[name] = (action, int(count or 1))
    _armed.clear()
    _armed.update(parsed)


def is_due(name: str) -> bool:
    """Whether the next :func:`hit` of this name strikes."""
    return bool(_armed) and name in _armed and _armed[name][1] == 1


def hit(name: str) -> None:
    """Pass a place: usually nothing, else the process dies or an ``OSError`` is raised."""
    if not _armed or name not in _armed:
        return
    action, count = _armed[name]
    _armed[name] = (action, count - 1)
    if count != 1:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    code = _ERRORS[action]
    raise OSError(code, f"{os.strerror(code)} (failpoint {name})")


def _from_environment(environment: Mapping[str, str]) -> None:
    arm(environment.get(VARIABLE, ""))


_from_environment(os.environ)
