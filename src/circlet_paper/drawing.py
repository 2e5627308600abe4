"""Figures as all experiments draw them: panels without frames, and one legend below them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Color and marker of the paper's models, the same everywhere: of Okabe and Ito's colors, which color-blind people
#: can tell apart.
STYLES = {"FC": ("#666666", "s"), "HRR": ("#E69F00", "^"), "CHRR": ("#0072B2", "o")}


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes, `(rows, columns)`; one of each even where there is nothing to draw."""
    from matplotlib.figure import Figure  # an extra

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(max(rows, 1), max(columns, 1), squeeze=False, **options)


def finished(figure: Figure, grid: str = "both", legend: int = 0) -> Figure:
    """The figure with a grid along these axes, and a legend, of so many columns, of the panel with most labels."""
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        if grid != "none":
            axis.grid(alpha=0.25, axis=grid)  # type: ignore[arg-type]
    labeled = max((axis.get_legend_handles_labels() for axis in figure.axes), key=lambda both: len(both[0]))
    if legend and labeled[0]:
        figure.legend(*labeled, loc="outside lower center", ncols=legend, frameon=False)
    return figure
