"""What training costs: compared with `fc`, with the bare tensor operations, and as the number of labels grows.

    python benchmarks/training.py DATA --out benchmarks/results

DATA is EURLex-4K, by name or path. Both sides of a comparison take turns in one process. Peak memory is measured
in a separate process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from circlet import files
from circlet.data import load_dataset
from circlet.features.rows import Scaling
from circlet.network import Network, NetworkSettings
from circlet.network.encoders import SparseRows, label_sets
from circlet.provenance import provenance
from circlet.report import Table
from circlet.training import TrainingSettings, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default="eurlex-4k")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(json.dumps(peak_memory(options.data)))
        return
    files.prepare_folder(options.out)
    X, Y = scaled(options.data)
    result = {
        "benchmark": "training",
        "provenance": {**provenance(), "seed": 0},
        "epoch_chrr_against_fc": chrr_against_fc(X, Y),
        "step_against_bare_operations": against_bare_operations(X, Y),
        "cosine_step_as_labels_grow": growth(),
        "peak_memory": json.loads(
            subprocess.run(
                [sys.executable, __file__, options.data, "--peak"], check=True, capture_output=True, text=True
            ).stdout
        ),
    }
    files.write_json(options.out / "training.json", result)
    page = tables(result)
    files.write_text(options.out / "training.md", "\n".join(table.markdown() for table in page))
    print("\n".join(table.markdown() for table in page))


def scaled(data: str) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    dataset = load_dataset(data)
    return Scaling().fit(dataset.train.X).transform(dataset.train.X), dataset.train.Y


def in_turns(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def chrr_against_fc(X: sp.csr_matrix, Y: sp.csr_matrix) -> dict[str, float]:
    """Seconds of an epoch with the paper's sizes: batch 64, two hidden layers, the paper's loss for chrr."""
    heads = {
        "chrr h=768 d=800, cosine": NetworkSettings(hidden=(768, 768), loss="cosine", dropout=0.0),
        "chrr h=768 d=800, bce": NetworkSettings(hidden=(768, 768), dropout=0.0),
        "fc h=2048, bce": NetworkSettings(head="fc", hidden=(2048, 2048), dropout=0.0),
    }
    rows = np.arange(64 * 120)  # 120 steps, scaled up to an epoch
    once = TrainingSettings(epochs=1, batch_size=64)
    networks = {name: Network(made, X.shape[1], Y.shape[1], sparse=True) for name, made in heads.items()}

    def side(network: Network) -> Callable[[], Any]:
        return lambda: train(network, X[rows], Y[rows], once)

    sides = {name: side(network) for name, network in networks.items()}
    return {name: seconds * X.shape[0] / len(rows) for name, seconds in in_turns(sides, 3).items()}


def against_bare_operations(X: sp.csr_matrix, Y: sp.csr_matrix) -> dict[str, float]:
    """Seconds of forty steps of `train` and of the same steps with nothing around them.

    The bare side runs the network, the loss, its gradient and the optimizer on prepared batches.
    """
    rows = np.arange(64 * 40)
    settings = NetworkSettings(hidden=(768, 768), loss="cosine", dropout=0.0)
    once = TrainingSettings(epochs=1, batch_size=64)
    whole, inner = (Network(settings, X.shape[1], Y.shape[1], sparse=True) for _ in range(2))
    optimizer = torch.optim.AdamW(inner.parameters(), lr=once.lr, weight_decay=0.0, fused=True)
    batches = [(SparseRows.for_training(X[part]), label_sets(Y[part])) for part in np.split(rows, 40)]

    def bare() -> None:
        for batch, labels in batches:
            optimizer.zero_grad(set_to_none=True)
            inner.loss(inner(batch), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return in_turns({"train": lambda: train(whole, X[rows], Y[rows], once), "bare operations": bare}, 7)


def growth() -> dict[str, dict[str, float]]:
    """Milliseconds of a step with the cosine loss, and megabytes of the network, over the number of labels."""
    random = np.random.default_rng(0)
    steps, size = 20, 256
    X = sp.random(steps * size, 5000, density=0.04, format="csr", dtype=np.float32, random_state=0)
    found = {}
    runs = {}
    for n_labels in (10**3, 10**4, 10**5, 10**6):
        columns = random.integers(0, n_labels, steps * size * 5)
        indptr = np.arange(0, len(columns) + 1, 5)
        Y = sp.csr_matrix(
            (np.ones(len(columns), dtype=np.float32), columns, indptr), shape=(steps * size, n_labels)
        )
        Y.sum_duplicates()
        network = Network(NetworkSettings(loss="cosine", codebook="spectral"), 5000, n_labels, sparse=True)
        runs[n_labels] = (network, Y)
        found[f"{n_labels:,}"] = {
            "parameter_megabytes": 4e-6 * network.parameter_counts()["total"],
            "codebook_bytes": 8 * network.settings.dim,
        }
    once = TrainingSettings(epochs=1, batch_size=size)
    for network, Y in runs.values():
        train(network, X[:size], Y[:size], once)  # so that slots are looked up before the clock starts
    sides = {f"{n:,}": partial(train, network, X, Y, once) for n, (network, Y) in runs.items()}
    for size_shown, seconds in in_turns(sides, 5).items():
        found[size_shown]["step_ms"] = 1e3 * seconds / steps
    return found


def peak_memory(data: str) -> dict[str, float]:
    """Peak megabytes of reading the data and training two epochs: a hidden layer of 1,024, Adam for all layers."""
    X, Y = scaled(data)
    train(Network(NetworkSettings(), X.shape[1], Y.shape[1], sparse=True), X, Y, TrainingSettings(epochs=2))
    return {"train_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def tables(result: dict[str, Any]) -> list[Table]:
    epochs, bare = result["epoch_chrr_against_fc"], result["step_against_bare_operations"]
    fc = epochs["fc h=2048, bce"]
    command = f"`{result['provenance']['command']}` on {result['provenance']['machine']['processor']}."
    return [
        Table(
            "An epoch of EURLex-4K, batch 64, two hidden layers",
            ("", "seconds", "fc's time ÷ its own"),
            [(name, f"{seconds:.1f}", f"{fc / seconds:.1f}×") for name, seconds in epochs.items()],
            command,
        ),
        Table(
            "Forty steps of chrr with the paper's loss",
            ("", "seconds", "÷ bare operations"),
            [(name, f"{s:.2f}", f"{s / bare['bare operations']:.2f}×") for name, s in bare.items()],
        ),
        Table(
            "A step with the paper's loss as labels grow (batch 256)",
            ("labels", "ms", "parameters, MB", "codebook, bytes"),
            [
                (labels, f"{row['step_ms']:.1f}", f"{row['parameter_megabytes']:.1f}", row["codebook_bytes"])
                for labels, row in result["cosine_step_as_labels_grow"].items()
            ],
        ),
        Table(
            "Peak memory of training EURLex-4K, with a hidden layer of 1,024 and Adam for all layers",
            ("", "MB"),
            [("process", f"{result['peak_memory']['train_megabytes']:.0f}")],
        ),
    ]


if __name__ == "__main__":
    main()
