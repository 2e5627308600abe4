"""Time circlet's metrics and napkinXC's on the same rankings, in one run, and check that they agree.

Synthetic data of the size of a large dataset: 100,000 rows, 200,000 labels with skewed frequencies, rankings of
20. napkinXC takes labels as a CSR matrix, as circlet does, or as lists, which suit its Python loops better. Making
those lists is not timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import napkinxc.metrics as napkinxc
import numpy as np
import scipy.sparse as sp

from circlet.files import prepare_folder, write_json
from circlet.metrics import evaluate, inverse_propensity, macro_f1, micro_f1
from circlet.provenance import provenance
from circlet.report import Cell, Table

KS = (1, 3, 5, 10, 20)
PEER = {
    "P": napkinxc.precision_at_k,
    "R": napkinxc.recall_at_k,
    "nDCG": napkinxc.ndcg_at_k,
    "coverage": napkinxc.coverage_at_k,
    "PSP": napkinxc.psprecision_at_k,
    "PSnDCG": napkinxc.psndcg_at_k,
}
WEIGHTED = ("PSP", "PSnDCG")
PEER_TIMES = ("napkinxc_csr_s", "napkinxc_lists_s")


def synthetic(n: int, n_labels: int, per_row: float, depth: int, seed: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Labels (n, n_labels), where some rows have none, and ids (n, depth) that find some of them."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(per_row, size=n)
    row = np.repeat(np.arange(n), counts)
    label = (n_labels * rng.random(len(row)) ** 4).astype(np.int64)
    y = sp.csr_matrix((np.ones(len(row), dtype=np.float32), (row, label)), shape=(n, n_labels))
    y.data[:] = 1  # a label drawn twice counts once
    # Different ids in every row: a random start and a stride that shares no factor with n_labels.
    stride = next(step for step in range(n_labels // depth - 1, 0, -1) if np.gcd(step, n_labels) == 1)
    ids = (rng.integers(n_labels, size=(n, 1)) + stride * np.arange(depth)) % n_labels
    row, label = y.nonzero()
    inserted = rng.random(len(row)) < 0.5
    better = ids.copy()
    better[row[inserted], rng.integers(depth, size=inserted.sum())] = label[inserted]
    ordered = np.sort(better, axis=1)
    clean = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
    return y, np.where(clean[:, None], better, ids)


def timed(function: Callable[[], Any], repeats: int) -> tuple[list[float], Any]:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return seconds, result


def compare(name: str, data: dict[str, Any], repeats: int) -> dict[str, Any]:
    y, ids, weights = data["y"], data["ids"], data["weights"]
    own, values = timed(lambda: evaluate(y, ids, weights, KS, metrics=(name,)), repeats)
    arguments = (weights,) if name in WEIGHTED else ()
    times, largest = {}, 0.0
    for form in ("csr", "lists"):
        truth = y if form == "csr" else data["y_lists"]
        seconds, peer = timed(partial(PEER[name], truth, data["id_lists"], *arguments, k=max(KS)), 1)
        times[form] = seconds
        largest = max(largest, *(abs(values[f"{name}@{k}"] - peer[k - 1]) for k in KS))
    if largest > 1e-9:
        raise SystemExit(f"{name}: circlet and napkinXC differ by {largest}")
    return {
        "circlet_s": own,
        "napkinxc_csr_s": times["csr"],
        "napkinxc_lists_s": times["lists"],
        "values": values,
        "largest_difference": float(largest),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=200_000)
    parser.add_argument("--per-row", type=float, default=5.0, help="mean number of labels in a row")
    parser.add_argument("--repeats", type=int, default=5, help="runs of circlet; napkinXC runs once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    prepare_folder(options.out)

    y, ids = synthetic(options.rows, options.labels, options.per_row, max(KS), options.seed)
    weights = inverse_propensity(y)
    y_lists = [part.tolist() for part in np.split(y.indices, y.indptr[1:-1])]
    data = {"y": y, "ids": ids, "weights": weights, "y_lists": y_lists, "id_lists": ids.tolist()}
    each = {name: compare(name, data, options.repeats) for name in PEER}

    falling = np.tile(np.linspace(1, 0.1, max(KS)), len(ids))
    scores = sp.csr_matrix((falling, (np.repeat(np.arange(len(ids)), max(KS)), ids.ravel())), shape=y.shape)
    from_ids, values = timed(lambda: evaluate(y, ids, weights, KS), options.repeats)
    from_scores, same = timed(lambda: evaluate(y, scores, weights, KS), options.repeats)
    if values != same:
        raise SystemExit("found different values from ranked ids and from scores with the same ranking")
    f1, _ = timed(lambda: (micro_f1(y, scores), macro_f1(y, scores)), options.repeats)
    content = {
        "provenance": provenance(packages=("napkinxc",)),
        "settings": {
            **{key: value for key, value in vars(options).items() if key != "out"},
            "k": KS,
            "true_labels": y.nnz,
            "rows_without_labels": int((np.diff(y.indptr) == 0).sum()),
        },
        "each": each,
        "all_at_once": {"from_ids_s": from_ids, "from_sparse_scores_s": from_scores},
        "micro_and_macro_f1_s": f1,
    }
    write_json(options.out / "metrics.json", content)
    print(table(content).markdown())


def table(content: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    for name, result in content["each"].items():
        own = median(result["circlet_s"])
        peers = [result[key][0] for key in PEER_TIMES]
        rows.append([f"{name}@k", f"{own:.3f}", *(f"{peer:.2f}" for peer in peers), f"{min(peers) / own:.0f}×"])
    together = content["all_at_once"]
    sums = [sum(result[key][0] for result in content["each"].values()) for key in PEER_TIMES]
    for label, key in (
        ("all six, from ids", "from_ids_s"),
        ("all six, from sparse scores", "from_sparse_scores_s"),
    ):
        own = median(together[key])
        rows.append([label, f"{own:.3f}", *(f"{peer:.2f}" for peer in sums), f"{min(sums) / own:.0f}×"])
    rows.append(["micro and macro F1", f"{median(content['micro_and_macro_f1_s']):.3f}", None, None, None])
    settings = content["settings"]
    title = f"Seconds for {settings['rows']:,} rows × {settings['labels']:,} labels, k up to {max(KS)}"
    columns = ["metric", "circlet", "napkinXC (CSR)", "napkinXC (lists)", "faster by"]
    return Table(title, columns, rows, note="circlet: median of its runs. napkinXC: one run, with ids as lists.")


if __name__ == "__main__":
    main()
