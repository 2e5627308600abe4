"""What grows with the number of labels and what does not: training steps, models, and finding the ten best labels.

    python benchmarks/growth.py --out benchmarks/results

10³ to 10⁷ labels at d = 800. All sides of a size take turns in one process, and each must find the ten labels that
a query was made from. A table of codes over 8 GB is not made, and a call is not measured if the previous size
suggests that it would take over 20 seconds; the page says so. Peak memory is measured in a separate process. At a
million labels this takes 14 GB of memory, for two tables at a time.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scale_page
import torch
from torch import Tensor

from circlet import files
from circlet.algebra import circular
from circlet.codebooks import Codebook, IndependentCodebook, SpectralCodebook
from circlet.codebooks.base import LABELS
from circlet.network import Ensemble, Network, NetworkSettings
from circlet.network.encoders import SparseRows, label_sets
from circlet.provenance import provenance
from circlet.training.optimizers import make_optimizer
from circlet.training.steps import learn
from circlet_paper.synthetic import make_multilabel

SIZES = tuple(10**n for n in range(3, 8))
DIM, FEATURES, BATCH = 800, 5_000, 256
QUERIES, K = 16, 10
#: Number of queries in a call.
CALLS = {"batch": QUERIES, "single": 1}
#: Most labels for a step with bce, which scores all labels: 10⁷ would take (256, 10⁷) numbers several times over.
BCE_LARGEST = 10**6
#: Size in bytes of the largest table of codes, and seconds of the longest call.
LARGEST_TABLE, LONGEST_CALL = 8e9, 20.0
#: Least and largest number of turns of each side, and seconds from which a call is measured only once.
LEAST, MOST, SLOW = 3, 25, 5.0

Sides = dict[str, Callable[[], Any]]
Times = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="labels to stop at")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure each side")
    parser.add_argument("--peak", nargs=2, metavar=("LOSS", "LABELS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(json.dumps(peak_of_training(options.peak[0], int(options.peak[1]))))
        return
    files.prepare_folder(options.out)
    sizes = [size for size in SIZES if size <= options.largest]
    started = time.perf_counter()
    result: dict[str, Any] = {
        "benchmark": "growth",
        "provenance": {**provenance(packages=("faiss-cpu", "torch-hd")), "seed": 0},
        "settings": {"dim": DIM, "features": FEATURES, "batch": BATCH, "queries": QUERIES, "k": K},
        "training": training(sizes, options.seconds),
        "model_bytes": {str(size): model_bytes(size) for size in sizes},
        "scoring": scoring(sizes, options.seconds),
    }
    result["seconds"] = round(time.perf_counter() - started)
    files.write_json(options.out / "growth.json", result)
    page = scale_page.growth_page(result)
    files.write_text(options.out / "growth.md", page)
    scale_page.draw_growth(result, options.out / "growth.png")
    print(page)


def take_turns(sides: Sides, seconds: float) -> Times:
    """Seconds of the calls of each side, in turns, until each has had its time. A fast side's turn is two calls.

    The first of the two is not counted, because its caches hold the data of the previous side.
    """
    times: Times = {}
    for name, side in sides.items():
        first = timed(side)  # allocates memory and makes tables
        times[name] = [first] if first > SLOW else []
    unfinished = [name for name in sides if not times[name]]
    while unfinished:
        for name in unfinished:
            if not times[name] or times[name][-1] < 0.1:
                sides[name]()
            times[name].append(timed(sides[name]))
        unfinished = [
            name
            for name in unfinished
            if len(times[name]) < LEAST or (len(times[name]) < MOST and sum(times[name]) < seconds)
        ]
    return times


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def milliseconds(times: list[float], calls: int = 1) -> dict[str, Any]:
    each = [round(1e3 * t / calls, 5) for t in times]
    return {"median_ms": round(statistics.median(each), 5), "times_ms": each}


# Training


def training(sizes: list[int], seconds: float) -> dict[str, dict[str, Any]]:
    """A step with each loss at each size: milliseconds, and peak bytes of a process that takes two steps."""
    wanted = [
        (loss, size) for loss in ("cosine", "bce") for size in sizes if loss == "cosine" or size <= BCE_LARGEST
    ]
    found: dict[str, dict[str, Any]] = {"cosine": {}, "bce": {}}
    for loss, size in wanted:
        command = [sys.executable, __file__, "--peak", loss, str(size)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[loss][str(size)] = json.loads(done.stdout)
    times = take_turns({f"{loss} {size}": make_step(loss, size) for loss, size in wanted}, seconds)
    for loss, size in wanted:
        found[loss][str(size)] |= milliseconds(times[f"{loss} {size}"])
    return found


def make_step(loss: str, n_labels: int) -> Callable[[], Any]:
    """A function that takes a step on a prepared batch, the next of four at every call."""
    torch.manual_seed(0)
    data = make_multilabel(4 * BATCH, FEATURES, n_labels, seed=0).train
    network = Network(NetworkSettings(loss=loss, dim=DIM), FEATURES, n_labels, sparse=True)
    network.seed_noise(0)
    settings: Any = SimpleNamespace(optimizer="adamw", lr=2e-3, weight_decay=0.0)
    optimizer = make_optimizer(network, settings, torch.device("cpu"))
    parts = [slice(start, start + BATCH) for start in range(0, 4 * BATCH, BATCH)]
    assert data.X is not None
    batches = [(SparseRows.for_training(data.X[part]), label_sets(data.Y[part])) for part in parts]
    count = iter(range(1 << 30))
    return lambda: learn(network, optimizer, *batches[next(count) % 4])


def peak_of_training(loss: str, n_labels: int) -> dict[str, int]:
    step = make_step(loss, n_labels)
    for _ in range(2):  # the first makes the optimizer's state
        step()
    # Not getrusage: its peak starts at the size of the parent process.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return {"peak_bytes": 1024 * int(line.split()[1])}


# Models


def model_bytes(n_labels: int) -> dict[str, int]:
    """Bytes of a model's folder: with the cosine loss, the same with names of 16 letters, and with bce."""
    from circlet.features.rows import Scaling
    from circlet.model import Model

    found = {}
    for kind, loss in (("cosine", "cosine"), ("cosine, names", "cosine"), ("bce", "bce")):
        network = Network(NetworkSettings(loss=loss, dim=DIM), FEATURES, n_labels, sparse=True)
        names = [f"label {i:010d}" for i in range(n_labels)] if "names" in kind else None
        model = Model(Ensemble([network]), Scaling("l2"), n_features=FEATURES, sparse=True, label_names=names)
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            found[kind] = sum(path.stat().st_size for path in Path(folder).iterdir())
    return found


