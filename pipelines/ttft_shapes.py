"""Bytes per hour of stream for real shapes: by arithmetic, by encoding noise, and by a session.

Sizes do not depend on what the keys and values say, so noise of the true shape tells them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hermes_like.codec import CODECS, KeyValues
from hermes_like.models import load_model
from hermes_like.models.random_shapes import SHAPES
from hermes_like.presets import load_config
from hermes_like.session import StreamSession
from pipelines.replay import Replay, numbered

NAMES = ("llava-onevision-0.5b", "llava-onevision-7b")
#: Of both: 729 patches pooled two by two to 14 x 14.
TOKENS_PER_FRAME = 196
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the keys and values of one token.

    Attributes:
        layers: Decoder layers.
        kv_heads: Key heads of a layer.
        head_dim: Channels of a head.
        tokens_per_frame: Vision tokens.
        dtype: As on the device.
    """

    layers: int
    kv_heads: int
    head_dim: int
    tokens_per_frame: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """2 x layers x heads x channels x bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    def segment_bytes(self, codec: str, frames: int) -> int:
        """All layers of a segment, encoded."""
        size = (self.kv_heads, frames * self.tokens_per_frame, self.head_dim)
        noise = torch.Generator().manual_seed(0)
        keys, values = (torch.randn(size, generator=noise).to(self.dtype) for _ in range(2))
        return self.layers * len(CODECS.get(codec)().encode(KeyValues(keys, values)))


def shape_of(name: str) -> Shape:
    """Shape of a released model, in bfloat16."""
    text = SHAPES[name]["text"]
    head_dim = text["hidden_size"] // text["num_attention_heads"]
    return Shape(
        text["num_hidden_layers"],
        text["num_key_value_heads"],
        head_dim,
        TOKENS_PER_FRAME,
        torch.bfloat16,
    )


def shape_bytes(checked: Sequence[str] = (), segment_frames: int = 16) -> dict[str, Any]:
    """Bytes per hour at one frame per second, for every codec.

    Args:
        checked: ``random:<shape>`` models that pass a segment through a session for comparison.
        segment_frames: Frames of a segment.
    """
    result: dict[str, Any] = {}
    for name in NAMES:
        shape = shape_of(name)
        arithmetic = shape.bytes_per_token * shape.tokens_per_frame * HOUR_S
        result[name] = {
            "bytes_per_token": shape.bytes_per_token,
            "arithmetic_bytes_per_hour": arithmetic,
            "codec_bytes_per_hour": {
                codec: shape.segment_bytes(codec, segment_frames) * HOUR_S // segment_frames
                for codec in CODECS.names()
            },
        }
    return {"by_shape": result, "checked": {name: check(name) for name in checked}}


@torch.inference_mode()
def check(name: str, segment_frames: int = 4) -> dict[str, Any]:
    """Pass one segment of noise through a session and compare what was written."""
    model = load_model(name)
    dims = model.dims
    noise = torch.Generator().manual_seed(0)
    size = (segment_frames, dims.tokens_per_frame, model.embed_text([0]).shape[-1])
    tokens = 0.02 * torch.randn(size, generator=noise)
    shape = Shape(
        dims.num_layers, dims.num_kv_heads, dims.head_dim, dims.tokens_per_frame, dims.dtype
    )
    found: dict[str, Any] = {"dtype": str(dims.dtype), "segment_frames": segment_frames}
    for codec in CODECS.names():
        overrides = {
            "model.name": name,
            "policy.name": "window",
            "memory.protected_frames": "0",
            "memory.segment_frames": str(segment_frames),
            "memory.prefill_frames": str(segment_frames),
            "memory.device_tokens": str(4096 + 3 * segment_frames * dims.tokens_per_frame),
            "store.codec": codec,
            "store.keyframe_bytes": "0",
        }
        config = load_config("llava-onevision-0.5b", overrides, {})
        with StreamSession(Replay(model, tokens), config) as session:  # type: ignore[arg-type]
            for index in range(segment_frames):
                session.observe(numbered(index))
            assert session.long_term is not None
            written = session.long_term.written_bytes
        expected = shape.segment_bytes(codec, segment_frames)
        found[codec] = {"written": written, "layers_by_arithmetic": expected}
    raw = shape.bytes_per_token * segment_frames * dims.tokens_per_frame
    return found | {"arithmetic_raw": raw}
