"""Where the time of tagging goes, with one thread: stages of a document, alone and in a batch, and their floors.

For a document alone, the floor of a layer is the bytes of the weights that it touches, divided by the rate at
which this machine reads memory. In a batch it is the arithmetic, divided by what a large product of matrices
reaches here. Labels are transforms and rankings, which have no such floor.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

#: Documents measured, and how often all of them are; the fastest pass counts.
DOCUMENTS, PASSES = 300, 5
#: Numbers that are read to measure the rate of reading, 256 MB, and the size of matrices for that of computing.
READ, SQUARE = 1 << 26, 1024


def stages(model: Any, many: Any) -> dict[str, dict[str, dict[str, float]]]:
    """Microseconds per document by stage, alone and in a batch, with floors; of a model with one network."""
    n = min(DOCUMENTS, len(many) if isinstance(many, list) else many.shape[0])
    alone = [many[i : i + 1] for i in range(n)]
    read, computed = reading_rate(), computing_rate()
    entries, active = counts(model, many[:n])
    network = model.networks[0]
    (inputs, outputs), hidden = network.head_layers[0].weight.shape, network.first.bias.shape[0]
    one, batch = (fastest(model, documents) for documents in (alone, [many[:n]]))
    # The weights of the units that are active, and the arithmetic for all of them.
    bytes_read = {"first layer": 4 * entries * hidden, "head": 4 * active * outputs}
    operations = {"first layer": 2 * entries * hidden, "head": 2 * inputs * outputs}
    return {
        "one": _beside(one, {stage: each / read for stage, each in bytes_read.items()}, n),
        "batch": _beside(batch, {stage: each / computed for stage, each in operations.items()}, n),
        "rates": {"per_second": {"read_gb": read / 1e9, "computed_gflop": computed / 1e9}},
    }


def fastest(model: Any, batches: list[Any]) -> dict[str, float]:
    """Seconds by stage of the fastest of some passes over all documents, in the order in which they come."""
    network, clock, found = model.networks[0], time.perf_counter, []
    for _ in range(PASSES):
        spent = dict.fromkeys(("rows", "first layer", "head", "labels"), 0.0)
        for documents in batches:
            n = len(documents) if isinstance(documents, list) else documents.shape[0]
            times = [clock()]
            rows = model._rows(model.checked(documents), 0, n)
            times.append(clock())
            hidden = network.first(rows)
            times.append(clock())
            np.maximum(hidden, 0, out=hidden)
            output = network.output(hidden)
            times.append(clock())
            model.scorer.top_k(output, 5)
            times.append(clock())
            for stage, seconds in zip(spent, np.diff(times), strict=True):
                spent[stage] += float(seconds)
        found.append(spent)
    return min(found, key=lambda spent: sum(spent.values()))


def counts(model: Any, documents: Any) -> tuple[float, float]:
    """Features and active hidden units of a document, on average."""
    n = len(documents) if isinstance(documents, list) else documents.shape[0]
    rows = model._rows(model.checked(documents), 0, n)
    hidden = model.networks[0].first(rows)
    return len(rows.columns) / n, float((hidden > 0).sum(axis=1).mean())


def reading_rate() -> float:
    """Bytes that one thread reads from memory in a second."""
    numbers = np.ones(READ, dtype=np.float32)
    return float(numbers.nbytes / _shortest(lambda: numbers @ numbers))


def computing_rate() -> float:
    """Operations per second of one thread in a product of matrices."""
    square = np.ones((SQUARE, SQUARE), dtype=np.float32)
    return 2 * SQUARE**3 / _shortest(lambda: square @ square)


def _shortest(work: Any) -> float:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def _beside(measured: dict[str, float], floors: dict[str, float], n: int) -> dict[str, dict[str, float]]:
    """Microseconds per document, measured over n documents, and at least; 0 where there is no floor."""
    return {
        stage: {"measured": 1e6 * seconds / n, "floor": 1e6 * floors.get(stage, 0.0)}
        for stage, seconds in measured.items()
    }


def table_of(stages: dict[str, dict[str, dict[str, float]]]) -> Any:
    from circlet.report import Table

    def cell(value: float) -> str:
        return f"{value:.1f}" if value else "–"

    rows = [
        (stage, *(cell(stages[kind][stage][key]) for kind in ("one", "batch") for key in ("measured", "floor")))
        for stage in stages["one"]
    ]
    rates = stages["rates"]["per_second"]
    note = (
        f"One thread, which reads {rates['read_gb']:.0f} GB/s and computes {rates['computed_gflop']:.0f} GFLOP/s. "
        "The floor of one document is reading the weights that it touches; in a batch it is arithmetic."
    )
    columns = ("µs per document", "one", "floor", "in a batch", "floor")
    return Table("Where the time goes", columns, rows, note)
