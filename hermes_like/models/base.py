"""The seam for base models: what the rest of the library may ask of a video language model.

An adapter knows its family's pixels, prompts and positions. It knows nothing of policies, budgets
or tiers, and nothing outside this folder sees a class of the library that implements the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hermes_like.errors import ModelError
from hermes_like.records import Image

if TYPE_CHECKING:
    from hermes_like.memory.cache import HierarchicalCache


@dataclass(frozen=True, slots=True)
class ModelDims:
    """Shapes of a base model.

    Attributes:
        num_layers: Decoder layers.
        num_heads: Query heads per layer.
        num_kv_heads: Key and value heads per layer.
        head_dim: Channels per head.
        hidden_size: Channels of an embedding.
        vocab_size: Rows of the logits.
        max_positions: Largest position the model was trained for, plus one.
        grid: Rows and columns of vision tokens per frame.
        dtype: Number type of weights and cache.
        device: Where embeddings enter the decoder and logits leave it; positions and provenance
            of all layers lie there too.
        position_axes: Rotary axes: 1, or 3 for time, height and width.
        frame_text_tokens: Text tokens that belong to every frame, such as its time stamp.
        feature_levels: Embeddings of a vision token, one for each decoder layer that takes one in.
        layer_devices: Where each decoder layer runs and keeps its keys and values; empty: all of
            them on ``device``.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    max_positions: int
    grid: tuple[int, int]
    dtype: torch.dtype
    device: torch.device
    position_axes: int = 1
    frame_text_tokens: int = 0
    feature_levels: int = 1
    layer_devices: tuple[torch.device, ...] = ()

    def device_of(self, layer: int) -> torch.device:
        """Where a decoder layer keeps its keys and values."""
        return self.layer_devices[layer] if self.layer_devices else self.device

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """All devices in use, each once, ``device`` first."""
        return tuple(dict.fromkeys((self.device, *self.layer_devices)))

    @property
    def tokens_per_frame(self) -> int:
        """Tokens that one frame costs, its text included."""
        return self.grid[0] * self.grid[1] + self.frame_text_tokens

    @property
    def frame_channels(self) -> int:
        """Channels of a frame's embeddings: one embedding per feature level, side by side."""
        return self.hidden_size * self.feature_levels

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of one token: 2 x layers x kv_heads x head_dim x bytes."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class FrameLayout:
    """Where the tokens of a frame lie on the rotary axes, for models with three of them.

    A frame has one base position. Its tokens have fixed offsets from it, so that moving a frame
    moves all its tokens by one number on all axes.

    Attributes:
        offsets: int64 ``[3, tokens_per_frame]``: time, height and width, from 0 on.
        step: Positions in time from a frame to the next of the same clip.
        is_clip: Whether the frames of a segment form one clip, in which only time advances; else
            every frame begins behind the last one on all axes.
    """

    offsets: Tensor
    step: int = 0
    is_clip: bool = False

    def span(self, frames: int) -> int:
        """Positions that a clip of so many frames takes: its largest offset on any axis, plus 1."""
        time = int(self.offsets[0].max()) + self.step * (frames - 1)
        return max(time, int(self.offsets.max())) + 1


