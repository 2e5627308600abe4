"""What can the published numbers be traced to? The protocol of the authors' scripts, on the paper's two datasets.

The preset `authors` is what the scripts that the paper names do by default: Adam at 0.001, times 0.7 after every
epoch, batches of 64, 25 epochs, leaky ReLU, features as they are, a tenth of the training rows held out, and the
epoch with the least loss on these kept. Their loss is 1 − |cos|, and labels are ranked by |cos|. The preset
`paper` takes the paper's text by its word: learning rate 1 (which suits Adadelta), 100 epochs, and no absolute
value.

What the paper leaves open, and what we chose:
- Delicious's split. The scripts read the first of the Repository's random splits, so it is the main one here.
- What the networks start from and compute with. The preset has torch's own initial weights, an average instead of
  a sum of binary cross-entropy over labels, biases of FC that know nothing about label frequencies, and float32
  everywhere, as the scripts do. The preset `paper` differs in all of these: He's weights, a sum, biases that start
  from frequencies, and bfloat16 on a GPU. A table below has what each of them changes.
- Repetitions, which the paper does not mention: five seeds.
- FC's width. The paper gives FC h = 2048 and CHRR h = 768, so most of the parameters that CHRR saves are the
  width. FC is measured with h = 768 too, and with the width at which it has as many parameters as CHRR.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from circlet.report import Cell, Table
from circlet_paper import Claim
from circlet_paper import training_cells as trained
from circlet_paper.cells import Result
from circlet_paper.drawing import STYLES, finished, panels
from circlet_paper.runs import (
    PUBLISHED_METRICS,
    Difference,
    Runs,
    compare,
    counted,
    millions,
    published,
    verdict,
)
from circlet_paper.training_cells import Recipe, TrainingCell, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The authors' protocol: what the published numbers can be traced to"
#: The datasets and the split of each; None for its only one.
DATASETS = {"eurlex-4k": None, "delicious": 1}
DEPTHS = (1, 5, 10, 20)
METRICS = tuple(f"{name}@{k}" for name in ("P", "PSP") for k in DEPTHS)
#: Points within which a measured number counts as the published one.
NEAR = 1.0
#: The width at which FC has the parameters that CHRR has with d = 800 and h = 768.
AS_MANY = {"eurlex-4k": 590, "delicious": 918}

HEADS: dict[str, dict[str, Any]] = {
    "FC": {"head": "fc", "hidden": (2048, 2048)},
    "HRR": {"head": "hrr", "dim": 800, "hidden": (768, 768)},
    "CHRR": {"head": "chrr", "dim": 800, "hidden": (768, 768)},
}
SIGNED = {"loss": "cosine"}
#: What circlet usually does otherwise than the authors' scripts: a variant's name, its settings, and its models.
VARIANTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "cosine with its sign": (SIGNED, ("HRR", "CHRR")),
    "BCE summed, biases from frequencies": ({"loss": "bce"}, ("FC",)),
    "He's initial weights": ({"initial": "he"}, ("FC", "CHRR")),
    "ReLU": ({"activation": "relu"}, ("FC", "CHRR")),
    "bfloat16 on a GPU": ({"precision": "auto"}, ("FC", "CHRR")),
    "rows of length 1": ({"scaling": "l2"}, ("FC", "HRR", "CHRR")),
}


@dataclass(frozen=True)
class Settings(trained.Settings):
    """Size of the experiment; five seeds instead of three."""

    seeds: int = 5


def _recipe(model: str, protocol: str = "authors", differing: dict[str, Any] | None = None) -> Recipe:
    return Recipe(model, protocol, {**HEADS[model], **(differing or {})})


def _full(width: int) -> Recipe:
    return Recipe(f"FC, h = {width}", "authors", {"head": "fc", "hidden": (width, width)})


def _recipes(dataset: str, settings: trained.Settings) -> Iterator[Recipe]:
    """Everything that is measured on a dataset; a quick run has only the authors' protocol."""
    yield from (_recipe(model) for model in HEADS)
    if settings.rows is not None:
        return
    yield from (_full(width) for width in (768, AS_MANY[dataset]))
    yield from (_recipe(model, differing=given) for given, models in VARIANTS.values() for model in models)
    yield from (_recipe(model, "paper") for model in HEADS)


