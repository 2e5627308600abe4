"""How many dimensions do labels need? The paper's figure of P@k and PSP@k over d, for HRR and CHRR.

The setting is that of the paper's section 4: d = 100, 400, 800 and 1,000, h = 768, k = 5, 10 and 20, with FC
(h = 2048) as a line. A CHRR of dimension d outputs 2 d numbers, an HRR d.

What the paper leaves open, and what we chose: as in `circlet_paper.table`, whose runs this experiment
shares. The paper's figure is about Wiki10-31K and Delicious-200K; ours is about Delicious, EURLex-4K and wordnet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from circlet.report import Cell, Table
from circlet_paper import Claim
from circlet_paper.cells import Result
from circlet_paper.drawing import STYLES, finished, panels
from circlet_paper.runs import verdict
from circlet_paper.training_cells import FC, Recipe, Settings, TrainingCell, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["TITLE", "Settings", "cells", "claims", "draw", "tables"]

TITLE = "How many dimensions labels need: P@k and PSP@k over d"
DATASETS = ("delicious", "eurlex-4k", "wordnet")
DIMS = (100, 400, 800, 1000)
DEPTHS = (5, 10, 20)
METRICS = tuple(f"{name}@{k}" for name in ("P", "PSP") for k in DEPTHS)
HEADS = {
    head: {
        dim: Recipe(f"{title}, d = {dim}", "paper", {"head": head, "dim": dim, "hidden": (768, 768)})
        for dim in DIMS
    }
    for head, title in (("hrr", "HRR"), ("chrr", "CHRR"))
}


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


def _gaps(result: Result) -> dict[tuple[str, int, str], float]:
    """By how many points CHRR is ahead of HRR of the same dimension: by dataset, dimension and metric."""
    found = {}
    for dataset in DATASETS:
        for dim in DIMS:
            ours, theirs = (HEADS[head][dim].runs(result, dataset) for head in ("chrr", "hrr"))
            if ours and theirs:
                for metric in METRICS:
                    found[dataset, dim, metric] = ours.mean(metric) - theirs.mean(metric)
    return found


def claims(result: Result) -> list[Claim]:
    """Judge what the paper concludes from its figure."""
    gaps = _gaps(result)
    if not gaps:
        return []
    measured = [dataset for dataset in DATASETS if (dataset, DIMS[0], METRICS[0]) in gaps]
    pairs = [(dataset, dim) for dataset in measured for dim in DIMS]
    ahead = sum(gap > 0 for gap in gaps.values())
    grows = [
        gaps[dataset, dim, f"{name}@20"] > gaps[dataset, dim, f"{name}@5"]
        for dataset, dim in pairs
        for name in ("P", "PSP")
    ]
    return [
        Claim(
            "CHRR is better than HRR of the same dimension",
            verdict(ahead, len(gaps)),
            f"in {ahead} of {len(gaps)} comparisons; "
            + _each(measured, lambda dataset: f"P@20, d = 100 to 1,000: {_row(gaps, dataset, 'P@20')}"),
        ),
        Claim(
            "The larger k, the further CHRR is ahead of HRR",
            verdict(sum(grows), len(grows)),
            f"the gap is larger at k = 20 than at k = 5 in {sum(grows)} of {len(grows)} comparisons",
        ),
        _judge_small(result, gaps, measured),
        _judge_outputs(result, measured),
        _judge_fc(result, measured),
    ]


def _each(datasets: list[str], say: Callable[[str], str]) -> str:
    return "; ".join(f"{title_of(dataset)} {say(dataset)}" for dataset in datasets)


def _row(gaps: dict[tuple[str, int, str], float], dataset: str, metric: str) -> str:
    return ", ".join(f"{gaps[dataset, dim, metric]:+.1f}" for dim in DIMS)


def _judge_small(result: Result, gaps: dict[tuple[str, int, str], float], measured: list[str]) -> Claim:
    """Judge whether a small dimension costs CHRR less than HRR."""
    lost, kept = {}, []
    for dataset in measured:
        for head in HEADS:
            small, large = (HEADS[head][dim].runs(result, dataset) for dim in (DIMS[0], DIMS[-1]))
            assert small is not None
            assert large is not None
            lost[dataset, head] = large.mean("P@5") - small.mean("P@5")
        kept.append(lost[dataset, "chrr"] < lost[dataset, "hrr"])
    return Claim(
        "A small dimension costs CHRR less than HRR",
        verdict(sum(kept), len(kept)),
        "P@5 lost from d = 1,000 to d = 100: "
        + _each(measured, lambda d: f"CHRR {lost[d, 'chrr']:.1f}, HRR {lost[d, 'hrr']:.1f}"),
    )


def _judge_outputs(result: Result, measured: list[str]) -> Claim:
    """Compare at the same number of outputs: CHRR with d = 400 has 800, and so has HRR with d = 800."""
    gaps = {}
    for dataset in measured:
        ours, theirs = HEADS["chrr"][400].runs(result, dataset), HEADS["hrr"][800].runs(result, dataset)
        assert ours is not None
        assert theirs is not None
        gaps[dataset] = {metric: ours.mean(metric) - theirs.mean(metric) for metric in METRICS}
    every = [gap for these in gaps.values() for gap in these.values()]
    ahead = sum(gap > 0 for gap in every)
    return Claim(
        "(not in the paper) CHRR is better than HRR with as many outputs, d = 400 against d = 800",
        verdict(ahead, len(every)),
        f"in {ahead} of {len(every)} comparisons; "
        + _each(measured, lambda d: f"P@5 {gaps[d]['P@5']:+.1f}, P@20 {gaps[d]['P@20']:+.1f}"),
    )


def _judge_fc(result: Result, measured: list[str]) -> Claim:
    found = {}
    for dataset in measured:
        full = FC.runs(result, dataset)
        if full is None:
            continue
        for dim in DIMS:
            ours = HEADS["chrr"][dim].runs(result, dataset)
            assert ours is not None
            found[dataset, dim] = ours.mean("P@5") - full.mean("P@5")
    ahead = [dataset for dataset in measured if any(found.get((dataset, dim), -1) > 0 for dim in DIMS)]
    return Claim(
        "On certain datasets CHRR outperforms FC even with few dimensions",
        verdict(len(ahead), len(measured)),
        "P@5 against FC for d = 100 to 1,000: "
        + _each(
            [d for d in measured if (d, DIMS[0]) in found],
            lambda d: ", ".join(f"{found[d, dim]:+.1f}" for dim in DIMS),
        ),
    )


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
