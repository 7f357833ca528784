"""What tells one set of weights and its surroundings from another, for what outlives them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

#: Values hashed of each parameter; fine-tuning changes about all of them.
SAMPLED_VALUES = 4096


def weights_digest(model: torch.nn.Module) -> str:
    """Hash of names, shapes and an even sample of the values of all parameters.

    A sample, because hashing a 7B model whole takes longer than answering; a change of a few single
    values may go unseen.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
        flat = parameter.detach().flatten()
        step = max(1, flat.numel() // SAMPLED_VALUES)
        sample = flat[::step][:SAMPLED_VALUES].cpu().contiguous()
        digest.update(sample.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def json_digest(value: Any) -> str:
    """Hash of anything JSON can hold; other values count by their text."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
