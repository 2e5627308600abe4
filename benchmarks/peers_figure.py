"""The pictures of `peers.py`: P@5 against what a model costs, with a panel for each dataset."""

from __future__ import annotations

import math
from typing import Any

from peers_cells import ACCURACY, COLUMNS, NAMES, OURS, Cells, Column, is_measured, value

#: What the pictures show, by the name of their file: the cost and the text at its axis.
PICTURES = {
    "peers.png": ("train, s", "training time, s"),
    "peers-size.png": ("model, MB", "size of the model, MB"),
}


def draw(datasets: dict[str, Cells], picture: str) -> Any:
    """Draw one of the `PICTURES`."""
    from matplotlib.figure import Figure

    name, label = PICTURES[picture]
    cost = next(column for column in COLUMNS if column.name == name)
    columns = min(3, len(datasets))
    lines = -(-len(datasets) // columns)
    figure = Figure(figsize=(4.3 * columns, 3.6 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis, (dataset, cells) in zip(panels, datasets.items(), strict=False):
        _panel(axis, cells, cost)
        axis.set_title(dataset, fontsize=10)
        axis.set_xlabel(label)
        axis.set_ylabel("P@5, %")
        axis.spines[["top", "right"]].set_visible(False)
    for axis in panels[len(datasets) :]:
        axis.set_axis_off()
    return figure


def _panel(axis: Any, cells: Cells, cost: Column) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    height = next(column for column in ACCURACY if column.name == "P@5")
    # a compressed model has the training time of the default model, and the same place there.
    peers = [
        peer for peer in cells if is_measured(cells, peer) and (cost.key, peer) != ("train_s", "circlet-small")
    ]
    points = {peer: (value(cells[peer], cost), value(cells[peer], height)) for peer in peers}
    if not points:
        return
    costs, heights = zip(*points.values(), strict=True)
    room = max(max(heights) - min(heights), 0.5)
    left, right = min(costs) / 1.6, max(costs) * 4
    bottom, top = min(heights) - 0.15 * room, max(heights) + 0.2 * room
    axis.set(xscale="log", xlim=(left, right), ylim=(bottom, top))
    # In fractions of the panel, where the distances between names can be computed.
    at = {
        peer: (math.log(x / left) / math.log(right / left), (y - bottom) / (top - bottom))
        for peer, (x, y) in points.items()
    }
    for peer, place in places(at).items():
        color = "#1f5fbf" if peer in OURS else "#777777"
        axis.plot(*points[peer], marker="o", ms=5, color=color, ls="none")
        axis.annotate(
            NAMES[peer][1],
            at[peer],
            place,
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            color=color,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": color},
        )
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())


def places(points: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Where to put names: to the right of their points, moved up or down to overlap no other name or point."""
    line, letter = 0.065, 0.024  # a name's height, and the width of one of its letters
    taken = [(x - 0.01, x + 0.01, y) for x, y in points.values()]
    found = {}
    for peer, (x, y) in sorted(points.items(), key=lambda item: -item[1][1]):
        start = x + 0.04
        end = start + letter * len(NAMES[peer][1])
        steps = sorted(range(-8, 9), key=abs)
        free = (
            y + step * line / 2
            for step in steps
            if all(end < a or b < start or abs(y + step * line / 2 - other) > 0.9 * line for a, b, other in taken)
        )
        found[peer] = (start, next(free, y))
        taken.append((start, end, found[peer][1]))
    return found
