"""The results of `peers.py`: a cell for each pair of peer and dataset, read from JSON and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from peers_data import SMALL

#: The cells of a dataset by peer.
Cells = dict[str, dict[str, Any]]


class Column(NamedTuple):
    """A measure: where a cell has its number, and how it is shown; `more` says whether more is better."""

    name: str
    part: str
    key: str
    factor: float
    digits: int
    more: bool


#: Name in tables, and short name; circlet's come last.
NAMES = {
    "omikuji-parabel": ("omikuji, Parabel-like", "Parabel"),
    "omikuji-bonsai": ("omikuji, Bonsai-like", "Bonsai"),
    "napkinxc": ("napkinXC, PLT", "PLT"),
    "pecos": ("PECOS, XR-Linear", "PECOS"),
    "sklearn": ("scikit-learn, one-vs-rest", "one-vs-rest"),
    "fasttext": ("fastText", "fastText"),
    "circlet-fast": ("circlet, fast", "fast"),
    "circlet": ("circlet, defaults", "circlet"),
    "circlet-small": ("circlet, defaults, compressed", "compressed"),
    "circlet-accurate": ("circlet, accurate", "accurate"),
    "circlet-members3": ("circlet, accurate, three members", "3 members"),
}
OURS = tuple(name for name in NAMES if name.startswith("circlet"))
THEIRS = tuple(name for name in NAMES if name not in OURS)
ACCURACY = tuple(
    Column(f"{measure}@{k}", "metrics", f"{measure}@{k}", 100.0, 1, True)
    for measure in ("P", "PSP")
    for k in (1, 3, 5)
)
TRAINING = Column("train, s", "measured", "train_s", 1.0, 1, False)
COLUMNS = (
    *ACCURACY,
    TRAINING,
    Column("documents/s, batch", "measured", "batch_per_s", 1.0, 0, True),
    Column("documents/s, one by one", "measured", "single_per_s", 1.0, 0, True),
    Column("training, MB", "measured", "peak_bytes", 1e-6, 0, False),
    Column("tagging, MB", "measured", "tagging_bytes", 1e-6, 0, False),
    Column("model, MB", "measured", "model_bytes", 1e-6, 1, False),
)


def collect(folder: Path) -> dict[str, Cells]:
    """Cells by dataset and peer: large sets by their number of labels, then small ones; peers as in `NAMES`."""
    found: dict[str, Cells] = {}
    for path in sorted(folder.glob("*.json")):
        cell = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(cell["dataset"], {})[cell["peer"]] = cell

    def place(name: str) -> tuple[bool, int]:
        small = name in SMALL
        return small, list(SMALL).index(name) if small else size(found[name])["labels"]

    return {
        name: {peer: found[name][peer] for peer in NAMES if peer in found[name]}
        for name in sorted(found, key=place)
    }


def size(cells: Cells) -> dict[str, Any]:
    """The numbers that describe the dataset of these cells."""
    return dict(next(iter(cells.values()))["statistics"])


def is_measured(cells: Cells, peer: str) -> bool:
    return peer in cells and cells[peer]["status"] == "measured"


def value(cell: dict[str, Any], column: Column) -> float:
    return float(cell[column.part][column.key]) * column.factor


def shown(number: float, digits: int) -> str:
    # A tenth of a second matters for two seconds, not for minutes. Percentages up to 100.0 keep their digits.
    return f"{number:,.{digits if number < 100.05 else 0}f}"


def best(cells: Cells, column: Column, among: tuple[str, ...]) -> str | None:
    """Which of the peers `among` is the best in this measure; None if none is measured."""
    values = {peer: value(cells[peer], column) for peer in among if is_measured(cells, peer)}
    return (max if column.more else min)(values, key=values.__getitem__) if values else None


def distance(cells: Cells, ours: str, column: Column, rivals: tuple[str, ...] = THEIRS) -> str | None:
    """Compare with the best rival: `level`, or `ahead` or `behind` and by how much; None if one is not measured.

    Accuracies are compared in points, other measures by a factor.
    """
    rival = best(cells, column, rivals)
    if rival is None or not is_measured(cells, ours):
        return None
    own, other = value(cells[ours], column), value(cells[rival], column)
    if column in ACCURACY:
        gap = round(own - other, 1)
        if gap == 0:
            return "level"
        return f"ahead {gap:.1f}" if gap > 0 else f"behind {-gap:.1f} ({NAMES[rival][1]})"
    ratio = own / other if column.more else other / own
    return f"ahead {ratio:.1f}×" if ratio >= 1 else f"behind {1 / ratio:.1f}× ({NAMES[rival][1]})"
