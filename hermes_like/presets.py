"""From a YAML preset, the environment and single settings to one :class:`HermesConfig`.

Later wins: defaults, preset, environment (``HERMES_LIKE__MEMORY__DEVICE_TOKENS=512``), overrides
(``{"memory.device_tokens": "512"}``). The module knows the names and types of fields, not what they
mean. It holds no secrets: a token for the model hub comes from the hub's own variable or file.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import types
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from hermes_like.config import HermesConfig
from hermes_like.errors import ConfigError

ENV_PREFIX = "HERMES_LIKE__"
_EXPECTED = {
    "bool_type": "true or false",
    "datetime_from_date_parsing": "an ISO 8601 time",
    "datetime_parsing": "an ISO 8601 time",
    "datetime_type": "an ISO 8601 time",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "missing": "a value",
    "string_type": "a text",
    "tuple_type": "a list",
}


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a key written twice, of which YAML would drop the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a dictionary of a mapping node."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.YAMLError(f"key {key!r} is there twice, again in line {line}")
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def presets_folder() -> Path:
    """The folder with the presets: inside the installed package, or ``configs/`` of a checkout."""
    packaged = Path(__file__).parent / "_presets"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "configs"


def preset_names() -> list[str]:
    """Names that ``load_config`` accepts, sorted."""
    return sorted(path.stem for path in presets_folder().glob("*.yaml"))


def preset_path(preset: str | Path) -> Path:
    """Where a preset lies: a name from :func:`preset_names`, or the path of a YAML file.

    Raises:
        ConfigError: No such preset or file.
    """
    path = Path(preset)
    is_path = path.suffix in (".yaml", ".yml") or len(path.parts) > 1
    if not is_path:
        path = presets_folder() / f"{preset}.yaml"
    if path.is_file():
        return path
    if is_path:
        raise ConfigError(f"preset file not found: {path}")
    names = preset_names()
    raise ConfigError(f"unknown preset {str(preset)!r}{_nearest(str(preset), names)}")


def load_config(
    preset: str | Path | None = None,
    overrides: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> HermesConfig:
    """Build the configuration.

    Args:
        preset: Name of a preset, path of a YAML file, or None for the defaults.
        overrides: Dotted key to text, as in ``{"memory.device_tokens": "512"}``; ``null`` is None.
        env: Variables to read; None: those of the process.

    Raises:
        ConfigError: Unknown key (the message names the nearest valid one), wrong type, value or
            combination; the message says where it was set, what was expected and what came.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if preset is not None:
        path = preset_path(preset)
        _merge(values, origins, _flatten(_read_yaml(path), str(path)), str(path))
    for name, text in _env_settings(os.environ if env is None else env):
        key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
        _merge(values, origins, {key: _parse(key, text, name)}, name)
    for key, text in (overrides or {}).items():
        _merge(values, origins, {key: _parse(key, text, "setting")}, f"setting {key}={text}")
    return _validate(values, origins)


def with_settings(config: HermesConfig, settings: Mapping[str, Any]) -> HermesConfig:
    """Return a configuration with some keys changed.

    Args:
        config: Stays as it is.
        settings: Dotted key to value, as in ``{"memory.device_tokens": 512}``.

    Raises:
        ConfigError: As :func:`load_config` says.
    """
    dumped = config.model_dump(mode="json")
    values = {
        f"{section}.{name}": v for section, keys in dumped.items() for name, v in keys.items()
    }
    origins: dict[str, str] = {}
    for key, value in settings.items():
        _merge(values, origins, {key: value}, f"setting {key}")
    return _validate(values, origins)


def preset_of_model(model: str) -> str | None:
    """The preset that bears the name of the model's last part, or holds exactly this name."""
    if model == "sprites":
        return None  # the defaults; comparison presets hold this name too
    for name in preset_names():
        if load_config(name, env={}).model.name == model or model == f"random:{name}":
            return name
    return None


def config_keys() -> list[str]:
    """All dotted keys, in the order of the configuration."""
    return list(_fields())


def to_yaml(config: HermesConfig) -> str:
    """Every field of a configuration with its meaning, as a preset that can be loaded again."""
    lines: list[str] = []
    for section, station in config:
        doc = (type(station).__doc__ or "").strip().splitlines()[0]
        lines += ["", f"# {doc}", f"{section}:"]
        for name, info in type(station).model_fields.items():
            value = station.model_dump(mode="json")[name]
            if info.description:
                lines.append(f"  # {info.description}")
            lines.append(f"  {name}: {_yaml_value(value)}")
    return "\n".join(lines[1:]) + "\n"


