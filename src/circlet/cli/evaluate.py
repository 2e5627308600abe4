"""`circlet evaluate`: how good a model is on a dataset."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from circlet.cli import options
from circlet.cli.console import err, out
from circlet.errors import ParameterError
from circlet.report import Table


def evaluate(
    model: options.ModelFolder,
    data: options.Data,
    k: Annotated[str, typer.Option("-k", help="Values of k, separated by commas.")] = "1,3,5",
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "labels",
    label_separator: options.LabelSeparator = None,
    split: options.SplitColumn = 0,
    favor_rare: options.FavorRare = 0.0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure P@k, PSP@k and nDCG@k on a dataset's test rows (on all rows, if it has no test part).

    Example: circlet evaluate my-model eurlex-4k
    """
    depths = _depths(k)
    from circlet.cli.models import load_model
    from circlet.data import load_dataset
    from circlet.metrics.evaluation import evaluate_model

    loaded = load_model(model, device, threads)
    dataset = load_dataset(
        data,
        text_column=text_column,
        label_column=label_column,
        label_separator=label_separator,
        split=split,
    )
    found = evaluate_model(loaded, dataset, depths, favor_rare=favor_rare)
    if as_json:
        about = {"model": str(model), "data": dataset.name, "documents": found.documents, "favor_rare": favor_rare}
        print(json.dumps({**about, "unknown_labels": found.unknown_labels, **found.values}, indent=1))
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
