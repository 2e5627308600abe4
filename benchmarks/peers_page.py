"""The page of `peers.py`, made from the JSON file of each pair of peer and dataset."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from peers_cells import (
    ACCURACY,
    COLUMNS,
    NAMES,
    OURS,
    THEIRS,
    TRAINING,
    Cells,
    Column,
    best,
    collect,
    distance,
    is_measured,
    shown,
    size,
    value,
)
from peers_data import SMALL
from peers_figure import PICTURES, draw

from circlet import files
from circlet.report import Table


class Goal(NamedTuple):
    """What one of circlet's rows is measured against."""

    ours: str
    title: str
    rivals: tuple[str, ...]
    columns: tuple[Column, ...]
    #: The peer whose training time is compared with ours, if any.
    timed: str | None


GOALS = (
    Goal("circlet-fast", "circlet, fast, compared with Bonsai", ("omikuji-bonsai",), ACCURACY[:3], "pecos"),
    Goal("circlet", "circlet, defaults, compared with the best peer", THEIRS, ACCURACY, "omikuji-bonsai"),
    Goal("circlet-accurate", "circlet, accurate, compared with the best peer", THEIRS, ACCURACY, None),
)
#: Rows that small sets and probabilities are shown for.
PRESETS = ("circlet-fast", "circlet", "circlet-accurate")
#: The fewest predictions in a bin for its gap to count.
ENOUGH = 200
#: Draws that a gap by chance is the mean of.
DRAWS = 2000
NOTES = """\
All peers get the same sparse matrices and the same number of threads. omikuji, napkinXC and circlet scale rows as
they do by default; PECOS and scikit-learn, which do not scale them, get rows of length 1. fastText takes words: a
document's words are the ids of its features, each once, so it does not see their values. `pydocs` is text;
circlet's vectorizer makes one tf-idf matrix of it for all. Small texts are different; see there.

Settings: omikuji's defaults (Parabel-like), and unbalanced clusters of 100 at depth 3 (Bonsai-like), as in its
documentation; napkinXC's and PECOS's defaults; scikit-learn's `LinearSVC` for each label that has a training
document; fastText with 25 epochs, whichever of the rates 0.5, 0.2, 0.1 and 0.05 is best on 2,000 rows (not timed),
and the loss `ova`, or `hs` where documents × labels exceed 10⁸. circlet's rows are its presets, as `circlet train`
has them: some of the training rows are held out at first, to decide and to calibrate, and then join. Its training
time includes all of that.

Training time excludes reading data, except for fastText, which trains from a file. Documents per second are
measured from rows in memory to the 20 best labels: for the whole test set (median of three passes), and for 300
documents one at a time. omikuji's Python interface has no call for many documents, so its two numbers measure the
same thing. Memory is the peak of a process with Python and the data: of the one that trains, and of another one
that has loaded the model and tagged 300 documents. A model's size is its size on disk; compressed is the default
model as `circlet compress` finds it, within 0.2 points of nDCG@5 on held-out rows, with the default's training
time. P and PSP (A = 0.55, B = 1.5) are percentages, computed by circlet's metrics.
"""
GOALS_TEXT = """\
Accuracies are compared in points, with the best peer in each measure where no peer is named; training time is
divided by that of the peer in the column's name. The last row counts the sets where circlet is not behind, and has
the largest ratio of times.
"""
SMALL_TEXT = """\
Sets of 1,000 to 10,000 texts, drawn at random from the training texts of `pydocs`, `wordnet` and `yso-finna-en`
(titles of books). Labels that all documents have are dropped first, and so are texts without labels or words. The
labels are those that the drawn texts have, including those that only one has. They are tested on up to 2,000 test
texts of the larger set that have at least one of these labels; other labels do not count.

circlet is trained on the texts, with its defaults for texts. The peers get the rows of scikit-learn's
`TfidfVectorizer()`, so that scikit-learn's column is what
`make_pipeline(TfidfVectorizer(), OneVsRestClassifier(LinearSVC()))` gives. Training time includes making the
features of the training texts, for all. The best of each row is bold.
"""
PROBABILITIES_TEXT = f"""\
The probabilities of the ten best labels of every test document, in ten bins of equal width: the largest difference
between the mean probability of a bin and the share of its labels that are right, in points, among bins with at
least {ENOUGH} labels; the mean over seeds. By chance: what it would be with perfect probabilities, because bins of
that size are never exact.
"""
BEHIND_TEXT = """\
Compared with the best peer in each measure, which may be a different one each time. For accuracy the difference is
in points; for the rest it is a factor.
"""


