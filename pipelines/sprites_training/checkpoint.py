"""Nested training state in one safetensors file: tensors as tensors, the rest as JSON metadata.

No pickle: a checkpoint from elsewhere can hold wrong numbers, never code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

_TENSOR, _ITEMS, _TUPLE = "__tensor__", "__items__", "__tuple__"


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write nested dictionaries, lists and tuples of tensors and plain values, atomically."""
    tensors: dict[str, Tensor] = {}
    shape = _flatten(state, tensors)
    partial = path.with_suffix(".tmp")
    save_file(tensors, partial, metadata={"state": json.dumps(shape)})
    partial.replace(path)


def load_state(path: Path) -> dict[str, Any]:
    """Read what :func:`save_state` wrote.

    Raises:
        ValueError: The file holds tensors but no state.
    """
    with safe_open(path, framework="pt") as file:
        text = (file.metadata() or {}).get("state")
        if text is None:
            raise ValueError(f"{path}: expected a training state in the metadata, got none")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    state: dict[str, Any] = _rebuild(json.loads(text), tensors)
    return state


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().clone().contiguous()
        return {_TENSOR: name}
    if isinstance(value, dict):
        return {_ITEMS: [[key, _flatten(item, tensors)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [_flatten(item, tensors) for item in value]}
    if isinstance(value, list):
        return [_flatten(item, tensors) for item in value]
    return value


def _rebuild(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_rebuild(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _TUPLE in value:
        return tuple(_rebuild(item, tensors) for item in value[_TUPLE])
    return {key: _rebuild(item, tensors) for key, item in value[_ITEMS]}
