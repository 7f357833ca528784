"""The memory as a picture: what is held where over stream time, and how full the tiers are.

Drawn with matplotlib as SVG whose lines and letters take the colours of the page, so that one
drawing is readable in light and dark. Knows snapshots; it knows no session and no page.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from demos.snapshots import Sample, Snapshot
from hermes_like.cli.history import FloatArray, Held
from hermes_like.cli.output import clock, size
from hermes_like.records import Band, Evidence

#: Stand-ins for colours of the page; replaced in the finished drawing.
INK, FAINT, GROUND = "#010203", "#040506", "#070809"
_PAGE_COLORS = {INK: "var(--mv-ink)", FAINT: "var(--mv-faint)", GROUND: "var(--mv-ground)"}

#: What is drawn in which colour. Mid-tones that stand out from white and from black.
COLORS = {
    "short": "#e8973a",
    "mid": "#4a8fd4",
    "host": "#2fa38a",
    "disk": "#8b6fd0",
    "remote": "#c05fa0",
    "source": "#c9a227",
    "hit": "#e0455e",
}
NAMES = {
    "short": "short-term, on the device",
    "mid": "mid-term, on the device",
    "host": "long-term, in RAM",
    "disk": "long-term, on disk",
    "remote": "long-term, remote",
    "source": "pictures",
    "hit": "used by the last answer",
}
TIERS = {"device": ("device", "#4a8fd4"), "host": ("RAM", "#2fa38a"), "disk": ("disk", "#8b6fd0")}
BANDS: dict[Band, str] = {"shallow": "#2fa38a", "middle": "#4a8fd4", "deep": "#e8973a"}
#: Cells of a strip.
MAX_CELLS = 240

#: Options of matplotlib are global to the process.
_drawing = threading.Lock()


#: Left, bottom, width and height, as shares of the whole.
Place = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Shape:
    """Size in inches, and where timeline, bytes and kept tokens stand.

    The places are fixed: finding them anew takes longer than all of the drawing.
    """

    width: float
    height: float
    places: tuple[Place, Place, Place]


WIDE = Shape(
    11.0, 5.0, ((0.07, 0.52, 0.92, 0.46), (0.07, 0.13, 0.4, 0.26), (0.55, 0.13, 0.44, 0.26))
)
NARROW = Shape(
    4.4, 8.2, ((0.19, 0.63, 0.78, 0.36), (0.19, 0.36, 0.78, 0.17), (0.19, 0.08, 0.78, 0.17))
)


def draw_memory(snapshot: Snapshot, hits: Sequence[Evidence] = (), shape: Shape = WIDE) -> str:
    """Draw a memory.

    Args:
        snapshot: What it holds.
        hits: Evidence of the last answer.
        shape: For a screen or for a phone.

    Returns:
        An ``<svg>`` element.
    """
    with _drawing, matplotlib.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(shape.width, shape.height))
        figure.patch.set_alpha(0.0)
        timeline, sizes, kept = (figure.add_axes(place) for place in shape.places)
        _draw_timeline(timeline, snapshot, hits)
        _draw_bytes(sizes, snapshot)
        _draw_kept(kept, snapshot)
        for axes in (timeline, sizes, kept):
            _dress(axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True)
    return _for_page(out.getvalue(), summary(snapshot))


def summary(snapshot: Snapshot) -> str:
    """The drawing in one sentence, for those who cannot see it."""
    stats = snapshot.stats
    used = snapshot.samples[-1].used_bytes
    parts = [
        f"{TIERS[name][0]} {size(used[name])} of {size(cap) if cap else 'any number'}"
        for name, cap in snapshot.caps_bytes.items()
        if name in used and name in TIERS
    ]
    return (
        f"{clock(stats.stream_s)} of video in {stats.num_frames} frames and {stats.num_segments} "
        f"segments; {', '.join(parts)}"
    )


# -- the strips --------------------------------------------------------------------------------


def _draw_timeline(axes: Axes, snapshot: Snapshot, hits: Sequence[Evidence]) -> None:
    end_s = max(snapshot.stats.stream_s, 1.0)
    rows = [band for band in BANDS if band in snapshot.held]
    labels: list[str] = []
    for band in rows:
        _draw_held(axes, len(labels), snapshot.held[band], snapshot, end_s)
        labels.append(band)
    for span in snapshot.stored:
        _bar(axes, len(labels), span.start_s, span.end_s, COLORS[span.place])
    labels.append("long-term")
    for span in snapshot.pictured:
        _bar(axes, len(labels), span.start_s, span.end_s, COLORS["source"])
    labels.append("pictures")
    for number, hit in enumerate(hits, start=1):
        _draw_hit(axes, number, hit, len(labels), end_s)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -1.15)
    # The page reads time from left to right; what is being seen now is the right edge.
    axes.set_xlim(0.0, end_s * 1.005)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 1.5, 2, 3, 6, 10]))
    axes.set_xlabel("stream time", color=INK, fontsize=9, labelpad=1)


def _draw_held(axes: Axes, row: int, held: Held, snapshot: Snapshot, end_s: float) -> None:
    """A strip whose strength says how many tokens of each moment are held."""
    edges = np.linspace(0.0, end_s, min(MAX_CELLS, max(len(held.pts_s), 2) * 4) + 1)
    frame_s = end_s / max(snapshot.stats.num_frames, 1)
    for level in ("mid", "short"):
        is_level = (held.pts_s >= snapshot.short_since_s) == (level == "short")
        share = np.zeros(len(edges) - 1)
        for pts_s, tokens in zip(held.pts_s[is_level], held.tokens[is_level], strict=True):
            first = int(np.searchsorted(edges, pts_s, "right")) - 1
            last = max(first + 1, int(np.searchsorted(edges, pts_s + frame_s, "left")))
            part = min(1.0, tokens / snapshot.tokens_per_frame)
            share[first:last] = np.maximum(share[first:last], part)
        _cells(axes, row, edges, share, COLORS[level])


def _cells(axes: Axes, row: int, edges: FloatArray, share: FloatArray, color: str) -> None:
    """Runs of equal strength as one bar each, which keeps the drawing small."""
    # A trace of a moment must still be seen, so strength begins above nothing.
    steps = np.where(share > 0, np.ceil(share * 6) / 6 * 0.85 + 0.15, 0.0)
    breaks = [0, *(np.flatnonzero(np.diff(steps)) + 1), len(steps)]
    for start, stop in pairwise(breaks):
        if steps[start] > 0:
            _bar(axes, row, edges[start], edges[stop], color, float(steps[start]))


def _bar(
    axes: Axes, row: int, start_s: float, end_s: float, color: str, alpha: float = 1.0
) -> None:
    axes.barh(row, end_s - start_s, left=start_s, height=0.68, color=color, alpha=alpha, lw=0)


def _draw_hit(axes: Axes, number: int, hit: Evidence, num_rows: int, end_s: float) -> None:
    width_s = max(hit.end_s - hit.start_s, end_s / 250)
    axes.axvspan(hit.start_s, hit.start_s + width_s, color=COLORS["hit"], alpha=0.22, lw=0)
    center_s = hit.start_s + width_s / 2
    axes.plot([center_s] * 2, [-0.55, num_rows - 0.5], color=COLORS["hit"], lw=1.1)
    axes.text(
        center_s, -0.82, str(number), color="white", fontsize=8, ha="center", va="center",
        fontweight="bold", bbox={"boxstyle": "circle,pad=0.25", "fc": COLORS["hit"], "lw": 0},
    )  # fmt: skip


# -- sizes over time ---------------------------------------------------------------------------


def _draw_bytes(axes: Axes, snapshot: Snapshot) -> None:
    """Bytes against caps, on one scale of powers: caps are often far above what is used."""
    times = _times(snapshot.samples)
    for name, cap in snapshot.caps_bytes.items():
        if name not in TIERS:
            continue
        label, color = TIERS[name]
        used = [sample.used_bytes.get(name, 0) for sample in snapshot.samples]
        axes.plot(times, np.maximum(used, 1024), color=color, lw=2.0, label=label)
        if cap:
            axes.axhline(cap, color=color, lw=1.2, ls=(0, (4, 3)))
    axes.set_yscale("log", base=2)
    low, high = axes.get_ylim()
    exponents = np.arange(np.floor(np.log2(low) / 4) * 4, np.ceil(np.log2(high) / 4) * 4 + 1, 4)
    axes.set_yticks(2.0**exponents)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short_size(value)))
    axes.set_ylim(2.0 ** exponents[0], 2.0 ** exponents[-1])
    _title(axes, "bytes used (lines) and caps (dashed)")
    _legend(axes)


def _draw_kept(axes: Axes, snapshot: Snapshot) -> None:
    times = _times(snapshot.samples)
    # Bands may hold the same number; the later line is thinner, so that both are seen.
    for width, (band, color) in zip((4.2, 3.0, 1.8), BANDS.items(), strict=True):
        if band in snapshot.samples[-1].kept_tokens:
            kept = [sample.kept_tokens.get(band, 0.0) for sample in snapshot.samples]
            axes.plot(times, kept, color=color, lw=width, label=band)
    cap = snapshot.stats.device_tokens
    if cap is not None:
        axes.axhline(cap, color=COLORS["hit"], lw=1.2, ls=(0, (4, 3)), label="cap")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _title(axes, "video tokens kept per layer")
    _legend(axes)


def _times(samples: Sequence[Sample]) -> FloatArray:
    return np.array([sample.stream_s for sample in samples], dtype=np.float64)


def _short_size(num_bytes: float) -> str:
    return size(round(num_bytes)).replace(".0", "")


# -- looks -------------------------------------------------------------------------------------


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, color=INK, fontsize=10, loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 1.5, 2, 3, 6, 10]))


def _legend(axes: Axes) -> None:
    legend = axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, -0.52), ncols=4, frameon=False, fontsize=9,
        handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_color(INK)


def _dress(axes: Axes) -> None:
    axes.patch.set_alpha(0.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value)))
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.grid(axis="x", color=FAINT, lw=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _for_page(svg: str, sentence: str) -> str:
    """What may stand in a page: no prolog, no names that could be there twice, page colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{sentence}"', 1)
    for stand_in, color in _PAGE_COLORS.items():
        svg = svg.replace(stand_in, color)
    return svg
