"""Greedy answers of the stock model about one stream, with evictions and gaps where wanted.

The video is prefilled once; all questions of a stream are then asked as one batch, each on its own
copy of the cache. Every number comes from the stock classes of transformers in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoTokenizer, DynamicCache

from hermes_like.sprites.render import RenderStyle, render_model_input
from hermes_like.sprites.tokenizer import TOKENS_PER_FRAME
from hermes_like.sprites.world import Story

MAX_ANSWER_TOKENS = 4


class StockAnswerer:
    """The stock model with its tokenizer.

    Args:
        folder: Checkpoint that the auto classes can load.
    """

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.bos_id = self.tokenizer.convert_tokens_to_ids("<bos>")
        self.eos_id = self.tokenizer.convert_tokens_to_ids("<eos>")

    @torch.no_grad()
    def see(self, story: Story, rng: np.random.Generator, style: RenderStyle) -> Tensor:
        """Return the features of freshly rendered frames and the newline, ``[tokens, dim]``."""
        pixels = np.stack(
            [render_model_input(sprites, rng, style=style) for sprites in story.frames()]
        )
        levels = torch.from_numpy(np.rint(pixels)) / 127.5 - 1.0
        videos = levels.permute(0, 3, 1, 2)[None].float()
        features: Tensor = self.model.get_video_features(
            videos, vision_feature_layer=-1, vision_feature_select_strategy="full"
        ).pooler_output[0]
        return features

    @torch.no_grad()
    def remember(
        self, features: Tensor, frame_positions: Sequence[int] | None = None
    ) -> tuple[DynamicCache, Tensor]:
        """Prefill ``<bos>``, the video and the newline.

        Args:
            features: ``[tokens, dim]`` as :meth:`see` returns them.
            frame_positions: Position of each frame's first token; None for contiguous ones.

        Returns:
            The cache and the ``[tokens + 1]`` positions in it.
        """
        positions = torch.arange(len(features) + 1)
        if frame_positions is not None:
            starts = torch.tensor(frame_positions)
            body = (starts[:, None] + torch.arange(TOKENS_PER_FRAME)).flatten()
            positions = torch.cat([torch.tensor([0]), body, body[-1:] + 1])
        bos = self.model.get_input_embeddings()(torch.tensor([[self.bos_id]]))
        embeddings = torch.cat([bos, features[None]], dim=1)
        cache = DynamicCache()
        self.model.model.language_model(
            inputs_embeds=embeddings, position_ids=positions[None], cache=cache,
            use_cache=True,
        )  # fmt: skip
        return cache, positions

    @torch.no_grad()
    def answer(
        self,
        cache: DynamicCache,
        next_position: int,
        questions: Sequence[str],
        kept: npt.NDArray[np.int64] | None = None,
    ) -> list[str]:
        """Answer questions, each on a copy of the cache.

        Args:
            cache: What :meth:`remember` returned; not changed.
            next_position: Position of the first question token.
            questions: Their words.
            kept: Slots of the cache that were not evicted, ascending; None keeps all.
        """
        prompts = [
            self.tokenizer(f"<user> {question} <assistant>", add_special_tokens=False).input_ids
            for question in questions
        ]
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
        pads = torch.tensor([width - len(prompt) for prompt in prompts])[:, None]
        copy, held = _copies(cache, len(prompts), kept)
        is_question = torch.arange(width)[None] >= pads
        mask = torch.cat([torch.ones(len(prompts), held, dtype=torch.bool), is_question], dim=1)
        positions = (next_position + torch.arange(width)[None] - pads).clamp(min=0)
        words: list[Tensor] = []
        for _ in range(MAX_ANSWER_TOKENS):
            hidden = self.model.model.language_model(
                input_ids=ids, attention_mask=mask.long(), position_ids=positions,
                cache=copy, use_cache=True,
            ).last_hidden_state[:, -1]  # fmt: skip
            ids = self.model.lm_head(hidden).argmax(-1, keepdim=True)
            words.append(ids)
            if bool((torch.cat(words, 1) == self.eos_id).any(1).all()):
                break
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
            positions = positions[:, -1:] + 1
        return [self._text(row) for row in torch.cat(words, 1).tolist()]

    def _text(self, ids: Sequence[int]) -> str:
        """Words up to ``<eos>``; an answer that does not end is marked as such."""
        if self.eos_id not in ids:
            return " ".join(self.tokenizer.convert_ids_to_tokens(ids)) + " ..."
        return " ".join(self.tokenizer.convert_ids_to_tokens(ids[: ids.index(self.eos_id)]))


def _copies(
    cache: DynamicCache, count: int, kept: npt.NDArray[np.int64] | None
) -> tuple[DynamicCache, int]:
    """Return ``count`` copies of the cache as one batch, and how many slots they hold."""
    copy = DynamicCache()
    held = cache.get_seq_length()
    slots = torch.arange(held) if kept is None else torch.from_numpy(kept)
    for index, layer in enumerate(cache.layers):
        keys, values = layer.keys[:, :, slots], layer.values[:, :, slots]
        copy.update(keys.repeat(count, 1, 1, 1), values.repeat(count, 1, 1, 1), index)
    return copy, len(slots)
