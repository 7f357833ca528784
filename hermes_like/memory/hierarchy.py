"""The memory of one stream on the device: prefix, short-term and mid-term tokens, and their order.

It knows the adapter, a policy and the budget. It does not know sources, questions or sessions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hermes_like.config import MemoryConfig
from hermes_like.errors import BudgetError
from hermes_like.memory import provenance
from hermes_like.memory.attention import AttentionProbe
from hermes_like.memory.budget import Budget, plan_budget
from hermes_like.memory.cache import HierarchicalCache, LayerSlots
from hermes_like.memory.compaction import Compactor
from hermes_like.memory.devices import wait_for
from hermes_like.memory.positions import SCHEMES
from hermes_like.memory.provenance import FrameRecord, FrameTable
from hermes_like.memory.rotation import moved, rotate
from hermes_like.memory.scoring import embedding_mass, guidance_passes, true_mass
from hermes_like.models.base import ModelAdapter
from hermes_like.policies.base import Guidance, RetentionPolicy
from hermes_like.records import LayerStats


@dataclass(frozen=True, slots=True, eq=False)
class KVBlock:
    """Keys and values of consecutive tokens in one decoder layer, ready to be stored.

    Attributes:
        raw_keys: ``[kv_heads, tokens, head_dim]`` un-rotated keys, on the layer's device.
        values: ``[kv_heads, tokens, head_dim]``, there too.
        ids: int64 ``[tokens]`` provenance, on the device of all ids.
    """

    raw_keys: Tensor
    values: Tensor
    ids: Tensor


@dataclass(slots=True)
class MemoryClock:
    """Seconds spent per kind of work."""

    prefill_s: float = 0.0
    scoring_s: float = 0.0
    compaction_s: float = 0.0
    _devices: tuple[torch.device, ...] = ()

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the duration of a block to one of the counters; waits for the device."""
        start = time.perf_counter()
        try:
            yield
        finally:
            wait_for(self._devices)
            setattr(self, name, getattr(self, name) + time.perf_counter() - start)