def render(folder: Path, page: Path) -> None:
    """Write the page, and its pictures beside `folder`, from the JSON files in `folder`."""
    datasets = collect(folder)
    if not datasets:
        raise SystemExit(f"no results in {folder}")
    raw = folder.relative_to(page.parent).as_posix()
    large = {name: cells for name, cells in datasets.items() if name not in SMALL}
    small = {name: cells for name, cells in datasets.items() if name in SMALL}
    parts = [
        "# circlet and its peers\n",
        f"`make bench-peers`; [raw numbers]({raw}); {machines(datasets)}; {seeds(datasets)}.\n",
        *section("Goals", GOALS_TEXT, [goal_table(datasets, goal) for goal in GOALS]),
    ]
    if large:
        parts += [
            "## Large sets\n",
            "The best of each column is bold.\n",
            *pictures(large, folder.parent, page.parent),
        ]
        parts += [table(name, cells).markdown() for name, cells in large.items()]
    parts += section("Small texts", SMALL_TEXT, small_tables(small))
    parts += section("Probabilities", PROBABILITIES_TEXT, [reliability_table(datasets)])
    parts += section("Where circlet is behind", BEHIND_TEXT, [behind(large, ours) for ours in OURS])
    parts += ["## What was measured\n", NOTES, versions(datasets)]
    files.write_text(page, "\n".join(parts))


def section(title: str, text: str, tables: list[Table]) -> list[str]:
    """A part of the page; nothing if its tables have no rows."""
    filled = [table.markdown() for table in tables if table.rows]
    return [f"## {title}\n", text, *filled] if filled else []


def pictures(datasets: dict[str, Cells], folder: Path, root: Path) -> list[str]:
    """Draw the pictures into `folder`, and return the lines that show them on a page in `root`."""
    lines = []
    for name, (_, cost) in PICTURES.items():
        with files.replacing(folder / name) as temporary:
            draw(datasets, name).savefig(temporary, dpi=110, format="png", metadata={"Software": None})
        lines.append(f"![P@5 against {cost.split(',')[0]}]({(folder / name).relative_to(root).as_posix()})\n")
    return lines


def goal_table(datasets: dict[str, Cells], goal: Goal) -> Table:
    """How one of circlet's rows compares with its rivals on each dataset, and on all of them."""
    compared = {
        name: {
            column: found for column in goal.columns if (found := distance(cells, goal.ours, column, goal.rivals))
        }
        for name, cells in datasets.items()
        if is_measured(cells, goal.ours)
    }
    ratios = {
        name: value(datasets[name][goal.ours], TRAINING) / value(datasets[name][goal.timed], TRAINING)
        for name in compared
        if goal.timed and is_measured(datasets[name], goal.timed)
    }

    def time(ratio: float | None) -> list[str | None]:
        return [None if ratio is None else f"{ratio:.1f}×"] if goal.timed else []

    rows = [
        (name, *(found.get(column) for column in goal.columns), *time(ratios.get(name)))
        for name, found in compared.items()
    ]
    if rows:
        words = [[found[column] for found in compared.values() if column in found] for column in goal.columns]
        behind = [sum(word.startswith("behind") for word in each) for each in words]
        counts = [f"{len(each) - number} of {len(each)}" for each, number in zip(words, behind, strict=True)]
        rows.append(("all", *counts, *time(max(ratios.values(), default=None))))
    timed = [f"training ÷ {NAMES[goal.timed][1]}'s"] if goal.timed else []
    return Table(goal.title, ("", *(column.name for column in goal.columns), *timed), rows)


def table(name: str, cells: Cells) -> Table:
    """All measures of all peers on one dataset."""
    tops = {}
    for column in COLUMNS:
        peer = best(cells, column, tuple(cells))
        tops[column] = peer and shown(value(cells[peer], column), column.digits)
    rows: list[tuple[str | None, ...]] = []
    for peer, cell in cells.items():
        if not is_measured(cells, peer):
            rows.append((f"{NAMES[peer][0]}: {cell['reason']}", *(None for _ in COLUMNS)))
            continue
        texts = {column: shown(value(cell, column), column.digits) for column in COLUMNS}
        rows.append((NAMES[peer][0], *(f"**{t}**" if t == tops[column] else t for column, t in texts.items())))
    about = size(cells)
    title = (
        f"{name}: {about['train_points']:,} documents to train on, {about['test_points']:,} to test, "
        f"{about['features']:,} features, {about['labels']:,} labels"
    )
    spread = [f"{NAMES[peer][1]} {found:.1f}" for peer in OURS if (found := deviation(cells, peer)) is not None]
    note = f"Standard deviation of P@1 over seeds: {', '.join(spread)}." if spread else ""
    return Table(title, ("", *(column.name for column in COLUMNS)), rows, note)


def deviation(cells: Cells, peer: str) -> float | None:
    """The standard deviation of P@1 over the seeds, in points; None if there is only one."""
    runs = cells[peer].get("runs", []) if is_measured(cells, peer) else []
    return 100 * stdev(run["metrics"]["P@1"] for run in runs) if len(runs) > 1 else None


