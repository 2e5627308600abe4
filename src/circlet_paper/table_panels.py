"""The panels of the picture of the paper's table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from circlet_paper.published import published
from circlet_paper.recipes import ACCURATE, CHRR, CIRCLET, FC, HRR
from circlet_paper.runs import Runs
from circlet_paper.training_cells import DEPTHS, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Okabe and Ito's colors, which color-blind people can tell apart, each with a marker.
STYLES = {
    HRR.title: ("#E69F00", "^"),
    CHRR.title: ("#0072B2", "o"),
    CIRCLET.title: ("#009E73", "D"),
    ACCURATE.title: ("#CC79A7", "v"),
}
#: Published rows, drawn as open markers.
PUBLISHED_STYLES = {"FC": ("#000000", "s"), "CHRR": ("#0072B2", "o")}


def draw_panel(axis: Axes, dataset: str, measured: Mapping[str, Runs]) -> None:
    """Draw by how many points of P@k each model is ahead of FC on one dataset."""
    full = {k: measured[FC.title].mean(f"P@{k}") for k in DEPTHS}
    axis.axhline(0, color="#000000", lw=1.2, ls="--", label=FC.title)
    for place, (title, (color, marker)) in enumerate(STYLES.items()):
        if title not in measured:
            continue
        # Side by side, so that the error bars of similar numbers can be told apart.
        at = [position + 0.08 * (place - 1.5) for position in range(len(DEPTHS))]
        ahead = [measured[title].mean(f"P@{k}") - full[k] for k in DEPTHS]
        bars = [measured[title].sd(f"P@{k}") or 0.0 for k in DEPTHS]
        axis.errorbar(
            at, ahead, bars, color=color, marker=marker, ms=5, lw=1.6, elinewidth=1.2, capsize=2.5, label=title
        )
    for name, (color, marker) in PUBLISHED_STYLES.items():
        known = published(dataset, name)
        points = [(x, known[f"P@{k}"] - full[k]) for x, k in enumerate(DEPTHS) if f"P@{k}" in known]
        if points:
            axis.plot(
                *zip(*points, strict=True), ls="none", marker=marker, ms=9, mfc="none", mec=color, mew=1.4,
                label=f"{name}, published",
            )  # fmt: skip
    axis.set_title(title_of(dataset))
    axis.set_xticks(range(len(DEPTHS)), [str(k) for k in DEPTHS])
    axis.set_xlabel("k")
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
