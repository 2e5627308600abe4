"""`circlet demo`: train, compare and suggest in about a minute, without a download."""

from __future__ import annotations

import time
from typing import Any

from rich.text import Text

from circlet.checks import require
from circlet.cli import options
from circlet.cli.console import label_lines, out, print_json, say
from circlet.report import Cell, Table
from circlet.settings import DEFAULTS, RunSettings

SENTENCES = (
    "solve a sparse symmetric eigenvalue problem",
    "integrate a system of ordinary differential equations",
    "split the data into training and test sets for cross-validation",
    "send an HTTP request and read the response",
    "parse an XML document into a tree of elements",
)
#: The heads to compare; the last one, the default, tags the sentences.
HEADS = ("fc", "hrr", "chrr", DEFAULTS["head"])
DEPTHS = (1, 3, 5)
#: Settings of all taggers, smaller than the defaults to be quick.
SMALLER = {"hidden": (512,), "dim": 400, "epochs": 20, "min_df": 2}


def demo(
    device: options.Device = "auto", threads: options.Threads = None, as_json: options.AsJson = False
) -> None:
    """Train four taggers on Python's own documentation, compare them, and tag a few sentences."""
    options.use_torch("training", threads)
    require("sklearn", extra="train", purpose="training")  # to learn words
    from circlet.data import load_dataset
    from circlet.runtime import Tagger
    from circlet.runtime.answers import shown

    say("reading the documentation of Python, NumPy, SciPy and scikit-learn …")
    dataset = load_dataset("pydocs")
    say(
        f"\n{dataset.train.n:,} docstrings to learn from, {dataset.n_labels:,} labels: the module of a docstring, "
        "the kind of what it documents, the parameters it describes.\n"
    )
    measured: list[dict[str, Any]] = []
    for head in HEADS:
        model, numbers = _train_and_measure(head, dataset, device)
        measured.append(numbers)
    answers = zip(SENTENCES, Tagger(model).answers(list(SENTENCES), threshold=None), strict=True)
    if as_json:
        tagged = [
            {"text": text, "labels": [each.label for each in found], "scores": [each.score for each in found]}
            for text, found in answers
        ]
        print_json({"data": dataset.name, "models": measured, "suggestions": tagged})
        return
    out.print(_table(measured).rich())
    for text, found in answers:
        out.print(text, style="bold", highlight=False)
        for line in label_lines([(str(each.label), shown(each.score)) for each in found], out.width - 2):
            out.print(Text("  ") + line, soft_wrap=True)
    out.print(
        '\nThe same with your own texts, one JSON object per line with "text" and "labels":\n'
        "  circlet train mine.jsonl --model mine\n"
        '  echo "some text" | circlet predict mine -\n'
        "The paper's experiments: circlet reproduce --help",
        highlight=False,
    )


def _train_and_measure(head: str, dataset: Any, device: str) -> tuple[Any, dict[str, Any]]:
    from circlet.cli.progress import TrainingBar
    from circlet.metrics.evaluation import evaluate_model
    from circlet.model import fit
    from circlet.runtime import Tagger
    from circlet.training import resolve_device

    settings = RunSettings.of({**SMALLER, "head": head})
    started = time.perf_counter()
    with TrainingBar(head, quiet=True) as bar:
        model = fit(
            dataset.train, settings, label_names=dataset.label_names, device=resolve_device(device), reporter=bar
        )
    seconds = time.perf_counter() - started
    values = evaluate_model(Tagger(model), dataset, DEPTHS).values
    counts = model.ranker.parameter_counts()
    sizes = {"outputs": counts["head"], "parameters": counts["total"], "bytes": 4 * counts["total"]}
    return model, {"head": head, **values, **sizes, "seconds": round(seconds, 1)}


def _table(measured: list[dict[str, Any]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in measured:
        percents = ("/".join(f"{100 * one[f'{name}@{k}']:.1f}" for k in DEPTHS) for name in ("P", "PSP"))
        size = (one["outputs"], f"{one['bytes'] / 1e6:.1f}", f"{one['seconds']:.0f}")
        rows.append((one["head"], *percents, *size))
    columns = ("", "P@1/3/5", "PSP@1/3/5", "outputs", "MB", "s")
    note = (
        f"fc: an output per label; hrr: real codes; chrr: circular codes; {HEADS[-1]}: the same with amplitudes, "
        "the default.\nOutputs: the parameters of the last layer; only those of fc grow with the labels."
    )
    return Table("On held-out docstrings", columns, rows, note)
