"""The decoder's forward pass for training: stock Qwen2 parameters, one pass, two extras.

The modules are those of ``Qwen2ForCausalLM``, so a checkpoint needs no conversion; only the order
of the arithmetic is written out here. The extras are attention losses on chosen heads and rows, and
linear side heads on the video tokens. Where the rows come from, this module does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

from hermes_like.sprites.tokenizer import BOS_ID, EOS_ID, PAD_ID, VOCABULARY_SIZE, vocabulary
from pipelines.sprites_training.code import CODE_DIM, word_code

HIDDEN = CODE_DIM
NUM_LAYERS = 8
NUM_HEADS = 4
NUM_KV_HEADS = 2
HEAD_DIM = 32
MLP_DIM = 352
ROPE_THETA = 1e5
MAX_POSITIONS = 32_768
MASKED = -1e9


def decoder_config() -> Qwen2Config:
    """Return the configuration of the decoder."""
    return Qwen2Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=HIDDEN,
        intermediate_size=MLP_DIM,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=NUM_HEADS,
        num_key_value_heads=NUM_KV_HEADS,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=False,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
    )


@dataclass(frozen=True, slots=True)
class RowTarget:
    """Where chosen heads of chosen rows should look.

    Attributes:
        layer: Decoder layer, counted from 0.
        heads: Which query heads.
        is_exact: Whether the weights are a distribution to match; else only the total attention
            on the targets counts.
        weight: Factor of this loss.
        rows: ``[batch, rows]`` int64, indices of tokens; padded with 0.
        wanted: ``[batch, rows, tokens]`` float32, 0 where not a target; a row of zeros is ignored.
    """

    layer: int
    heads: tuple[int, ...]
    is_exact: bool
    weight: float
    rows: Tensor
    wanted: Tensor


@dataclass(frozen=True, slots=True)
class Outputs:
    """What one forward pass gives.

    Attributes:
        logits: ``[answers, vocabulary]`` of the rows that predict an answer word.
        attention_losses: One scalar per row target, unweighted.
        hidden: Input of each layer, ``[batch, tokens, hidden]``, for the side heads.
    """

    logits: Tensor
    attention_losses: list[Tensor]
    hidden: list[Tensor]


class Decoder(nn.Module):
    """Qwen2 with the parameters of the stock class, the newline vector and the side heads.

    Args:
        side_heads: Classes of each side head.
        config: Of a decoder of other depth or vocabulary; None: the sprites model's.
    """

    def __init__(self, side_heads: dict[str, int], config: Qwen2Config | None = None) -> None:
        super().__init__()
        self.lm = Qwen2ForCausalLM(config or decoder_config())
        self.newline = nn.Parameter(torch.randn(HIDDEN) * 0.1)
        self.side = nn.ModuleDict({name: nn.Linear(HIDDEN, n) for name, n in side_heads.items()})
        inverse = ROPE_THETA ** -(torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
        self.register_buffer("inverse_frequencies", inverse, persistent=False)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, ``[batch, 1, tokens, head_dim]``."""
        angles = positions[:, None, :, None].float() * self.inverse_frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    def forward(
        self,
        embeddings: Tensor,
        positions: Tensor,
        bias: Tensor,
        answer_rows: Tensor,
        targets: Sequence[RowTarget] = (),
    ) -> Outputs:
        """Run the decoder.

        Args:
            embeddings: ``[batch, tokens, hidden]`` float32.
            positions: ``[batch, tokens]`` int64.
            bias: ``[batch, 1, tokens, tokens]`` float32, 0 where visible, ``MASKED`` elsewhere.
            answer_rows: ``[batch, rows]`` int64, tokens whose successor is an answer word; the
                last layer runs for these rows only.
            targets: Attention losses to compute.
        """
        cos, sin = self.rotary(positions)
        x = embeddings
        losses: dict[int, Tensor] = {}
        hidden: list[Tensor] = []
        layers = self.lm.model.layers
        for index, layer in enumerate(layers):
            hidden.append(x)
            is_last = index == len(layers) - 1
            rows = answer_rows if is_last else None
            x, q, k = self._layer(layer, x, cos, sin, bias, rows)
            for number, target in enumerate(targets):
                if target.layer == index:
                    losses[number] = attention_loss(q, k, bias, target)
        logits = self.lm.lm_head(_norm(self.lm.model.norm, x))
        return Outputs(logits, [losses[i] for i in range(len(targets))], hidden)

    def _layer(
        self,
        layer: nn.Module,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        bias: Tensor,
        rows: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens, _ = x.shape
        attention = layer.self_attn
        h = _norm(layer.input_layernorm, x)
        k = attention.k_proj(h).view(batch, tokens, NUM_KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = attention.v_proj(h).view(batch, tokens, NUM_KV_HEADS, HEAD_DIM).transpose(1, 2)
        k = _rotate(k, cos, sin)
        if rows is not None:
            x, h = _take(x, rows), _take(h, rows)
            cos, sin = _take(cos[:, 0], rows)[:, None], _take(sin[:, 0], rows)[:, None]
            bias = _take(bias[:, 0], rows)[:, None]
        q = attention.q_proj(h).view(batch, -1, NUM_HEADS, HEAD_DIM).transpose(1, 2)
        q = _rotate(q, cos, sin)
        repeats = NUM_HEADS // NUM_KV_HEADS
        wide_k, wide_v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        mixed = F.scaled_dot_product_attention(q, wide_k, wide_v, attn_mask=bias)
        x = x + attention.o_proj(mixed.transpose(1, 2).reshape(batch, -1, HIDDEN))
        h = _norm(layer.post_attention_layernorm, x)
        mlp = layer.mlp
        return x + mlp.down_proj(F.silu(mlp.gate_proj(h)) * mlp.up_proj(h)), q, k


def attention_loss(q: Tensor, k: Tensor, bias: Tensor, target: RowTarget) -> Tensor:
    """Return minus the log of the attention on the targets, or the divergence from them.

    Args:
        q: ``[batch, heads, tokens, head_dim]``, rotated queries.
        k: ``[batch, kv_heads, tokens, head_dim]``, rotated keys.
        bias: ``[batch, 1, tokens, tokens]``, 0 where visible.
        target: What to look at; rows without a visible target are ignored.
    """
    heads = list(target.heads)
    kv_heads = [head * NUM_KV_HEADS // NUM_HEADS for head in heads]
    index = target.rows[:, None, :, None].expand(-1, len(heads), -1, HEAD_DIM)
    chosen = q[:, heads].gather(2, index)
    scores = chosen @ k[:, kv_heads].transpose(2, 3) / HEAD_DIM**0.5
    row_bias = _take(bias[:, 0], target.rows)
    log_attention = F.log_softmax(scores + row_bias[:, None], dim=-1)
    wanted = target.wanted * (row_bias == 0)
    total = wanted.sum(-1)
    is_valid = (total > 0).float()
    count = is_valid.sum().clamp(min=1.0) * len(heads)
    if not target.is_exact:
        mass = (log_attention.exp() * (wanted > 0)[:, None]).sum(-1)
        return -((mass + 1e-7).log() * is_valid[:, None]).sum() / count
    share = wanted / total.clamp(min=1e-9)[..., None]
    entropy = -(share * (share + 1e-9).log()).sum(-1)
    cross = -(share[:, None] * log_attention.clamp(min=-30.0)).sum(-1)
    return ((cross - entropy[:, None]) * is_valid[:, None]).sum() / count


def initialise(decoder: Decoder, seed: int) -> None:
    """Anchor the words in the feature code and start attention as "find the similar, copy it"."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, std: float) -> Tensor:
        return torch.randn(*shape, generator=generator) * std

    with torch.no_grad():
        embedding = decoder.lm.model.embed_tokens.weight
        embedding.copy_(normal(*embedding.shape, std=0.25))
        for word, index in vocabulary().items():
            code = word_code(word)
            if code is not None:
                embedding[index] = torch.from_numpy(code)
                if word.endswith("s"):
                    embedding[index] += normal(HIDDEN, std=0.05)
        decoder.lm.lm_head.weight.copy_(embedding)
        initialise_attention(decoder, normal)


def initialise_attention(decoder: Decoder, normal: Callable[..., Tensor]) -> None:
    """Start every layer's attention as "find the similar, copy it", in place.

    Args:
        decoder: Changed.
        normal: Draws a tensor of a shape with zero mean and standard deviation ``std``.
    """
    for layer in decoder.lm.model.layers:
        _initialise_attention(layer.self_attn, normal)


def _initialise_attention(attention: nn.Module, normal: Callable[..., Tensor]) -> None:
    std = HIDDEN**-0.5
    repeats = NUM_HEADS // NUM_KV_HEADS
    for kv_head in range(NUM_KV_HEADS):
        kv = slice(kv_head * HEAD_DIM, (kv_head + 1) * HEAD_DIM)
        key, value = normal(HEAD_DIM, HIDDEN, std=std), normal(HEAD_DIM, HIDDEN, std=std)
        attention.k_proj.weight[kv], attention.v_proj.weight[kv] = key, value
        for head in range(kv_head * repeats, (kv_head + 1) * repeats):
            rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            noise = normal(HEAD_DIM, HIDDEN, std=0.3 * std)
            attention.q_proj.weight[rows] = key + noise
            small = normal(HIDDEN, HEAD_DIM, std=0.02)
            attention.o_proj.weight[:, rows] = 0.5 * value.T + small
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.bias.zero_()


def _norm(norm: nn.Module, x: Tensor) -> Tensor:
    return F.rms_norm(x, (HIDDEN,), norm.weight, norm.variance_epsilon)


def _take(x: Tensor, rows: Tensor) -> Tensor:
    """Gather rows: ``[batch, tokens, dim]``, ``[batch, rows]`` -> ``[batch, rows, dim]``."""
    return x.gather(1, rows[:, :, None].expand(-1, -1, x.shape[-1]))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
