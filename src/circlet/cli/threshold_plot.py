"""The picture of `circlet evaluate --plot`: what every threshold would give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from circlet.metrics.decisions import Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_curves"]

_COLORS = {"precision": "#8a8f98", "recall": "#b3702a", "f1": "#1f5fbf"}


def draw_curves(curve: Curve, threshold: float, name: str) -> Figure:
    """Precision, recall and F1 over the threshold; `name` says what the marked one is."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    # Between two probabilities that occur, a threshold decides as the higher one does.
    order = np.argsort(curve.thresholds)
    x = np.concatenate([[0.0], curve.thresholds[order]])
    for label, color in _COLORS.items():
        y = 100 * getattr(curve, label)[order]
        y = np.concatenate([y[:1], y])
        axis.step(x, y, where="pre", color=color)
        place = int(np.searchsorted(x, 0.8).clip(0, len(x) - 1))
        axis.annotate(
            "F1" if label == "f1" else label,
            (x[place], y[place]),
            textcoords="offset points",
            xytext=(2, 4),
            color=color,
        )
    axis.axvline(threshold, color="black", linewidth=1, linestyle=":")
    axis.annotate(
        f"{name} {threshold:.3f}",
        (threshold, 1),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        xytext=(4, -12),
    )
    axis.set(xlim=(0, 1), ylim=(0, 101), xlabel="threshold: least probability of a predicted label", ylabel="%")
    axis.spines[["top", "right"]].set_visible(False)
    return figure
