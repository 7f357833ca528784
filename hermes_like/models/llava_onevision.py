"""LLaVA-OneVision (arXiv 2408.03326): SigLIP frames pooled 2 x 2, a plain Qwen2 decoder, 1-D RoPE.

Preprocessing is plain torch; neither torchvision nor a processor of transformers is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hermes_like.errors import ModelError
from hermes_like.memory.attention import ATTENTION_NAME
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.models.base import ModelAdapter, ModelDims
from hermes_like.models.identity import json_digest, weights_digest
from hermes_like.models.text import TextCodec
from hermes_like.records import Image

#: HERMES appendix B.
LOCAL_GUIDANCE = (
    "Describe the current scene in detail, focusing on specific objects, fine-grained actions, "
    "and spatial relationships."
)
GLOBAL_GUIDANCE = (
    "Summarize the video narrative, identifying main characters, key events, timeline changes, "
    "and the overall theme."
)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """Text around video, questions and answers; special tokens by name.

    Attributes:
        prefix: Before the video.
        first_question: Between video and answer, with ``{question}``.
        next_question: The same for later turns of a conversation.
        turn_end: Between an answer and the next turn.
    """

    prefix: str
    first_question: str
    next_question: str
    turn_end: str


QWEN_CHAT = PromptTemplate(
    prefix="<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
    first_question="\n{question}<|im_end|>\n<|im_start|>assistant\n",
    next_question="<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
    turn_end="<|im_end|>\n",
)


class LlavaOnevisionAdapter(ModelAdapter):
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

    guidance_prompts = (LOCAL_GUIDANCE, GLOBAL_GUIDANCE)

    def __init__(
        self,
        model: Any,
        text: TextCodec,
        *,
        name: str,
        template: PromptTemplate = QWEN_CHAT,
        resample: Literal["bicubic", "area"] = "bicubic",
        eos_ids: frozenset[int],
    ) -> None:
        self.name, self.template, self.resample, self.eos_ids = name, template, resample, eos_ids
        self._text = text
        self._model = model
        self._core = model.model
        self._decoder = model.model.language_model
        self._refuse_partial_layers(model.config.text_config)
        model.set_attn_implementation({"text_config": ATTENTION_NAME})
        self.dims = self._read_dims(model)
        self._image_size = int(model.config.vision_config.image_size)

    @staticmethod
    def _refuse_partial_layers(config: Any) -> None:
        partial = set(getattr(config, "layer_types", ["full_attention"])) - {"full_attention"}
        if partial:
            raise ModelError(
                f"the decoder has {', '.join(sorted(partial))} layers, which do not keep every "
                "token; expected full_attention in every layer"
            )

    @staticmethod
    def _read_dims(model: Any) -> ModelDims:
        text, vision = model.config.text_config, model.config.vision_config
        side = -(-(vision.image_size // vision.patch_size) // 2)
        weight = model.get_input_embeddings().weight
        return ModelDims(
            num_layers=text.num_hidden_layers,
            num_heads=text.num_attention_heads,
            num_kv_heads=text.num_key_value_heads,
            head_dim=getattr(text, "head_dim", None)
            or text.hidden_size // text.num_attention_heads,
            hidden_size=text.hidden_size,
            vocab_size=text.vocab_size,
            max_positions=text.max_position_embeddings,
            grid=(side, side),
            dtype=weight.dtype,
            device=weight.device,
        )

    # -- text ------------------------------------------------------------------------------------

    def encode_text(self, text: str) -> list[int]:
        """See :class:`ModelAdapter`."""
        return self._text.encode(text)

    def decode_text(self, ids: Sequence[int]) -> str:
        """See :class:`ModelAdapter`."""
        return self._text.decode(ids)

    def prefix_ids(self) -> list[int]:
        """See :class:`ModelAdapter`."""
        return self._text.encode(self.template.prefix)

    def question_ids(self, question: str, *, is_first: bool) -> list[int]:
        """See :class:`ModelAdapter`."""
        layout = self.template.first_question if is_first else self.template.next_question
        return self._text.encode(layout.replace("{question}", question))

    def turn_end_ids(self) -> list[int]:
        """See :class:`ModelAdapter`."""
        return self._text.encode(self.template.turn_end)

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """See :class:`ModelAdapter`."""
        index = torch.tensor(list(ids), dtype=torch.int64, device=self.dims.device)
        with torch.inference_mode():
            return self._decoder.embed_tokens(index)  # type: ignore[no-any-return]

    # -- pictures --------------------------------------------------------------------------------

    def video_end(self) -> Tensor:
        """The learnt newline that the model expects once, after the last frame."""
        with torch.inference_mode():
            return self._core.image_newline[None].to(self.dims.dtype)  # type: ignore[no-any-return]

    def pixels(self, images: Sequence[Image]) -> Tensor:
        """Pictures as the tower wants them, ``[frames, 3, size, size]``, about -1 to 1.

        Plain stretch to the tower's size, as the family's processor does for video.
        """
        size = (self._image_size, self._image_size)
        frames = []
        for image in images:
            x = torch.from_numpy(image).to(self.dims.device).permute(2, 0, 1)[None].float()
            if self.resample == "area":
                x = F.interpolate(x, size, mode="area")
            else:
                x = F.interpolate(x, size, mode="bicubic", antialias=True).clamp(0, 255).round()
            frames.append(x)
        return (torch.cat(frames) / 127.5 - 1.0).to(self.dims.dtype)

    def embed_frames(self, images: Sequence[Image]) -> Tensor:
        """See :class:`ModelAdapter`."""
        if not images:
            return torch.empty(
                0, self.dims.tokens_per_frame, self.dims.hidden_size, dtype=self.dims.dtype
            )
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

    # -- decoder ---------------------------------------------------------------------------------

    def forward(self, embeds: Tensor, cache: HierarchicalCache, *, logits: bool = False) -> Tensor:
        """See :class:`ModelAdapter`. The library runs at position 0 throughout (``cache.py``)."""
        zeros = torch.zeros(1, embeds.shape[0], dtype=torch.int64, device=embeds.device)
        with torch.inference_mode():
            hidden = self._decoder(
                inputs_embeds=embeds[None],
                position_ids=zeros,
                cache=cache,
                use_cache=True,
                step=cache.current_step,
            ).last_hidden_state
            if not logits:
                return embeds.new_empty(0, dtype=torch.float32)
            return self._model.lm_head(hidden[0, -1]).float()  # type: ignore[no-any-return]

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`ModelAdapter`."""
        module = self._decoder.rotary_emb
        like = torch.empty(0, dtype=torch.float32, device=positions.device)
        cos, sin = module(like, positions[None])
        return cos[0] / module.attention_scaling, sin[0] / module.attention_scaling

    def raw_query_key(self, layer_index: int, embeds: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`ModelAdapter`."""
        layer = self._decoder.layers[layer_index]
        with torch.inference_mode():
            normed = layer.input_layernorm(embeds)
            heads = (-1, self.dims.head_dim)
            query = layer.self_attn.q_proj(normed).unflatten(-1, heads)
            key = layer.self_attn.k_proj(normed).unflatten(-1, heads)
            return query.transpose(0, 1), key.transpose(0, 1)

    def scan_question(self, question: str) -> str | None:
        """See :class:`ModelAdapter`."""
        return (
            f'A question about a long video: "{question}" Does this short part of it show what the '
            "question asks about? Answer yes or no."
        )

    # -- identity --------------------------------------------------------------------------------

    def identity(self) -> dict[str, object]:
        """See :class:`ModelAdapter`."""
        config = self._model.config
        text = config.text_config
        rope = dict(getattr(text, "rope_parameters", None) or {})
        return {
            "model": self.name,
            "model_epoch": 0,
            "revision": getattr(config, "_commit_hash", None),
            "weights_digest": weights_digest(self._model),
            "text_config_digest": json_digest(_lasting(text.to_dict())),
            "vision_config_digest": json_digest(_lasting(config.vision_config.to_dict())),
            "num_layers": self.dims.num_layers,
            "num_kv_heads": self.dims.num_kv_heads,
            "head_dim": self.dims.head_dim,
            "layer_types": sorted(set(getattr(text, "layer_types", None) or ["full_attention"])),
            "rope_type": rope.get("rope_type", "default"),
            "rope_theta": rope.get("rope_theta"),
            "rope_scaling": {k: v for k, v in rope.items() if k not in ("rope_type", "rope_theta")},
            "keys_are_rotated": False,
            "kv_dtype": str(self.dims.dtype).removeprefix("torch."),
            "processor_digest": json_digest([self._image_size, self.resample, self.dims.grid]),
            "tokenizer_digest": json_digest(self._text.encode("The red star , 3 times .")),
            "prefix_digest": json_digest(self.prefix_ids()),
        }


def _lasting(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what differs between versions of the library and ways of running."""
    passing = ("transformers_version", "dtype", "_name_or_path", "_attn_implementation")
    return {
        name: value
        for name, value in config.items()
        if name not in passing and not name.startswith("_")
    }