def cells(settings: trained.Settings) -> list[TrainingCell]:
    """Every model in the authors' protocol, what changes if one thing is different, and the paper's text."""
    return [
        cell
        for dataset, split in DATASETS.items()
        for recipe in _recipes(dataset, settings)
        for cell in recipe.cells(dataset, settings, split)
    ]


def _runs(result: Result, dataset: str, recipe: Recipe) -> Runs | None:
    return recipe.runs(result, dataset, DATASETS[dataset])


def _place(dataset: str) -> str:
    split = DATASETS[dataset]
    return title_of(dataset) + (f", split {split}" if split else "")


def tables(result: Result) -> list[Table]:
    """The published rows beside ours, all metrics, what each difference changes, and CHRR against HRR."""
    made = [_traced(result)]
    for dataset in DATASETS:
        made += [_every_metric(result, dataset), _changes(result, dataset)]
    made.append(_paired(result))
    return [table for table in made if table.rows]


def _traced(result: Result) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for dataset in DATASETS:
        for model in HEADS:
            known, these = published(dataset, model), _runs(result, dataset, _recipe(model))
            if these is None:
                continue
            numbers = (
                f"{these.show(m)} ({known[m]:.1f})" if m in known else these.show(m) for m in PUBLISHED_METRICS
            )
            rows.append((_place(dataset), model, *numbers, _trace(these, known)))
    return Table(
        "Row by row: ours in the authors' protocol, and in parentheses what the paper has, %",
        ("", "Model", *PUBLISHED_METRICS, "Traced?"),
        rows,
        note=f"{_seeds(result)} A number is traced if ours is within {NEAR:g} point of it. The paper prints no "
        f"numbers for HRR, only a figure.{Settings.of(result).note}",
    )


def _trace(these: Runs, known: dict[str, float]) -> str:
    if not known:
        return "not published"
    near = [metric for metric, value in known.items() if abs(these.mean(metric) - value) <= NEAR]
    if len(near) == len(known):
        return "yes"
    off = ", ".join(f"{m} {these.mean(m) - known[m]:+.1f}" for m in known if m not in near)
    return f"{len(near)} of {len(known)} numbers; {off}"


def _seeds(result: Result) -> str:
    return f"Mean ± standard deviation of {result['settings']['seeds']} seeds."


def _every_metric(result: Result, dataset: str) -> Table:
    rows: list[tuple[Cell, ...]] = []

    def add(name: str, protocol: str, recipe: Recipe) -> None:
        if these := _runs(result, dataset, recipe):
            numbers = (these.show(metric) for metric in METRICS)
            rows.append((name, protocol, millions(these.parameters), *numbers))

    for model in HEADS:
        add(f"{model}, h = {HEADS[model]['hidden'][0]}", "authors", _recipe(model))
    for width in (768, AS_MANY[dataset]):
        add(f"FC, h = {width}", "authors", _full(width))
    for model in VARIANTS["cosine with its sign"][1]:
        add(f"{model}, cosine with its sign", "authors", _recipe(model, differing=SIGNED))
    for model in HEADS:
        add(f"{model}, h = {HEADS[model]['hidden'][0]}", "paper", _recipe(model, "paper"))
    return Table(
        f"{_place(dataset)}: all metrics, %",
        ("", "Preset", "Parameters", *METRICS),
        rows,
        note=f"{_seeds(result)} d = 800.{Settings.of(result).note}",
    )


def _changes(result: Result, dataset: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, (given, models) in VARIANTS.items():
        for model in models:
            base, these = (_runs(result, dataset, _recipe(model, differing=g)) for g in ({}, given))
            if base and these:
                found = compare(these.cells, base.cells, (1, 5))
                rows.append((name, model, *(str(found.get(k, "")) for k in (1, 5))))
    return Table(
        f"{_place(dataset)}: what one difference changes, points",
        ("Instead of the authors'", "Model", "P@1", "P@5"),
        rows,
        note="Difference to the authors' protocol; 95 % interval from a bootstrap over test documents and seeds.",
    )


def _gaps(result: Result) -> dict[tuple[str, str], dict[int, Difference]]:
    """By how much CHRR is ahead of HRR, by dataset and protocol."""
    ways = {
        "authors": ("authors", {}),
        "authors, cosine with its sign": ("authors", SIGNED),
        "paper": ("paper", {}),
    }
    found = {}
    for dataset in DATASETS:
        for way, (protocol, given) in ways.items():
            ours, theirs = (_runs(result, dataset, _recipe(m, protocol, dict(given))) for m in ("CHRR", "HRR"))
            if ours and theirs and (gaps := compare(ours.cells, theirs.cells, DEPTHS)):
                found[dataset, way] = gaps
    return found


def _paired(result: Result) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (_place(dataset), way, *(str(gaps[k]) for k in DEPTHS)) for (dataset, way), gaps in _gaps(result).items()
    ]
    return Table(
        "CHRR against HRR, both d = 800 and h = 768: points of P@k",
        ("", "Preset", *(f"P@{k}" for k in DEPTHS)),
        rows,
        note="Positive where CHRR is ahead; 95 % interval from a bootstrap over test documents and seeds.",
    )