def small_tables(datasets: dict[str, Cells]) -> list[Table]:
    """The sizes of the small sets, and a table for each measure of them."""
    keys = {"documents": "train_points", "tested on": "test_points", "features": "features", "labels": "labels"}
    sizes = [(name, *(size(cells)[key] for key in keys.values())) for name, cells in datasets.items()]
    spread = {
        (found, f"{NAMES[peer][1]} on {name}")
        for name, cells in datasets.items()
        for peer in PRESETS
        if (found := deviation(cells, peer)) is not None
    }
    note = "Standard deviation of P@1 over seeds: at most {:.1f} ({}).".format(*max(spread)) if spread else ""
    first, *others = (*ACCURACY[:3], TRAINING)
    return [
        Table("Their sizes", ("", *keys), sizes),
        compact(datasets, first, " ".join([note, *failures(datasets)]).strip()),
        *(compact(datasets, column) for column in others),
    ]


def compact(datasets: dict[str, Cells], column: Column, note: str = "") -> Table:
    """One measure of the peers and circlet's presets on each dataset."""
    peers = [peer for peer in (*THEIRS, *PRESETS) if any(peer in cells for cells in datasets.values())]
    rows = []
    for name, cells in datasets.items():
        first, other = best(cells, column, tuple(peers)), best(cells, column, THEIRS)
        top = first and shown(value(cells[first], column), column.digits)
        texts = [
            shown(value(cells[peer], column), column.digits) if is_measured(cells, peer) else None
            for peer in peers
        ]
        rows.append((name, *(f"**{t}**" if t and t == top else t for t in texts), other and NAMES[other][1]))
    return Table(column.name, ("", *(NAMES[peer][1] for peer in peers), "best peer"), rows, note)


def failures(datasets: dict[str, Cells]) -> list[str]:
    return [
        f"{NAMES[peer][1]} on {name}: {cell['reason']}."
        for name, cells in datasets.items()
        for peer, cell in cells.items()
        if not is_measured(cells, peer)
    ]


def reliability_table(datasets: dict[str, Cells]) -> Table:
    rows = []
    for name, cells in datasets.items():
        gaps = [gap for peer in PRESETS for gap in (largest_gap(cells, peer), gap_by_chance(cells, peer))]
        if any(gap is not None for gap in gaps):
            rows.append((name, *(None if gap is None else f"{gap:.1f}" for gap in gaps)))
    heads = (head for peer in PRESETS for head in (NAMES[peer][1], "by chance"))
    return Table("Largest gap, points", ("", *heads), rows)


def largest_gap(cells: Cells, peer: str) -> float | None:
    """The largest gap between said and true among bins that have enough predictions, as a mean over seeds."""
    gaps = [np.abs(said - true).max() for said, true, _ in large_bins(cells, peer)]
    return 100 * fmean(gaps) if gaps else None


def gap_by_chance(cells: Cells, peer: str) -> float | None:
    """The same if every probability were exact: how far the shares in bins of these sizes are off by chance."""
    random = np.random.default_rng(0)
    gaps = [
        np.abs(random.binomial(counts.astype(int), said, (DRAWS, len(counts))) / counts - said).max(axis=1).mean()
        for said, _, counts in large_bins(cells, peer)
    ]
    return 100 * fmean(gaps) if gaps else None


def large_bins(cells: Cells, peer: str) -> list[np.ndarray]:
    """Mean probability, share of right labels and size of each bin that is large enough, for each seed."""
    runs = cells[peer].get("runs", []) if is_measured(cells, peer) else []
    names = ("mean_probability", "share_right", "count")
    bins = [np.array([run["reliability"][name] for name in names]) for run in runs]
    return [each for found in bins if len((each := found[:, found[2] >= ENOUGH])[0])]


def behind(datasets: dict[str, Cells], ours: str) -> Table:
    """How far one of circlet's rows is from the best peer, for each measure and dataset."""
    measured = {name: cells for name, cells in datasets.items() if is_measured(cells, ours)}
    rows = [
        (column.name, *(distance(cells, ours, column) for cells in measured.values()))
        for column in COLUMNS
        if measured and column.name not in ("P@3", "PSP@3")
    ]
    return Table(NAMES[ours][0], ("", *measured), rows)


def machines(datasets: dict[str, Cells]) -> str:
    cells = [cell for group in datasets.values() for cell in group.values() if cell["status"] == "measured"]
    found = {
        f"{cell['provenance']['machine']['processor']}, {cell['provenance']['machine']['cores']} cores, "
        f"{cell['measured']['threads']} threads"
        for cell in cells
    }
    return " and ".join(sorted(found)) or "nothing measured yet"


def seeds(datasets: dict[str, Cells]) -> str:
    """How many runs there are of each model."""
    groups = datasets.values()
    found = {len(cells[peer].get("runs", [0])) for cells in groups for peer in OURS if is_measured(cells, peer)}
    if found <= {1}:
        return "one run each"
    number = " to ".join(str(number) for number in sorted({min(found), max(found)}))
    return f"circlet's accuracies are means over {number} seeds; everything else is from one run each"


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
