"""Draws how the decoder's answers improved, from its log."""

from __future__ import annotations

import json
from pathlib import Path

from hermes_like.sprites.questions import GROUPS


def plot_learning_curve(log: Path, image: Path) -> None:
    """Write a PNG with the checks of each group over steps, one panel per video length."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    checks = [record for record in records if "check" in record]
    lengths = sorted({record["check_frames"] for record in checks})
    figure, axes = plt.subplots(
        1, max(1, len(lengths)), figsize=(12, 4), sharey=True, squeeze=False
    )
    for axis, frames in zip(axes[0], lengths, strict=False):
        chosen = [record for record in checks if record["check_frames"] == frames]
        for group in GROUPS:
            points = [(r["step"], r["check"][group]) for r in chosen if group in r["check"]]
            axis.plot(*zip(*points, strict=True), label=group)
        axis.set_title(f"{frames} frames, complete cache")
        axis.set_xlabel("step")
    axes[0][0].set_ylabel("whole answers right (%)")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(image, dpi=110)
    plt.close(figure)
