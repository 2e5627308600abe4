"""A saved model at work: latency, throughput, load time and memory, without torch and with it.

    python benchmarks/runtime.py MODEL DATA [--out benchmarks/results]

MODEL is a folder that `circlet train` wrote, DATA what it is to tag. Each measurement is a process of its own, so
that memory is only its own, and the two sides take turns. Several clients are threads that tag documents one at a
time, all with the same model, as in a service. All libraries compute with one thread, except for batches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import runtime_stages

#: What loads the model on each side, and what the side is called.
SIDES = {"runtime": "circlet.runtime", "torch": "circlet.model (torch)"}
CLIENTS = (1, 2, 4)
ROUNDS = 3
#: Documents that are tagged one at a time, by each client.
ONE_BY_ONE = 1000
#: Documents in a batch, and labels for each.
BATCH, K = 2000, 5
#: A codebook alone, without a network: its labels and dimension, and queries.
LABELS, DIM, QUERIES = 1_000_000, 800, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--measure", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure, options.model, options.data)))
        return
    from circlet import files
    from circlet.provenance import provenance

    found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side, rounds in found.items():
            rounds.append(in_own_process(side, options.model, options.data))
            print(side, json.dumps(rounds[-1]), flush=True)
    result: dict[str, Any] = {
        "benchmark": "runtime",
        "provenance": {**provenance(), "rounds": options.rounds},
        "model_bytes": sum(path.stat().st_size for path in options.model.iterdir() if path.is_file()),
        "rounds": found,
        "median": {side: median_of(rounds) for side, rounds in found.items()},
    }
    files.prepare_folder(options.out)
    files.write_json(options.out / "runtime.json", result)
    page = table_of(result).markdown()
    page += "\n" + runtime_stages.table_of(result["median"]["runtime"]["stages_us"]).markdown()
    title = "# A saved model at work\n\n![Latency and memory](runtime.png)\n\n"
    files.write_text(options.out / "runtime.md", title + page)
    with files.replacing(options.out / "runtime.png") as temporary:
        draw(result).savefig(temporary, dpi=110, format="png")
    print(page)


def in_own_process(side: str, model: Path, data: str) -> dict[str, Any]:
    words = [sys.executable, __file__, str(model), data, "--measure", side]
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, env={**os.environ, **one}, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(side: str, folder: Path, data: str) -> dict[str, Any]:
    """Everything about one side, in this process."""
    before = memory_mb()
    started = time.perf_counter()
    model = loaded(side, folder)
    load_s, after_load = time.perf_counter() - started, memory_mb()
    many, single = documents_of(model, data)
    with_data = memory_mb()
    for document in single[:ONE_BY_ONE]:
        model.top_k(document, K)
    grown = memory_mb() - with_data
    latency = {str(clients): latencies(model, single, clients) for clients in CLIENTS}
    where = {"stages_us": runtime_stages.stages(model, many)} if side == "runtime" else {}
    use_all_cores(side)
    return {
        "load_s": load_s,
        "memory_mb": {"before": before, "loaded": after_load, f"after {ONE_BY_ONE} documents": after_load + grown},
        "latency_us": latency,
        "batch_documents_per_s": throughput(model, many),
        "million_labels_ms": million_labels(side),
        **where,
    }


def loaded(side: str, folder: Path) -> Any:
    if side == "runtime":
        from circlet.runtime import RuntimeModel

        return RuntimeModel.load(folder)
    from circlet.model import Model

    return Model.load(folder)


def documents_of(model: Any, data: str) -> tuple[Any, list[Any]]:
    """Documents as one batch, and one by one."""
    from circlet.data import load_dataset

    dataset = load_dataset(data)
    part = dataset.test or dataset.train
    every: Any = part.texts if model.vectorizer is not None else part.X
    many = every[:BATCH]
    n = len(many) if isinstance(many, list) else many.shape[0]
    return many, [many[i : i + 1] for i in range(n)]


def latencies(model: Any, documents: list[Any], clients: int) -> dict[str, float]:
    """Percentiles of what a document takes while so many clients tag, and all they do in a second."""
    times: list[list[float]] = [[] for _ in range(clients)]
    together = threading.Barrier(clients)

    def work(client: int) -> None:
        together.wait()
        for i in range(ONE_BY_ONE):
            started = time.perf_counter()
            model.top_k(documents[(i * clients + client) % len(documents)], K)
            times[client].append(time.perf_counter() - started)

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    values = 1e6 * np.concatenate(times)
    p50, p99 = (float(np.percentile(values, share)) for share in (50, 99))
    return {"p50": p50, "p99": p99, "documents_per_s": clients * ONE_BY_ONE / took}


def throughput(model: Any, documents: Any) -> float:
    """Documents per second of the best of three batches."""
    n = len(documents) if isinstance(documents, list) else documents.shape[0]
    best = float("inf")
    for _ in range(4):  # the first one warms up
        started = time.perf_counter()
        model.top_k(documents, K)
        best = min(best, time.perf_counter() - started)
    return float(n / best)


def million_labels(side: str) -> float:
    """Milliseconds from one prediction to its ten best labels of a million."""
    predictions = np.random.default_rng(0).standard_normal((QUERIES, 2 * DIM)).astype(np.float32)
    queries: Any = predictions
    if side == "torch":
        import torch

        queries = torch.from_numpy(predictions)
    from circlet.codebooks import SpectralCodebook

    book, times = SpectralCodebook(LABELS, DIM), []
    for i in range(QUERIES):
        started = time.perf_counter()
        book.top_k(queries[i : i + 1], 10)
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times[2:])  # the first ones make tables


def use_all_cores(side: str) -> None:
    cores = os.cpu_count() or 1
    if side == "torch":
        import torch

        torch.set_num_threads(cores)
    else:
        from circlet.threads import use_threads

        use_threads(cores)


def memory_mb() -> float:
    """The memory of this process, what it shares with others included."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("found no VmRSS in /proc/self/status; wanted Linux")


