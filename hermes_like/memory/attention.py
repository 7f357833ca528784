"""The attention of the decoder over a hierarchical cache, and the probes that read it.

Registered with transformers' attention interface *without* a mask function: then no mask is built
there, and layers may hold different numbers of tokens. Every cached token is visible to every new
one; new tokens are causal among themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from hermes_like.memory.kernels import KERNELS, Kernel, sdpa
from hermes_like.memory.rotation import rotate

if TYPE_CHECKING:
    from hermes_like.memory.cache import Step

ATTENTION_NAME = "hermes_like"


class AttentionProbe:
    """Collects the attention of a few query rows on all keys, never the whole matrix.

    Args:
        rows: Query rows to read, as indices into the new tokens; None: the last one only.
        heads: Query heads by layer; None: all heads of all layers.

    Attributes:
        mass: Layer to ``[rows, keys]`` float32, the mean over heads of softmax probabilities.
        home: Where all results are put, whichever device a layer runs on; an opened step sets it.
    """

    def __init__(
        self, rows: Tensor | None = None, heads: dict[int, tuple[int, ...]] | None = None
    ) -> None:
        self.rows = rows
        self.heads = heads
        self.mass: dict[int, Tensor] = {}
        self.home: torch.device | None = None

    def add_raw(self, layer_index: int, query: Tensor) -> None:
        """Read the queries of one layer before rotation, ``[1, heads, nq, d]``; unused here."""

    def add(self, layer_index: int, query: Tensor, key: Tensor, scaling: float) -> None:
        """Read one layer: rotated ``query [1, heads, nq, d]`` and ``key [1, kv_heads, nk, d]``."""
        if self.heads is not None and layer_index not in self.heads:
            return
        num_queries, num_keys = query.shape[2], key.shape[2]
        rows = self.rows
        if rows is None:
            rows = torch.tensor([num_queries - 1], device=query.device)
        rows = rows.to(query.device)
        wanted = None if self.heads is None else list(self.heads[layer_index])
        groups = query.shape[1] // key.shape[1]
        q = query[0][:, rows] if wanted is None else query[0][wanted][:, rows]
        kv_heads = [h // groups for h in (wanted if wanted is not None else range(query.shape[1]))]
        k = key[0][kv_heads]
        logits = (q.float() @ k.float().transpose(1, 2)) * scaling
        visible = (
            torch.arange(num_keys, device=query.device) <= (rows + num_keys - num_queries)[:, None]
        )
        logits = logits.masked_fill(~visible, float("-inf"))
        self.mass[layer_index] = logits.softmax(-1).mean(0).to(self.home)


class PassEnded(Exception):
    """A probe has read all that the pass is made for; whoever began the pass expects this."""


class QueryProbe(AttentionProbe):
    """Collects the un-rotated queries of all new tokens, and no attention.

    Args:
        layers: Decoder layers to read.
        ends_pass: Whether to raise :class:`PassEnded` from the last of these layers, so that those
            behind it are never computed.

    Attributes:
        queries: Layer to ``[heads, new tokens, head_dim]``.
    """

    def __init__(self, layers: Collection[int], *, ends_pass: bool = False) -> None:
        super().__init__(heads={})
        self.layers = frozenset(layers)
        self.ends_pass = ends_pass
        self.queries: dict[int, Tensor] = {}

    def add_raw(self, layer_index: int, query: Tensor) -> None:
        """Keep the queries of a chosen layer."""
        if layer_index in self.layers:
            self.queries[layer_index] = query[0].to(self.home)
            if self.ends_pass and len(self.queries) == len(self.layers):
                raise PassEnded


def stream_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    step: Step | None = None,
    kernel: Kernel = sdpa,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention function in the shape transformers calls.

    Args:
        module: The attention module; its ``layer_idx`` says which layer this is.
        query: ``[1, heads, nq, head_dim]``, un-rotated when ``step`` is given.
        key: ``[rows, kv_heads, nk, head_dim]`` rotated; one row, except in ``rows.py``.
        value: ``[rows, kv_heads, nk, head_dim]``.
        attention_mask: Not used; causality follows from the shapes.
        scaling: Factor on the logits.
        dropout: Not used at inference.
        step: The cache's open step; None: plain causal attention of an ordinary forward.
        kernel: Computes it.

    Returns:
        ``[1, nq, heads, head_dim]`` and None.
    """
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    if step is not None:
        layer_index = int(module.layer_idx)  # type: ignore[arg-type]
        if step.probe is not None:
            step.probe.add_raw(layer_index, query)
        if key.shape[0] > 1:
            # Rows side by side (``rows.py``): their new tokens come one row after the other.
            heads, channels = query.shape[1], query.shape[3]
            query = query.reshape(heads, key.shape[0], -1, channels).transpose(0, 1)
        query = rotate(query, step.rotations[layer_index])
        if step.probe is not None:
            step.probe.add(layer_index, query, key, scale)
    out = kernel(query, key, value, scale)
    return out.transpose(1, 2).flatten(0, 1)[None].contiguous(), None


#: Name in a configuration to the name under which transformers finds it. transformers treats every
#: name with "flash" in it as its own kind, so ours says what the kernels do instead.
ATTENTION_NAMES = {
    "sdpa": ATTENTION_NAME,
    "flash": f"{ATTENTION_NAME}_lower_right",
    "eager": f"{ATTENTION_NAME}_eager",
}
for _name, _registered in ATTENTION_NAMES.items():
    AttentionInterface.register(_registered, partial(stream_attention, kernel=KERNELS[_name]))
