"""What all runners share: they read the matrices, train, save, load, predict, and report the cost of each.

A runner is a script for a peer's own virtual environment, which has numpy, scipy and that peer, but not circlet:

    python run_PEER.py DATA WORK --variant NAME --threads 2 --seed 0

DATA holds `X.trn.npz Y.trn.npz X.tst.npz` and `train.txt`, and for a small set of texts also `texts.json`. The
model, `measured.json` and `ranked.npy`, the 20 best labels of each test document, are written to WORK, and
`probabilities.npy` if the peer gives any. Reading data, converting it to a peer's own form, saving and loading are
not timed. The predictions are made by a process of their own, with the model that it has loaded from disk; what
that process takes in memory is measured after single documents, before there are many.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

TOP = 20
#: Number of documents that are predicted one at a time, and how many of them are first used to warm up.
SINGLES, WARM_UP = 300, 20
#: Number of passes over the test set, and seconds after which there are no more.
PASSES, ENOUGH_SECONDS = 3, 30.0


class Runner(ABC):
    """One peer with one choice of settings. The methods are called in the order of their definition.

    Parameters
    ----------
    variant : str
        Name of the settings; each runner has its own.
    threads, seed : int
    data : Path
        The folder with the data.
    """

    #: Distributions whose versions are part of the result.
    packages: tuple[str, ...] = ()
    #: Settings that differ from the peer's defaults, for the page.
    settings: dict[str, Any]
    #: Whether it makes its own features where there are texts.
    from_texts = False

    def __init__(self, variant: str, threads: int, seed: int, data: Path) -> None:
        self.variant, self.threads, self.seed, self.data, self.settings = variant, threads, seed, data, {}

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, work: Path) -> None:
        """Keep what training needs, in the peer's own form."""
        self.X, self.Y = X, Y

    @abstractmethod
    def train(self) -> dict[str, float] | None:
        """Train; if the model is trained already, return what was measured then."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model into an empty folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read the model, in a process that has not trained it."""

    def documents(self, X: sp.csr_matrix, rows: slice) -> Any:
        """Some of the test documents, in the form that the peer predicts from; X has them already."""
        return X

    @abstractmethod
    def rank(self, documents: Any) -> Any:
        """Ids of the best labels, best first: `(n, TOP)`, or a list of lists that may be shorter."""

    def probabilities(self, documents: Any) -> np.ndarray | None:
        """Probabilities of the labels that `rank` returns, `(n, TOP)`; None if the peer has none."""
        return None


def main(kind: type[Runner]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--variant", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tag", action="store_true", help="only predict, with the model in WORK")
    options = parser.parse_args()
    runner = kind(options.variant, options.threads, options.seed, options.data)
    if options.tag:
        tagging = tagged(runner, options.data, options.work)
        (options.work / "tagging.json").write_text(json.dumps(tagging), encoding="utf-8")
        return
    training = trained(runner, options.data, options.work)
    subprocess.run([sys.executable, *sys.argv, "--tag"], check=True)
    tagging = json.loads((options.work / "tagging.json").read_text(encoding="utf-8"))
    measured = {**training, **tagging, "peak_bytes": training["train_peak_bytes"]}
    # Written last: if it exists, everything exists.
    (options.work / "measured.json").write_text(json.dumps(measured), encoding="utf-8")


def trained(runner: Runner, data: Path, work: Path) -> dict[str, Any]:
    """Train and save a model; what that cost."""
    X, Y = (sp.csr_matrix(sp.load_npz(data / f"{name}.npz")) for name in ("X.trn", "Y.trn"))
    runner.prepare(X, Y, work)
    del X, Y
    start, cpu = time.perf_counter(), time.process_time()
    found = runner.train() or {
        "train_s": time.perf_counter() - start,
        "train_cpu_s": time.process_time() - cpu,  # less than threads × train_s on a machine that is not idle
        "train_peak_bytes": peak_bytes(),
    }
    known = texts(data)
    if known and not runner.from_texts:
        # Those that start from texts are timed with their features, so the others are too.
        found["train_s"] += known["features_s"]
    folder = work / "model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    runner.save(folder)
    return {
        **found,
        "settings": runner.settings,
        "starts_from": "texts" if runner.from_texts else "rows",
        "threads": runner.threads,
        "model_bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }


def tagged(runner: Runner, data: Path, work: Path) -> dict[str, Any]:
    """Rank the labels of all test documents, and write the rankings; how fast that was, and in how much memory."""
    X = sp.csr_matrix(sp.load_npz(data / "X.tst.npz"))
    n = X.shape[0]
    count = min(SINGLES, n)
    runner.load(work / "model")
    ones = [runner.documents(X[row : row + 1], slice(row, row + 1)) for row in range(count)]
    for one in ones[:WARM_UP]:
        runner.rank(one)
    start = time.perf_counter()
    alone = [runner.rank(one) for one in ones]
    seconds = time.perf_counter() - start
    memory = peak_bytes()

    documents = runner.documents(X, slice(0, n))
    times: list[float] = []
    while len(times) < PASSES and sum(times) < ENOUGH_SECONDS:
        start = time.perf_counter()
        found = runner.rank(documents)
        times.append(time.perf_counter() - start)
    ranked = as_ids(found)
    np.save(work / "ranked.npy", ranked)
    chances = runner.probabilities(documents)
    if chances is not None:
        np.save(work / "probabilities.npy", chances)
    same = np.concatenate([as_ids(row) for row in alone])[:, 0] == ranked[:count, 0]
    return {
        "documents": n,
        "passes": len(times),
        "batch_per_s": n / statistics.median(times),
        "singles": count,
        "single_per_s": count / seconds,
        "singles_as_in_batch": float(same.mean()),
        "tagging_bytes": memory,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy", *runner.packages)},
        },
    }


def texts(data: Path) -> dict[str, Any] | None:
    """A small set's texts `train` and `test`, and `features_s`, the seconds that others' features took."""
    path = data / "texts.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def as_ids(found: Sequence[Sequence[int]] | np.ndarray) -> np.ndarray:
    """Rankings as `(n, TOP)` ids, filled up with -1."""
    ids = np.full((len(found), TOP), -1, dtype=np.int64)
    for row, labels in enumerate(found):
        ids[row, : min(len(labels), TOP)] = labels[:TOP]
    return ids


def unit_rows(X: sp.csr_matrix) -> sp.csr_matrix:
    """Rows scaled to length 1; empty rows stay empty."""
    X = sp.csr_matrix(X, dtype=np.float32, copy=True)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X.data /= np.repeat(norms, np.diff(X.indptr))
    return X


def peak_bytes() -> int:
    """Peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: it starts at the size of the parent process.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
