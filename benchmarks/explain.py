"""What explaining a label takes, beside suggesting labels: milliseconds, and how exact the numbers are.

    python benchmarks/explain.py MODEL DATA [--out benchmarks/results]

MODEL is a folder that `circlet train --keep-index` wrote, DATA documents for it. All libraries compute with one
thread, and what counts is its time on the CPU, whatever else the machine does. Documents are explained one at a
time, as exactly as by default; then some of them again a hundred times as exactly, which shows how far the first
numbers were off.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

#: Documents that are explained, and those that are explained again more exactly.
DOCUMENTS, AGAIN = 200, 20
#: Labels of a document that are explained at a time.
LABELS = (1, 5)
#: The part of its accuracy that serves as the truth.
FINER = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # before anything imports NumPy
    from circlet import files
    from circlet.provenance import provenance

    result = {"benchmark": "explain", "provenance": provenance(), **measured(options.model, options.data)}
    files.prepare_folder(options.out)
    files.write_json(options.out / "explain.json", result)
    page = page_of(result)
    files.write_text(options.out / "explain.md", page)
    print(page)


def measured(folder: Path, data: str) -> dict[str, Any]:
    import circlet
    from circlet.data import load_dataset

    tagger, dataset = circlet.load(folder), load_dataset(data)
    part = dataset.test or dataset.train
    every: Any = part.texts if tagger.model_.vectorizer is not None else part.X
    documents = [every[i : i + 1] for i in range(min(DOCUMENTS, part.n))]
    explained = [tagger.explain(each, k=max(LABELS))[0] for each in documents]
    times = {"suggest 5 labels": medians(lambda each: tagger.suggest(each, 5), documents)}
    for k in LABELS:
        times[f"explain {k} label{'s' * (k > 1)}"] = medians(partial(tagger.explain, k=k), documents)
    if tagger.has_index:
        times["similar documents"] = medians(tagger.similar, documents)
    labels = [found[0].label for found in explained]
    times["labels near a label"] = medians(tagger.near_labels, labels[:AGAIN])
    network = tagger.model_.members[0].settings
    return {
        "model": {
            "n_features": tagger.model_.n_features,
            "n_labels": tagger.model_.n_labels,
            "hidden": list(network.hidden),
            "dim": network.dim,
            "head": network.head,
            "members": len(tagger.model_.members),
            "indexed": len(tagger.model_.index or ()),
        },
        "documents": len(documents),
        "features": statistics.mean(len(found[0].contributions) for found in explained),
        "median_ms": times,
        "off": errors(tagger, documents[:AGAIN]),
    }


def medians(work: Callable[[Any], object], inputs: list[Any]) -> float:
    """The median of the milliseconds that the process computes for each input, after some to warm up."""
    for each in inputs[:5]:
        work(each)
    times = []
    for each in inputs:
        started = time.process_time()
        work(each)
        times.append(time.process_time() - started)
    return 1e3 * statistics.median(times)


def errors(tagger: Any, documents: list[Any]) -> dict[str, float]:
    """How far contributions are off, in parts of the label's largest one, and sums, in parts of score − base."""
    from circlet.runtime import explain

    usual = [tagger.explain(each)[0][0] for each in documents]
    before, explain.ACCURACY = explain.ACCURACY, FINER * explain.ACCURACY
    finer = [tagger.explain(each)[0][0] for each in documents]
    explain.ACCURACY = before
    off = []
    for one, other in zip(usual, finer, strict=True):
        first, second = ({(c.kind, c.term): c.value for c in each.contributions} for each in (one, other))
        largest = max(map(abs, second.values()), default=1.0)
        off.append(max((abs(first[key] - second[key]) / largest for key in second), default=0.0))
    gaps = [(sum(c.value for c in each.contributions), each.score - each.base) for each in usual]
    return {
        "contribution, median": statistics.median(off),
        "contribution, most": max(off),
        "sum, most": max(abs(found - wanted) / max(1e-9, abs(wanted)) for found, wanted in gaps),
    }


def page_of(result: dict[str, Any]) -> str:
    from circlet.report import Table

    model, times = result["model"], result["median_ms"]
    base = times["suggest 5 labels"]
    rows = [(name, f"{value:.2f}", f"{value / base:.1f}×") for name, value in times.items()]
    note = (
        f"Medians of {result['documents']} documents, one at a time, by one thread. The model has "
        f"{model['n_features']:,} features, hidden layers of {', '.join(map(str, model['hidden']))}, "
        f"d = {model['dim']}, {model['n_labels']:,} labels and an index of {model['indexed']:,} documents; a "
        f"document has {result['features']:.0f} features."
    )
    off = [(name, f"{100 * value:.3f} %") for name, value in result["off"].items()]
    exact = (
        "Of a contribution, in parts of the label's largest one, against numbers a hundred times as exact; of the "
        "sum of all, in parts of score − base."
    )
    page = Table("What it takes", ("", "ms of CPU", "÷ suggest"), rows, note).markdown()
    return f"# Explaining labels\n\n{page}\n{Table('How far it is off', ('', 'off'), off, exact).markdown()}"


if __name__ == "__main__":
    main()
