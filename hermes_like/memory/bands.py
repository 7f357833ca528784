"""Depth of a decoder layer: shallow 10 %, middle 60 %, deep 30 % (HERMES section 3)."""

from __future__ import annotations

from hermes_like.records import Band


def band_of(layer_index: int, num_layers: int) -> Band:
    """Band of a layer. Borders are ``floor(0.1 L)`` and ``floor(0.7 L)``, in whole numbers."""
    first_middle, first_deep = band_borders(num_layers)
    if layer_index < first_middle:
        return "shallow"
    return "middle" if layer_index < first_deep else "deep"


def band_progress(layer_index: int, num_layers: int) -> float:
    """How far a layer lies inside its band, 0 at the first layer, below 1 at the last."""
    first_middle, first_deep = band_borders(num_layers)
    edges = {"shallow": (0, first_middle), "middle": (first_middle, first_deep)}
    start, end = edges.get(band_of(layer_index, num_layers), (first_deep, num_layers))
    return (layer_index - start) / max(end - start, 1)


def band_borders(num_layers: int) -> tuple[int, int]:
    """First middle and first deep layer."""
    return num_layers // 10, num_layers * 7 // 10
