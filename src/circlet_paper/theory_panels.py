"""The pictures of the experiment `theory`: formulas as lines, measurements as points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from circlet_paper import Result
from circlet_paper.theory_claims import expected_share
from circlet_paper.theory_formulas import angle_scores, sum_scores
from circlet_paper.theory_measures import THRESHOLDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, LIGHT, GRAY, ORANGE = "#1f5fbf", "#7fb0ea", "#777777", "#d1701f"


def draw(result: Result) -> Figure:
    """Draw tails, noise, retrieval at three dimensions, and sets with a pattern."""
    from matplotlib.figure import Figure  # an extra

    figure = Figure(figsize=(14, 8), layout="constrained")
    axes = figure.subplots(2, 3)
    _tails(axes[0, 0], result)
    _noise(axes[0, 1], result)
    dims = [dim for dim in (128, 256, 512) if dim in result["settings"]["dims"]]
    for axis, dim in zip((axes[0, 2], axes[1, 0], axes[1, 1]), dims, strict=False):
        _retrieval(axis, result, dim)
    for axis in (axes[0, 2], axes[1, 0], axes[1, 1])[len(dims) :]:
        axis.set_axis_off()
    _patterns(axes[1, 2], result)
    for axis in axes.flat:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0, 2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _tails(axis: Any, result: Result) -> None:
    x = np.linspace(0, 3.1, 200)
    axis.plot(x, np.exp(-(x**2)), color="black", ls=":", label="bound, exp(−dε²)")
    for cell in result["similarities"]:
        spectral = cell["M"] is not None
        shown = [(t, share) for t, share in zip(THRESHOLDS, cell["tails"], strict=True) if share > 0]
        name = "spectral" if spectral else "independent"
        axis.plot(
            *zip(*shown, strict=True),
            "x" if spectral else "o",
            color=BLUE if spectral else GRAY,
            mfc="none",
            label=None if name in axis.get_legend_handles_labels()[1] else name,
        )
    axis.set(yscale="log", xlabel="ε √d", ylabel="share of pairs", title="Pairs with a similarity of at least ε")
    axis.legend(frameon=False)


def _noise(axis: Any, result: Result) -> None:
    """The variance of absent scores over 2d/M, relative to independent codes: two laws."""
    ratio = np.linspace(0, 1, 50)
    k = 10
    ways = {"angles": (angle_scores, BLUE, "o"), "sums": (sum_scores, ORANGE, "s")}
    for way, (scores, color, marker) in ways.items():
        unit = 1 if way == "angles" else k
        # Lines for a large M, so that they depend on 2d/M alone.
        length = 100_000
        dims = [max(1, int(share * (length // 2 - 1))) for share in ratio]
        axis.plot(ratio, [2 * d / unit * scores(k, d, length).absent_variance for d in dims], color=color)
        points = []
        for cell in result["sets"]:
            variance = cell["ways"][way][str(k)]["absent_variance"][0]
            place = 0 if cell["M"] is None else 2 * cell["dim"] / cell["M"]
            points.append((place, 2 * cell["dim"] * variance / unit))
        law = "only angles, 1 − κ·2d/M" if way == "angles" else "sums, 1 − 2d/M"
        axis.plot(*zip(*points, strict=True), marker, color=color, mfc="none", label=law)
    axis.set(
        xlabel="2d / M (independent codes at 0)",
        ylabel="variance × 2d (sums: × 2d/k)",
        title=f"Noise in the scores of absent labels, k = {k}",
        ylim=(-0.03, 1.08),
    )
    axis.legend(frameon=False)


def _retrieval(axis: Any, result: Result, dim: int) -> None:
    ks = result["settings"]["stored"]
    n = result["settings"]["n_labels"]
    for cell in (cell for cell in result["sets"] if cell["dim"] == dim):
        independent = cell["M"] is None
        shown = [("angles", "-", "o")] + ([("sums", "--", "s")] if independent else [])
        color = GRAY if independent else LIGHT if cell["M"] == 4 * n else BLUE
        name = "independent" if independent else "spectral, M = 4 L" if cell["M"] == 4 * n else "spectral, least M"
        for way, line, marker in shown:
            measured = [100 * cell["ways"][way][str(k)]["retrieved"][0] for k in ks]
            expected = [100 * expected_share(result, cell, way, k) for k in ks]
            axis.plot(ks, expected, line, color=color)
            label = f"{name}, {'only angles' if way == 'angles' else 'sums with amplitudes'}"
            axis.plot(ks, measured, marker, color=color, mfc="none", ls="none", label=label)
    axis.set(
        xlabel="stored labels k",
        ylabel=f"among the k best of {n:,}, %",
        title=f"Retrieved, d = {dim} (lines: theory)",
    )
    axis.set_ylim(None, 101.5)


def _patterns(axis: Any, result: Result) -> None:
    cell = result["patterns"][0]
    names = list(cell["kinds"])[::-1]
    for place, name in enumerate(names):
        mean, error = cell["kinds"][name]["percent"]
        axis.errorbar(mean, place, xerr=2 * error, fmt="o", color=GRAY if "slots" in name else BLUE, capsize=3)
    axis.axvline(cell["kinds"]["random"]["percent"][0], color=BLUE, lw=1, ls=":")
    axis.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axis.set(
        xlabel="retrieved, %", xlim=(0, 100), title=f"Sets with a pattern, k = {cell['k']}, d = {cell['dim']}"
    )
