"""How should a network output angles? The paper's comparison of CHRR with CHRR-Half, CHRR-sin and CHRR-tanh.

CHRR predicts a pair of numbers for each angle and divides it by its norm, which takes 2 d outputs. CHRR-Half
computes each half of them from half of the last hidden layer, with as many weights as HRR. CHRR-sin and CHRR-tanh
have d outputs and squeeze each into an angle, π sin x or π tanh x. The setting is that of the paper's section 5,
with d = 800 and h = 768. We add two things that this library does by default: `chrr-amplitude`, which divides the
pairs by their joint norm, and a loss over all labels, binary cross-entropy with the same codes.

What the paper leaves open, and what we chose: as in `circlet_paper.table`, whose runs this experiment
shares. The paper's figure is about Wiki10-31K; ours is about Delicious, EURLex-4K and wordnet. On yso-finna-en,
where CHRR is far behind HRR, only the variants that may explain it are measured: amplitudes, which HRR has too,
and the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from circlet.report import Cell, Table
from circlet_paper import Claim
from circlet_paper.cells import Result
from circlet_paper.drawing import finished, panels
from circlet_paper.runs import Runs, millions, verdict
from circlet_paper.training_cells import CHRR, Recipe, Settings, TrainingCell, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "How a network should output angles: variants of CHRR"
DATASETS = ("delicious", "eurlex-4k", "wordnet", "yso-finna-en")
METRICS = ("P@1", "P@5", "P@10", "P@20")
TITLES = {
    "chrr-half": "CHRR-Half",
    "chrr-sin": "CHRR-sin",
    "chrr-tanh": "CHRR-tanh",
    "chrr-amplitude": "CHRR, amplitudes (ours)",
}
VARIANTS = {
    "chrr": CHRR,
    **{head: Recipe(title, "paper", {**CHRR.given, "head": head}) for head, title in TITLES.items()},
    "all-labels": Recipe("CHRR, loss over all labels (ours)", "paper", {**CHRR.given, "loss": "bce"}),
}
#: The variants that are compared on a dataset, where these are not all.
SOME = {"yso-finna-en": ("chrr", "chrr-amplitude", "all-labels")}
#: Points of P@k within which two models count as equal, and beyond which one is clearly worse.
EQUAL, WORSE = 1.0, 2.0


def cells(settings: Settings) -> list[TrainingCell]:
    """Every variant on every dataset, with the exceptions in `SOME`."""
    return [
        cell
        for dataset in DATASETS
        for head in SOME.get(dataset, VARIANTS)
        for cell in VARIANTS[head].cells(dataset, settings)
    ]


def _measured(result: Result, dataset: str) -> dict[str, Runs]:
    variants = SOME.get(dataset, VARIANTS)
    return {head: these for head in variants if (these := VARIANTS[head].runs(result, dataset))}


def tables(result: Result) -> list[Table]:
    """P@k and parameters for each dataset, with a row for each variant."""
    made = []
    for dataset in DATASETS:
        measured = _measured(result, dataset)
        rows: list[tuple[Cell, ...]] = [
            (
                VARIANTS[head].title,
                millions(these.cells[0]["parameters"]["head"]),
                millions(these.parameters),
                *(these.show(metric) for metric in METRICS),
            )
            for head, these in measured.items()
        ]
        note = f"Mean ± standard deviation of {result['settings']['seeds']} seeds."
        if not rows:
            note = "Not measured: the dataset was not available."
        columns = ("", "Last layer", "Parameters", *METRICS)
        made.append(Table(f"{title_of(dataset)}, %", columns, rows, note + Settings.of(result).note))
    return made


def claims(result: Result) -> list[Claim]:
    """Judge what the paper says about its variants."""
    found = {dataset: _measured(result, dataset) for dataset in DATASETS}
    gaps = {
        head: {
            dataset: these[head].ahead(these["chrr"], METRICS)
            for dataset, these in found.items()
            if {head, "chrr"} <= set(these)
        }
        for head in VARIANTS
    }
    if not all(gaps.values()):
        return []

    def judged(text: str, heads: tuple[str, ...], holds: Callable[[float], bool]) -> Claim:
        every = [holds(gap) for head in heads for by_metric in gaps[head].values() for gap in by_metric.values()]
        evidence = "; ".join(
            f"{VARIANTS[head].title} on {title_of(d)} P@1 {by_metric['P@1']:+.1f}, P@20 {by_metric['P@20']:+.1f}"
            for head in heads
            for d, by_metric in gaps[head].items()
        )
        count = f"in {sum(every)} of {len(every)} comparisons of P@1, P@5, P@10 and P@20"
        return Claim(text, verdict(sum(every), len(every)), f"{count}; {evidence}")

    return [
        judged(
            f"CHRR-Half is as good as CHRR (within {EQUAL:.0f} point)",
            ("chrr-half",),
            lambda gap: abs(gap) <= EQUAL,
        ),
        judged(
            f"CHRR-sin and CHRR-tanh are clearly worse (by {WORSE:.0f} points or more)",
            ("chrr-sin", "chrr-tanh"),
            lambda gap: gap <= -WORSE,
        ),
        judged("(not in the paper) Amplitudes are better than CHRR", ("chrr-amplitude",), lambda gap: gap > 0),
        judged(
            "(not in the paper) A loss over all labels is better than the paper's",
            ("all-labels",),
            lambda gap: gap > 0,
        ),
    ]


COLORS = {
    "chrr": "#0072B2",
    "chrr-half": "#56B4E9",
    "chrr-sin": "#E69F00",
    "chrr-tanh": "#D55E00",
    "chrr-amplitude": "#009E73",
    "all-labels": "#CC79A7",
}


def draw(result: Result) -> Figure:
    """Draw a panel of bars for each dataset."""
    measured = {dataset: these for dataset in DATASETS if (these := _measured(result, dataset))}
    figure, axes = panels(1, len(measured), (4.6 * max(len(measured), 1), 3.6))
    for axis, (dataset, these) in zip(axes[0], measured.items(), strict=False):
        width = 0.8 / len(VARIANTS)
        for place, (head, variant) in enumerate(these.items()):
            at = [position + width * (place - (len(these) - 1) / 2) for position in range(len(METRICS))]
            heights = [variant.mean(metric) for metric in METRICS]
            errors = [variant.sd(metric) or 0.0 for metric in METRICS]
            axis.bar(at, heights, width, yerr=errors, color=COLORS[head], label=VARIANTS[head].title, capsize=2)
        axis.set_title(title_of(dataset))
        axis.set_xticks(range(len(METRICS)), METRICS)
        axes[0, 0].set_ylabel("%")
    return finished(figure, "none", legend=3)
