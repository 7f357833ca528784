"""InternVL3 and 3.5 (arXiv 2504.10479, 2508.18265): one tile a frame, a plain Qwen decoder.

The decoder has one rotary axis. Every frame stands between words of its own, as the family writes
the frames of a video; their running number is left out, so that a frame costs the same number of
tokens however long a stream has lasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hermes_like.models.decoder import DecoderAdapter, PromptTemplate, decoder_dims
from hermes_like.models.pictures import resized
from hermes_like.models.text import TextCodec
from hermes_like.records import Image

INTERN_CHAT = PromptTemplate(
    prefix="<|im_start|>user\n",
    first_question="{question}<|im_end|>\n<|im_start|>assistant\n",
    next_question="<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
    turn_end="<|im_end|>\n",
)
#: Text before and behind the picture of a frame.
FRAME_TEXT = ("Frame: <img>", "</img>\n")
#: Mean and deviation of the channels, 0 to 1, of which the family's weights were made (ImageNet).
STATISTICS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class InternVLAdapter(DecoderAdapter):
    """Any ``InternVLForConditionalGeneration`` whose decoder layers keep all their tokens.

    Args:
        model: The library's model, in evaluation mode, on its device.
        text: Tokenizer.
        name: For messages and results.
        eos_ids: Token ids that end an answer.
        statistics: Mean and deviation of the channels, 0 to 1, as the checkpoint names them.

    Raises:
        ModelError: A decoder layer drops or merges tokens by itself (sliding window, linear).
    """

    def __init__(
        self,
        model: Any,
        text: TextCodec,
        *,
        name: str,
        eos_ids: frozenset[int],
        statistics: tuple[tuple[float, ...], tuple[float, ...]] = STATISTICS,
    ) -> None:
        super().__init__(model, text, name=name, template=INTERN_CHAT, eos_ids=eos_ids)
        self.mean, self.deviation = statistics
        before, after = (text.encode(part) for part in FRAME_TEXT)
        self._before, self._after = before, after
        vision, shrink = model.config.vision_config, model.config.downsample_ratio
        tall, wide = (int(side) for side in vision.image_size)
        rows, columns = (
            int(side // patch * shrink)
            for side, patch in zip((tall, wide), vision.patch_size, strict=True)
        )
        self.dims = decoder_dims(model, (rows, columns), frame_text_tokens=len(before) + len(after))
        self._size = (tall, wide)

    def video_end(self) -> Tensor:
        """None: what closes a frame belongs to the frame."""
        return self.embed_text([])

    def pixels(self, images: Sequence[Image]) -> Tensor:
        """Pictures as the tower wants them, ``[frames, 3, height, width]``, normalised.

        Plain stretch to the tower's size, as the family's processor does for video.
        """
        device = self.dims.device
        frames = [resized(image, self._size, device, "bicubic") for image in images]
        scaled = torch.cat(frames) / 255
        mean = torch.tensor(self.mean, device=device)[:, None, None]
        deviation = torch.tensor(self.deviation, device=device)[:, None, None]
        return ((scaled - mean) / deviation).to(self.dims.dtype)

    def embed_frames(self, images: Sequence[Image]) -> Tensor:
        """See :class:`ModelAdapter`."""
        dims = self.dims
        if not images:
            shape = (0, dims.tokens_per_frame, dims.hidden_size)
            return torch.empty(shape, dtype=dims.dtype, device=dims.device)
        config = self._model.config
        with torch.inference_mode():
            features = self._core.get_image_features(
                pixel_values=self.pixels(images),
                vision_feature_layer=config.vision_feature_layer,
                vision_feature_select_strategy=config.vision_feature_select_strategy,
            ).pooler_output
            return F.pad(features, (0, 0, len(self._before), len(self._after)))

    def stamp(self, tokens: Tensor, times_s: Sequence[float]) -> Tensor:
        """Write the words around each picture; see :class:`ModelAdapter`. They tell no time."""
        stamped = tokens.clone()
        stamped[:, : len(self._before)] = self.embed_text(self._before)
        stamped[:, tokens.shape[1] - len(self._after) :] = self.embed_text(self._after)
        return stamped

    def _processing(self) -> list[Any]:
        return [self._size, self.mean, self.deviation, FRAME_TEXT]
