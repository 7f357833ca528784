"""Devices that are not there, for tests: a CPU tensor carries the name of the device it plays on.

Arithmetic is real and happens on the CPU. What a machine with such devices would refuse is refused
here too: tensors of two devices in one operation, 64-bit floats on ``mps``, numpy of what is not on
the CPU, pinned memory without CUDA. A tensor without a name is on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")
#: Operations that may take a tensor of another device.
CROSSING = {Tensor.to, Tensor.copy_, Tensor.cpu, torch._has_compatible_shallow_copy_type}
_GET_DEVICE = Tensor.device.__get__  # type: ignore[attr-defined]
_SET_DATA = Tensor.data.__set__  # type: ignore[attr-defined]


class PretendedDevices(TorchFunctionMode):
    """While entered, devices of the given names exist.

    Args:
        names: As in ``cuda:0``.

    Attributes:
        moves: ``(from, to)`` of every tensor that was copied to another device.
    """

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.devices = {torch.device(name) for name in names}
        self.moves: list[tuple[torch.device, torch.device]] = []

    def __enter__(self) -> PretendedDevices:
        """Devices exist from here on."""
        self._made = nn.Parameter.__new__
        made = self._made

        def marked(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
            parameter = made(cls, data, requires_grad)
            if data is not None and place_of(data) != CPU:
                parameter.pretended = place_of(data)
            return parameter

        # A parameter made of a tensor is made out of sight of this mode.
        nn.Parameter.__new__ = marked  # type: ignore[method-assign]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """They are gone."""
        super().__exit__(*error)
        nn.Parameter.__new__ = self._made  # type: ignore[method-assign]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one call of torch."""
        kwargs = dict(kwargs or {})
        if func == _GET_DEVICE:
            return place_of(args[0])
        if func == _SET_DATA:
            func(*args)
            args[0].pretended = place_of(args[1])
            return None
        held = list(_tensors((args, kwargs)))
        if func is Tensor.numpy and place_of(held[0]) != CPU:
            raise TypeError(f"numpy: expected a tensor on the CPU, got {place_of(held[0])}")
        target = self._target(func, args, kwargs)
        if func is Tensor.to and target is not None and target.type != "meta":
            args = tuple(CPU if isinstance(a, torch.device | str) else a for a in args)
        if func not in CROSSING:
            _require_one_place(func, args, held)
        source = next((place_of(t) for t in held if place_of(t) != CPU), CPU)
        if target is None:
            target = CPU if func in (Tensor.cpu, Tensor.numpy) else source
            if func is Tensor.to:
                target = place_of(held[-1])
            elif func is Tensor.copy_:
                target = place_of(args[0])
        if func in (Tensor.to, Tensor.cpu) and place_of(held[0]) != target:
            self.moves.append((place_of(held[0]), target))
        result = func(*args, **kwargs)
        if func in (Tensor.to, Tensor.cpu) and result is held[0] and place_of(result) != target:
            result = result.clone()
        for tensor in _tensors(result):
            _require_possible(tensor, target)
            if target.type != "meta":
                tensor.pretended = target
        return result

    def _target(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """The device that a call names, taken out of its arguments; None: it names none."""
        named = kwargs.get("device")
        if func is Tensor.to:
            found = [a for a in args[1:] if isinstance(a, torch.device | str)]
            named = found[0] if found else named
        if named is None:
            return None
        named = torch.device(named)
        if named.type == "cuda" and named.index is None:
            named = torch.device(named.type, 0)
        if named.type not in ("cpu", "meta") and named not in self.devices:
            raise RuntimeError(f"{named} is not there, only {sorted(map(str, self.devices))}")
        if "device" in kwargs:
            kwargs["device"] = CPU if named.type != "meta" else named
        if kwargs.pop("pin_memory", False) and not any(d.type == "cuda" for d in self.devices):
            raise RuntimeError("pinned memory: expected CUDA")
        if func is Tensor.to:
            kwargs.pop("non_blocking", None)
        return named


def place_of(tensor: Tensor) -> torch.device:
    """Where a tensor pretends to be."""
    with torch._C.DisableTorchFunction():
        return getattr(tensor, "pretended", tensor.device)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _require_one_place(func: Callable[..., Any], args: Any, held: list[Tensor]) -> None:
    """Numbers may come from the CPU; so may indices, and so may what a slice is set to."""
    if func is Tensor.__getitem__:
        held = [args[0], *(t for t in _tensors(args[1]) if place_of(t) != CPU)]
    elif func is Tensor.__setitem__ and not any(True for _ in _tensors(args[1])):
        return
    with torch._C.DisableTorchFunction():
        places = {place_of(t) for t in held if t.dim() or place_of(t) != CPU}
    if len(places) > 1:
        name = getattr(func, "__name__", func)
        raise RuntimeError(f"{name}: tensors on {' and '.join(sorted(map(str, places)))}")


def _require_possible(tensor: Tensor, device: torch.device) -> None:
    with torch._C.DisableTorchFunction():
        if device.type == "mps" and tensor.dtype in (torch.float64, torch.complex128):
            raise TypeError(f"mps has no {tensor.dtype}")