def header(path: Path) -> str:
    """The comment lines at the top of a preset, up to the first empty line: what it is for."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(itertools.takewhile(lambda line: line.startswith("#"), lines))


def _yaml_value(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _fields() -> dict[str, FieldInfo]:
    return {
        f"{section}.{name}": info
        for section, station in HermesConfig.model_fields.items()
        if isinstance(station.annotation, type) and issubclass(station.annotation, BaseModel)
        for name, info in station.annotation.model_fields.items()
    }


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        # The loader is a SafeLoader: it makes plain values only.
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not a readable YAML file: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected sections with keys, got {_shown(content)}")
    return content


def _flatten(content: dict[str, Any], origin: str) -> dict[str, Any]:
    """Turn sections into dotted keys; an unknown section is named before its keys are looked at."""
    sections = list(HermesConfig.model_fields)
    flat: dict[str, Any] = {}
    for section, keys in content.items():
        if section not in sections:
            hint = _nearest(str(section), sections)
            raise ConfigError(f"{origin}: unknown key {section!r}{hint}")
        if not isinstance(keys, dict):
            raise ConfigError(f"{origin}: {section}: expected keys below it, got {_shown(keys)}")
        flat.update({f"{section}.{name}": value for name, value in keys.items()})
    return flat


def _env_settings(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(env):
        if name.startswith(ENV_PREFIX):
            yield name, env[name]


def _merge(
    values: dict[str, Any], origins: dict[str, str], new: Mapping[str, Any], origin: str
) -> None:
    for key, value in new.items():
        _known(key, origin)
        values[key] = value
        origins[key] = origin


def _known(key: str, origin: str) -> FieldInfo:
    fields = _fields()
    if key in fields:
        return fields[key]
    near = _nearest_key(key, list(fields))
    shown = env_name(near) if near and origin.startswith(ENV_PREFIX) else near
    hint = f"; did you mean {shown!r}?" if shown else ""
    raise ConfigError(f"{origin}: unknown key {key!r}{hint}")


def _nearest_key(key: str, keys: list[str]) -> str | None:
    """The valid key most like a wrong one: in its own section first, then by bare name anywhere."""
    section, name = key.split(".")[0], key.split(".")[-1]
    own = [valid for valid in keys if valid.startswith(f"{section}.")] or keys
    if near := difflib.get_close_matches(key, own, n=1, cutoff=0.75):
        return near[0]
    by_name = {valid.split(".")[-1]: valid for valid in reversed(keys)}
    if bare := difflib.get_close_matches(name, list(by_name), n=1, cutoff=0.7):
        return by_name[bare[0]]
    return next(iter(difflib.get_close_matches(key, own, n=1, cutoff=0.5)), None)


def env_name(key: str) -> str:
    """The environment variable of a dotted key."""
    return ENV_PREFIX + key.replace(".", "__").upper()


def _parse(key: str, text: str, origin: str) -> Any:
    """A value from text: as it is where the field takes text, read as JSON or YAML elsewhere."""
    annotation = _known(key, origin).annotation
    if text.strip() == "null" and type(None) in get_args(annotation):
        return None
    if _takes_text(annotation):
        return text
    for read in (json.loads, yaml.safe_load):
        try:
            return read(text)
        except (ValueError, yaml.YAMLError):
            continue
    return text


def _takes_text(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Literal:
        return all(isinstance(value, str) for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        return any(_takes_text(part) for part in get_args(annotation))
    return annotation is str


def _validate(values: Mapping[str, Any], origins: Mapping[str, str]) -> HermesConfig:
    nested: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, name = key.split(".", 1)
        nested.setdefault(section, {})[name] = value
    try:
        # Strict JSON rules: lists and ISO times are accepted, "512" for a number is not.
        return HermesConfig.model_validate_json(json.dumps(nested, default=_encode), strict=True)
    except ValidationError as error:
        raise ConfigError("\n".join(_messages(error, origins))) from None


def _encode(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _messages(error: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        parts = [str(part) for part in detail["loc"]]
        key = ".".join(parts[:2])
        where = origins.get(key) or " and ".join(
            dict.fromkeys(origin for name, origin in origins.items() if name.startswith(f"{key}."))
        )
        place = f"{where or 'configuration'}: {'.'.join(parts) or 'configuration'}"
        if detail["type"] == "value_error":
            yield f"{place}: {detail['ctx']['error']}"
            continue
        message = detail["msg"].removeprefix("Input should be ")
        expected = _EXPECTED.get(detail["type"], message)
        got = "nothing" if detail["type"] == "missing" else _shown(detail["input"])
        yield f"{place}: expected {expected}, got {got}"


def _nearest(name: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{hint} (expected one of: {', '.join(valid)})"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
