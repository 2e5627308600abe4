"""`circlet evaluate`: how good a model is on a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet.cli.console import out
from circlet.errors import DataError, ParameterError
from circlet.report import Table

if TYPE_CHECKING:
    from circlet.data import Dataset
    from circlet.model.model import Model


def evaluate(
    model: Annotated[Path, typer.Argument(help="A folder that `circlet train` wrote.")],
    data: Annotated[str, typer.Argument(help="A dataset's name, or a file or folder with data.")],
    k: Annotated[str, typer.Option("-k", help="Depths, with commas between.")] = "1,3,5",
    text_column: Annotated[str, typer.Option(help="Column or key of the text.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column or key of the labels.")] = "labels",
    label_separator: Annotated[str, typer.Option(help="What separates labels in CSV and TSV.")] = ";",
    split: Annotated[int, typer.Option(min=0, help="Column of the Repository's split files.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure P@k, PSP@k and nDCG@k on a dataset's test rows (on all rows, if it has no test part).

    Example: circlet evaluate my-model eurlex-4k
    """
    from circlet.data import load_dataset
    from circlet.model.model import Model
    from circlet.training.loop import resolve_device

    try:
        depths = [int(part) for part in k.split(",")]
    except ValueError:
        raise ParameterError(f"-k: wanted whole numbers with commas between, got {k!r}") from None
    loaded = Model.load(model, resolve_device(device))
    dataset = load_dataset(
        data,
        text_column=text_column,
        label_column=label_column,
        label_separator=label_separator,
        split=split,
    )
    values = measure(loaded, dataset, depths)
    part = dataset.test or dataset.train
    if as_json:
        print(json.dumps({"model": str(model), "data": dataset.name, "documents": part.n, **values}, indent=1))
        return
    rows = [
        (name, *(f"{100 * values[f'{name}@{depth}']:.2f}" for depth in depths))
        for name in ("P", "PSP", "nDCG")
        if f"{name}@{depths[0]}" in values
    ]
    note = f"Percent, over {part.n:,} {'test ' if dataset.test else ''}documents and {dataset.n_labels:,} labels."
    out.print(Table(f"{model.name} on {dataset.name}", ("", *(f"@{d}" for d in depths)), rows, note).rich())


def measure(model: Model, dataset: Dataset, depths: list[int]) -> dict[str, float]:
    """The metrics of a model on the test rows; PSP if there are training rows to estimate propensities from."""
    import numpy as np

    from circlet.data.catalog import ENTRIES
    from circlet.metrics import evaluate as score
    from circlet.metrics import inverse_propensity

    part = dataset.test or dataset.train
    if not part.Y.nnz:
        raise DataError(
            f"{dataset.source}: found no label in any of the {part.n:,} documents; wanted some to compare with"
        )
    documents: Any = part.texts if model.vectorizer is not None else part.X
    if documents is None:
        wanted = "texts" if model.vectorizer is not None else "feature rows"
        raise DataError(f"{dataset.source}: found {dataset.format}; this model wants {wanted}")
    ids, _ = model.top_k(documents, max(depths))
    # A model with fewer labels has no more to say: the places left are wrong, not forgotten.
    ids = np.pad(ids, ((0, 0), (0, max(depths) - ids.shape[1])), constant_values=-1)
    truth, seen = _in_label_space(model, dataset, part.Y), _in_label_space(model, dataset, dataset.train.Y)
    weights = None
    if dataset.test is not None and dataset.train.n >= 3:
        known = ENTRIES.get(dataset.name)
        weights = inverse_propensity(seen, *((known.a, known.b) if known else ()))
    metrics = ("P", "PSP", "nDCG") if weights is not None else ("P", "nDCG")
    return score(truth, ids, weights, depths, metrics=metrics)


def _in_label_space(model: Model, dataset: Dataset, Y: Any) -> Any:
    """Labels in the model's columns; those it does not know get further ones, which it can't hit."""
    import numpy as np
    import scipy.sparse as sp

    if model.label_names is None or dataset.label_names is None:
        if dataset.n_labels != model.n_labels:
            raise DataError(
                f"{dataset.source}: found {dataset.n_labels} labels without names; the model has {model.n_labels}"
            )
        return Y
    if model.label_names == dataset.label_names:
        return Y
    known = {name: column for column, name in enumerate(model.label_names)}
    for name in dataset.label_names:
        known.setdefault(name, len(known))
    columns = np.array([known[name] for name in dataset.label_names])
    entries = Y.tocoo()
    return sp.csr_matrix((entries.data, (entries.row, columns[entries.col])), shape=(Y.shape[0], len(known)))
