"""Pictures of memory over stream time. Matplotlib is loaded when something is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hermes_like.cli.history import FloatArray, Moment
from hermes_like.errors import HermesError
from hermes_like.records import Band, LayerStats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BANDS: Final[tuple[Band, ...]] = ("shallow", "middle", "deep")
#: Level, its colour, and how many of its tokens a layer holds.
LEVELS: Final[tuple[tuple[str, str, Callable[[LayerStats], int]], ...]] = (
    ("prefix", "#8c8c8c", lambda layer: layer.prefix),
    ("summary", "#7b5ea7", lambda layer: layer.summary),
    ("mid-term", "#3b7ea1", lambda layer: layer.mid),
    ("short-term", "#f2a541", lambda layer: layer.short),
)
#: Most rows of a heat map.
MAX_ROWS: Final = 160


def draw_history(moments: Sequence[Moment], path: Path, title: str) -> None:
    """Draw, per band, how full the levels are (top) and which moments are held (bottom).

    Args:
        moments: States of one session in time order, at least one.
        path: File to write; the ending chooses the format.
        title: Heading.

    Raises:
        HermesError: The file cannot be written.
    """
    from matplotlib.figure import Figure

    bands = [band for band in BANDS if band in moments[-1].held]
    figure = Figure(figsize=(1.5 + 4.2 * len(bands), 7.2), dpi=120, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    grid = figure.subplots(2, len(bands), sharex=True, sharey="row", squeeze=False)
    for axes, band in zip(grid[0], bands, strict=True):
        _draw_levels(axes, moments, band)
    _draw_legend(figure, grid[0][0])
    _draw_held(figure, grid[1], moments, bands)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise HermesError(f"{path}: cannot be written: {error}") from error


def _draw_levels(axes: Axes, moments: Sequence[Moment], band: Band) -> None:
    times = _times(moments)
    counts = [_mean(moments, band, count) for _, _, count in LEVELS]
    names = [name for name, _, _ in LEVELS]
    colors = [color for _, color, _ in LEVELS]
    axes.stackplot(times, *counts, labels=names, colors=colors, linewidth=0)
    cap = moments[-1].stats.device_tokens
    if cap is not None:
        axes.axhline(cap, color="#c0392b", linewidth=1.2, linestyle="--", label="device_tokens")
    layers = [layer.layer_index for layer in moments[-1].stats.layers if layer.band == band]
    which = f"layers {layers[0]}-{layers[-1]}" if len(layers) > 1 else f"layer {layers[0]}"
    axes.set_title(f"{band} ({which})", fontsize=11)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_legend(figure: Figure, axes: Axes) -> None:
    axes.set_ylabel("slots per layer, mean")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1], labels[::-1], loc="outside lower center", ncols=len(labels), frameon=False
    )


def _draw_held(
    figure: Figure, row: Sequence[Axes], moments: Sequence[Moment], bands: Sequence[Band]
) -> None:
    """Heat maps: at stream time x, how many tokens of moment y a layer holds."""
    times = _times(moments)
    edges = _row_edges(moments[-1])
    maps = {band: _held_map(moments, band, edges) for band in bands}
    top = max(float(values.max()) for values in maps.values()) or 1.0
    mesh: Any = None
    for axes, band in zip(row, bands, strict=True):
        values = np.ma.masked_equal(maps[band], 0.0)
        centers = (edges[:-1] + edges[1:]) / 2
        mesh = axes.pcolormesh(
            times, centers, values, shading="nearest", cmap="YlGnBu", vmin=0.0, vmax=top,
            rasterized=True,
        )  # fmt: skip
        axes.plot(times, times, color="#f2a541", linewidth=1.0)
        axes.set_facecolor("#f7f7f5")
        axes.set_xlabel("stream time (s)")
        axes.spines[["top", "right"]].set_visible(False)
    row[0].set_ylabel("moments still held (s)")
    row[0].set_xlim(times[0], max(times[-1], times[0] + 1e-9))
    figure.colorbar(mesh, ax=list(row), label="tokens per layer", pad=0.01, aspect=30)


def _row_edges(last: Moment) -> FloatArray:
    """Borders of the rows: all rows stand for the same number of frames."""
    num_frames, end_s = max(last.stats.num_frames, 2), max(last.stats.stream_s, 1e-9)
    frames_per_row = -(-num_frames // MAX_ROWS)
    step = frames_per_row * end_s / (num_frames - 1)
    rows = -(-num_frames // frames_per_row)
    return (np.arange(rows + 1) * step - 0.5 * end_s / (num_frames - 1)).astype(np.float64)


def _held_map(moments: Sequence[Moment], band: Band, edges: FloatArray) -> FloatArray:
    """``[rows, moments]`` mean tokens per layer that come from each stretch of stream time."""
    columns = [
        np.histogram(moment.held[band].pts_s, bins=edges, weights=moment.held[band].tokens)[0]
        for moment in moments
    ]
    return np.stack(columns, axis=1)


def _times(moments: Sequence[Moment]) -> FloatArray:
    return np.array([moment.stats.stream_s for moment in moments], dtype=np.float64)


def _mean(moments: Sequence[Moment], band: Band, count: Callable[[LayerStats], int]) -> FloatArray:
    rows = [
        [count(layer) for layer in moment.stats.layers if layer.band == band] for moment in moments
    ]
    return np.array([np.mean(row) for row in rows], dtype=np.float64)
