"""Retention policies: what mid-term memory keeps."""

from __future__ import annotations

from hermes_like.policies.base import LayerView, RetentionPolicy, SelectionSpec, SmoothingSpec
from hermes_like.registry import Registry

POLICIES: Registry[type[RetentionPolicy]] = Registry(
    "retention policy",
    {
        "full": "hermes_like.policies.full:FullPolicy",
        "window": "hermes_like.policies.window:WindowPolicy",
        "sink_window": "hermes_like.policies.sink_window:SinkWindowPolicy",
        "uniform": "hermes_like.policies.uniform:UniformPolicy",
        "hermes": "hermes_like.policies.hermes:HermesPolicy",
    },
)

__all__ = ["POLICIES", "LayerView", "RetentionPolicy", "SelectionSpec", "SmoothingSpec"]
