"""The settings of a result, in a file beside it: for people, and to say what differs.

What may be mixed is decided by the hash in every line; this file is only for words.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from hermes_like.errors import DatasetError
from hermes_like.evaluation.settings import RunSettings


def beside(out: Path) -> Path:
    """Where the settings of a file of predictions are written, for people and for messages."""
    return out.with_name(f"{out.name}.settings.json")


def check_beside(out: Path, settings: RunSettings, config_hash: str) -> None:
    """Say in which settings a result differs; that it may not be mixed, its lines say themselves.

    Raises:
        DatasetError: It is a result of other settings.
    """
    path = beside(out)
    if not path.exists() or not out.exists() or not out.stat().st_size:
        return
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["config_hash"] == config_hash:
            return
        found = settings.differences(known["settings"])
    except (OSError, ValueError, KeyError, AttributeError):
        return
    what = "; ".join(found) or "the weights, the number type or the release"
    raise DatasetError(
        f"{out}: expected a result of these settings, got one of others ({what}); "
        "results are never mixed: choose another file"
    )


def write_beside(out: Path, settings: RunSettings, config_hash: str) -> None:
    """Write down with which settings a file of predictions is made."""
    text = json.dumps({"config_hash": config_hash, "settings": settings.known()}, indent=1)
    draft = beside(out).with_suffix(".tmp")
    draft.write_text(text + "\n", encoding="utf-8")
    os.replace(draft, beside(out))
