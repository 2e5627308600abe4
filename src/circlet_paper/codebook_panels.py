"""The panels of the picture of codebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from circlet_paper.cells import Result
from circlet_paper.codebook_cells import STORED, Capacity
from circlet_paper.runs import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Okabe and Ito's colors, which color-blind people can tell apart, each with a marker and a line style.
STYLES = {
    "independent": ("#000000", "s", "-"),
    "four-phase": ("#E69F00", "^", "--"),
    "two-phase": ("#D55E00", "v", "-"),
    "spectral": ("#0072B2", "o", "-"),
    "spectral-16d": ("#56B4E9", "D", "-"),
    "spectral-4l": ("#56B4E9", "D", "-"),
    "in-order": ("#CC79A7", "X", ":"),
    "table": ("#009E73", "P", "-"),
}
#: P@5 varies less from seed to seed than P@1 does.
TAGGING = "P@5"
DATASET_COLORS = ("#0072B2", "#E69F00")


def capacity_panel(axis: Axes, held: Capacity, dim: int, kind: str, titles: Mapping[str, str]) -> None:
    """Draw the percentages retrieved over k, for one dimension and one kind of label sets."""
    for book, (color, marker, line) in STYLES.items():
        if book not in titles:
            continue
        means = [held.mean(book, dim, kind, k) for k in STORED]
        bars = [held.sd(book, dim, kind, k) or 0.0 for k in STORED]
        axis.errorbar(
            STORED, means, bars, color=color, marker=marker, ls=line, ms=5.5, lw=1.6, capsize=2.5,
            label=titles[book],
        )  # fmt: skip
    axis.set_title(f"Capacity, d = {dim}, {kind}")
    axis.set_xticks(STORED)
    axis.set_xlabel("stored labels k")
    axis.set_ylabel("% of the k in the top k")
    axis.set_ylim(0, 104)
    _plain(axis)


def tagging_panel(axis: Axes, measured: Mapping[str, Mapping[str, Runs]], base: str) -> None:
    """Draw bars of P@5 for each dataset, in points ahead of the codebook `base`."""
    titles = list(dict.fromkeys(title for these in measured.values() for title in these if title != base))
    height = 0.8 / len(measured)
    for place, (dataset, these) in enumerate(measured.items()):
        rows = [row for row, title in enumerate(titles) if title in these]
        level, found = these[base].mean(TAGGING), [these[titles[row]] for row in rows]
        axis.barh(
            [row + (place - (len(measured) - 1) / 2) * height for row in rows],
            [runs.mean(TAGGING) - level for runs in found],
            height=height,
            xerr=[runs.sd(TAGGING) or 0.0 for runs in found],
            error_kw={"elinewidth": 1, "capsize": 2},
            color=DATASET_COLORS[place % len(DATASET_COLORS)],
            label=f"{dataset} ({level:.1f})",
        )
    axis.set_yticks(range(len(titles)), titles)
    axis.invert_yaxis()
    axis.axvline(0, color="black", lw=0.8)
    axis.set_title(f"Tagging: {TAGGING}")
    axis.set_xlabel(f"points ahead of {base}")
    axis.legend(frameon=False, fontsize=8)
    _plain(axis)


def time_panel(axis: Axes, cell: Result, titles: Mapping[str, str]) -> None:
    """Draw the milliseconds per query over the number of labels."""
    for way, title in titles.items():
        points = [(int(n), found[way]["milliseconds"]) for n, found in cell["sizes"].items() if way in found]
        if not points:
            continue
        color, marker, line = STYLES[way]
        axis.loglog(*zip(*points, strict=True), color=color, marker=marker, ls=line, ms=6, lw=1.6, label=title)
    axis.set_xticks([int(n) for n in cell["sizes"]], [f"{int(n):,}" for n in cell["sizes"]])
    axis.minorticks_off()
    axis.set_title(f"Scoring all labels, d = {cell['about']['dim']}, CPU")
    axis.set_xlabel("labels L")
    axis.set_ylabel("milliseconds per query")
    axis.set_ylim(top=30 * axis.get_ylim()[1])  # room for the legend
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    _plain(axis)


def _plain(axis: Axes) -> None:
    axis.grid(alpha=0.25)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