class ModelAdapter(ABC):
    """A base model reduced to a few verbs. No policy inside.

    All tensors are without a batch dimension: one stream per call.
    """

    #: Name under which the model was loaded.
    name: str
    dims: ModelDims
    #: Token ids of which any one ends an answer.
    eos_ids: frozenset[int]
    #: Decoder layers and query heads whose attention shows the evidence; None: the deep band.
    evidence_heads: dict[int, tuple[int, ...]] | None = None
    #: Generic questions used to score memory before anybody asks (local, global).
    guidance_prompts: tuple[str, str]
    #: What stands between the two in the mixed prompt.
    guidance_separator: str = "; "
    #: Places of a frame's tokens; None: one rotary axis, on which tokens simply follow each other.
    frame_layout: FrameLayout | None = None
    #: Number type in which the released HERMES code takes its softmax; see ``memory/scoring.py``.
    released_softmax: torch.dtype = torch.float32

    @abstractmethod
    def encode_text(self, text: str) -> list[int]:
        """Token ids of plain text, without any template."""

    @abstractmethod
    def decode_text(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""

    @abstractmethod
    def prefix_ids(self) -> list[int]:
        """Tokens before the video: begin-of-text, system prompt, opened user turn."""

    @abstractmethod
    def question_ids(self, question: str, *, is_first: bool) -> list[int]:
        """Tokens after the video (or after the last turn) up to where the answer starts."""

    @abstractmethod
    def turn_end_ids(self) -> list[int]:
        """Tokens that close an answer before the next turn of a conversation."""

    @abstractmethod
    def video_end(self) -> Tensor:
        """Embeddings that close a video, ``[n, hidden]``; n may be 0."""

    @abstractmethod
    def embed_frames(self, images: Sequence[Image]) -> Tensor:
        """Tokens of pictures, ``[frames, tokens_per_frame, dims.frame_channels]``.

        Frames are independent of each other: encoding one by one gives the same result. Text that
        belongs to a frame is zero until :meth:`stamp` writes it.
        """

    def stamp(self, tokens: Tensor, times_s: Sequence[float]) -> Tensor:
        """Write the text that belongs to each frame, such as its time, into its tokens.

        Args:
            tokens: As :meth:`embed_frames` gives them.
            times_s: Stream time of each frame.

        Returns:
            Tokens of the same shape; the given ones do not change.
        """
        return tokens

    @abstractmethod
    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """Embeddings of token ids, ``[n, hidden]``."""

    @abstractmethod
    def forward(self, embeds: Tensor, cache: HierarchicalCache, *, logits: bool = False) -> Tensor:
        """Run the decoder over new embeddings, attending to the cache as its open step says.

        Args:
            embeds: ``[n, hidden]`` or ``[n, dims.frame_channels]`` new tokens.
            cache: Cache with an open step (see ``HierarchicalCache.step``).
            logits: Whether logits of the last token are wanted.

        Returns:
            ``[vocab]`` float32 logits of the last token, or an empty tensor.
        """

    def use_attention(self, name: str) -> None:
        """Choose how attention is computed; see ``memory/kernels.py``.

        Raises:
            ModelError: The model, or where it runs, does not have that way.
        """
        if name != "sdpa":
            raise ModelError(f"model.attention: {self.name} has one way only, got {name!r}")

    def forward_rows(self, embeds: Tensor, cache: HierarchicalCache, rows: int) -> Tensor | None:
        """Run the decoder over several streams side by side, none of which sees another.

        Args:
            embeds: ``[rows * n, hidden]`` new tokens, one row after the other.
            cache: A :class:`~hermes_like.memory.rows.RowsCache` with an open step.
            rows: How many.

        Returns:
            ``[rows, vocab]`` float32 logits of the last token of each row. None, before anything
            was computed, where the model cannot do that: then they are asked one by one.
        """
        return None

    @abstractmethod
    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of rotary positions, float32 ``[n, head_dim]`` each.

        Args:
            positions: int64 ``[n]`` (one axis) or ``[3, n]`` (M-RoPE).
        """

    @abstractmethod
    def raw_query_key(self, layer_index: int, embeds: Tensor) -> tuple[Tensor, Tensor]:
        """Un-rotated queries and keys that a layer makes of its *input* ``[n, hidden]``.

        Further feature levels beside the hidden state, as frames have them, are left aside.

        Returns:
            ``[heads, n, head_dim]`` and ``[kv_heads, n, head_dim]``.
        """

    @abstractmethod
    def identity(self) -> dict[str, object]:
        """What stored keys and values depend on, by name; values JSON can hold.

        The names are those of ``tiers/fingerprint.py`` that a model can tell: weights, shapes,
        positions, pixels, prompts.
        """

    def scan_question(self, question: str) -> str | None:
        """A yes-or-no question to ask about one short stretch, for counting and listing; or None.

        Args:
            question: What the user asked about the whole stream, such as "how often did X happen".
        """
        return None

    def present_question(self, question: str) -> str:
        """A question about a past moment as it is asked while only that moment is shown."""
        return question

    def means_yes(self, answer: str) -> bool:
        """Whether a short answer to such a question says yes."""
        return answer.strip().lower().startswith(("yes", "ja", "oui", "si", "sí"))

    def unknown_words(self, text: str) -> list[str]:
        """Words of a question that the model cannot know; empty for open vocabularies."""
        return []
