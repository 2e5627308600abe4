"""`circlet demo`: train, compare and suggest, in about a minute, with nothing to download."""

from __future__ import annotations

import json
import time
from typing import Any

from circlet.cli import options
from circlet.cli.console import err, out
from circlet.extras import require
from circlet.report import Cell, Table
from circlet.settings import RunSettings

SENTENCES = (
    "solve a sparse symmetric eigenvalue problem",
    "draw random samples from a probability distribution",
    "open a connection to a mail server and send a message",
    "split the data into training and test sets for cross-validation",
    "parse the arguments of a command line program",
)
#: Smaller than the defaults, to be quick; the same for all three taggers.
SMALLER = {"hidden": (512,), "dim": 400, "epochs": 20, "min_df": 2}


def demo(
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Train three taggers on Python's own documentation, compare them, and tag a few sentences."""
    options.use_torch("training", threads)
    require("sklearn", extra="train", purpose="training")  # to learn words
    from circlet.data import load_dataset

    err.print("reading the documentation of Python, numpy, scipy and scikit-learn …")
    dataset = load_dataset("pydocs")
    err.print(
        f"\n{dataset.train.n:,} docstrings to learn from, {dataset.n_labels:,} labels: where a docstring is, "
        "what it documents, which parameters it describes.\n",
        highlight=False,
    )
    rows: list[tuple[Cell, ...]] = []
    for head in ("fc", "hrr", "chrr"):
        model, row = _train_and_measure(head, dataset, device)
        rows.append((head, *row))
    columns = ("", "P@1/3/5", "PSP@1/3/5", "outputs", "parameters", "MB", "s")
    note = (
        "fc: an output per label; hrr: real codes; chrr: circular codes. Outputs are the parameters of the last "
        "layer;\nonly those of fc grow with the number of labels."
    )
    table = Table("On docstrings they have not seen", columns, rows, note)
    if as_json:
        print(json.dumps(table.records(), indent=1))
        return
    out.print(table.rich())
    _suggest(model)
    out.print(
        '\nThe same with your own texts, one JSON object per line with "text" and "labels":\n'
        "  circlet train mine.jsonl --model mine\n"
        '  echo "some text" | circlet predict mine -\n'
        "The paper's experiments: circlet reproduce --help",
        highlight=False,
    )


def _train_and_measure(head: str, dataset: Any, device: str) -> tuple[Any, tuple[Cell, ...]]:
    from circlet.cli.progress import TrainingBar
    from circlet.devices import resolve_device
    from circlet.metrics.evaluation import evaluate_model
    from circlet.model import fit

    settings = RunSettings.of({**SMALLER, "head": head})
    started = time.perf_counter()
    with TrainingBar(head, quiet=True) as bar:
        model = fit(
            dataset.train,
            settings,
            label_names=dataset.label_names,
            device=resolve_device(device),
            reporter=bar,
        )
    seconds = time.perf_counter() - started
    values = evaluate_model(model, dataset, [1, 3, 5]).values
    counts = model.ranker.parameter_counts()
    percents = ("/".join(f"{100 * values[f'{name}@{k}']:.1f}" for k in (1, 3, 5)) for name in ("P", "PSP"))
    size = 4 * counts["total"] / 1e6
    return model, (*percents, counts["head"], counts["total"], f"{size:.1f}", f"{seconds:.0f}")


def _suggest(model: Any) -> None:
    ids, scores = model.top_k(list(SENTENCES), 5)
    for sentence, row, chances in zip(SENTENCES, ids, model.probabilities(scores), strict=True):
        out.print(f"[bold]{sentence}[/bold]")
        named = (f"{model.label_names[i]} [dim]{chance:.0%}[/dim]" for i, chance in zip(row, chances, strict=True))
        out.print("  " + "   ".join(named), highlight=False)
