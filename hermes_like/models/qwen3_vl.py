"""Qwen3-VL (arXiv 2511.21631): a time stamp in words with every frame, features in three layers.

Every frame stands alone between text, so time is read, not counted in positions. Its tokens go into
the decoder together with features of middle tower layers, which are added behind the first decoder
layers; they travel beside the embeddings and play no part once a frame is in the cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hermes_like.errors import ModelError
from hermes_like.models.base import FrameLayout
from hermes_like.models.decoder import PromptTemplate
from hermes_like.models.qwen_vl import QwenVLAdapter, grid_offsets
from hermes_like.models.text import TextCodec

QWEN3_CHAT = PromptTemplate(
    prefix="<|im_start|>user\n",
    first_question="{question}<|im_end|>\n<|im_start|>assistant\n",
    next_question="<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
    turn_end="<|im_end|>\n",
)
#: Stamps begin again after this many seconds, eleven days: all of them are equally long.
STAMP_S = 1_000_000


class Qwen3VLAdapter(QwenVLAdapter):
    """Any ``Qwen3VLForConditionalGeneration``.

    A frame costs the same number of tokens whatever its time, so stamps are written with leading
    zeros, where the family's processor writes none.

    Args:
        model: The library's model, in evaluation mode, on its device.
        text: Tokenizer.
        name: For messages and results.
        eos_ids: Token ids that end an answer.
        size: Height and width of every frame as the model sees it, in pixels; None: 9 x 16 tokens.

    Raises:
        ModelError: The tokenizer gives stamps of different times different numbers of tokens, or a
            decoder layer drops tokens by itself.
        ConfigError: The size is not made of whole tokens.
    """

    mean = (0.5, 0.5, 0.5)
    deviation = (0.5, 0.5, 0.5)
    template_of_family = QWEN3_CHAT

    def __init__(
        self,
        model: Any,
        text: TextCodec,
        *,
        name: str,
        eos_ids: frozenset[int],
        size: tuple[int, int] | None = None,
    ) -> None:
        self._before, self._after = _stamp_lengths(text, name)
        super().__init__(model, text, name=name, eos_ids=eos_ids, size=size)

    def _layout(self) -> FrameLayout:
        levels = 1 + len(self._model.config.vision_config.deepstack_visual_indexes)
        self.dims = dataclasses.replace(
            self.dims, frame_text_tokens=self._before + self._after, feature_levels=levels
        )
        return FrameLayout(grid_offsets(self.dims, self._before, self._after))

    def stamp(self, tokens: Tensor, times_s: Sequence[float]) -> Tensor:
        """Write time stamps and the marks around the picture; see :class:`ModelAdapter`."""
        if not times_s:
            return tokens
        texts = [stamp_text(time_s) for time_s in times_s]
        ids = [i for lead, tail in texts for i in self._text.encode(lead) + self._text.encode(tail)]
        words = self.embed_text(ids).view(len(times_s), -1, self.dims.hidden_size)
        stamped = tokens.clone()
        end = stamped.shape[1] - self._after
        hidden = self.dims.hidden_size
        stamped[:, : self._before, :hidden] = words[:, : self._before]
        stamped[:, end:, :hidden] = words[:, self._before :]
        return stamped

    def _features(self, cut: Tensor, grid: Tensor) -> Tensor:
        """Tokens of all feature levels side by side, with zeros where text will stand."""
        found = self._core.get_video_features(cut, grid)
        levels = [found.pooler_output, *found.deepstack_features]
        pictures = torch.cat([torch.cat(tuple(level)) for level in levels], dim=-1)
        pictures = pictures.view(int(grid[0, 0]), -1, pictures.shape[-1])
        return torch.nn.functional.pad(pictures, (0, 0, self._before, self._after))

    def _inputs(self, embeds: Tensor) -> dict[str, Any]:
        first, *others = torch.split(embeds, self.dims.hidden_size, dim=-1)
        if not others:
            return {"inputs_embeds": first[None]}
        # Text between pictures has zeros in the other levels, so that adding them changes nothing.
        everywhere = torch.ones(1, embeds.shape[0], dtype=torch.bool, device=embeds.device)
        return {
            "inputs_embeds": first[None],
            "visual_pos_masks": everywhere,
            "deepstack_visual_embeds": others,
        }


def stamp_text(time_s: float) -> tuple[str, str]:
    """Text before and behind the picture of a frame.

    Args:
        time_s: Stream time in seconds.
    """
    tenths = round(time_s * 10) % (10 * STAMP_S)
    return f"<{tenths // 10:06d}.{tenths % 10} seconds><|vision_start|>", "<|vision_end|>"


def _stamp_lengths(text: TextCodec, name: str) -> tuple[int, int]:
    """Tokens before and behind a picture.

    Raises:
        ModelError: They differ from time to time.
    """
    samples = [stamp_text(t) for t in (0.0, 7.5, 99.9, 1234.0, 86_400.1, 444_444.4, 987_654.3)]
    lengths = {(len(text.encode(lead)), len(text.encode(tail))) for lead, tail in samples}
    if len(lengths) > 1:
        raise ModelError(
            f"{name}: expected a tokenizer that gives every time stamp equally many tokens, "
            f"got {sorted(lead + tail for lead, tail in lengths)}"
        )
    return lengths.pop()