def claims(result: Result) -> list[Claim]:
    """Judge whether the published numbers are traced, CHRR against HRR, and against FC of as many parameters."""
    made = []
    near, off = [], []
    for dataset in DATASETS:
        for model in HEADS:
            known, these = published(dataset, model), _runs(result, dataset, _recipe(model))
            if known and these:
                near += [abs(these.mean(m) - value) <= NEAR for m, value in known.items()]
                off.append(f"{_place(dataset)} {model}: {_trace(these, known)}")
    if near:
        made.append(
            Claim(
                "The published rows of FC and CHRR follow from the authors' scripts",
                verdict(sum(near), len(near)),
                f"{sum(near)} of {len(near)} numbers within {NEAR:g} point, means of seeds; {'; '.join(off)}",
            )
        )
    if gaps := _gaps(result):
        ahead, behind, total = counted(gaps.values())
        made.append(
            Claim(
                "CHRR is at least as good as HRR on the paper's own datasets",
                verdict(total - behind, total),
                f"by the bootstrap over test documents and seeds ahead in {ahead} of {total} comparisons of P@k, "
                f"behind in {behind}; "
                + "; ".join(f"{_place(d)}, {way}: P@1 {g[1]}, P@20 {g[20]}" for (d, way), g in gaps.items()),
            )
        )
    if beside := list(_beside_full(result)):
        near = [gap.low >= -NEAR for _, gaps in beside for gap in gaps.values()]
        made.append(
            Claim(
                "CHRR is comparable to FC with as many parameters",
                verdict(sum(near), len(near)),
                f"the interval of the bootstrap stays above −{NEAR:g} point in {sum(near)} of {len(near)} "
                "comparisons of P@1 and P@5; "
                + "; ".join(f"{name}: P@1 {gaps[1]}, P@5 {gaps[5]}" for name, gaps in beside),
            )
        )
    return made


def _beside_full(result: Result) -> Iterator[tuple[str, dict[int, Difference]]]:
    for dataset in DATASETS:
        ours = _runs(result, dataset, _recipe("CHRR"))
        for width in (2048, 768, AS_MANY[dataset]):
            recipe = _recipe("FC") if width == 2048 else _full(width)
            theirs = _runs(result, dataset, recipe)
            if ours and theirs and (gaps := compare(ours.cells, theirs.cells, (1, 5))):
                share = 100 * ours.parameters / theirs.parameters
                yield f"{_place(dataset)}, FC h = {width} ({share:.0f} % of its parameters)", gaps


def draw(result: Result) -> Figure:
    """Draw the published metrics of each model beside ours, with a panel for each dataset."""
    figure, axes = panels(1, len(DATASETS), (11, 4.2))
    for axis, dataset in zip(axes[0], DATASETS, strict=True):
        for place, (model, (color, marker)) in enumerate(STYLES.items()):
            these, known = _runs(result, dataset, _recipe(model)), published(dataset, model)
            at = [i + 0.2 * (place - 1) for i in range(len(PUBLISHED_METRICS))]
            if these:
                means = [these.mean(m) for m in PUBLISHED_METRICS]
                bars = [these.sd(m) or 0.0 for m in PUBLISHED_METRICS]
                axis.errorbar(at, means, bars, color=color, marker=marker, ls="none", capsize=3, label=model)
            if known:
                values = [known[m] for m in PUBLISHED_METRICS]
                axis.plot(
                    at, values, ls="none", marker="_", ms=16, mew=2, color=color, alpha=0.7,
                    label=f"{model}, published",
                )  # fmt: skip
        axis.set_title(_place(dataset))
        axis.set_xticks(range(len(PUBLISHED_METRICS)), PUBLISHED_METRICS)
        axis.set_ylabel("%")
    return finished(figure, "y", legend=5)
