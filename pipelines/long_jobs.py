"""What ``pipelines/long_recall.py`` has to run and what is done: one file per stream and policy.

The first line of a file says what it was made with, the following ones are moments, the last one
says that it is whole. This module knows neither models nor questions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_like.config import HermesConfig
from hermes_like.models import sprites
from hermes_like.presets import load_config
from pipelines import reporting

#: Names for combinations of a preset with settings, and what they stand for.
ALIASES = {
    "ours": "sprites",
    "store_all": "sprites@policy.name=window",
}
#: Policies of which only raw segments are of interest.
RAW_ONLY = ("store_all",)
#: RAM for raw segments where nothing shall be bounded by a tier.
HOST_BYTES = 12 * 2**30


@dataclass(frozen=True, slots=True)
class Unit:
    """One stream under one policy.

    Attributes:
        policy: A preset, an alias, either with ``@key=value``.
        stream: Index of the stream.
        ages: In frames, ascending.
        num_needles: Of the stream, at most.
        codecs: Views of policies with a store.
        extras: Further views of these.
        num_scanned: Codecs that are asked about what never was.
        device_tokens: The cap of slots per layer.
        is_on_disk: Whether segments go to a folder, under the preset's caps.
        seed: Of the experiment.
        out: Folder of the results.
        variants: Different pictures of the same sprites; None: all differ.
        weights: Folder of other weights than the bundled ones.
    """

    policy: str
    stream: int
    ages: tuple[int, ...]
    num_needles: int
    codecs: tuple[str, ...]
    extras: tuple[str, ...]
    num_scanned: int
    device_tokens: int
    is_on_disk: bool
    seed: int
    out: Path
    variants: int | None = None
    weights: Path | None = None

    @property
    def file(self) -> Path:
        """Where its lines go."""
        return self.out / f"stream_{self.stream:03d}.{slug(self.policy)}.jsonl"

    @property
    def config(self) -> HermesConfig:
        """The resolved configuration."""
        return configuration(self.policy, self.device_tokens, is_on_disk=self.is_on_disk)

    @property
    def settings(self) -> dict[str, Any]:
        """What a file must agree on to be used again."""
        views = list(self.codecs) if self.config.store.enabled else []
        return {
            "policy": self.policy,
            "stream": self.stream,
            "ages": list(self.ages),
            "needles": self.num_needles,
            "views": views + (list(self.extras) if views else []),
            "scanned": self.num_scanned if views else 0,
            "seed": self.seed,
            "weights": reporting.weights_digest(),
            "config": self.config.model_dump(mode="json"),
            **({} if self.variants is None else {"variants": self.variants}),
        }


def slug(policy: str) -> str:
    """A file name for a policy."""
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", policy)


def split_policies(text: str) -> tuple[str, ...]:
    """Policies of a command line; a comma inside ``[0.1,0.3]`` separates nothing."""
    return tuple(re.split(r",(?![^\[]*\])", text))


def configuration(policy: str, device_tokens: int, *, is_on_disk: bool = False) -> HermesConfig:
    """A policy at the common cap; each question alone, frames prefilled a segment at a time.

    Args:
        policy: A preset or an alias, either with ``@key=value@key=value``.
        device_tokens: The cap.
        is_on_disk: Keep the caps of the preset; else RAM holds everything.
    """
    name, *settings = policy.split("@")
    preset, *more = ALIASES.get(name, name).split("@")
    pairs = (text.partition("=") for text in (*more, *settings))
    overrides = {key: value for key, _, value in pairs}
    segment = load_config(preset, overrides, {}).memory.segment_frames
    overrides |= {
        "memory.device_tokens": str(device_tokens),
        "memory.prefill_frames": str(segment),
        "answer.keep_conversation": "false",
        "store.codec": "raw",
        "store.keyframe_bytes": "0",
    }
    if not is_on_disk:
        overrides["store.host_bytes"] = str(HOST_BYTES)
    return load_config(preset, overrides, {})


def read_unit(unit: Unit) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Finished moments of a unit, and its last line if it is whole; nothing of other settings."""
    if not unit.file.exists():
        return [], None
    lines = list(_lines(unit.file))
    if not lines or _relevant(lines[0].get("settings")) != _relevant(unit.settings):
        return [], None
    last = lines[-1] if lines[-1].get("is_whole") else None
    return [line for line in lines[1:] if "rows" in line], last


def _relevant(settings: dict[str, Any] | None) -> dict[str, Any]:
    """Settings without those of stations that a policy does not use."""
    if settings is None or settings["config"]["store"]["enabled"]:
        return {"scanned": 4, **(settings or {})}
    config = settings["config"].items()
    config = {k: v for k, v in config if k not in ("store", "retrieval")}
    return settings | {"config": config, "scanned": 0}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for text in file.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(text)
        except json.JSONDecodeError:  # torn by a kill
            continue


def use_weights(folder: Path | None) -> None:
    """Load the bundled model from another folder, in this process."""
    if folder is not None:
        sprites.weights_folder = reporting.weights_folder = lambda: folder
        reporting.weights_digest.cache_clear()


def anonymous_bytes() -> int:
    """RAM of this process that no file backs; 0 where the system does not tell."""
    try:
        text = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


def replace_file(temporary: Path, path: Path) -> None:
    """Put a finished file in its place."""
    os.replace(temporary, path)
