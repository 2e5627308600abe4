"""Does CHRR gain on HRR where documents have many labels? Sets in the shapes of the paper's largest.

The paper's figure over d is about Wiki10-31K, with 18.6 labels a document, and Delicious-200K, with 75.5. Neither
is in a package registry. Synthetic sets with as many documents, features, labels and labels per document take
their place: they show what the numbers alone do to HRR and CHRR, and nothing about the real documents. Every row
and title of theirs says "synthetic". If the real sets are found, the same command trains on them too.

What the paper leaves open, and what we chose:

- The synthetic sets are those of `circlet_paper.synthetic.make_multilabel`: labels are drawn by a power law, and
  half of a document's words belong to its labels. `SHAPES` has the numbers of draws with which the mean number of
  different labels is that of the real set.
- They are trained by the paper's protocol, but with batches of 256 and fewer epochs: up to 60 in the shape of
  Wiki10-31K and 2 in that of Delicious-200K, where all but CHRR with d = 400 rank held-out rows best after the
  first. There, one seed is trained, with d = 100 and 400. The real sets are trained by the whole protocol, and
  share their runs with `circlet_paper.table`.
- FC (h = 2048) is trained in the shape of Wiki10-31K only: in the other it would have two billion weights.
- Which of two models is ahead is decided by a bootstrap over test documents and seeds (`circlet_paper.runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from circlet.data import Dataset
from circlet.report import Cell, Table
from circlet_paper import Claim, training_cells
from circlet_paper.cells import Result, Workplace
from circlet_paper.drawing import STYLES, finished, panels
from circlet_paper.runs import Difference, Runs, compare, counted, runs, verdict
from circlet_paper.synthetic import make_multilabel
from circlet_paper.training_cells import FC, Recipe, TrainingCell, of_dim, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "CHRR and HRR where documents have many labels"
DIMS = (100, 400, 800, 1600)
DEPTHS = (5, 10, 20)
METRICS = tuple(f"{name}@{k}" for name in ("P", "PSP") for k in DEPTHS)
#: By how much a quick run divides the numbers of features and labels.
QUICK = 20


class Shape(NamedTuple):
    """A synthetic set in the shape of a real one, and how it is trained."""

    train: int
    test: int
    features: int
    labels: int
    #: Labels and words drawn for a document; labels that are drawn twice count once.
    drawn: int
    words: int
    epochs: int
    seeds: int
    dims: tuple[int, ...] = DIMS
    full: bool = False


SHAPES = {
    "wiki10-31k": Shape(14_146, 6_616, 101_938, 30_938, 20, 300, epochs=60, seeds=3, full=True),
    "delicious-200k": Shape(196_606, 100_095, 782_585, 205_443, 91, 400, epochs=2, seeds=1, dims=(100, 400)),
}


@dataclass(frozen=True)
class Settings(training_cells.Settings):
    """Size of the experiment; the defaults are the full size."""

    @classmethod
    def quick(cls) -> Settings:
        """One seed and few rows, features and labels."""
        return cls(seeds=1, rows=1000, epochs=2, shrink=8)


@dataclass(frozen=True)
class SyntheticCell(TrainingCell):
    """Train on a made-up set in the shape of `dataset`."""

    @property
    def name(self) -> str:
        quick, place = ("quick-", super().name.removeprefix("quick-")) if self.rows else ("", super().name)
        return f"{quick}synthetic-{place}"

    def about(self) -> Result:
        shape = SHAPES[self.dataset]
        divided = 1 if self.rows is None else QUICK
        made = {"features": shape.features // divided, "labels": shape.labels // divided}
        return {**super().about(), "synthetic": {**made, "drawn": shape.drawn, "words": shape.words}}

    def missing(self, workplace: Workplace) -> str | None:
        return None

    def load(self, workplace: Workplace) -> Dataset:
        """Make the rows to train on and to test on; the same for every seed of the network."""
        return _made(self.dataset, self.rows)


@lru_cache(maxsize=1)
def _made(dataset: str, rows: int | None) -> Dataset:
    shape = SHAPES[dataset]
    divided = 1 if rows is None else QUICK
    return make_multilabel(
        shape.train if rows is None else rows,
        shape.features // divided,
        shape.labels // divided,
        seed=0,
        n_test=shape.test if rows is None else rows // 2,
        labels_per_row=shape.drawn,
        words_per_row=shape.words,
    )


def recipe(head: str, dim: int) -> Recipe:
    """A model of the paper; `dim` means nothing to FC."""
    return FC if head == "fc" else of_dim(head, dim)


class Planned(NamedTuple):
    """A model on a real or synthetic set, and its cells."""

    dataset: str
    synthetic: bool
    head: str
    dim: int
    cells: list[TrainingCell]

    @property
    def place(self) -> str:
        """The dataset as printed."""
        title = title_of(self.dataset)
        return f"synthetic, in the shape of {title}" if self.synthetic else title


def planned(settings: training_cells.Settings) -> Iterator[Planned]:
    """Every model on every set."""
    for dataset, shape in SHAPES.items():
        for synthetic in (True, False):
            dims = shape.dims if synthetic else DIMS
            models = [*((head, dim) for head in ("hrr", "chrr") for dim in dims), *([("fc", 0)] * shape.full)]
            for head, dim in models:
                made = recipe(head, dim)
                if not synthetic:
                    yield Planned(dataset, False, head, dim, made.cells(dataset, settings))
                    continue
                fewer = replace(settings, seeds=min(settings.seeds, shape.seeds))
                given = {**made.given, "epochs": shape.epochs, "batch_size": 256}
                these = replace(made, given=given).cells(dataset, fewer)
                cells: list[TrainingCell] = [SyntheticCell(**vars(cell)) for cell in these]
                yield Planned(dataset, True, head, dim, cells)


def cells(settings: Settings) -> list[TrainingCell]:
    """HRR and CHRR of each dimension, and FC where it fits, on each set."""
    return [cell for plan in planned(settings) for cell in plan.cells]


class Measured:
    """The runs of a result: for each set, by head and dimension."""

    def __init__(self, result: Result) -> None:
        self.settings = Settings.of(result)
        self.sets: dict[str, dict[tuple[str, int], Runs]] = {}
        for plan in planned(self.settings):
            these = self.sets.setdefault(plan.place, {})
            if found := runs(result, plan.cells):
                these[plan.head, plan.dim] = found

    def gaps(self, dim_of_hrr: Callable[[int], int]) -> dict[tuple[str, int], dict[int, Difference]]:
        """By how much CHRR is ahead of HRR in P@k: by set and CHRR's dimension, then by k."""
        gaps = {}
        for place, these in self.sets.items():
            for (head, dim), ours in these.items():
                theirs = these.get(("hrr", dim_of_hrr(dim)))
                if head == "chrr" and theirs and (found := compare(ours.cells, theirs.cells, DEPTHS)):
                    gaps[place, dim] = found
        return gaps


