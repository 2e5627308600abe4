"""The tree methods of the paper's table, FastXML and PfastreXML, measured beside its networks.

The paper copies their rows from the Extreme Classification Repository, on EURLex-4K under the wrong names. Here
both methods are written again (`trees`, `fastxml`, `pfastrexml`) and measured on the same rows as CHRR, HRR and FC
in the authors' protocol (`circlet.experiments.authors`) and as circlet's defaults. Their runs are shared with
other experiments. XML-CNN, which reads texts, is not among them.

What the paper leaves open, and what we chose:

- The settings of the trees: those of the programs that their authors published. 50 trees, at most 10 documents and
  100 labels in a leaf, a bias feature of 1, C = 1 with both sides of a split weighing the same in total; α = 0.8
  and γ = 30 for PfastreXML, propensities with the constants that the Repository has for the dataset.
- Scaling. The programs take features as they are in the files, but a file's features may have been scaled before.
  We scale rows to length 1. That was much better on held-out training rows of EURLex-4K, and made no difference on
  Delicious; the trials, with a dozen trees, are not kept. On EURLex-4K, features as they are have rows of their
  own. Their values are so large that liblinear converges slowly; there, it stops at a tolerance of 0.1 instead of
  the authors' 0.01.
- Delicious's split. Mulan's, where circlet's defaults were measured, and the Repository's first random split,
  which the authors' scripts read.
- Repetitions. One seed for forests, because 50 trees are averaged anyway. Networks have five seeds, circlet's
  defaults three.
- Sizes are those of the arrays in memory: for networks 4 bytes a parameter, for forests 4 bytes a weight and 4 for
  its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from circlet.experiments import Claim, training_cells
from circlet.experiments.authors import HEADS
from circlet.experiments.baselines.tree_cells import MODELS, TreeCell
from circlet.experiments.baselines.trees import TreeSettings
from circlet.experiments.cells import Result
from circlet.experiments.paired import Difference, compare
from circlet.experiments.published import REPOSITORY
from circlet.experiments.recipes import CIRCLET
from circlet.experiments.training_cells import DEPTHS, Recipe, Runs, TrainingCell, runs, title_of, verdict
from circlet.report import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TITLE", "Settings", "cells", "claims", "draw", "tables"]

TITLE = "The paper's tree methods, measured: FastXML and PfastreXML beside CHRR, HRR and FC"
FAST, PFASTRE = MODELS.values()
OURS = CIRCLET.title
#: What the features are in the files, without any scaling: a second version of the trees, for EURLex-4K.
AS_IS = TreeSettings(scaling="none", tolerance=0.1)
#: The forests by title, with the names that cells have.
FORESTS: dict[str, tuple[str, TreeSettings]] = {
    **{title: (name, TreeSettings()) for name, title in MODELS.items()},
    **{f"{title}, features as they are": (name, AS_IS) for name, title in MODELS.items()},
}
#: Datasets with a split each, None for a dataset's own, and the networks that were measured there.
PLACES: dict[tuple[str, int | None], tuple[str, ...]] = {
    ("eurlex-4k", None): (*HEADS, OURS),
    ("delicious", 1): tuple(HEADS),
    ("delicious", None): (OURS,),
}
#: The largest numbers of seeds.
SEEDS = {"trees": 1, OURS: 3}
#: Trees of a quick run.
FEW = 4
METRICS = tuple(f"{name}@{k}" for name in ("P", "PSP") for k in DEPTHS)
#: Points within which a measured number counts as the published one.
NEAR = 1.5
COMPARED = (1, 3, 5)
Place = tuple[str, "int | None"]


@dataclass(frozen=True)
class Settings(training_cells.Settings):
    """Size of the experiment; five seeds, as in `circlet.experiments.authors`, for its networks."""

    seeds: int = 5

    @classmethod
    def quick(cls) -> Settings:
        """One seed, few rows and few trees."""
        return cls(seeds=1, rows=1000, epochs=2, shrink=8)


def _trees(place: Place, title: str, settings: training_cells.Settings) -> list[TreeCell]:
    (dataset, split), (model, grown) = place, FORESTS[title]
    if settings.rows is not None:
        grown = replace(grown, trees=FEW)
    return [
        TreeCell(dataset, model, grown, seed, settings.rows, split)
        for seed in range(min(settings.seeds, SEEDS["trees"]))
    ]


def _networks(place: Place, title: str, settings: training_cells.Settings) -> list[TrainingCell]:
    dataset, split = place
    if title == OURS:
        return CIRCLET.cells(dataset, replace(settings, seeds=min(settings.seeds, SEEDS[OURS])), split)
    return Recipe(title, "authors", HEADS[title]).cells(dataset, settings, split)


def _planned(
    settings: training_cells.Settings,
) -> Iterator[tuple[Place, str, Sequence[TreeCell | TrainingCell]]]:
    """Everything that is measured, model by model."""
    for place, networks in PLACES.items():
        for title in FORESTS if place[0] == "eurlex-4k" else MODELS.values():
            yield place, title, _trees(place, title, settings)
        for title in networks:
            yield place, title, _networks(place, title, settings)


def cells(settings: training_cells.Settings) -> list[TreeCell | TrainingCell]:
    """Both forests everywhere, and the networks that they are compared with."""
    return [cell for *_, these in _planned(settings) for cell in these]


def _place(place: Place) -> str:
    dataset, split = place
    other = ", split 1" if split else ", Mulan's split" if (dataset, 1) in PLACES else ""
    return title_of(dataset) + other


class Measured:
    """The runs of a result by place, then by title."""

    def __init__(self, result: Result) -> None:
        self.settings = Settings(**result["settings"])
        self.at: dict[Place, dict[str, Runs]] = {place: {} for place in PLACES}
        for place, title, these in _planned(self.settings):
            if found := runs(result, these):
                self.at[place][title] = found

    def gaps(self, one: str, other: str) -> dict[Place, dict[int, Difference]]:
        """By how much one is ahead of another in P@k, where both kept outcomes for each document."""
        return {
            place: gaps
            for place, these in self.at.items()
            if one in these and other in these
            if (gaps := compare(these[one].cells, these[other].cells, COMPARED))
        }


def tables(result: Result) -> list[Table]:
    """The published rows beside ours, all metrics with sizes and times, and trees against networks."""
    measured = Measured(result)
    made = [_traced(measured), *(_every_metric(measured, place) for place in PLACES), _paired(measured)]
    return [table for table in made if table.rows]


def _traced(measured: Measured) -> Table:
    metrics = [f"{name}@{k}" for name in ("P", "PSP") for k in COMPARED]
    rows: list[tuple[Cell, ...]] = []
    for place, title, these, known in _with_published(measured):
        numbers = (f"{these.show(m)} ({known[m]:.1f})" if m in known else these.show(m) for m in metrics)
        rows.append((_place(place), title, *numbers, _trace(these, known)))
    return Table(
        "The trees: ours, and in parentheses what the Repository had in 2020, %",
        ("", "Model", *metrics, "Traced?"),
        rows,
        note=f"A number is traced if ours is within {NEAR:g} points of it. The paper copies these rows, but on "
        "EURLex-4K under PfastreXML those of FastXML, and under FastXML numbers that the Repository had under "
        f"another name.{measured.settings.note}",
    )


def _with_published(measured: Measured) -> Iterator[tuple[Place, str, Runs, dict[str, float]]]:
    for place, found in measured.at.items():
        for title in MODELS.values():
            if these := found.get(title):
                yield place, title, these, REPOSITORY[place[0]][title]


def _trace(these: Runs, known: dict[str, float]) -> str:
    off = [f"{m} {these.mean(m) - known[m]:+.1f}" for m in known if not _near(these, known, m)]
    return "yes" if not off else f"{len(known) - len(off)} of {len(known)} numbers; {', '.join(off)}"


def _near(these: Runs, known: dict[str, float], metric: str) -> bool:
    return abs(these.mean(metric) - known[metric]) <= NEAR


def _every_metric(measured: Measured, place: Place) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            f"{title} (authors' protocol)" if title in HEADS else title,
            len(these.cells),
            *(these.show(metric) for metric in METRICS),
            f"{size_of(these) / 1e6:.1f} MB",
            _seconds(these),
        )
        for title, these in measured.at[place].items()
    ]
    return Table(
        f"{_place(place)}: all metrics, %",
        ("", "Seeds", *METRICS, "Size", "Training"),
        rows,
        note=f"Mean ± standard deviation over seeds.{measured.settings.note}",
    )


def size_of(these: Runs) -> int:
    """Size of a model in bytes: that of a forest, or 4 for each parameter of a network."""
    cell = these.cells[0]
    return int(cell["bytes"]) if "bytes" in cell else 4 * these.parameters


def _seconds(these: Runs) -> str:
    mean = sum(float(cell["training_seconds"]) for cell in these.cells) / len(these.cells)
    device = str(these.cells[0].get("device", "cpu"))
    return f"{mean:,.0f} s on a {'GPU' if device.startswith('cuda') else 'CPU'}"


def _paired(measured: Measured) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (_place(place), title, tree, *(str(gaps[k]) for k in COMPARED))
        for tree in MODELS.values()
        for title in (*HEADS, OURS)
        for place, gaps in measured.gaps(title, tree).items()
    ]
    return Table(
        "Networks against trees: points of P@k",
        ("", "Network", "Trees", *(f"P@{k}" for k in COMPARED)),
        rows,
        note="Positive where the network is ahead; 95 % interval from a bootstrap over test documents. FC, HRR "
        "and CHRR are those of the authors' protocol. Runs that kept no outcomes are left out.",
    )


def claims(result: Result) -> list[Claim]:
    """Judge the published rows, CHRR and circlet against trees, and what PfastreXML gains on rare labels."""
    measured = Measured(result)
    judged = [
        _judge_published(measured),
        *(_judge_network(measured, "CHRR", tree) for tree in MODELS.values()),
        *(_judge_network(measured, OURS, tree) for tree in MODELS.values()),
        _judge_rare(measured),
        _judge_size(measured),
    ]
    return [claim for claim in judged if claim is not None]


def _judge_published(measured: Measured) -> Claim | None:
    found = list(_with_published(measured))
    near = [_near(these, known, m) for _, _, these, known in found for m in known]
    if not near:
        return None
    return Claim(
        "The published rows of FastXML and PfastreXML follow from their papers and programs",
        verdict(sum(near), len(near)),
        f"{sum(near)} of {len(near)} numbers within {NEAR:g} points, means of seeds; "
        + "; ".join(f"{_place(place)} {title}: {_trace(these, known)}" for place, title, these, known in found),
    )


def _judge_network(measured: Measured, network: str, tree: str) -> Claim | None:
    """Judge by the bootstrap where outcomes were kept, and by means elsewhere."""
    better, evidence = [], []
    tested = measured.gaps(network, tree)
    for place, found in measured.at.items():
        if not {network, tree} <= set(found):
            continue
        if gaps := tested.get(place):
            better += [gap.verdict == "ahead" for gap in gaps.values()]
            words = ", ".join(f"P@{k} {gap}" for k, gap in gaps.items())
            evidence.append(f"{_place(place)}, by the bootstrap over test documents: {words}")
        else:
            means = {k: found[network].mean(f"P@{k}") - found[tree].mean(f"P@{k}") for k in COMPARED}
            better += [gap > 0 for gap in means.values()]
            words = ", ".join(f"P@{k} {gap:+.1f}" for k, gap in means.items())
            evidence.append(f"{_place(place)}, by means of seeds, because outcomes were not kept: {words}")
    if not better:
        return None
    return Claim(
        f"{network} ranks better than {tree}" + (" in the authors' protocol" if network in HEADS else ""),
        verdict(sum(better), len(better)),
        f"ahead in {sum(better)} of {len(better)} comparisons; {'; '.join(evidence)}",
    )


def _judge_rare(measured: Measured) -> Claim | None:
    gaps = {
        place: {k: these[PFASTRE].mean(f"PSP@{k}") - these[FAST].mean(f"PSP@{k}") for k in COMPARED}
        for place, these in measured.at.items()
        if {FAST, PFASTRE} <= set(these)
    }
    if not gaps:
        return None
    better = [gap > 0 for by_depth in gaps.values() for gap in by_depth.values()]
    return Claim(
        "PfastreXML finds rare labels better than FastXML",
        verdict(sum(better), len(better)),
        f"by PSP@k, means of seeds, ahead in {sum(better)} of {len(better)} comparisons; "
        + "; ".join(
            f"{_place(place)} " + ", ".join(f"PSP@{k} {gap:+.1f}" for k, gap in by_depth.items())
            for place, by_depth in gaps.items()
        ),
    )


def _judge_size(measured: Measured) -> Claim | None:
    sizes = {
        place: [size_of(these[title]) / 1e6 for title in ("CHRR", FAST, PFASTRE)]
        for place, these in measured.at.items()
        if {"CHRR", FAST, PFASTRE} <= set(these)
    }
    if not sizes:
        return None
    smaller = [ours < forest for ours, *forests in sizes.values() for forest in forests]
    return Claim(
        "CHRR is smaller than a forest",
        verdict(sum(smaller), len(smaller)),
        "by the bytes of the arrays, CHRR, FastXML and PfastreXML: "
        + "; ".join(f"{_place(p)} " + ", ".join(f"{mb:.1f} MB" for mb in these) for p, these in sizes.items()),
    )


#: Rows of the picture from the top, and their colors: one for circlet's own methods, gray for others.
ROWS = {FAST: "#4d4d4d", PFASTRE: "#4d4d4d", "FC": "#8c8c8c", "HRR": "#8c8c8c", "CHRR": "#0072B2", OURS: "#0072B2"}
MARKERS = {1: "o", 3: "s", 5: "D"}


def draw(result: Result) -> Figure:
    """Draw P@1, P@3 and P@5 of each model, with a panel for each place; published numbers are open markers."""
    from matplotlib.figure import Figure  # an extra

    measured = Measured(result)
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes: Any = figure.subplots(1, len(PLACES), sharey=True)
    for axis, (place, found) in zip(axes, measured.at.items(), strict=True):
        for row, (title, color) in enumerate(ROWS.items()):
            known = REPOSITORY[place[0]].get(title, {})
            for k, marker in MARKERS.items():
                if title in found:
                    axis.plot(found[title].mean(f"P@{k}"), row, marker=marker, ms=7, color=color, ls="none")
                if title in found and f"P@{k}" in known:
                    axis.plot(known[f"P@{k}"], row, marker=marker, ms=12, mfc="none", mec=color, ls="none")
        if top := found.get(FAST):
            for k in COMPARED:
                place_of_name = (top.mean(f"P@{k}"), 0)
                axis.annotate(f"P@{k}", place_of_name, (0, 9), textcoords="offset points", ha="center", fontsize=8)
        axis.set_title(_place(place))
        axis.set_xlabel("%")
        axis.grid(alpha=0.25, axis="x")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(ROWS)), list(ROWS))
    axes[0].set_ylim(len(ROWS) - 0.5, -0.8)
    return figure
