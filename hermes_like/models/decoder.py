"""What adapters of transformers models share: prompts, the decoder over our cache, identity.

It knows neither pixels nor where frames lie on the rotary axes; that is for each family.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hermes_like.errors import ModelError
from hermes_like.memory.attention import ATTENTION_NAME, ATTENTION_NAMES
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.kernels import why_no_flash
from hermes_like.models.base import ModelAdapter, ModelDims
from hermes_like.models.identity import json_digest, weights_digest
from hermes_like.models.text import TextCodec

#: HERMES appendix B.
LOCAL_GUIDANCE = (
    "Describe the current scene in detail, focusing on specific objects, fine-grained actions, "
    "and spatial relationships."
)
GLOBAL_GUIDANCE = (
    "Summarize the video narrative, identifying main characters, key events, timeline changes, "
    "and the overall theme."
)


#: Kinds of rotary positions whose frequencies stay what they are.
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3")


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


def refuse_partial_layers(config: Any, name: str) -> None:
    """Refuse a decoder whose layers do not keep keys and values of every token.

    Args:
        config: Of the text model.
        name: For the message.

    Raises:
        ModelError: It has layers with a sliding window, linear attention or the like.
    """
    partial = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    if partial:
        raise ModelError(
            f"{name}: the decoder has {', '.join(sorted(partial))} layers, which do not keep "
            "every token; expected full_attention in every layer"
        )


def refuse_moving_rotations(config: Any, name: str) -> None:
    """Refuse positions whose frequencies change with the length, or that turn part of a head only.

    A key is rotated again at every new position, so a position must mean the same all the time.
    The dynamic kind does so up to the model's last position, which no token passes.

    Args:
        config: Of the text model.
        name: For the message.

    Raises:
        ModelError: It has such positions.
    """
    rope = dict(getattr(config, "rope_parameters", None) or {})
    kind, part = rope.get("rope_type", "default"), rope.get("partial_rotary_factor", 1.0)
    if kind not in ROPE_TYPES:
        raise ModelError(
            f"{name}: rotary positions of type {kind!r} change their frequencies with the length "
            f"of the text or are not known; expected one of {', '.join(ROPE_TYPES)}"
        )
    if part not in (None, 1, 1.0):
        raise ModelError(f"{name}: expected positions that turn whole heads, got a part of {part}")


def layer_devices(model: Any) -> tuple[torch.device, ...]:
    """Where each decoder layer lies; empty: all of them where the embeddings are."""
    layers = model.model.language_model.layers
    found = tuple(next(layer.parameters()).device for layer in layers)
    is_one = set(found) == {model.get_input_embeddings().weight.device}
    return () if is_one else found


def decoder_dims(model: Any, grid: tuple[int, int], **more: Any) -> ModelDims:
    """Shapes of a conditional-generation model of transformers.

    Args:
        model: On its devices.
        grid: Rows and columns of a frame's vision tokens.
        more: Further fields of :class:`ModelDims`.
    """
    text, weight = model.config.text_config, model.get_input_embeddings().weight
    return ModelDims(
        num_layers=text.num_hidden_layers,
        num_heads=text.num_attention_heads,
        num_kv_heads=text.num_key_value_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        max_positions=text.max_position_embeddings,
        grid=grid,
        dtype=weight.dtype,
        device=weight.device,
        layer_devices=layer_devices(model),
        **more,
    )


class DecoderAdapter(ModelAdapter):
    """An adapter around a conditional-generation model of transformers.

    Args:
        model: The library's model, in evaluation mode, on its device.
        text: Tokenizer.
        name: For messages and results.
        template: Prompt layout.
        eos_ids: Token ids that end an answer.

    Raises:
        ModelError: A decoder layer drops or merges tokens by itself (sliding window, linear), or
            rotary positions do not mean the same all the time.
    """

    guidance_prompts = (LOCAL_GUIDANCE, GLOBAL_GUIDANCE)

    def __init__(
        self,
        model: Any,
        text: TextCodec,
        *,
        name: str,
        template: PromptTemplate,
        eos_ids: frozenset[int],
    ) -> None:
        self.name, self.template, self.eos_ids = name, template, eos_ids
        self._text = text
        self._model = model
        self._core = model.model
        self._decoder = model.model.language_model
        self._attention = "sdpa"
        refuse_partial_layers(model.config.text_config, name)
        refuse_moving_rotations(model.config.text_config, name)
        model.set_attn_implementation({"text_config": ATTENTION_NAME})

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

    def scan_question(self, question: str) -> str | None:
        """See :class:`ModelAdapter`."""
        return (
            f'A question about a long video: "{question}" Does this short part of it show what the '
            "question asks about? Answer yes or no."
        )

    def use_attention(self, name: str) -> None:
        """See :class:`ModelAdapter`."""
        dims = self.dims
        reason = why_no_flash(dims.device, dims.dtype, dims.head_dim) if name == "flash" else None
        if reason:
            raise ModelError(f"model.attention: no flash kernels: {reason}; expected sdpa")
        self._attention = name
        self._model.set_attn_implementation({"text_config": ATTENTION_NAMES[name]})

    # -- decoder ---------------------------------------------------------------------------------

    def forward(self, embeds: Tensor, cache: HierarchicalCache, *, logits: bool = False) -> Tensor:
        """See :class:`ModelAdapter`. The library runs at position 0 throughout (``cache.py``)."""
        with torch.inference_mode():
            hidden = self._hidden(embeds, cache)
            if not logits:
                return embeds.new_empty(0, dtype=torch.float32)
            last = hidden[-1].to(self.dims.device)
            return self._model.lm_head(last).float()  # type: ignore[no-any-return]

    def forward_rows(self, embeds: Tensor, cache: HierarchicalCache, rows: int) -> Tensor:
        """See :class:`ModelAdapter`."""
        with torch.inference_mode():
            hidden = self._hidden(embeds, cache)
            last = hidden.reshape(rows, -1, hidden.shape[-1])[:, -1].to(self.dims.device)
            return self._model.lm_head(last).float()  # type: ignore[no-any-return]

    def _hidden(self, embeds: Tensor, cache: HierarchicalCache) -> Tensor:
        """Hidden states behind the last layer, ``[n, hidden]``."""
        axes, length = self.dims.position_axes, embeds.shape[0]
        shape = (1, length) if axes == 1 else (axes, 1, length)
        states: Tensor = self._decoder(
            position_ids=torch.zeros(shape, dtype=torch.int64, device=embeds.device),
            cache=cache,
            use_cache=True,
            step=cache.current_step,
            **self._inputs(embeds),
        ).last_hidden_state
        return states[0]

    def _inputs(self, embeds: Tensor) -> dict[str, Any]:
        """What the decoder is given for new tokens ``[n, channels]``."""
        return {"inputs_embeds": embeds[None]}

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`ModelAdapter`."""
        module = self._decoder.rotary_emb
        like = torch.empty(0, dtype=torch.float32, device=positions.device)
        if self.dims.position_axes > 1:
            positions = positions.expand(self.dims.position_axes, -1)[:, None]
        else:
            positions = positions[None]
        cos, sin = module(like, positions)
        return cos[0] / module.attention_scaling, sin[0] / module.attention_scaling

    def raw_query_key(self, layer_index: int, embeds: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`ModelAdapter`."""
        layer = self._decoder.layers[layer_index]
        attention, embeds = layer.self_attn, embeds.to(self.dims.device_of(layer_index))
        with torch.inference_mode():
            normed = layer.input_layernorm(embeds[:, : self.dims.hidden_size])
            heads = (-1, self.dims.head_dim)
            # Some kinds of positions also scale queries and keys, and do so at position 0.
            scale = self._decoder.rotary_emb.attention_scaling
            query = attention.q_proj(normed).unflatten(-1, heads)
            key = attention.k_proj(normed).unflatten(-1, heads)
            if hasattr(attention, "q_norm"):
                query, key = attention.q_norm(query), attention.k_norm(key)
            return query.transpose(0, 1) * scale, key.transpose(0, 1) * scale

    # -- identity --------------------------------------------------------------------------------

    @abstractmethod
    def _processing(self) -> list[Any]:
        """What the tokens of a frame depend on beside weights and pixels; values JSON can hold."""

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
            "attention_kernel": self._attention,
            "keys_are_rotated": False,
            "kv_dtype": str(self.dims.dtype).removeprefix("torch."),
            "processor_digest": json_digest(self._processing()),
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
