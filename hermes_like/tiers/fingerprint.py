"""What stored keys and values depend on: a memory of another model is refused by field name.

The values come from the model adapter, the codec and the source; nothing here computes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from hermes_like.errors import ConfigError, FingerprintError

#: A difference in one of these makes stored keys and values useless or wrong.
HARD_FIELDS = (
    "format_version",
    "model",
    "model_epoch",
    "revision",
    "weights_digest",
    "adapters",
    "weight_quantisation",
    "text_config_digest",
    "vision_config_digest",
    "num_layers",
    "num_kv_heads",
    "head_dim",
    "layer_types",
    "window_tokens",
    "rope_type",
    "rope_theta",
    "rope_scaling",
    "rope_sections",
    "keys_are_rotated",
    "kv_dtype",
    "codec",
    "codec_version",
    "processor_digest",
    "sample_fps",
    "tokenizer_digest",
    "prefix_digest",
    "tensor_parallel",
    "retrieval_heads",
)
#: A difference in one of these is worth a note.
SOFT_FIELDS = ("hermes_like", "transformers", "torch", "cuda", "attention_kernel", "device")


@dataclass(frozen=True)
class Fingerprint:
    """What the contents of a memory folder depend on.

    Attributes:
        hard: Name to value; all must be equal for stored data to be used.
        soft: Name to value; differences are told and nothing more.
            Values are what JSON can hold: texts, numbers, truth values, None, and lists of them.
    """

    hard: Mapping[str, object]
    soft: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("hard", "soft"):
            plain = {key: _plain(value) for key, value in getattr(self, name).items()}
            object.__setattr__(self, name, MappingProxyType(plain))

    @classmethod
    def of(cls, **values: object) -> Fingerprint:
        """Sort values into hard and soft fields by their names.

        Raises:
            ConfigError: A name is neither in ``HARD_FIELDS`` nor in ``SOFT_FIELDS``.
        """
        unknown = sorted(set(values) - set(HARD_FIELDS) - set(SOFT_FIELDS))
        if unknown:
            raise ConfigError(f"fingerprint: unknown fields {', '.join(unknown)}")
        hard = {name: value for name, value in values.items() if name in HARD_FIELDS}
        return cls(hard, {name: value for name, value in values.items() if name in SOFT_FIELDS})

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical JSON of the hard fields, 32 bytes."""
        return hashlib.sha256(_canonical(dict(self.hard)).encode()).digest()

    def to_json(self) -> str:
        """All fields, as canonical JSON."""
        return _canonical({"hard": dict(self.hard), "soft": dict(self.soft)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Fingerprint:
        """Read what :meth:`to_json` wrote.

        Raises:
            FingerprintError: The text is something else.
        """
        try:
            values = json.loads(text)
            return cls(dict(values["hard"]), dict(values["soft"]))
        except (ValueError, KeyError, TypeError, ConfigError) as error:
            raise FingerprintError(f"no fingerprint: {error}") from error

    def require_equal(self, stored: Fingerprint) -> list[str]:
        """Refuse stored data of another kind.

        Returns:
            One sentence per soft field that differs.

        Raises:
            FingerprintError: The message names every hard field that differs, with both values.
        """
        different = _differences(stored.hard, self.hard)
        if different:
            raise FingerprintError(
                "the memory was written with another model or format, and is left as it is: "
                + "; ".join(f"{name} {old} -> {new}" for name, old, new in different)
            )
        return [
            f"{name} was {old} when the memory was written and is {new} now"
            for name, old, new in _differences(stored.soft, self.soft)
        ]


def _differences(
    old: Mapping[str, object], new: Mapping[str, object]
) -> list[tuple[str, str, str]]:
    """Name, old and new value of every field that is not the same in both."""
    result = []
    for name in sorted({*old, *new}):
        before, after = (
            _canonical(values[name]) if name in values else "(not given)" for values in (old, new)
        )
        if before != after:
            result.append((name, before, after))
    return result


def _plain(value: object) -> object:
    """A value as JSON gives it back, so that written and read fingerprints compare equal."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    raise ConfigError(f"fingerprint: expected a JSON value, got {type(value).__name__} {value!r}")


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