class DeviceMemory:
    """Cache, policy and positions of one stream.

    Args:
        adapter: The base model.
        policy: Gives scores and the selection spec.
        config: Budgets and the position scheme.
        retrieved_tokens: Slots kept free for what comes back from other tiers.
        budget: Planned budget; None: derived from ``config.device_tokens``.

    Raises:
        BudgetError: ``device_tokens`` does not leave room for one frame.
    """

    def __init__(
        self,
        adapter: ModelAdapter,
        policy: RetentionPolicy,
        config: MemoryConfig,
        budget: Budget | None = None,
        *,
        retrieved_tokens: int = 0,
    ) -> None:
        self.adapter, self.policy, self.config = adapter, policy, config
        self.tokens_per_frame = adapter.dims.tokens_per_frame
        prefix = adapter.prefix_ids()
        self._guidance = self._guidance_ids() if policy.attention != "none" else None
        self.budget = budget or plan_budget(
            config,
            unlimited=policy.selection.unlimited,
            tokens_per_frame=self.tokens_per_frame,
            prefix_tokens=len(prefix),
            video_end_tokens=int(adapter.video_end().shape[0]),
            guidance_tokens=len(self._guidance["mixed"]) if self._guidance else 0,
            retrieved_tokens=retrieved_tokens,
        )
        self.cache = HierarchicalCache(adapter.dims, adapter.rotary, self.budget.device_tokens)
        self.scheme = SCHEMES[config.positions](
            config, adapter.dims.max_positions, adapter.frame_layout
        )
        self.compactor = Compactor(
            self.cache,
            policy,
            self.scheme,
            num_prefix=len(prefix),
            tokens_per_frame=self.tokens_per_frame,
            budget_tokens=self.budget.resident_tokens or 0,
            protected_frames=config.protected_frames,
        )
        self.frames = FrameTable()
        self.clock = MemoryClock(_devices=adapter.dims.devices)
        self.num_frames = 0
        self.num_compactions = 0
        self.first_short_frame = 0
        self._prefill_prefix(prefix)

    def _guidance_ids(self) -> dict[Guidance, list[int]]:
        local, overall = (self.adapter.encode_text(p) for p in self.adapter.guidance_prompts)
        separator = self.adapter.encode_text(self.adapter.guidance_separator)
        return {"local": local, "global": overall, "mixed": local + separator + overall}

    def _prefill_prefix(self, ids: Sequence[int]) -> None:
        if ids:
            device = self.adapter.dims.device
            self.extend(
                self.cache, self.adapter.embed_text(ids), provenance.prefix_ids(len(ids), device)
            )
            self.scheme.advance(len(ids))

    # -- writing ---------------------------------------------------------------------------------

    def extend(
        self,
        cache: HierarchicalCache,
        embeds: Tensor,
        ids: Tensor,
        *,
        probe: AttentionProbe | None = None,
        logits: bool = False,
    ) -> Tensor:
        """Run new tokens through the decoder, behind what ``cache`` holds.

        Args:
            cache: The stream's cache or a fork of it.
            embeds: ``[n, hidden]``.
            ids: int64 ``[n]`` provenance.
            probe: Reads attention during the pass.
            logits: Whether logits of the last token are wanted.

        Returns:
            ``[vocab]`` logits or an empty tensor.

        Raises:
            BudgetError: A cap would be passed, or the model's last position.
        """
        with self._step(cache, ids, probe):
            return self.adapter.forward(embeds, cache, logits=logits)

    @contextmanager
    def _step(
        self, cache: HierarchicalCache, ids: Tensor, probe: AttentionProbe | None = None
    ) -> Iterator[None]:
        """Open a step for new tokens behind what a cache holds."""
        held = [slots.positions for slots in cache.layers]
        positions = self.scheme.follow(held, [slots.ids for slots in cache.layers], ids)
        self._require_positions(positions)
        with cache.step(positions, ids, probe, actual=self.scheme.actual(positions)):
            yield

    def _require_positions(self, positions: Sequence[Tensor]) -> None:
        """A model runs past the positions it was trained for without complaint; we do not."""
        shared = {id(tensor): tensor for tensor in positions if tensor.numel()}
        end = max((int(tensor.max()) for tensor in shared.values()), default=-1) + 1
        if end > self.adapter.dims.max_positions:
            raise BudgetError(
                f"position {end - 1} lies past the model's last, "
                f"{self.adapter.dims.max_positions - 1}; expected a smaller memory.device_tokens, "
                "a larger memory.reindex_margin, or a policy that evicts"
            )

    def append_frames(
        self,
        vision_tokens: Tensor,
        records: Sequence[FrameRecord],
        *,
        cache: HierarchicalCache | None = None,
    ) -> None:
        """Prefill vision tokens of consecutive new frames.

        Args:
            vision_tokens: ``[frames, tokens_per_frame, channels]`` as the adapter gives them.
            records: One per frame.
            cache: A fork, to see frames without remembering them; None: the stream's cache.
        """
        count = vision_tokens.shape[0]
        device = self.adapter.dims.device
        ids = provenance.frame_ids(self.num_frames, count, self.tokens_per_frame, device)
        target = self.cache if cache is None else cache
        with self.clock.measure("prefill_s"):
            tokens = self.adapter.stamp(vision_tokens, [record.pts_s for record in records])
            self.extend(target, tokens.flatten(0, 1), ids)
        if cache is None:
            self._note_frames(records)

    def append_stored(
        self, blocks: Sequence[tuple[Tensor, Tensor]], records: Sequence[FrameRecord]
    ) -> None:
        """Append keys and values of the next frames that were computed before, without a forward.

        Args:
            blocks: Per layer ``[kv_heads, tokens, head_dim]`` un-rotated keys, and values, of all
                tokens of the frames.
            records: One per frame.

        Raises:
            BudgetError: A cap would be passed, or the model's last position.
        """
        count, device = len(records), self.adapter.dims.device
        ids = provenance.frame_ids(self.num_frames, count, self.tokens_per_frame, device)
        with self._step(self.cache, ids):
            for layer, (raw, values) in enumerate(blocks):
                there = self.adapter.dims.device_of(layer)
                self.cache.update(raw[None].to(there), values[None].to(there), layer)
        self._note_frames(records)

    def skip_to(self, frame: int) -> None:
        """Count frames that were seen but are not on the device, up to one, exclusive."""
        self.num_frames = max(self.num_frames, frame)

    def drop_frames(self, frames: Collection[int]) -> None:
        """Take every token of some frames out of all layers, and summaries that contain them."""
        gone = torch.tensor(sorted(frames), dtype=torch.int64, device=self.adapter.dims.device)
        parts = []
        for layer, slots in enumerate(self.cache.layers):
            known = self.compactor.summaries[layer]
            tainted = [
                key
                for key, summary in known.items()
                if any(summary.first_frame <= frame <= summary.last_frame for frame in frames)
            ]
            of = provenance.frames_of(slots.ids, self.tokens_per_frame)
            stays = ~torch.isin(of, gone) & ~torch.isin(slots.ids, slots.ids.new_tensor(tainted))
            self.compactor.summaries[layer] = {k: v for k, v in known.items() if k not in tainted}
            raw, values = slots.take(stays)
            parts.append((raw, values, slots.positions[..., stays], slots.ids[stays]))
        for slots, (raw, values, positions, ids) in zip(self.cache.layers, parts, strict=True):
            slots.rewrite(raw, values, positions, ids, self.cache.rotary)
            slots.wipe_tail()
        self.frames.prune(sorted(self.resident_frames()))

    def _note_frames(self, records: Sequence[FrameRecord]) -> None:
        for offset, record in enumerate(records):
            self.frames.add(self.num_frames + offset, record)
        self.num_frames += len(records)
        self.scheme.advance(max(int(s.positions.max()) for s in self.cache.layers) + 1)

    def compact(self) -> bool:
        """Bring every layer back under the budget; returns whether anything was done."""
        if self.budget.resident_tokens is None or not self.compactor.is_due:
            return False
        masses = self.masses()
        with self.clock.measure("compaction_s"):
            self.compactor.run(masses)
            self.first_short_frame = max(0, self.num_frames - self.config.protected_frames)
            self.frames.prune(sorted(self.resident_frames()))
        self.num_compactions += 1
        return True

    def masses(self) -> list[Tensor] | None:
        """Attention mass of the guidance prompts per layer, if the policy wants it."""
        if self._guidance is None:
            return None
        passes = guidance_passes(self._guidance, is_joint=self.policy.joint_guidance)
        measure = true_mass if self.policy.attention == "true" else embedding_mass
        starts = self.scheme.starts([slots.positions for slots in self.cache.layers])
        with self.clock.measure("scoring_s"):
            return measure(
                self.cache,
                self.adapter,
                passes,
                self.compactor.bands,
                starts,
                self.compactor.num_prefix,
            )

    def release(self) -> None:
        """Give all slots back; the memory is of no use afterwards."""
        for slots in self.cache.layers:
            slots.release()

    # -- reading ---------------------------------------------------------------------------------

    def resident_frames(self) -> set[int]:
        """Frames with at least one token in at least one layer."""
        found: set[int] = set()
        for slots in self.cache.layers:
            frames = provenance.frames_of(slots.ids, self.tokens_per_frame)
            found.update(torch.unique(frames[frames >= 0]).tolist())
        return found

    def block(self, layer: int, first_frame: int, num_frames: int) -> KVBlock:
        """Keys and values of consecutive frames that are whole in a layer, copied."""
        slots: LayerSlots = self.cache.layers[layer]
        start = first_frame * self.tokens_per_frame
        end = start + num_frames * self.tokens_per_frame
        chosen = (slots.ids >= start) & (slots.ids < end)
        raw, values = slots.take(chosen)
        return KVBlock(raw[0], values[0], slots.ids[chosen])

    def layer_stats(self) -> tuple[LayerStats, ...]:
        """What each layer holds."""
        return tuple(self._layer_stats(layer) for layer in range(self.adapter.dims.num_layers))

    def _layer_stats(self, layer: int) -> LayerStats:
        ids = self.cache.layers[layer].ids
        frames = provenance.frames_of(ids, self.tokens_per_frame)
        video = frames[frames >= 0]
        short = int((video >= self.first_short_frame).sum())
        oldest = int(video.min()) if video.shape[0] else None
        return LayerStats(
            layer_index=layer,
            band=self.compactor.bands[layer],
            prefix=int(provenance.is_prefix(ids).sum()),
            short=short,
            mid=int(video.shape[0]) - short,
            summary=int(provenance.is_summary(ids).sum()),
            num_frames=int(torch.unique(video).shape[0]),
            oldest_s=None if oldest is None else self.frames[oldest].pts_s,
        )

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot of one layer: raw key, rotated key and value, positions and id."""
        dims = self.adapter.dims
        numbers = 8 * (dims.position_axes + 1)
        return 3 * dims.num_kv_heads * dims.head_dim * dims.dtype.itemsize + numbers

    def expected_bytes(self) -> int:
        """Bytes of the buffers by arithmetic."""
        capacities: list[int] = [layer.capacity for layer in self.cache.layers]
        return sum(capacities) * self.slot_bytes

    def check(self) -> None:
        """Prove the invariants; for tests and debugging.

        Raises:
            AssertionError: One of them does not hold; the message names layer and invariant.
        """
        for stats, slots in zip(self.layer_stats(), self.cache.layers, strict=True):
            name = f"layer {stats.layer_index}"
            assert stats.slots == slots.length, f"{name}: levels do not add up to the slots"
            assert stats.prefix == self.compactor.num_prefix, f"{name}: the prefix was touched"
            ids = slots.ids
            assert torch.unique(ids).shape[0] == slots.length, f"{name}: a token is there twice"
            video = ids[ids >= 0]
            assert bool((video[1:] > video[:-1]).all()), f"{name}: video tokens out of order"
            known = set(self.compactor.summaries[stats.layer_index])
            assert set(ids[provenance.is_summary(ids)].tolist()) == known, (
                f"{name}: unknown summary"
            )
            again = rotate(
                slots.raw_keys, moved(self.adapter.rotary(slots.positions), slots.device)
            )
            assert torch.equal(again, slots.keys), (
                f"{name}: rotated key is not rotate(raw, position)"
            )
            cap = self.budget.device_tokens
            assert cap is None or slots.capacity <= cap, f"{name}: more slots than device_tokens"
