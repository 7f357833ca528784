"""What the machine allows at best: bytes and operations a model needs, against what was measured.

Decoding a token reads every weight of the decoder and the output matrix once; prefilling one costs
two operations per weight. Attention over the memory is left out of both: they are lower bounds.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from hermes_like.models import ModelAdapter

_BYTES = 256 << 20
_SIDE = 1024
_REPEATS = 5


def memory_bandwidth(device: torch.device) -> float:
    """Bytes per second when a large tensor is read once: the best of a few tries."""
    data = torch.ones(_BYTES // 4, device=device)
    return _BYTES / _best_s(lambda: data.sum(), device)


def matmul_speed(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a square matrix product: the best of a few tries."""
    a = torch.randn(_SIDE, _SIDE, device=device).to(dtype)
    return 2 * _SIDE**3 / _best_s(lambda: a @ a, device)


def _best_s(work: Any, device: torch.device) -> float:
    times = []
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def ceilings(model: ModelAdapter) -> dict[str, float]:
    """Lower bounds of TPOT and of the prefill of one frame, and what they were made of."""
    inner: Any = model
    layers = sum(p.numel() for p in inner._decoder.layers.parameters())
    output = inner._model.lm_head.weight.numel()
    dims = model.dims
    bandwidth = memory_bandwidth(dims.device)
    speed = matmul_speed(dims.device, dims.dtype)
    return {
        "decoder_weights": layers,
        "weight_bytes_per_token": (layers + output) * dims.dtype.itemsize,
        "memory_gb_per_s": round(bandwidth / 1e9, 2),
        "matmul_gflop_per_s": round(speed / 1e9, 1),
        "tpot_floor_s": (layers + output) * dims.dtype.itemsize / bandwidth,
        "prefill_floor_s_per_frame": 2 * layers * dims.tokens_per_frame / speed,
        "kv_bytes_per_token": dims.kv_bytes_per_token,
        "cache_bytes_per_slot": dims.num_layers
        * (3 * dims.num_kv_heads * dims.head_dim * dims.dtype.itemsize + 2 * 8),
    }
