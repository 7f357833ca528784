"""Ways to compute attention of new tokens that come behind cached ones, all with the same result.

Every cached token is visible to every new one; new tokens are causal among themselves, so the
causal triangle is aligned at the lower right. Layers of different length need no padding: each
calls by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

#: ``query [rows, heads, nq, d]``, ``key`` and ``value [rows, kv_heads, nk, d]``, factor on the
#: logits; returns ``[rows, heads, nq, d]``.
Kernel = Callable[[Tensor, Tensor, Tensor, float], Tensor]
#: Largest head that the flash kernels take.
FLASH_HEAD_DIM = 256


def sdpa(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Torch's own choice of a kernel; a mask is built where new tokens follow cached ones."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    mask = None
    if 1 < num_queries < num_keys:
        mask = _lower_right(num_queries, num_keys, query.device)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=num_queries == num_keys and num_queries > 1,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def flash(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The flash kernels that come with torch: no mask, and KV heads are not repeated.

    Where they cannot run (a CPU, float32), torch builds the mask and the result is the same.
    """
    num_queries, num_keys = query.shape[2], key.shape[2]
    if not 1 < num_queries < num_keys:
        return sdpa(query, key, value, scale)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=causal_lower_right(num_queries, num_keys),
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def eager(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The definition, with a softmax in float32: slow, holds the whole matrix; for comparison."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    groups = query.shape[1] // key.shape[1]
    keys, values = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    logits = query.float() @ keys.float().transpose(2, 3) * scale
    visible = _lower_right(num_queries, num_keys, query.device)
    weights = logits.masked_fill(~visible, float("-inf")).softmax(-1)
    return (weights.to(value.dtype) @ values).to(query.dtype)


KERNELS: dict[str, Kernel] = {"sdpa": sdpa, "flash": flash, "eager": eager}


def why_no_flash(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """The reason why flash kernels cannot run, or None."""
    if device.type != "cuda":
        return f"they run on CUDA devices, the model is on {device.type!r}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"they take float16 or bfloat16, the model has {str(dtype).removeprefix('torch.')}"
    if head_dim > FLASH_HEAD_DIM:
        return f"they take at most {FLASH_HEAD_DIM} channels a head, the model has {head_dim}"
    if not torch.backends.cuda.is_flash_attention_available():
        return "this build of torch has none"
    return None


@lru_cache(maxsize=2)  # the layers of one pass share a mask; older ones would only hold memory
def _lower_right(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return ones.tril(num_keys - num_queries)
