"""A model over several devices: which decoder layers go where, and how hidden states get there.

Layers are split into ranges. Everything else (vision tower, embeddings, the last projection) lives
with the first layer. It knows modules and bytes; where caches lie follows from where layers lie.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hermes_like.config import ModelConfig
from hermes_like.errors import ConfigError, ModelError

#: Share of a device's free memory that weights may take under ``auto``; caches need the rest.
WEIGHTS_SHARE = 0.8
_RANGE = re.compile(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*=\s*([a-z]+(?::\d+)?)\s*")
_OFFLOAD = (
    "layers cannot be offloaded to {}: every frame passes through all of them, and each keeps its "
    "keys and values where it runs; expected accelerators, a smaller number type or a smaller model"
)


def place(model: Any, config: ModelConfig, *, is_empty: bool = False) -> Any:
    """Bring a model to the devices that a configuration names.

    Args:
        model: The library's model, on any device.
        config: Its ``device`` and ``device_map``.
        is_empty: The model has shapes only (device ``meta``) and gets memory without values.

    Returns:
        The same model. Hidden states follow its layers from device to device.

    Raises:
        ConfigError: The map cannot be read, or names layers or devices that are not there.
        ModelError: The weights do not fit.
    """
    devices = layer_devices(model, config)
    home = devices[0]
    layers = list(model.model.language_model.layers)
    where = {id(part): device for layer, device in zip(layers, devices, strict=True)
             for part in layer.modules()}  # fmt: skip
    # The last norm works where the last layer did: only rows that are read travel from there.
    where[id(model.model.language_model.norm)] = devices[-1]
    for part in model.modules():
        _move_own(part, where.get(id(part), home), is_empty=is_empty)
    if len(set(devices)) > 1:
        couriers = {device: _Courier(device) for device in devices}
        for layer, device in zip(layers, devices, strict=True):
            layer.register_forward_pre_hook(couriers[device], with_kwargs=True)
    return model


def layer_devices(model: Any, config: ModelConfig) -> list[torch.device]:
    """The device of each decoder layer, by ``model.device_map``.

    Raises:
        ConfigError: See :func:`place`.
        ModelError: See :func:`place`.
    """
    if config.device not in ("auto", "cpu", "cuda", "mps", "xpu"):
        raise ConfigError(
            "model.device: expected auto or a kind of device such as cuda beside "
            f"model.device_map, got {config.device!r}"
        )
    sizes = [_num_bytes(layer) for layer in model.model.language_model.layers]
    rest = _num_bytes(model) - sum(sizes)
    if config.device_map not in ("auto", "balanced"):
        assert config.device_map is not None
        return read_map(config.device_map, len(sizes))
    found = _accelerators(config.device)
    if config.device_map == "balanced" or len(found) == 1:
        return _named(found, balanced(sizes, rest, len(found)))
    free = [torch.accelerator.get_memory_info(device)[0] for device in found]
    for count in range(1, len(found) + 1):
        chosen = balanced(sizes, rest, count)
        loads = [rest, *[0] * (count - 1)]
        for number, size in zip(chosen, sizes, strict=True):
            loads[number] += size
        if all(load <= WEIGHTS_SHARE * room for load, room in zip(loads, free, strict=False)):
            return _named(found, chosen)
    raise ModelError(
        f"model.device_map: {(rest + sum(sizes)) / 2**30:.1f} GiB of weights do not fit into "
        f"{WEIGHTS_SHARE:.0%} of what is free on {len(found)} devices "
        f"({sum(free) / 2**30:.1f} GiB); expected more devices or a smaller model"
    )


def balanced(sizes: Sequence[int], rest: int, count: int) -> list[int]:
    """Number of the device of each layer, so that devices carry about equally many bytes.

    Args:
        sizes: Bytes of each layer.
        rest: Bytes that the first device carries beside its layers.
        count: Devices.

    Returns:
        Ascending numbers from 0 on, without gaps; the first layer is on device 0.
    """
    share = (rest + sum(sizes)) / count
    chosen, before = [0], rest + sizes[0]
    for size in sizes[1:]:
        # By the middle of the layer, and never more than one device further than the last layer.
        middle = (before + size / 2) / share
        chosen.append(min(int(middle), chosen[-1] + 1, count - 1))
        before += size
    return chosen


def read_map(text: str, num_layers: int) -> list[torch.device]:
    """The device of each layer by a map such as ``0-13=cuda:0,14-27=cuda:1``.

    Raises:
        ConfigError: Unreadable, a layer twice or not at all, one that the model does not have, a
            device that does not exist here, or an offload.
    """
    name = "model.device_map"
    devices: dict[int, torch.device] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ConfigError(
                f"{name}: expected auto, balanced or ranges of layers such as "
                f"'0-13=cuda:0,14-27=cuda:1', got {part.strip()!r}"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= num_layers or first > last:
            raise ConfigError(
                f"{name}: expected layers from 0 to {num_layers - 1}, got {match[0].strip()!r}"
            )
        twice = sorted(set(range(first, last + 1)) & set(devices))
        if twice:
            raise ConfigError(f"{name}: layer {twice[0]} is named twice")
        devices |= dict.fromkeys(range(first, last + 1), _existing(match[3]))
    lacking = sorted(set(range(num_layers)) - set(devices))
    if lacking:
        raise ConfigError(f"{name}: expected a device for every layer, got none for {lacking[0]}")
    kinds = sorted({device.type for device in devices.values()})
    if len(kinds) > 1:
        raise ConfigError(
            f"{name}: " + (_OFFLOAD.format("the CPU") if "cpu" in kinds else
            f"expected devices of one kind, got {' and '.join(kinds)}")
        )  # fmt: skip
    return [devices[layer] for layer in range(num_layers)]


def _existing(name: str) -> torch.device:
    if name in ("disk", "meta"):
        raise ConfigError(f"model.device_map: {_OFFLOAD.format(name)}")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"model.device_map: {name!r} cannot be used here: {reason}") from error


def _accelerators(device: str) -> list[torch.device]:
    """All devices of the kind that is there; the CPU counts as one."""
    if device == "auto":
        current = torch.accelerator.current_accelerator(check_available=True)
        kind = "cpu" if current is None else current.type
    else:
        kind = device
    if kind == "cpu" or torch.accelerator.device_count() < 2:
        return [_existing(kind)]
    return [_existing(f"{kind}:{number}") for number in range(torch.accelerator.device_count())]


def _named(devices: Sequence[torch.device], numbers: Sequence[int]) -> list[torch.device]:
    return [devices[number] for number in numbers]


def _num_bytes(part: nn.Module) -> int:
    tensors = [*part.parameters(), *part.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _move_own(part: nn.Module, device: torch.device, *, is_empty: bool) -> None:
    """Move what a module holds itself; modules inside it are moved on their own."""
    if is_empty:
        part.to_empty(device=device, recurse=False)
        return
    for parameter in part.parameters(recurse=False):
        parameter.data = parameter.data.to(device)
    for name, buffer in list(part.named_buffers(recurse=False)):
        setattr(part, name, buffer.to(device))


class _Courier:
    """A pre-hook of a decoder layer that brings its inputs to the layer's device.

    What comes again unchanged from layer to layer, as cosine and sine do, is copied once.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last: dict[str, tuple[Any, Any]] = {}

    def __call__(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs of the layer, on its device."""
        moved = tuple(_at(value, self._device) for value in args)
        return moved, {name: self._shared(name, value) for name, value in kwargs.items()}

    def _shared(self, name: str, value: Any) -> Any:
        if not any(True for _ in _tensors_of(value)):
            return value
        source, there = self._last.get(name, (None, None))
        if source is not value:
            there = _at(value, self._device)
            self._last[name] = (value, there)
        return there


def _tensors_of(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        yield from (part for part in value if isinstance(part, Tensor))


def _at(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(_at(part, device) for part in value)
    return value
