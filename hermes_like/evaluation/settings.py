"""What can change an answer beside the question, and the hash of it that every line carries.

Knows configuration and names. Knows neither models nor videos.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from hermes_like import __version__
from hermes_like.config import HermesConfig
from hermes_like.evaluation.prompts import PROMPTS_VERSION
from hermes_like.presets import with_settings
from hermes_like.records import Route

#: Limits of time that hold for people who wait. An evaluation waits: where a loaded machine decided
#: what is read of the past, no two runs would agree.
PATIENT: Final[Mapping[str, float]] = {
    "retrieval.deadline_s": 3600.0,
    "retrieval.scan_deadline_s": 3600.0,
}
#: Keys that decide where and how fast something is done, and never what comes out.
_INDIFFERENT: Final[dict[str, Any]] = {
    "model": {"device"},
    "source": {"read_ahead_frames", "watchdog_s"},
    "store": {"durability", "sync_interval_s", "checkpoint_segments"},
    "engine": True,
}


class RunSettings(BaseModel):
    """How a dataset is run. Two runs with equal settings on equal weights answer the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: HermesConfig
    route: Route | None = Field(None, description="where to look; null: by words of the question")
    context: Literal["stream", "official"] = Field(
        "stream", description="official: each question sees only what its protocol shows"
    )
    on_disk: bool = Field(
        False, description="the past goes to disk when RAM is full; false: it is forgotten"
    )

    def hash_with(self, identity: Mapping[str, Any]) -> str:
        """Hash of everything that can change an answer, 32 hex digits.

        Args:
            identity: What tells the weights from others, with number type and kind of device.
        """
        known = {
            "settings": self.known(),
            "prompts": PROMPTS_VERSION,
            "release": __version__,
            "model": dict(identity),
        }
        text = json.dumps(known, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def known(self) -> dict[str, Any]:
        """Everything of it by dotted name, as JSON values."""
        config = self.config.model_dump(mode="json", exclude=_INDIFFERENT)
        flat = {f"{part}.{key}": v for part, keys in config.items() for key, v in keys.items()}
        chosen = {"--route": self.route, "--context": self.context, "--scratch": self.on_disk}
        return flat | chosen

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        """What is not as it is here, in words.

        Args:
            other: What :meth:`known` gave another time.
        """
        return [
            f"{name} {other.get(name)!r} there, {value!r} here"
            for name, value in self.known().items()
            if other.get(name) != value
        ]


def patient(config: HermesConfig, named: frozenset[str] = frozenset()) -> HermesConfig:
    """A configuration without hurry.

    Args:
        config: Stays as it is.
        named: Keys that somebody set on purpose; they are left alone.
    """
    return with_settings(config, {k: v for k, v in PATIENT.items() if k not in named})