# Scoring


def scoring(sizes: list[int], seconds: float) -> dict[str, dict[str, Any]]:
    """Milliseconds per query, in batches and one by one, and bytes of codes, for each way at each size."""
    found: dict[str, dict[str, Any]] = {}
    for size in sizes:
        before = found.get(str(size // 10), {})
        times: Times = {}
        here: dict[str, Any] = {}
        # Two groups, with two tables of codes at a time. The times of a side in both groups are put together.
        for group in groups(size, here, before):
            for name, values in take_turns(group, seconds).items():
                times[name] = times.get(name, []) + values
            group.clear()
            gc.collect()
        for name in {key.rpartition(" | ")[0] for key in times}:
            here[name] |= {how: milliseconds(times[f"{name} | {how}"], n) for how, n in CALLS.items()}
        found[str(size)] = {name: here[name] for name in scale_page.WAYS}
    return found


def groups(n_labels: int, here: dict[str, Any], before: dict[str, Any]) -> Iterator[Sides]:
    """The sides of a size, group by group; what needs no timing is put into `here`."""
    book = SpectralCodebook(n_labels, DIM, seed=0)
    spectral = sides("spectral", lambda x: book.top_k(x, K)[0], make_queries(book))
    here["spectral"] = {"code_bytes": bytes_of(vars(book.series_on(None)))}

    plain = IndependentCodebook(n_labels, DIM, seed=0)
    queries = make_queries(plain)
    first = dict(spectral)
    here["generated"] = {"code_bytes": 4 * plain.width * min(n_labels, LABELS)}
    last = before.get("generated", {})
    expected = max((10e-3 * n * last[how]["median_ms"] for how, n in CALLS.items() if how in last), default=0)
    if "left_out" in last or expected > LONGEST_CALL:
        here["generated"]["left_out"] = f"a call would take over {LONGEST_CALL:.0f} s"
    else:
        first |= sides("generated", lambda x: plain.top_k(x, K)[0], queries)
    if 4 * plain.width * n_labels > LARGEST_TABLE:
        for way in ("cached", "product", "faiss", "torchhd"):
            here[way] = {"left_out": f"its table would take {4e-9 * plain.width * n_labels:.0f} GB"}
        yield first
        return

    cached = IndependentCodebook(n_labels, DIM, seed=0, cache=True)
    cached._table = table = make_table(plain)
    first |= sides("cached", lambda x: cached.top_k(x, K)[0], queries)
    product = sides("product", lambda x: (x @ table.mT).topk(K).indices, queries)
    here["cached"], here["product"] = ({"code_bytes": table.nbytes} for _ in range(2))
    here["faiss"] = {"code_bytes": table.nbytes}  # its copy of the table
    first |= product | sides("faiss", with_faiss(table), queries)
    yield first

    first.clear()  # frees faiss's copy, for torchhd's
    complex_table = phasors(table)
    here["torchhd"] = {"code_bytes": complex_table.nbytes}
    yield spectral | product | sides("torchhd", with_torchhd(complex_table), phasors(queries))


def sides(name: str, best: Callable[[Any], Any], queries: Any) -> Sides:
    """A way in batches and with one query at a time; both must find the labels that the queries were made from."""
    wanted = torch.arange(QUERIES * K).view(QUERIES, K)
    found = {"all at once": best(queries), "one by one": best(queries[:1])}
    for how, ids in found.items():
        if not torch.equal(ids.as_subclass(Tensor).sort(dim=1).values, wanted[: len(ids)]):
            raise AssertionError(f"{name}, {how}: found labels other than those that the queries were made from")
    one = queries[:1]
    return {f"{name} | batch": lambda: best(queries), f"{name} | single": lambda: best(one)}


def make_queries(book: Codebook) -> Tensor:
    """Superpositions of ten labels each, `(16, 2 dim)`: of the first ten ids, the next ten, and so on."""
    labels = torch.arange(QUERIES * K)
    return circular.pack(circular.unpack(book.superpose(labels, labels[::K])))


def make_table(book: Codebook) -> Tensor:
    """Codes of all labels, `(n_labels, 2 dim)`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # blocks are small: threads would mostly wait for each other
    table = torch.empty(book.n_labels, book.width)
    for ids in torch.split(torch.arange(book.n_labels), 1 << 12):
        table[ids[0] : ids[-1] + 1] = book.codes(ids)
    torch.set_num_threads(threads)
    return table


def with_faiss(table: Tensor) -> Callable[[Tensor], Tensor]:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    usual = faiss.cvar.distance_compute_blas_threshold

    def best(x: Tensor) -> Tensor:
        # Its fastest setting: matrix products for batches, which it uses by default for larger batches only.
        faiss.cvar.distance_compute_blas_threshold = 1 if len(x) > 1 else usual
        return torch.from_numpy(index.search(x.numpy(), K)[1])

    index = faiss.IndexFlatIP(table.shape[1])
    index.add(table.numpy())
    return best


def phasors(packed: Tensor) -> Tensor:
    """Packed codes as complex numbers, `(n, dim)`, of torchhd's class."""
    import torchhd

    numbers = torch.empty(len(packed), packed.shape[1] // 2, dtype=torch.complex64)
    for part, out in zip(torch.split(packed, 1 << 14), torch.split(numbers, 1 << 14), strict=True):
        torch.complex(*part.chunk(2, dim=1), out=out)
    typed: Tensor = numbers.as_subclass(torchhd.FHRRTensor)
    return typed


def with_torchhd(table: Tensor) -> Callable[[Tensor], Tensor]:
    import torchhd

    # Its fastest function: cosine_similarity would compute norms that are all the same.
    return lambda x: torchhd.dot_similarity(x, table).topk(K).indices


def bytes_of(value: Any) -> int:
    """Bytes of the arrays and tensors in a value."""
    if isinstance(value, (np.ndarray, Tensor)):
        return int(value.nbytes)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return sum(bytes_of(part) for part in parts)


if __name__ == "__main__":
    main()
