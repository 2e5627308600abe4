"""The page and the picture of `peers.py`, made from the JSON file of each pair of peer and dataset."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from circlet import files
from circlet.report import Table

Cells = dict[str, dict[str, Any]]
#: Name on the page and in the picture; circlet's rows come last.
NAMES = {
    "omikuji-parabel": ("omikuji, Parabel-like", "Parabel"),
    "omikuji-bonsai": ("omikuji, Bonsai-like", "Bonsai"),
    "napkinxc": ("napkinXC, PLT", "PLT"),
    "pecos": ("PECOS, XR-Linear", "PECOS"),
    "sklearn": ("scikit-learn, one-vs-rest", "one-vs-rest"),
    "fasttext": ("fastText", "fastText"),
    "circlet": ("circlet, defaults", "circlet"),
    "circlet-int8": ("circlet, defaults, int8", "int8"),
    "circlet-accurate": ("circlet, accurate", "accurate"),
}
OURS = tuple(name for name in NAMES if name.startswith("circlet"))
#: Column, where its number is found, factor, digits, and whether more is better.
COLUMNS: tuple[tuple[str, tuple[str, str], float, int, bool], ...] = (
    *((f"{m}@{k}", ("metrics", f"{m}@{k}"), 100.0, 1, True) for m in ("P", "PSP") for k in (1, 3, 5)),
    ("train, s", ("measured", "train_s"), 1.0, 1, False),
    ("documents/s, batch", ("measured", "batch_per_s"), 1.0, 0, True),
    ("documents/s, one by one", ("measured", "single_per_s"), 1.0, 0, True),
    ("peak memory, MB", ("measured", "peak_bytes"), 1e-6, 0, False),
    ("model, MB", ("measured", "model_bytes"), 1e-6, 1, False),
)
SHARES = {f"{m}@{k}" for m in ("P", "PSP") for k in (1, 3, 5)}
NOTES = """\
All peers get the same sparse matrices and the same number of threads. omikuji, napkinXC and circlet scale rows as
they do by default; PECOS and scikit-learn, which do not scale them, get rows of length 1. fastText takes words: a
document's words are the ids of its features, each once, so it does not see their values. `pydocs` is text;
circlet's vectorizer makes one tf-idf matrix of it for all.

Settings: omikuji's defaults (Parabel-like), and unbalanced clusters of 100 at depth 3 (Bonsai-like), as in its
documentation; napkinXC's and PECOS's defaults; scikit-learn's `LinearSVC` for each label that has a training
document; fastText with 25 epochs, whichever of the rates 0.5, 0.2, 0.1 and 0.05 is best on 2,000 rows (not timed),
and the loss `ova`, or `hs` where documents × labels exceed 10⁸. circlet holds out 5 % of the training rows to
choose an epoch; the others train on all rows.

Training time excludes reading data, except for fastText, which trains from a file. Documents per second are
measured from rows in memory to the 20 best labels: for the whole test set (median of three passes), and for 300
documents one at a time. omikuji's Python interface has no call for many documents, so its two numbers measure the
same thing. Memory is the process's peak from start to end, with Python and the data. A model's size is its size on
disk; int8 is the default model stored in 8 bits, with the default's training time. P and PSP (A = 0.55, B = 1.5)
are percentages, computed by circlet's metrics.
"""
INTRODUCTION = """\
Compared with the best peer in each measure, which may be a different one each time. For accuracy the difference is
in points; for the rest it is a factor.
"""


def render(folder: Path, page: Path, picture: Path) -> None:
    """Write the page and the picture from the JSON files in `folder`."""
    datasets = collect(folder)
    if not datasets:
        raise SystemExit(f"no results in {folder}")
    with files.replacing(picture) as temporary:
        draw(datasets).savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    link = picture.relative_to(page.parent).as_posix()
    raw = folder.relative_to(page.parent).as_posix()
    tables = [table(name, cells).markdown() for name, cells in datasets.items()]
    lost = [against(datasets, ours) for ours in OURS if any(is_measured(c, ours) for c in datasets.values())]
    parts = [
        "# circlet and its peers\n",
        f"`make bench-peers`; [raw numbers]({raw}); {machines(datasets)}. The best of each column is bold.\n",
        f"![P@5 against the model's size]({link})\n",
        *tables,
        "## Where circlet is behind\n",
        INTRODUCTION,
        *(table.markdown() for table in lost),
        "## What was measured\n",
        NOTES,
        versions(datasets),
    ]
    files.write_text(page, "\n".join(parts))


def collect(folder: Path) -> dict[str, Cells]:
    """Cells by dataset and peer, small datasets first and peers in the order of `NAMES`."""
    found: dict[str, Cells] = {}
    for path in sorted(folder.glob("*.json")):
        cell = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(cell["dataset"], {})[cell["peer"]] = cell
    labels = {name: next(iter(cells.values()))["statistics"]["labels"] for name, cells in found.items()}
    return {
        name: {peer: found[name][peer] for peer in NAMES if peer in found[name]}
        for name in sorted(found, key=lambda name: labels[name])
    }


def is_measured(cells: Cells, peer: str) -> bool:
    return peer in cells and cells[peer]["status"] == "measured"


def value(cell: dict[str, Any], column: tuple[Any, ...]) -> float:
    (part, key), factor = column[1:3]
    return float(cell[part][key]) * float(factor)


def shown(number: float, digits: int) -> str:
    # A tenth of a second matters for two seconds, not for minutes. Percentages up to 100.0 keep their digits.
    return f"{number:,.{digits if number < 100.05 else 0}f}"


def table(name: str, cells: Cells) -> Table:
    measured = {peer: cell for peer, cell in cells.items() if is_measured(cells, peer)}
    best = {
        column[0]: (max if column[4] else min)((value(cell, column) for cell in measured.values()), default=0.0)
        for column in COLUMNS
    }
    rows = []
    for peer, cell in cells.items():
        if peer not in measured:
            rows.append((f"{NAMES[peer][0]}: {cell['reason']}", *(None for _ in COLUMNS)))
            continue
        texts = [shown(value(cell, column), column[3]) for column in COLUMNS]
        tops = [shown(best[column[0]], column[3]) for column in COLUMNS]
        rows.append((NAMES[peer][0], *(f"**{t}**" if t == top else t for t, top in zip(texts, tops, strict=True))))
    size = next(iter(cells.values()))["statistics"]
    title = (
        f"{name}: {size['train_points']:,} documents to train on, {size['test_points']:,} to test, "
        f"{size['features']:,} features, {size['labels']:,} labels"
    )
    return Table(title, ("", *(column[0] for column in COLUMNS)), rows)


def against(datasets: dict[str, Cells], ours: str) -> Table:
    """How far one of circlet's rows is from the best peer, for each measure and dataset."""
    rows: list[tuple[str | None, ...]] = []
    for column in COLUMNS:
        if column[0] in ("P@3", "PSP@3"):
            continue
        rows.append((column[0], *(distance(cells, ours, column) for cells in datasets.values())))
    return Table(NAMES[ours][0], ("", *datasets), rows)


