"""LLaVA-OneVision (arXiv 2408.03326): SigLIP frames pooled 2 x 2, a plain Qwen2 decoder, 1-D RoPE.

Preprocessing is plain torch; neither torchvision nor a processor of transformers is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hermes_like.models.decoder import QWEN_CHAT, DecoderAdapter, PromptTemplate, decoder_dims
from hermes_like.models.pictures import Resample, resized
from hermes_like.models.text import TextCodec
from hermes_like.records import Image


class LlavaOnevisionAdapter(DecoderAdapter):
    """Any ``LlavaOnevisionForConditionalGeneration`` whose decoder layers keep all their tokens.

    Args:
        model: The library's model, in evaluation mode, on its device.
        text: Tokenizer.
        name: For messages and results.
        template: Prompt layout.
        resample: How pictures are brought to the tower's size.
        eos_ids: Token ids that end an answer.

    Raises:
        ModelError: A decoder layer drops or merges tokens by itself (sliding window, linear).
    """

    def __init__(
        self,
        model: Any,
        text: TextCodec,
        *,
        name: str,
        template: PromptTemplate = QWEN_CHAT,
        resample: Resample = "bicubic",
        eos_ids: frozenset[int],
    ) -> None:
        super().__init__(model, text, name=name, template=template, eos_ids=eos_ids)
        self.resample = resample
        vision = model.config.vision_config
        side = -(-(vision.image_size // vision.patch_size) // 2)
        self.dims = decoder_dims(model, (side, side))
        self._image_size = int(vision.image_size)

    def video_end(self) -> Tensor:
        """The learnt newline that the model expects once, after the last frame."""
        with torch.inference_mode():
            return self._core.image_newline[None].to(self.dims.dtype)  # type: ignore[no-any-return]

    def pixels(self, images: Sequence[Image]) -> Tensor:
        """Pictures as the tower wants them, ``[frames, 3, size, size]``, about -1 to 1.

        Plain stretch to the tower's size, as the family's processor does for video.
        """
        size = (self._image_size, self._image_size)
        frames = [resized(image, size, self.dims.device, self.resample) for image in images]
        return (torch.cat(frames) / 127.5 - 1.0).to(self.dims.dtype)

    def embed_frames(self, images: Sequence[Image]) -> Tensor:
        """See :class:`ModelAdapter`."""
        if not images:
            shape = (0, self.dims.tokens_per_frame, self.dims.hidden_size)
            return torch.empty(shape, dtype=self.dims.dtype, device=self.dims.device)
        config = self._model.config
        with torch.inference_mode():
            features = self._core.get_video_features(
                pixel_values_videos=self.pixels(images)[None],
                vision_feature_layer=config.vision_feature_layer,
                vision_feature_select_strategy=config.vision_feature_select_strategy,
            ).pooler_output[0]
        tokens = features[
            : len(images) * self.dims.tokens_per_frame
        ]  # the newline comes at the end
        return tokens.view(len(images), self.dims.tokens_per_frame, -1)  # type: ignore[no-any-return]

    def _processing(self) -> list[Any]:
        return [self._image_size, self.resample, self.dims.grid]
