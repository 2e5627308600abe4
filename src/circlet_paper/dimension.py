"""How many dimensions do labels need? The paper's figure of P@k and PSP@k over d, for HRR and CHRR.

The setting is that of the paper's section 5: d = 100, 400, 800 and 1,000, h = 768, k = 5, 10 and 20, with FC
(h = 2048) as a line. A CHRR of dimension d outputs 2 d numbers, an HRR d.

What the paper leaves open, and what we chose: as in `circlet_paper.table`, whose runs this experiment
shares. The paper's figure is about Wiki10-31K and Delicious-200K; ours is about Delicious, EURLex-4K and wordnet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from circlet.report import Cell, Table
from circlet_paper import Claim
from circlet_paper.cells import Result
from circlet_paper.drawing import STYLES, finished, panels
from circlet_paper.runs import verdict
from circlet_paper.training_cells import FC, Recipe, Settings, TrainingCell, of_dim, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "How many dimensions labels need: P@k and PSP@k over d"
DATASETS = ("delicious", "eurlex-4k", "wordnet")
DIMS = (100, 400, 800, 1000)
DEPTHS = (5, 10, 20)
METRICS = tuple(f"{name}@{k}" for name in ("P", "PSP") for k in DEPTHS)
HEADS = {head: {dim: of_dim(head, dim) for dim in DIMS} for head in ("hrr", "chrr")}


def cells(settings: Settings) -> list[TrainingCell]:
    """FC, and HRR and CHRR of each dimension, on each dataset."""
    recipes = [FC, *(recipe for dims in HEADS.values() for recipe in dims.values())]
    return [cell for dataset in DATASETS for recipe in recipes for cell in recipe.cells(dataset, settings)]


def tables(result: Result) -> list[Table]:
    """P@k and PSP@k for each dataset, with a row for each model."""
    made = []
    for dataset in DATASETS:
        rows: list[tuple[Cell, ...]] = []
        for recipe in (*(recipe for dims in HEADS.values() for recipe in dims.values()), FC):
            if these := recipe.runs(result, dataset):
                rows.append((recipe.title, *(these.show(metric) for metric in METRICS)))
        note = f"Mean ± standard deviation of {result['settings']['seeds']} seeds."
        if not rows:
            note = "Not measured: the dataset was not available."
        made.append(Table(f"{title_of(dataset)}, %", ("", *METRICS), rows, note + Settings.of(result).note))
    return made


def _gaps(result: Result, dataset: str, ours: Recipe, theirs: Recipe) -> dict[str, float]:
    """By how many points one model is ahead of another, by metric; empty unless both were measured."""
    both = ours.runs(result, dataset), theirs.runs(result, dataset)
    return both[0].ahead(both[1], METRICS) if both[0] and both[1] else {}


def claims(result: Result) -> list[Claim]:
    """Judge what the paper concludes from its figure."""
    hrr, chrr = HEADS["hrr"], HEADS["chrr"]
    same = {
        dataset: {dim: gaps for dim in DIMS if (gaps := _gaps(result, dataset, chrr[dim], hrr[dim]))}
        for dataset in DATASETS
    }
    measured = [dataset for dataset in DATASETS if same[dataset]]
    if not measured:
        return []

    def each(say: Callable[[str], str], datasets: list[str] = measured) -> str:
        return "; ".join(f"{title_of(dataset)} {say(dataset)}" for dataset in datasets)

    by_dim = [gaps for dataset in measured for gaps in same[dataset].values()]
    better = [gap > 0 for gaps in by_dim for gap in gaps.values()]
    grows = [gaps[f"{name}@20"] > gaps[f"{name}@5"] for gaps in by_dim for name in ("P", "PSP")]
    lost = {
        (dataset, head): _gaps(result, dataset, dims[DIMS[-1]], dims[DIMS[0]])["P@5"]
        for dataset in measured
        for head, dims in HEADS.items()
    }
    kept = [lost[dataset, "chrr"] < lost[dataset, "hrr"] for dataset in measured]
    # CHRR with d = 400 has 800 outputs, and so has HRR with d = 800.
    outputs = {dataset: _gaps(result, dataset, chrr[400], hrr[800]) for dataset in measured}
    fewer = [gap > 0 for gaps in outputs.values() for gap in gaps.values()]
    full = {
        dataset: [gaps["P@5"] for dim in DIMS if (gaps := _gaps(result, dataset, chrr[dim], FC))]
        for dataset in measured
    }
    beyond = [any(gap > 0 for gap in gaps) for gaps in full.values()]
    return [
        Claim(
            "CHRR is better than HRR of the same dimension",
            verdict(sum(better), len(better)),
            f"in {sum(better)} of {len(better)} comparisons; "
            + each(lambda d: f"P@20, d = 100 to 1,000: {_signed(gaps['P@20'] for gaps in same[d].values())}"),
        ),
        Claim(
            "The larger k, the further CHRR is ahead of HRR",
            verdict(sum(grows), len(grows)),
            f"the gap is larger at k = 20 than at k = 5 in {sum(grows)} of {len(grows)} comparisons",
        ),
        Claim(
            "A small dimension costs CHRR less than HRR",
            verdict(sum(kept), len(kept)),
            "P@5 lost from d = 1,000 to d = 100: "
            + each(lambda d: f"CHRR {lost[d, 'chrr']:.1f}, HRR {lost[d, 'hrr']:.1f}"),
        ),
        Claim(
            "(not in the paper) CHRR is better than HRR with as many outputs, d = 400 against d = 800",
            verdict(sum(fewer), len(fewer)),
            f"in {sum(fewer)} of {len(fewer)} comparisons; "
            + each(lambda d: f"P@5 {outputs[d]['P@5']:+.1f}, P@20 {outputs[d]['P@20']:+.1f}"),
        ),
        Claim(
            "On certain datasets CHRR outperforms FC even with few dimensions",
            verdict(sum(beyond), len(beyond)),
            "P@5 against FC for d = 100 to 1,000: "
            + each(lambda d: _signed(full[d]), [dataset for dataset in measured if full[dataset]]),
        ),
    ]


def _signed(gaps: Iterable[float]) -> str:
    return ", ".join(f"{gap:+.1f}" for gap in gaps)


def draw(result: Result) -> Figure:
    """Draw a panel for each dataset and metric: HRR and CHRR over d, FC as a line."""
    shown = [dataset for dataset in DATASETS if any(r.runs(result, dataset) for r in HEADS["chrr"].values())]
    size = (2.7 * len(METRICS), 2.5 * max(len(shown), 1) + 0.4)
    figure, axes = panels(len(shown), len(METRICS), size, sharex=True)
    for row, dataset in zip(axes, shown, strict=False):
        for axis, metric in zip(row, METRICS, strict=True):
            _draw_panel(axis, result, dataset, metric)
        row[0].set_ylabel(f"{title_of(dataset)}\n%")
    for axis, metric in zip(axes[0], METRICS, strict=True):
        axis.set_title(metric)
    for axis in axes[-1]:
        axis.set_xlabel("d")
        axis.set_xticks(DIMS)
    return finished(figure, legend=3)


def _draw_panel(axis: Axes, result: Result, dataset: str, metric: str) -> None:
    for head, recipes in HEADS.items():
        color, marker = STYLES[head.upper()]
        found = {dim: recipe.runs(result, dataset) for dim, recipe in recipes.items()}
        points = [(dim, these.mean(metric), these.sd(metric) or 0.0) for dim, these in found.items() if these]
        if points:
            dims, means, deviations = zip(*points, strict=True)
            axis.errorbar(
                dims, means, deviations, color=color, marker=marker, ms=4, lw=1.5, capsize=2,
                label=head.upper(),
            )  # fmt: skip
    if full := FC.runs(result, dataset):
        axis.axhline(full.mean(metric), color="#000000", ls="--", lw=1.2, label=FC.title)