def distance(cells: Cells, ours: str, column: tuple[Any, ...]) -> str | None:
    """Say `level`, or `ahead` or `behind` and by how much; None if there is nothing to compare."""
    peers = {peer: value(cells[peer], column) for peer in NAMES if peer not in OURS and is_measured(cells, peer)}
    if not peers or not is_measured(cells, ours):
        return None
    own = value(cells[ours], column)
    best = (max if column[4] else min)(peers, key=peers.__getitem__)
    if column[0] in SHARES:
        gap = round(own - peers[best], 1)
        if gap == 0:
            return "level"
        return f"ahead {gap:.1f}" if gap > 0 else f"behind {-gap:.1f} ({NAMES[best][1]})"
    ratio = own / peers[best] if column[4] else peers[best] / own
    return f"ahead {ratio:.1f}×" if ratio >= 1 else f"behind {1 / ratio:.1f}× ({NAMES[best][1]})"


def machines(datasets: dict[str, Cells]) -> str:
    cells = [cell for group in datasets.values() for cell in group.values() if cell["status"] == "measured"]
    found = {
        f"{cell['provenance']['machine']['processor']}, {cell['provenance']['machine']['cores']} cores, "
        f"{cell['measured']['threads']} threads"
        for cell in cells
    }
    return " and ".join(sorted(found)) or "nothing measured yet"


def versions(datasets: dict[str, Cells]) -> str:
    """The peers' versions in one line."""
    found: dict[str, set[str]] = {}
    for cells in datasets.values():
        for peer in cells:
            if is_measured(cells, peer):
                for package, number in cells[peer]["measured"]["versions"].items():
                    found.setdefault(package, set()).add(number)
    both = [f"{name} {' and '.join(sorted(numbers))}" for name, numbers in sorted(found.items())]
    return f"Versions: {', '.join(both)}.\n"


def draw(datasets: dict[str, Cells]) -> Any:
    """Draw P@5 over the model's size on disk, with a panel for each dataset."""
    from matplotlib.figure import Figure

    columns = min(3, len(datasets))
    lines = -(-len(datasets) // columns)
    figure = Figure(figsize=(4.3 * columns, 3.6 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis, (name, cells) in zip(panels, datasets.items(), strict=False):
        _panel(axis, name, {peer: cell for peer, cell in cells.items() if cell["status"] == "measured"})
    for axis in panels[len(datasets) :]:
        axis.set_axis_off()
    return figure


def _panel(axis: Any, name: str, cells: Cells) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    points = {
        peer: (cell["measured"]["model_bytes"] / 1e6, 100 * cell["metrics"]["P@5"]) for peer, cell in cells.items()
    }
    if not points:
        return
    sizes, heights = zip(*points.values(), strict=True)
    room = max(max(heights) - min(heights), 0.5)
    left, right = min(sizes) / 1.6, max(sizes) * 4
    bottom, top = min(heights) - 0.15 * room, max(heights) + 0.2 * room
    axis.set(xscale="log", xlim=(left, right), ylim=(bottom, top))
    # In fractions of the panel, where the distances between names can be computed.
    at = {
        peer: (math.log(size / left) / math.log(right / left), (height - bottom) / (top - bottom))
        for peer, (size, height) in points.items()
    }
    for peer, (x, y) in places(at).items():
        color = "#1f5fbf" if peer in OURS else "#777777"
        axis.plot(*points[peer], marker="o", ms=5, color=color, ls="none")
        axis.annotate(
            NAMES[peer][1],
            at[peer],
            (x, y),
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
    axis.set_title(name, fontsize=10)
    axis.set_xlabel("model on disk, MB")
    axis.set_ylabel("P@5, %")
    axis.spines[["top", "right"]].set_visible(False)


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
