"""Waiting for accelerators, whatever their make."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def wait_for(devices: Iterable[torch.device]) -> None:
    """Return when all work that was given to some devices is done; a CPU is never behind."""
    for device in devices:
        if device.type not in ("cpu", "meta"):
            torch.accelerator.synchronize(device)
