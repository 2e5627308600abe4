"""`circlet evaluate`: how good a model is on a dataset, as a ranking and as decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from circlet.cli import options
from circlet.cli.console import check_picture, err, out, write_picture
from circlet.errors import ParameterError
from circlet.report import Table

#: The least probability that curves are drawn from.
LEAST = 0.005


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
            show_default="the model's own, or 0.5",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw precision, recall and F1 over the threshold to this file (.png, .svg, .pdf) or device.",
            show_default="none",
        ),
    ] = None,
    per_label: Annotated[
        Path | None,
        typer.Option(
            help="Write the numbers of each label to this file: .csv, .tsv or .jsonl.",
            show_default="none",
        ),
    ] = None,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "labels",
    label_separator: options.LabelSeparator = None,
    split: options.SplitColumn = 0,
    favor_rare: options.FavorRare = 0.0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure a model on a dataset's test rows (on all rows, if it has no test part).

    P@k, PSP@k and nDCG@k say how good the first k labels are. Precision, recall and F1 say how good it is to
    predict all labels of at least --threshold: over all decisions together (micro), and as means over the labels
    that occur (macro). At most the 100 best labels of a document are predicted.

    --per-label says for each label in how many documents it is (support) and is predicted, its precision, recall
    and F1, and which labels were wrongly predicted most often where it was missed.

    """
    depths = _depths(k)
    check_picture(plot)
    from circlet.cli import label_report
    from circlet.data import load_dataset
    from circlet.metrics.decisions import Decisions
    from circlet.metrics.evaluation import evaluate_model

    if per_label is not None:
        label_report.check(per_label)

    tagger = options.load_tagger(model, device, threads)
    dataset = load_dataset(
        data if len(data) > 1 else data[0],
        text_column=text_column,
        label_column=label_column,
        label_separator=label_separator,
        split=split,
    )
    at, origin = tagger.labels_threshold(threshold)
    assert at is not None  # sets of labels are always cut
    least = at if plot is None else min(at, LEAST)
    found = evaluate_model(tagger, dataset, depths, favor_rare=favor_rare, least=least)
    assert found.chances is not None
    decisions = Decisions(found.truth, found.chances)
    decided = decisions.summary(at)
    if per_label is not None:
        names = found.label_names or range(found.truth.shape[1])
        label_report.write(per_label, decisions.per_label(at), names, tagger.uris_)
        err.print(f"{per_label} written", highlight=False)
    if plot is not None:
        from circlet.cli.threshold_plot import draw_curves

        own = tagger.model_.threshold
        known = "no threshold stored:" if own is None else "stored threshold"
        write_picture(plot, draw_curves(decisions.curve(), 0.5 if own is None else own, known))
    if as_json:
        about = {"model": str(model), "data": dataset.name, "documents": found.documents, "favor_rare": favor_rare}
        rest: dict[str, Any] = {"unknown_labels": found.unknown_labels, **found.values}
        print(json.dumps({**about, **rest, "threshold": at, "threshold_from": origin, **decided}, indent=1))
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
        err.print(
            f"labels of these documents that the model does not know, and misses: {found.unknown_labels:,}",
            style="yellow",
            highlight=False,
        )


def _depths(text: str) -> list[int]:
    try:
        depths = [int(part) for part in text.split(",")]
    except ValueError:
        depths = []
    if not depths or min(depths) < 1 or max(depths) >= 1 << 31:
        raise ParameterError(f"-k: wanted integers >= 1 and < 2³¹, separated by commas, got {text!r}")
    return depths
