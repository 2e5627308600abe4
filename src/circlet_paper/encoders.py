"""Do circular codes suit networks that read texts? What the paper leaves to the future: LSTMs and transformers.

The same encoder gets an output per label, or predicts codes. `cnn` with an output per label is XML-CNN (Liu et al.
2017), of which the paper quotes published numbers; here it is trained anew, on the raw texts of pydocs and
wordnet, like all other models. So nothing on this page can be compared with numbers of other texts.

What the paper leaves open, and what we chose: everything, since it has no experiment of this kind. The encoders
are those of `circlet_paper.readers`, with 256 numbers per word, which are learned from these texts alone; they
read the first 128 words of a docstring and 64 of a gloss, which is all of most. All models of a
dataset have the same epochs, batches, dropout and AdamW with one cycle (`TRAINING`), and a hidden layer of 512
units. Rate and dropout were chosen by five short trials on held-out training rows of pydocs, four with the CNN and
one with the transformer, all with circlet's codes, and not anew for the other models, which may favor these codes.
The epoch that is kept is the best on the 5 % of each dataset's training rows that are held out. Three ways to end
a network are compared: FC, an output per label with binary cross-entropy; CHRR with d = 800 and the paper's loss;
and circlet's head and codes, with the dimension that its rules choose and binary cross-entropy. Beside them is
circlet as it is by default, with all words of the texts in any order. A bootstrap over test documents and
seeds decides the claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from circlet.report import Cell, Table
from circlet.settings import AUTO
from circlet_paper import Claim
from circlet_paper import training_cells as trained
from circlet_paper.cells import Result
from circlet_paper.drawing import finished, panels
from circlet_paper.runs import Difference, Runs, compare, counted, millions, runs, verdict
from circlet_paper.training_cells import FIXED, TEXTS, Recipe, TrainingCell, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Circular codes in networks that read texts"
#: How each dataset is trained on.
TRAINING: dict[str, dict[str, Any]] = {
    "pydocs": {"epochs": 12, "batch_size": 64, "max_words": 128, "lr": 3e-3, "dropout": 0.2},
    "wordnet": {"epochs": 6, "batch_size": 256, "max_words": 64, "lr": 3e-3, "dropout": 0.2},
}
#: How a network ends.
ENDS: dict[str, dict[str, Any]] = {
    "FC": {"head": "fc", "loss": "bce"},
    "CHRR": {"head": "chrr", "dim": 800, "codebook": "independent", "loss": "cosine"},
    "circlet": {"head": "chrr-amplitude", "dim": AUTO, "codebook": "spectral", "loss": "bce"},
}
ENCODERS = {"cnn": "CNN", "lstm": "LSTM", "transformer": "Transformer"}
#: What is measured: all ends of XML-CNN's encoder, and of the others what is new with what is usual.
MODELS = (
    ("cnn", "FC"),
    ("cnn", "CHRR"),
    ("cnn", "circlet"),
    ("lstm", "FC"),
    ("lstm", "circlet"),
    ("transformer", "FC"),
    ("transformer", "circlet"),
)
WORDS = Recipe("circlet, words in any order", "default", {}, TEXTS)
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")
DEPTHS = (1, 3, 5)


@dataclass(frozen=True)
class Settings(trained.Settings):
    """Size of the experiment; `seeds` does not count for the largest dataset."""

    @classmethod
    def quick(cls) -> Settings:
        """One epoch of narrow networks on a few rows."""
        return cls(seeds=1, rows=400, epochs=1, shrink=4)


def _title(encoder: str, end: str) -> str:
    return f"{ENCODERS[encoder]}, {end}"


def _recipe(encoder: str, end: str, dataset: str, settings: trained.Settings) -> Recipe:
    narrow = {"embedding": 256 // settings.shrink} if settings.shrink > 1 else {}
    given = {"encoder": encoder, **ENDS[end], "hidden": (512,), "min_df": 2, **narrow, **TRAINING[dataset]}
    return Recipe(_title(encoder, end), FIXED, given, TEXTS)


def _by_title(dataset: str, settings: trained.Settings) -> dict[str, list[TrainingCell]]:
    """The cells of every model on a dataset."""
    recipes = [_recipe(encoder, end, dataset, settings) for encoder, end in MODELS]
    return {recipe.title: recipe.cells(dataset, settings) for recipe in (*recipes, WORDS)}


def cells(settings: trained.Settings) -> list[TrainingCell]:
    """Every model on every dataset."""
    return [cell for dataset in TRAINING for made in _by_title(dataset, settings).values() for cell in made]


def _measured(result: Result, dataset: str) -> dict[str, Runs]:
    planned = _by_title(dataset, Settings.of(result))
    return {title: these for title, made in planned.items() if (these := runs(result, made))}


def tables(result: Result) -> list[Table]:
    """P@k and PSP@k of every model, a table for each dataset, and the differences between ends."""
    made = []
    for dataset in TRAINING:
        rows: list[tuple[Cell, ...]] = []
        for title, these in _measured(result, dataset).items():
            head = int(these.cells[0]["parameters"]["head"])
            numbers = (these.show(metric) for metric in METRICS)
            rows.append((title, millions(these.parameters), millions(head), *numbers))
        note = f"Mean and deviation of the seeds.{Settings.of(result).note}"
        columns = ("", "Parameters", "of these, output", *METRICS)
        made.append(Table(f"{title_of(dataset)}, raw texts, %", columns, rows, note if rows else "Not measured."))
    return [*made, _differences(result)]


#: What is compared: the model that is asked about, and the one that it is measured against.
PAIRS = (
    (("cnn", "CHRR"), ("cnn", "FC")),
    *(((encoder, "circlet"), (encoder, "FC")) for encoder in ENCODERS),
)


def _gaps(result: Result, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str, str], dict[int, Difference]]:
    """By how much the first model of a pair is ahead of the second, by dataset and pair."""
    found: dict[tuple[str, str, str], dict[int, Difference]] = {}
    for dataset in TRAINING:
        measured = _measured(result, dataset)
        for ours, theirs in pairs:
            if ours in measured and theirs in measured:
                found[dataset, ours, theirs] = compare(measured[ours].cells, measured[theirs].cells, DEPTHS)
    return {key: gaps for key, gaps in found.items() if gaps}


def _differences(result: Result) -> Table:
    pairs = [(_title(*ours), _title(*theirs)) for ours, theirs in PAIRS]
    words = [(_title(encoder, "circlet"), WORDS.title) for encoder in ENCODERS]
    rows: list[tuple[Cell, ...]] = [
        (title_of(dataset), ours, theirs, *(str(gaps[k]) for k in DEPTHS))
        for (dataset, ours, theirs), gaps in _gaps(result, [*pairs, *words]).items()
    ]
    return Table(
        "Which is ahead: points of P@k",
        ("", "Model", "against", *(f"P@{k}" for k in DEPTHS)),
        rows,
        note="Positive where the first is ahead; 95 % interval from a bootstrap over test documents and seeds.",
    )


def claims(result: Result) -> list[Claim]:
    """Judge whether codes are at least as good as an output per label, and whether the order of words helps."""

    def judged(text: str, pairs: Sequence[tuple[str, str]], *, leads: bool = False) -> Claim | None:
        gaps = _gaps(result, pairs)
        ahead, behind, total = counted(gaps.values())
        if not total:
            return None
        evidence = "; ".join(
            f"{ours} on {title_of(d)}: P@5 {by_depth[5]}" for (d, ours, _), by_depth in gaps.items()
        )
        return Claim(
            text,
            verdict(ahead if leads else total - behind, total),
            f"ahead in {ahead} of {total} comparisons of P@k, behind in {behind}; {evidence}",
        )

    found = [
        judged(
            "With XML-CNN's encoder, the paper's CHRR is at least as good as an output per label",
            [(_title("cnn", "CHRR"), _title("cnn", "FC"))],
        ),
        *(
            judged(
                f"(not in the paper) {words}, circlet's codes are at least as good as an output per label",
                [(_title(encoder, "circlet"), _title(encoder, "FC"))],
            )
            for encoder, words in (
                ("cnn", "With XML-CNN's encoder"),
                ("lstm", "With an LSTM"),
                ("transformer", "With a transformer"),
            )
        ),
        judged(
            "(not in the paper) Reading words in their order is better than weighting them in any order",
            [(_title(encoder, "circlet"), WORDS.title) for encoder in ENCODERS],
            leads=True,
        ),
    ]
    return [claim for claim in found if claim is not None]


COLORS = {"FC": "#999999", "CHRR": "#56B4E9", "circlet": "#0072B2", "words": "#E69F00"}


def draw(result: Result) -> Figure:
    """Draw bars of P@5 for each model, a panel for each dataset."""
    bars = [*((_title(encoder, end), end) for encoder, end in MODELS), (WORDS.title, "words")]
    figure, axes = panels(1, len(TRAINING), (11, 3.4), sharey=True)
    for axis, dataset in zip(axes[0], TRAINING, strict=True):
        measured = _measured(result, dataset)
        for place, (title, end) in enumerate(bars):
            if these := measured.get(title):
                mean, sd = these.mean("P@5"), these.sd("P@5")
                axis.barh(place, mean, 0.8, xerr=sd, color=COLORS[end], capsize=2)
                axis.annotate(f"{mean:.1f}", (0, place), xytext=(3, 0), textcoords="offset points", va="center",
                              color="white", fontsize=8)  # fmt: skip
        axis.set_title(title_of(dataset))
        axis.set_yticks(range(len(bars)), [title for title, _ in bars])
        axis.set_xlabel("P@5, %")
    axes[0, 0].invert_yaxis()
    return finished(figure, "none")