def median_of(rounds: list[Any]) -> Any:
    """The median of each number, in dictionaries of the same form."""
    if isinstance(rounds[0], dict):
        return {name: median_of([each[name] for each in rounds]) for name in rounds[0]}
    return statistics.median(rounds)


def table_of(result: dict[str, Any]) -> Any:
    from circlet.report import Table

    def row(name: str, *keys: str, digits: int = 0, factor: float = 1) -> tuple[str, ...]:
        cells = []
        for side in SIDES:
            value = result["median"][side]
            for key in keys:
                value = value[key]
            cells.append(f"{factor * value:,.{digits}f}")
        return (name, *cells)

    rows = [row("load, ms", "load_s", factor=1000)]
    rows += [
        row(f"{name}, {clients} client{'s' * (clients > 1)}", "latency_us", str(clients), key)
        for clients in CLIENTS
        for name, key in (("p50, µs", "p50"), ("p99, µs", "p99"), ("documents/s", "documents_per_s"))
    ]
    rows.append(row("documents/s in batches", "batch_documents_per_s"))
    rows.append(row("ten best of a million labels, d = 800, ms", "million_labels_ms", digits=2))
    memory = result["median"]["runtime"]["memory_mb"]
    rows += [row(f"memory {name}, MB", "memory_mb", name) for name in memory]
    machine, rounds = result["provenance"]["machine"], result["provenance"]["rounds"]
    note = (
        f"Medians of {rounds} rounds in which both took turns, on {machine['cores']} cores; a model of "
        f"{result['model_bytes'] / 1e6:.0f} MB. Memory includes mapped files."
    )
    return Table("Tagging with a saved model", ("", *SIDES.values()), rows, note)


def draw(result: dict[str, Any]) -> Any:
    """Latency by clients, and memory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    colors = {"runtime": "#1f5fbf", "torch": "#777777"}
    for side, color in colors.items():
        found = result["median"][side]["latency_us"]
        for key, style in (("p50", "-"), ("p99", "--")):
            values = [found[str(clients)][key] / 1000 for clients in CLIENTS]
            left.plot(CLIENTS, values, style, marker="o", color=color)
            left.annotate(f"{SIDES[side]}, {key}", (CLIENTS[-1], values[-1]), xytext=(7, 0), color=color,
                          textcoords="offset points", va="center", fontsize=8)  # fmt: skip
    left.set(xlabel="clients at once", ylabel="time for a document, ms", yscale="log")
    left.set_yticks((0.2, 0.5, 1, 2, 5), labels=("0.2", "0.5", "1", "2", "5"))
    left.minorticks_off()
    left.set(xticks=CLIENTS, xlim=(0.8, 6.5))
    steps = list(result["median"]["runtime"]["memory_mb"])
    for offset, (side, color) in enumerate(colors.items()):
        values = [result["median"][side]["memory_mb"][step] for step in steps]
        bars = right.barh([i + 0.4 * offset for i in range(len(steps))], values, height=0.36, color=color)
        right.bar_label(bars, [f"{value:.0f}" for value in values], padding=3, fontsize=8)
    right.set(xlabel="memory of the process, MB", yticks=[i + 0.2 for i in range(len(steps))], yticklabels=steps)
    right.invert_yaxis()
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
