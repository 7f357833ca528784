"""What the model attends to now: one slot array per decoder layer, each of its own length.

The un-rotated key is the master; the rotated key is a working copy derived from it once, at the
position the slot has now. The model itself is run at position 0, where rotary embedding is the
identity, so that what arrives here is un-rotated; queries are rotated in ``attention.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from hermes_like.errors import BudgetError
from hermes_like.memory.attention import AttentionProbe
from hermes_like.memory.rotation import Rotation, moved, rotate
from hermes_like.models.base import ModelDims

RotaryFunction = Callable[[Tensor], Rotation]


@dataclass(slots=True)
class Step:
    """One forward pass over new tokens.

    Attributes:
        positions: Per layer, int64 ``[n]`` positions of the new tokens, or ``[3, n]``.
        ids: int64 ``[n]`` provenance of the new tokens.
        rotations: Per layer, cosine and sine by which queries are rotated.
        probe: Reads attention while the pass runs.
        key_rotations: Per layer, cosine and sine of the positions; those of the queries, except in
            the released code's scheme for three axes.
        turns: Per layer, by what an un-rotated key is turned before it is stored; None: not at all,
            as everywhere but in that scheme.
    """

    positions: list[Tensor]
    ids: Tensor
    rotations: list[Rotation]
    probe: AttentionProbe | None
    key_rotations: list[Rotation]
    turns: list[Rotation | None]


class LayerSlots(CacheLayerMixin):  # type: ignore[misc]
    """The slots of one decoder layer, in cache order.

    Keys and values lie where the layer runs; positions and ids, by which layers are compared, lie
    on ``dims.device`` for all layers.

    Buffers are ``[1, kv_heads, capacity, head_dim]``; occupied slots are ``[0, length)``. Occupied
    slots are only ever changed by :meth:`keep`. A fork shares the buffers and may write behind the
    occupied slots (it holds the *tail*) until it is released.
    """

    def __init__(self, dims: ModelDims, capacity: int | None, layer_index: int = 0) -> None:
        self.is_initialized = True
        self.device = dims.device_of(layer_index)
        self.limit = capacity
        self.length = 0
        self.owns_tail = True
        self._shape = (dims.num_kv_heads, dims.head_dim)
        self._dtype, self._home, self._axes = dims.dtype, dims.device, dims.position_axes
        self._allocate(capacity or 0)

    def _allocate(self, capacity: int) -> None:
        heads, channels = self._shape
        shape = (1, heads, capacity, channels)
        # Inference tensors could not be written to when compaction runs outside a forward pass.
        with torch.inference_mode(False):
            self._raw = torch.empty(shape, dtype=self._dtype, device=self.device)
            self._keys = torch.empty(shape, dtype=self._dtype, device=self.device)
            self._values = torch.empty(shape, dtype=self._dtype, device=self.device)
            axes = (capacity,) if self._axes == 1 else (self._axes, capacity)
            self._positions = torch.empty(axes, dtype=torch.int64, device=self._home)
            self._ids = torch.empty(capacity, dtype=torch.int64, device=self._home)

    @property
    def _buffers(self) -> tuple[Tensor, ...]:
        return self._raw, self._keys, self._values, self._positions, self._ids

    @property
    def capacity(self) -> int:
        """Slots allocated."""
        return int(self._ids.shape[0])

    @property
    def raw_keys(self) -> Tensor:
        """Un-rotated keys, ``[1, kv_heads, length, head_dim]``."""
        return self._raw[:, :, : self.length]

    @property
    def keys(self) -> Tensor:
        """Keys rotated to their positions, ``[1, kv_heads, length, head_dim]``."""
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        """Values, ``[1, kv_heads, length, head_dim]``."""
        return self._values[:, :, : self.length]

    @property
    def positions(self) -> Tensor:
        """Rotary position of each slot, int64 ``[length]``, or ``[3, length]`` with three axes."""
        return self._positions[..., : self.length]

    @property
    def ids(self) -> Tensor:
        """Provenance of each slot, int64 ``[length]``."""
        return self._ids[: self.length]

    @property
    def num_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(t.numel() * t.element_size() for t in self._buffers)

    def take(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Un-rotated keys and values of some slots, ``[1, kv_heads, chosen, head_dim]``, copied.

        Args:
            chosen: Indices or a mask of occupied slots, on any device.
        """
        chosen = chosen.to(self.device)
        return self.raw_keys[:, :, chosen], self.values[:, :, chosen]

    def append(self, raw: Tensor, values: Tensor, step: Step, layer_index: int) -> None:
        """Add new tokens ``[1, kv_heads, n, head_dim]`` behind the occupied slots."""
        start, end = self.length, self.length + raw.shape[2]
        self._make_room(end)
        turn = step.turns[layer_index]
        if turn is not None:
            raw = rotate(raw, turn)
        self._raw[:, :, start:end] = raw
        self._keys[:, :, start:end] = rotate(raw, step.key_rotations[layer_index])
        self._values[:, :, start:end] = values
        self._positions[..., start:end] = step.positions[layer_index]
        self._ids[start:end] = step.ids
        self.length = end

    def _make_room(self, slots: int) -> None:
        if self.limit is not None and slots > self.limit:
            raise BudgetError(
                f"device_tokens: a layer would hold {slots} slots, the cap is {self.limit}"
            )
        if self.owns_tail and slots <= self.capacity:
            return
        old, length = self._buffers, self.length
        self._allocate(self.limit or max(slots, self.capacity * 3 // 2, 256))
        for new, before in zip(self._buffers, old, strict=True):
            if new.dim() == 4:
                new[:, :, :length] = before[:, :, :length]
            else:
                new[..., :length] = before[..., :length]
        self.owns_tail = True

    def rewrite(
        self, raw: Tensor, values: Tensor, positions: Tensor, ids: Tensor, rotary: RotaryFunction
    ) -> None:
        """Replace all occupied slots; keys are rotated once from the un-rotated ones."""
        keys = rotate(raw, moved(rotary(positions), self.device))
        self.length = 0
        if not self.owns_tail:
            self._allocate(self.limit or max(int(raw.shape[2]), 256))
            self.owns_tail = True
        self._make_room(int(raw.shape[2]))
        self.length = int(raw.shape[2])
        for target, source in zip(self._buffers, (raw, keys, values, positions, ids), strict=True):
            if target.dim() == 4:
                target[:, :, : self.length] = source
            else:
                target[..., : self.length] = source

    def wipe_tail(self) -> None:
        """Overwrite what lies behind the occupied slots; for erasing."""
        for buffer in self._buffers:
            tail = buffer[:, :, self.length :] if buffer.dim() == 4 else buffer[..., self.length :]
            tail.zero_()

    def release(self) -> None:
        """Drop all slots and their buffers."""
        self.length = 0
        self._allocate(0)

    def detach(self) -> None:
        """Let go of shared buffers: the next :meth:`rewrite` takes new ones."""
        self.owns_tail = False

    def fork(self) -> LayerSlots:
        """A layer that shares the occupied slots and takes over the tail."""
        twin = object.__new__(LayerSlots)
        twin.__dict__.update(self.__dict__)
        self.owns_tail = False
        return twin

    # -- what transformers asks of a cache layer -----------------------------------------------

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Buffers exist from the start."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Not used: the cache calls :meth:`append` with its open step."""
        raise BudgetError("LayerSlots.update: append through HierarchicalCache.update")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of keys; no mask is built from them."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Occupied slots."""
        return self.length

    def get_max_length(self) -> int:
        """Cap of slots, -1 when there is none."""
        return self.limit if self.limit is not None else -1


class HierarchicalCache(Cache):  # type: ignore[misc]
    """All layers, and the step that is open while a forward pass runs.

    Args:
        dims: Shapes of the model.
        rotary: Positions to cosine and sine.
        capacity: ``device_tokens``, the most slots of any layer; None: no cap.
    """

    def __init__(self, dims: ModelDims, rotary: RotaryFunction, capacity: int | None) -> None:
        layers = range(dims.num_layers)
        super().__init__(layers=[LayerSlots(dims, capacity, layer) for layer in layers])
        self.dims = dims
        self.rotary = rotary
        self.current_step: Step | None = None
        self.peak_slots = 0
        self._parent: HierarchicalCache | None = None

    @property
    def lengths(self) -> list[int]:
        """Occupied slots per layer."""
        return [layer.length for layer in self.layers]

    @property
    def num_bytes(self) -> int:
        """Bytes of all layers."""
        return sum(layer.num_bytes for layer in self.layers)

    @contextmanager
    def step(
        self,
        positions: Sequence[Tensor],
        ids: Tensor,
        probe: AttentionProbe | None = None,
        *,
        actual: Tensor | None = None,
    ) -> Iterator[Step]:
        """Open a step: what the next forward pass appends, and where.

        Args:
            positions: Per layer int64 ``[n]`` or ``[3, n]``; the same object may be repeated.
            ids: int64 ``[n]`` provenance.
            probe: Reads attention during the pass.
            actual: The positions by which queries and keys of all layers are really rotated, where
                they differ from the recorded ones; for ``positions.Released`` only.
        """
        rotations = self._rotations(positions)
        step = Step(list(positions), ids, rotations, probe, rotations, [None] * len(rotations))
        if actual is not None:
            step.rotations = self._rotations([actual] * len(positions))
            step.turns = [
                None
                if torch.equal(actual, recorded)
                else moved(self.rotary(actual - recorded), self.dims.device_of(layer))
                for layer, recorded in enumerate(positions)
            ]
        if probe is not None:
            probe.home = ids.device
        self.current_step = step
        try:
            yield step
        finally:
            self.current_step = None
            self.note_peak()

    def _rotations(self, positions: Sequence[Tensor]) -> list[Rotation]:
        """Cosine and sine per layer, made once per tensor and copied once per device."""
        made: dict[int, Rotation] = {}
        there: dict[tuple[int, torch.device], Rotation] = {}
        result = []
        for layer, tensor in enumerate(positions):
            name, device = id(tensor), self.dims.device_of(layer)
            if name not in made:
                made[name] = self.rotary(tensor)
            if (name, device) not in there:
                there[name, device] = moved(made[name], device)
            result.append(there[name, device])
        return result

    def note_peak(self) -> None:
        """Record the most slots seen, also in the cache this one was forked from."""
        self.peak_slots = max(self.peak_slots, *self.lengths)
        if self._parent is not None:
            self._parent.peak_slots = max(self._parent.peak_slots, self.peak_slots)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append the new tokens of one layer and return all its keys and values.

        Args:
            key_states: ``[1, kv_heads, n, head_dim]`` un-rotated.
            value_states: ``[1, kv_heads, n, head_dim]``.
            layer_idx: Decoder layer.
        """
        if self.current_step is None:
            raise RuntimeError("HierarchicalCache.update: expected an open step, got none")
        layer: LayerSlots = self.layers[layer_idx]
        layer.append(key_states, value_states, self.current_step, layer_idx)
        return layer.keys, layer.values

    @contextmanager
    def fork(self) -> Iterator[HierarchicalCache]:
        """A cache that may grow and be thrown away; this one does not change.

        O(1): occupied slots are shared, new ones are written behind them. If this cache grows while
        the fork lives, it moves to buffers of its own first.
        """
        twin: HierarchicalCache = object.__new__(HierarchicalCache)
        twin.__dict__.update(self.__dict__)
        lent = [layer.owns_tail for layer in self.layers]
        buffers = [layer._raw for layer in self.layers]
        twin.layers = [layer.fork() for layer in self.layers]
        twin._parent = self
        try:
            yield twin
        finally:
            for layer, owned, raw in zip(self.layers, lent, buffers, strict=True):
                if layer._raw is raw:
                    layer.owns_tail = owned
