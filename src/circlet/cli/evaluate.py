"""`circlet evaluate`: how good a model is on a dataset, as a ranking and as decisions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet.cli import options
from circlet.cli.console import check_picture, mark, out, print_json, say, write_picture
from circlet.errors import OutputError, ParameterError
from circlet.report import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from circlet.metrics.measures import Curve, LabelReport

#: The minimum probability of the curves.
LEAST = 0.005


@options.reads_data()
def evaluate(
    model: options.ModelFolder,
    data: options.SeveralData,
    k: Annotated[str, typer.Option("-k", help="Values of k, separated by commas.")] = "1,3,5",
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Count labels of at least this probability as predicted.",
            show_default="the model's, or 0.5",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw precision, recall and F1 over the threshold to this file (.png, .svg, .pdf) or device."
        ),
    ] = None,
    per_label: Annotated[
        Path | None, typer.Option(help="Write the numbers of each label to this .csv, .tsv or .jsonl file.")
    ] = None,
    read: options.Given = None,
    favor_rare: options.FavorRare = 0.0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure a model on the test rows of a dataset, or on all rows if it has no test part.

    P@k, PSP@k and nDCG@k measure the ranking of the first k labels. Precision, recall and F1 measure the decision
    to predict all labels of at least --threshold, but at most 100 per document: over all decisions together
    (micro), and as means over the labels that occur (macro).

    --per-label writes for each label the number of its documents (support) and predictions, its precision, recall
    and F1, and the labels that were wrongly predicted most often where it was missed.
    """
    depths = _depths(k)
    check_picture(plot)
    from circlet.data import load_dataset
    from circlet.metrics.evaluation import evaluate_model
    from circlet.metrics.measures import Decisions

    if per_label is not None:
        if _ending(per_label) not in ("csv", "tsv", "jsonl"):
            wanted = "wanted a name that ends in .csv, .tsv or .jsonl"
            raise ParameterError(f"--per-label: found {per_label.name!r}; {wanted}")
        if not per_label.parent.is_dir() or per_label.is_dir():
            raise OutputError(f"--per-label: cannot write {per_label}; wanted a file in a folder that exists")
    tagger = options.load_tagger(model, device, threads)
    dataset = load_dataset(data if len(data) > 1 else data[0], **(read or {}))
    at, origin = tagger.labels_threshold(threshold)
    assert at is not None  # sets of labels are always cut
    least = at if plot is None else min(at, LEAST)
    found = evaluate_model(tagger, dataset, depths, favor_rare=favor_rare, least=least)
    assert found.chances is not None
    decisions = Decisions(found.truth, found.chances)
    decided = decisions.summary(at)
    if per_label is not None:
        names = found.label_names or range(found.truth.shape[1])
        write_table(per_label, decisions.per_label(at), names, tagger.uris_)
        say(f"{per_label} written")
    if plot is not None:
        own = tagger.model_.threshold
        name = "no threshold stored:" if own is None else "stored threshold"
        write_picture(plot, draw_curves(decisions.curve(), 0.5 if own is None else own, name))
    if as_json:
        about = {"model": str(model), "data": dataset.name, "documents": found.documents, "favor_rare": favor_rare}
        rest: dict[str, Any] = {"unknown_labels": found.unknown_labels, **found.values}
        print_json({**about, **rest, "threshold": at, "threshold_from": origin, **decided})
        return
    rows = [
        (name, *(f"{100 * found.values[f'{name}@{depth}']:.2f}" for depth in depths))
        for name in ("P", "PSP", "nDCG")
        if f"{name}@{depths[0]}" in found.values
    ]
    kind = "test " if dataset.test else ""
    note = f"Percent, over {found.documents:,} {kind}documents and {dataset.n_labels:,} labels."
    if favor_rare:
        note += f" Rare labels are favored ({favor_rare:g})."
    out.print(Table(f"{model.name} on {dataset.name}", ("", *(f"@{d}" for d in depths)), rows, note).rich())
    shares = [
        (name, *(f"{100 * decided[name][measure]:.2f}" for measure in ("precision", "recall", "f1")))
        for name in ("micro", "macro")
    ]
    told = {"stored": " (stored by training)", "default": " (not stored in the model)"}.get(origin, "")
    note = f"Percent, of labels with a probability of at least {at:.3g}{told}."
    out.print(Table("As decisions", ("", "precision", "recall", "F1"), shares, note).rich())
    if found.unknown_labels:
        say(f"found {found.unknown_labels:,} labels that the model does not know; they count as missed", "yellow")


def _depths(text: str) -> list[int]:
    try:
        depths = [int(part) for part in text.split(",")]
    except ValueError:
        depths = []
    if not depths or min(depths) < 1 or max(depths) >= 1 << 31:
        raise ParameterError(f"-k: found {text!r}; wanted integers from 1 to 2³¹ - 1, separated by commas")
    return depths


def write_table(
    path: Path, report: LabelReport, names: Sequence[str | int], uris: Sequence[str] | None = None
) -> None:
    """Write a report; `names` has the name or number of each label, and `uris` the URIs of the first labels.

    In CSV and TSV, the labels that are confused with a label are a JSON list in one field.
    """
    from circlet.data.records import line_writer
    from circlet.files import writing

    others, starts = report.confusions.indices.tolist(), report.confusions.indptr.tolist()
    numbers = ("labels", "support", "predicted", "precision", "recall", "f1")
    columns = (getattr(report, name).tolist() for name in numbers)
    with writing(path) as stream:
        for number, (label, support, predicted, *rates) in enumerate(zip(*columns, strict=True)):
            row = {
                "label": names[label],
                **({} if uris is None else {"uri": uris[label] if label < len(uris) else names[label]}),
                "support": support,
                "predicted": predicted,
                **{name: round(rate, 4) for name, rate in zip(numbers[3:], rates, strict=True)},
                "confused_with": [names[other] for other in others[starts[number] : starts[number + 1]]],
            }
            header, line = line_writer(_ending(path), row)
            stream.write(line(row) if number else header + line(row))


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower().removeprefix(".")


def draw_curves(curve: Curve, threshold: float, name: str) -> Figure:
    """Draw precision, recall and F1 over the threshold, and mark one threshold by `name`."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    # A threshold between two neighboring probabilities decides like the higher one.
    order = np.argsort(curve.thresholds)
    x = np.concatenate([[0.0], curve.thresholds[order]])
    for label, color in {"precision": "#8a8f98", "recall": "#b3702a", "f1": "#1f5fbf"}.items():
        y = 100 * getattr(curve, label)[order]
        y = np.concatenate([y[:1], y])
        axis.step(x, y, where="pre", color=color)
        place = int(np.searchsorted(x, 0.8).clip(0, len(x) - 1))
        axis.annotate(
            "F1" if label == "f1" else label,
            (x[place], y[place]),
            textcoords="offset points",
            xytext=(2, 4),
            color=color,
        )
    mark(axis, threshold, f"{name} {threshold:.3f}")
    axis.set(xlim=(0, 1), ylim=(0, 101), xlabel="threshold: minimum probability of a predicted label", ylabel="%")
    axis.spines[["top", "right"]].set_visible(False)
    return figure
