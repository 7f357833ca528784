"""Long KV memory for video language models: a stream goes in, answers come back with evidence.

Importing this package is cheap: each public name loads its module on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_like.config import HermesConfig
    from hermes_like.engine import Engine
    from hermes_like.errors import (
        BudgetError,
        CodecError,
        ConfigError,
        DatasetError,
        FingerprintError,
        HermesError,
        MemoryLockedError,
        ModelError,
        ModelNotFoundError,
        SegmentUnavailableError,
        SessionStateError,
        SourceError,
        SourceOpenError,
        SourceStalledError,
        StorageError,
        TierFullError,
    )
    from hermes_like.frames import sampled
    from hermes_like.models import load_model
    from hermes_like.monitor import AsyncMonitor, Monitor, MonitorEvent, StreamInfo
    from hermes_like.presets import load_config, preset_names
    from hermes_like.records import (
        Answer,
        Evidence,
        Frame,
        MissingSpan,
        SessionStats,
        SourceHealth,
    )
    from hermes_like.session import StreamSession
    from hermes_like.sources import open_source

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncMonitor",
    "BudgetError",
    "CodecError",
    "ConfigError",
    "DatasetError",
    "Engine",
    "Evidence",
    "FingerprintError",
    "Frame",
    "HermesConfig",
    "HermesError",
    "MemoryLockedError",
    "MissingSpan",
    "ModelError",
    "ModelNotFoundError",
    "Monitor",
    "MonitorEvent",
    "SegmentUnavailableError",
    "SessionStateError",
    "SessionStats",
    "SourceError",
    "SourceHealth",
    "SourceOpenError",
    "SourceStalledError",
    "StorageError",
    "StreamInfo",
    "StreamSession",
    "TierFullError",
    "__version__",
    "load_config",
    "load_model",
    "open_source",
    "preset_names",
    "sampled",
]

_MODULES = {
    "Answer": "records",
    "AsyncMonitor": "monitor",
    "Engine": "engine",
    "Evidence": "records",
    "Frame": "records",
    "HermesConfig": "config",
    "MissingSpan": "records",
    "Monitor": "monitor",
    "MonitorEvent": "monitor",
    "SessionStats": "records",
    "SourceHealth": "records",
    "StreamInfo": "monitor",
    "StreamSession": "session",
    "load_config": "presets",
    "load_model": "models",
    "open_source": "sources",
    "preset_names": "presets",
    "sampled": "frames",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
