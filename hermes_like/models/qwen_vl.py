"""Qwen2-VL (arXiv 2409.12191) and Qwen2.5-VL (arXiv 2502.13923): three rotary axes.

Their towers look at two frames at a time. Here every frame is paired with itself, as the family
does with a still image: frames stay independent of each other, and motion inside a pair is lost.
The frames of a segment form one clip: time advances, rows and columns stay, and what comes next
begins one behind the largest position on all axes, as the released weights were trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hermes_like.config import ModelConfig
from hermes_like.errors import ConfigError
from hermes_like.models.base import FrameLayout, ModelDims
from hermes_like.models.decoder import DecoderAdapter, PromptTemplate, decoder_dims
from hermes_like.models.pictures import fitted, frame_size, patches
from hermes_like.models.text import TextCodec
from hermes_like.records import Image

QWEN_VIDEO_CHAT = PromptTemplate(
    prefix=(
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|>"
    ),
    first_question="<|vision_end|>{question}<|im_end|>\n<|im_start|>assistant\n",
    next_question="<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
    turn_end="<|im_end|>\n",
)
#: Vision tokens of a frame without a budget: 9 x 16, the fewest in the shape of a wide screen that
#: the family's own processor would give a video (128).
DEFAULT_TOKENS = 144
WIDE_SCREEN = (9, 16)
#: Seconds between two frames for which positions in time are right; see ``_layout``.
FRAME_S = 1.0


class QwenVLAdapter(DecoderAdapter):
    """Any ``Qwen2VLForConditionalGeneration`` or ``Qwen2_5_VLForConditionalGeneration``.

    Args:
        model: The library's model, in evaluation mode, on its device.
        text: Tokenizer.
        name: For messages and results.
        eos_ids: Token ids that end an answer.
        size: Height and width of every frame as the model sees it, in pixels; None: 9 x 16 tokens.

    Raises:
        ModelError: A decoder layer drops or merges tokens by itself (sliding window, linear).
        ConfigError: The size is not made of whole tokens.
    """

    mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    deviation: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)
    template_of_family = QWEN_VIDEO_CHAT
    released_softmax = torch.float16

    def __init__(
        self,
        model: Any,
        text: TextCodec,
        *,
        name: str,
        eos_ids: frozenset[int],
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(model, text, name=name, template=self.template_of_family, eos_ids=eos_ids)
        self._unit = unit_of(model)
        if size is not None and (0 in size or size[0] % self._unit or size[1] % self._unit):
            raise ConfigError(
                f"frame size: expected multiples of {self._unit} pixels, got {size[0]} x {size[1]}"
            )
        self.size = size or frame_size(DEFAULT_TOKENS * self._unit**2, WIDE_SCREEN, self._unit)
        rows, columns = (side // self._unit for side in self.size)
        self.dims = decoder_dims(model, (rows, columns), position_axes=3)
        self.frame_layout = self._layout()

    def _layout(self) -> FrameLayout:
        """One position per frame, or as many as the weights know for the seconds between two.

        Frames are taken to be ``FRAME_S`` apart: the step is a constant, so that what is remembered
        stays as dense in time as the video that the model was trained on.
        """
        per_second = getattr(self._model.config.vision_config, "tokens_per_second", None)
        step = 1 if per_second is None else max(1, round(per_second * FRAME_S))
        return FrameLayout(grid_offsets(self.dims), step=step, is_clip=True)

    # -- pictures --------------------------------------------------------------------------------

    def video_end(self) -> Tensor:
        """None: the token that ends a video begins the question."""
        return self.embed_text([])

    def pixels(self, images: Sequence[Image]) -> Tensor:
        """Pictures as the tower wants them, ``[frames, 3, height, width]``, normalised."""
        device = self.dims.device
        frames = torch.cat([fitted(image, self.size, self._unit, device) for image in images])
        mean = torch.tensor(self.mean, device=device)[:, None, None]
        deviation = torch.tensor(self.deviation, device=device)[:, None, None]
        return ((frames / 255 - mean) / deviation).to(self.dims.dtype)

    def patches(self, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
        """Pictures as patches, and the grid ``[[frames, rows, columns]]`` of them, in patches."""
        vision = self._model.config.vision_config
        patch, merge = int(vision.patch_size), int(vision.spatial_merge_size)
        cut = patches(self.pixels(images), patch, merge, int(vision.temporal_patch_size))
        grid = [[len(images), self.size[0] // patch, self.size[1] // patch]]
        return cut, torch.tensor(grid, device=self.dims.device)

    def embed_frames(self, images: Sequence[Image]) -> Tensor:
        """See :class:`ModelAdapter`."""
        shape = (len(images), self.dims.tokens_per_frame, self.dims.frame_channels)
        if not images:
            return torch.empty(shape, dtype=self.dims.dtype, device=self.dims.device)
        cut, grid = self.patches(images)
        with torch.inference_mode():
            return self._features(cut, grid).view(shape)

    def _features(self, cut: Tensor, grid: Tensor) -> Tensor:
        """Vision tokens of patches, ``[tokens, channels]``."""
        return torch.cat(self._core.get_video_features(cut, grid).pooler_output)

    def _processing(self) -> list[Any]:
        layout = self.frame_layout
        assert layout is not None
        return [self.size, self.mean, self.deviation, layout.step, layout.offsets.tolist()]


def unit_of(model: Any) -> int:
    """Side of the square of pixels that becomes one vision token."""
    vision = model.config.vision_config
    return int(vision.patch_size * vision.spatial_merge_size)


def grid_offsets(dims: ModelDims, before: int = 0, after: int = 0) -> Tensor:
    """Offsets of the tokens of a frame with text around it, int64 ``[3, tokens]``."""
    rows, columns = dims.grid
    row = torch.arange(rows).repeat_interleave(columns)
    column = torch.arange(columns).repeat(rows)
    picture = torch.stack([torch.zeros_like(row), row, column]) + before
    lead = torch.arange(before).expand(3, -1)
    tail = (torch.arange(after) + before + max(rows, columns)).expand(3, -1)
    return torch.cat([lead, picture, tail], dim=1).to(dims.device)


def size_of(config: ModelConfig, unit: int) -> tuple[int, int] | None:
    """Height and width of a frame by the budget of a configuration; None: it has none.

    Args:
        config: Of the model.
        unit: Side of a vision token, in pixels.

    Raises:
        ConfigError: The budget is too small.
    """
    pixels: int | None = config.frame_pixels
    shape: tuple[int, int] = config.frame_shape
    if pixels is None and shape == WIDE_SCREEN:
        return None
    return frame_size(pixels or DEFAULT_TOKENS * unit**2, shape, unit)
