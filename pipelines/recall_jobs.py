"""What ``pipelines/recall.py`` has to run and what is done: one line per policy and stream.

This module knows neither models nor questions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hermes_like.config import HermesConfig
from hermes_like.presets import load_config
from pipelines.reporting import weights_digest


@dataclass(frozen=True, slots=True)
class Job:
    """One stream under some policies.

    Attributes:
        index: Of the stream.
        ages: In frames, ascending.
        policies: Presets still to be run.
        device_tokens: The cap of slots per layer.
        full_frames: Where a policy without a cap stops.
        seed: Of the experiment.
        out: Folder of the results.
    """

    index: int
    ages: tuple[int, ...]
    policies: tuple[str, ...]
    device_tokens: int
    full_frames: int
    seed: int
    out: Path

    @property
    def file(self) -> Path:
        """Where its lines go."""
        return self.out / f"stream_{self.index:03d}.jsonl"

    def settings(self, policy: str) -> dict[str, Any]:
        """What a line must agree on to be used again."""
        return {
            "policy": policy,
            "stream": self.index,
            "ages": list(self.ages),
            "device_tokens": self.device_tokens,
            "full_frames": self.full_frames,
            "seed": self.seed,
            "weights": weights_digest(),
            "config": configuration(policy, self.device_tokens).model_dump(mode="json"),
        }


def split_policies(text: str) -> tuple[str, ...]:
    """Policies of a command line; a comma inside ``[0.1,0.3]`` separates nothing."""
    return tuple(re.split(r",(?![^\[]*\])", text))


def configuration(policy: str, device_tokens: int) -> HermesConfig:
    """A preset at the common cap; each question alone, frames prefilled a segment at a time.

    Args:
        policy: ``preset`` or ``preset@key=value@key=value``.
        device_tokens: The cap.
    """
    preset, *settings = policy.split("@")
    overrides = {key: value for key, _, value in (text.partition("=") for text in settings)}
    segment = load_config(preset, overrides).memory.segment_frames
    overrides |= {
        "memory.device_tokens": str(device_tokens),
        "memory.prefill_frames": str(segment),
        "answer.keep_conversation": "false",
    }
    return load_config(preset, overrides)


def append_line(file: Path, line: dict[str, Any]) -> None:
    """Add a line; what a killed run left unfinished stays a line of its own."""
    is_torn = file.exists() and not file.read_bytes().endswith(b"\n")
    with file.open("a", encoding="utf-8") as lines:
        lines.write("\n" * is_torn + json.dumps(line) + "\n")


def read_lines(job: Job) -> list[dict[str, Any]]:
    """Finished lines of a stream that were made with these settings; torn ones are left out."""
    lines = []
    for text in job.file.read_text(encoding="utf-8").splitlines() if job.file.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if line["settings"] in [job.settings(policy) for policy in job.policies]:
            lines.append(line)
    return lines


def remaining(job: Job) -> Job | None:
    """The job without the policies that are finished; None if nothing is left."""
    done = {line["settings"]["policy"] for line in read_lines(job)}
    left = tuple(policy for policy in job.policies if policy not in done)
    if not left:
        return None
    return replace(job, policies=left)