def tables(result: Result) -> list[Table]:
    """P@k and PSP@k for each set, with a row for each model."""
    measured, made = Measured(result), []
    for place, these in measured.sets.items():
        synthetic = place.startswith("synthetic")
        rows: list[tuple[Cell, ...]] = []
        for (head, dim), found in these.items():
            title = recipe(head, dim).title + (" (synthetic)" if synthetic else "")
            rows.append((title, len(found.cells), *(found.show(metric) for metric in METRICS)))
        if rows:
            note = "Mean ± standard deviation over seeds."
            if synthetic:
                note += " Synthetic documents: these numbers say nothing about the real set."
        elif synthetic:
            note = "Not measured yet."
        else:
            note = "Not measured: the dataset was not available."
        columns = ("", "Seeds", *METRICS)
        made.append(Table(f"{_upper(place)}, %", columns, rows, note + measured.settings.note))
    return made


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def claims(result: Result) -> list[Claim]:
    """Judge what the paper says of CHRR and HRR, set by set."""
    measured, made = Measured(result), []
    if same := measured.gaps(lambda dim: dim):
        made.append(_judged("CHRR is better than HRR of the same dimension", same))
        grows = [gaps[20].low > max(gaps[5].high, 0) for gaps in same.values()]
        made.append(
            Claim(
                "The larger k, the further CHRR is ahead of HRR",
                verdict(sum(grows), len(grows)),
                f"the interval at k = 20 lies above that at k = 5 and above 0 in {sum(grows)} of {len(grows)} "
                f"comparisons; P@5: {_listed(same, 5)}",
            )
        )
    if outputs := measured.gaps(lambda dim: 2 * dim):
        made.append(_judged("(not in the paper) CHRR is better than HRR with as many outputs", outputs))
    return made


def _judged(text: str, gaps: dict[tuple[str, int], dict[int, Difference]]) -> Claim:
    ahead, behind, total = counted(gaps.values())
    return Claim(
        text,
        verdict(ahead, total),
        f"by the bootstrap over test documents and seeds ahead in {ahead} of {total} comparisons of "
        f"P@k, behind in {behind}; P@20: {_listed(gaps, 20)}",
    )


def _listed(gaps: dict[tuple[str, int], dict[int, Difference]], k: int) -> str:
    by_place: dict[str, list[str]] = {}
    for (place, dim), by_depth in gaps.items():
        by_place.setdefault(place, []).append(f"{by_depth[k].mean:+.1f} (d = {dim:,})")
    return "; ".join(f"{place} {', '.join(found)}" for place, found in by_place.items())


def draw(result: Result) -> Figure:
    """Draw a row for each set and a panel for each k: P@k of HRR and CHRR over d, FC as a line."""
    shown = {place: these for place, these in Measured(result).sets.items() if these}
    figure, axes = panels(len(shown), len(DEPTHS), (10, 2.9 * max(len(shown), 1)))
    for row, (place, these) in zip(axes, shown.items(), strict=False):
        for axis, k in zip(row, DEPTHS, strict=True):
            _draw_panel(axis, these, f"P@{k}")
        row[0].set_ylabel(f"{_upper(place).replace(', ', ',' + chr(10))}\n%")
    return finished(figure)


def _draw_panel(axis: Axes, these: dict[tuple[str, int], Runs], metric: str) -> None:
    ends = {
        head: max((dim, r.mean(metric)) for (h, dim), r in these.items() if h == head) for head in ("hrr", "chrr")
    }
    for head, end in ends.items():
        color, marker = STYLES[head.upper()]
        points: Any = [(dim, r.mean(metric), r.sd(metric) or 0.0) for (h, dim), r in these.items() if h == head]
        dims, means, bars = zip(*points, strict=True)
        axis.errorbar(dims, means, bars, color=color, marker=marker, ms=4, lw=1.5, capsize=2)
        # The name of the higher line is above its end, so that names don't overlap.
        above = 7 if end[1] == max(value for _, value in ends.values()) else -7
        axis.annotate(head.upper(), end, (5, above), textcoords="offset points", color=color, va="center")
    if full := these.get(("fc", 0)):
        axis.axhline(full.mean(metric), color="#000000", ls="--", lw=1.2)
        axis.annotate("FC", (DIMS[0], full.mean(metric)), (0, 3), textcoords="offset points")
    axis.set_title(metric)
    axis.set_xlabel("d")
    axis.set_xticks(DIMS)
    axis.set_xlim(0, 1.25 * DIMS[-1])
