"""The vision half of the sprites model as the training sees it, equal to the stock computation.

The parameters live in the stock modules, so that their names fit the whole model; the forward
pass is written out because it takes patches that are cut already and pools before the last
linear map (both are linear, so the order does not matter).
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)
from transformers.models.llava_onevision.modeling_llava_onevision import (
    LlavaOnevisionMultiModalProjector,
)
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from pipelines.sprites_training.code import CODE_DIM
from pipelines.sprites_training.frames import NUM_COLORS, NUM_DIGITS, NUM_SHAPES, NUM_ZONES

TOKENS_PER_FRAME = 4


def vision_config() -> SiglipVisionConfig:
    """Return the configuration of the SigLIP tower."""
    return SiglipVisionConfig(
        image_size=64,
        patch_size=16,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=384,
        vision_use_head=False,
    )


def model_config() -> LlavaOnevisionConfig:
    """Return a whole model's configuration whose vision half is ours and whose decoder is tiny."""
    text = Qwen2Config(
        hidden_size=CODE_DIM, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=8, vocab_size=8,
    )  # fmt: skip
    return LlavaOnevisionConfig(
        vision_config=vision_config(),
        text_config=text,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )


class VisionHalf(nn.Module):
    """SigLIP tower, projector and pooling."""

    def __init__(self) -> None:
        super().__init__()
        config = model_config()
        self.vision_tower = SiglipVisionModel(config.vision_config)
        self.multi_modal_projector = LlavaOnevisionMultiModalProjector(config)
        self.image_newline = nn.Parameter(torch.zeros(CODE_DIM), requires_grad=False)
        self._num_heads = config.vision_config.num_attention_heads

    def activations(self, patches: torch.Tensor) -> torch.Tensor:
        """Pooled activations before the projector's last map, ``[frames, tokens, dim]``.

        Args:
            patches: ``[frames, patches, values]`` float32 in [-1, 1].
        """
        embeddings = self.vision_tower.embeddings
        conv = embeddings.patch_embedding
        x = F.linear(patches, conv.weight.flatten(1), conv.bias)
        x = x + embeddings.position_embedding.weight
        for layer in self.vision_tower.encoder.layers:
            x = self._layer(layer, x)
        x = F.gelu(self.multi_modal_projector.linear_1(x))
        frames, _, dim = x.shape
        return x.view(frames, 2, 2, 2, 2, dim).mean(dim=(2, 4)).view(frames, TOKENS_PER_FRAME, dim)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Return the tokens of each frame, ``[frames, tokens, dim]``."""
        features: torch.Tensor = self.multi_modal_projector.linear_2(self.activations(patches))
        return features

    def _layer(self, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        attention = layer.self_attn
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        weight = torch.cat([p.weight for p in projections])
        bias = torch.cat([p.bias for p in projections])
        frames, patches, dim = x.shape
        qkv = F.linear(layer.layer_norm1(x), weight, bias)
        qkv = qkv.view(frames, patches, 3, self._num_heads, dim // self._num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + attention.out_proj(mixed.transpose(1, 2).reshape(frames, patches, dim))
        hidden = F.gelu(layer.mlp.fc1(layer.layer_norm2(x)), approximate="tanh")
        return x + layer.mlp.fc2(hidden)


class SideHead(nn.Module):
    """Reads every fact from each token on its own; thrown away after training."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = [
            NUM_ZONES * (NUM_SHAPES + 1),
            NUM_ZONES * (NUM_COLORS + 1),
            NUM_ZONES * (NUM_DIGITS + 1),
            NUM_SHAPES * NUM_COLORS,
            NUM_DIGITS,
        ]
        self.linear = nn.Linear(CODE_DIM, sum(self.sizes))

    def forward(self, activations: torch.Tensor) -> list[torch.Tensor]:
        """Return logits of shapes, colours, digits (``[.., zones, classes]``), pairs and digits."""
        parts = list(self.linear(activations).split(self.sizes, dim=-1))
        for i in range(3):
            parts[i] = parts[i].unflatten(-1, (NUM_ZONES, -1))
        return parts


def stock_state(vision: VisionHalf) -> dict[str, torch.Tensor]:
    """Return the parameters under the names they have in the whole model's state dict."""
    return {f"model.{name}": value.detach().clone() for name, value in vision.state_dict().items()}


def load_vision(path: Path) -> VisionHalf:
    """Return a trained vision half.

    Args:
        path: ``tower.safetensors``, or the folder of a stock checkpoint such as the bundled one.
    """
    vision = VisionHalf()
    if path.is_dir():
        whole = LlavaOnevisionForConditionalGeneration.from_pretrained(path).state_dict()
        own = vision.state_dict()
        vision.load_state_dict({name: whole[f"model.{name}"] for name in own})
        return vision.eval()
    state = load_file(path)
    vision.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
    return vision.eval()
