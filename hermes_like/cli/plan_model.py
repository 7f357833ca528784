"""The shape of a model by its name, before anything of it is loaded or allocated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_like.errors import ModelError, ModelNotFoundError
from hermes_like.plan import ModelShape
from hermes_like.presets import load_config, preset_names

if TYPE_CHECKING:
    from hermes_like.config import ModelConfig

#: Bundled models lie in ``<name>/weights`` below it.
PACKAGE = Path(__file__).parent.parent
_ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}


def model_shape(model: ModelConfig, tokens_per_frame: int | None = None) -> ModelShape:
    """Shape of a model; no weights are read.

    Args:
        model: Its name: one that is bundled, ``random:<shape>``, a local folder, or a hub name for
            which there is a preset.
        tokens_per_frame: Instead of the model's own.

    Raises:
        ConfigError: Unknown random shape.
        ModelNotFoundError: The name leads to no configuration.
        ModelError: The file does not say what is needed.
    """
    if _is_bundled(model.name):
        bundled = PACKAGE / model.name / "weights" / "config.json"
        return _shape_of_file(model, _read(bundled), tokens_per_frame)
    if Path(model.name).is_dir():
        return _shape_of_file(model, _read(Path(model.name) / "config.json"), tokens_per_frame)
    return _random_shape(model, tokens_per_frame)


def _is_bundled(name: str) -> bool:
    return name.isidentifier() and (PACKAGE / name / "weights" / "config.json").is_file()


def random_twin(model: ModelConfig) -> ModelConfig:
    """The random shape that stands for a model where nothing may be read or allocated.

    Args:
        model: ``random:<shape>``, or a hub name that a preset of the shape's name has.

    Raises:
        ModelNotFoundError: Neither.
    """
    name = model.name
    if not name.startswith("random:"):
        found = [p for p in preset_names() if load_config(p, env={}).model.name == name]
        if not found or _is_bundled(name):
            raise ModelNotFoundError(
                f"no configuration of {name!r}: expected a bundled model, random:<shape>, a local "
                "folder with config.json, or a hub name that a preset has"
            )
        name = f"random:{found[0]}"
    changes = {"name": name, "device": "meta", "device_map": None, "attention": "sdpa"}
    if model.dtype == "auto":
        changes["dtype"] = "bfloat16"
    return model.model_copy(update=changes)


def _random_shape(model: ModelConfig, tokens_per_frame: int | None) -> ModelShape:
    # The table of shapes lives beside the code that builds them, and that loads torch.
    twin = random_twin(model)
    from hermes_like.models import load_model

    dims = load_model(twin).dims
    return ModelShape(
        num_layers=dims.num_layers,
        num_kv_heads=dims.num_kv_heads,
        head_dim=dims.head_dim,
        tokens_per_frame=tokens_per_frame or dims.tokens_per_frame,
        itemsize=dims.dtype.itemsize,
    )


def _shape_of_file(
    model: ModelConfig, content: dict[str, Any], tokens_per_frame: int | None
) -> ModelShape:
    text, vision = content.get("text_config", content), content.get("vision_config", {})
    try:
        heads = text["num_attention_heads"]
        return ModelShape(
            num_layers=text["num_hidden_layers"],
            num_kv_heads=text.get("num_key_value_heads", heads),
            head_dim=text.get("head_dim") or text["hidden_size"] // heads,
            tokens_per_frame=tokens_per_frame or _tokens_per_frame(model, content, vision),
            itemsize=_itemsize(model),
        )
    except KeyError as error:
        hint = "; use --tokens-per-frame" if error.args[0] in ("image_size", "patch_size") else ""
        raise ModelError(f"{model.name}: its configuration has no {error.args[0]}{hint}") from error


def _tokens_per_frame(model: ModelConfig, content: dict[str, Any], vision: dict[str, Any]) -> int:
    """By the rule of the family. The modules of the others load torch."""
    if content.get("model_type") == "internvl":
        from hermes_like.models import internvl_shapes

        return internvl_shapes.tokens_per_frame(vision)
    if "image_size" not in vision and "patch_size" in vision:
        from hermes_like.models import qwen_shapes

        return qwen_shapes.tokens_per_frame(model, vision)
    # Patches in a row, pooled by two, as LLaVA-OneVision does.
    side = -(-(int(vision["image_size"]) // int(vision["patch_size"])) // 2)
    return side * side


def _itemsize(model: ModelConfig) -> int:
    """Of the cache; ``auto`` is float32 for bundled models and half precision elsewhere."""
    if model.dtype != "auto":
        return _ITEMSIZE[model.dtype]
    return 4 if _is_bundled(model.name) else 2


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(f"{path}: expected a JSON file: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: expected an object, got {type(content).__name__}")
    return content
