"""How far each hot path is from what the machine can do, from counted bytes and operations and measured ceilings.

    python benchmarks/limits.py --device cpu
    PYTHONPATH=src python benchmarks/limits.py --device cuda

A path's bytes are the fewest that have to move: every input is read once, every output written once. A path's
floor is the longest of three times: its bytes at the bandwidth of a copy; its operations at the rate of large
matrix products or of the fastest transforms; and, if it gathers rows of a table, their bytes at the rate at which
a table of that size is read repeatedly. Data in a cache can beat a bandwidth floor, and on a CPU so can a path
that mostly reads, because a copy also fetches what it overwrites. On a GPU, the parts of a step are replayed from
CUDA graphs, as the step itself is; decoding is launched from Python, as in use. Needs torch, numpy and scipy.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scale_page
import torch
from scipy.fft import irfft
from torch import Tensor

from circlet import files
from circlet.codebooks import SpectralCodebook
from circlet.codebooks.fourier import PairedSeries
from circlet.codebooks.series import Series
from circlet.kernels import run_on
from circlet.network import Network, NetworkSettings
from circlet.network.encoders import SparseRows, label_sets
from circlet.provenance import provenance
from circlet.scoring import arrays
from circlet.scoring.tensors import rectified
from circlet.settings import TrainingSettings
from circlet.training.optimizers import Optimizer, make_optimizer
from circlet.training.steps import Batches, DeviceRows, RecordedSteps, learn, make_steps
from circlet_paper.synthetic import make_multilabel

#: About the size of EURLex-4K, with a hidden layer of 1,024, large batches, and AdamW for all layers.
BATCH, FEATURES, HIDDEN, DIM, LABELS, WORDS = 1024, 5_000, 1024, 800, 4_000, 200
#: Decoding: number of labels, number of best labels, and predictions at a time.
MILLION, K, ROWS = 10**6, 10, {"cpu": 16, "cuda": 256}
#: Number of times of which the median is taken, and seconds after which fewer are enough.
REPEATS, SECONDS = 15, 1.5


@dataclass(frozen=True)
class HotPath:
    """A call to measure, the bytes it has to move, its floating-point operations, and the ceiling for these."""

    name: str
    call: Callable[[], Any]
    bytes: float
    flops: float = 0.0
    rate: str = "product"
    #: Bytes read repeatedly from the rows of a table.
    gathered: float = 0.0
    recorded: bool = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--labels", type=int, default=MILLION, help="number of labels to decode")
    options = parser.parse_args()
    files.prepare_folder(options.out)
    torch.manual_seed(0)
    device = torch.device(options.device)
    started = time.perf_counter()
    limits = ceilings(device)
    result: dict[str, Any] = {
        "benchmark": "limits",
        "device": device.type,
        "provenance": {**provenance(), "seed": 0},
        "ceilings": limits,
        "step": step(device, limits),
        "decoding": decoding(device, limits, options.labels),
    }
    result["seconds"] = round(time.perf_counter() - started)
    files.write_json(options.out / f"limits-{device.type}.json", result)
    page = scale_page.limits_page(result)
    files.write_text(options.out / f"limits-{device.type}.md", page)
    print(page)


# Clocks


def seconds_of(call: Callable[[], Any], device: torch.device, *, recorded: bool = True) -> list[float]:
    """Seconds of single calls, without the first ones."""
    for _ in range(2):
        call()
    on_gpu = device.type == "cuda"
    take = replayed(call) if on_gpu and recorded else call
    clock = gpu_clock if on_gpu else cpu_clock
    clock(take)
    times: list[float] = []
    while len(times) < REPEATS and (len(times) < 3 or sum(times) < SECONDS):
        times.append(clock(take))
    return times


def cpu_clock(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def gpu_clock(call: Callable[[], Any], calls: int = 10) -> float:
    event: Any = torch.cuda.Event
    start, end = (event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / calls


def replayed(call: Callable[[], Any]) -> Callable[[], Any]:
    """The same call as a CUDA graph: Python launches small kernels more slowly than they run."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


# Ceilings


def ceilings(device: torch.device) -> dict[str, dict[str, Any]]:
    """Bandwidth and rates of matrix products and transforms: the best that this machine reaches."""
    on_gpu = device.type == "cuda"

    def best(call: Callable[[], Any], recorded: bool = False) -> float:
        return min(seconds_of(call, device, recorded=recorded))

    source = torch.ones(1 << 28 if on_gpu else 1 << 26, device=device)  # larger than any cache
    target = torch.empty_like(source)
    n, kind = (8192, torch.bfloat16) if on_gpu else (2048, torch.float32)
    a, b = (torch.randn(n, n, device=device).to(kind) for _ in range(2))
    table = torch.ones(FEATURES, HIDDEN, device=device)
    # Short transforms, which stay in a cache, and long ones.
    rates = {}
    for length in (1 << 12, 1 << 20):
        spectrum = coefficients((1 << 26 if on_gpu else 1 << 21) // length, length, device)
        seconds = best(partial(real_series, spectrum, length))
        rates[length] = fft_flops(len(spectrum) * length, length) / seconds
    return {
        "copy": {
            "what": "copy of 1 GB" if on_gpu else "copy of 256 MB",
            "value": 2 * source.nbytes / best(lambda: target.copy_(source)),
            "unit": "GB/s",
        },
        "product": {
            "what": f"matrix product, {n} × {n} × {n}, {str(kind).removeprefix('torch.')}",
            "value": 2 * n**3 / best(lambda: torch.mm(a, b)),
            "unit": "GFLOP/s",
        },
        "table": {
            "what": f"reading a table of {table.nbytes / 1e6:.0f} MB again and again",
            "value": table.nbytes / best(table.sum, recorded=True),
            "unit": "GB/s",
        },
        "fft": {"what": "transforms of length 4,096", "value": rates[1 << 12], "unit": "GFLOP/s"},
        "long fft": {"what": "transforms of length 1,048,576", "value": rates[1 << 20], "unit": "GFLOP/s"},
    }


def coefficients(rows: int, length: int, device: torch.device) -> Tensor:
    return torch.randn(max(rows, 1), length // 2 + 1, dtype=torch.complex64, device=device)


def fft_flops(values: float, length: int) -> float:
    """Operations of real transforms with this length and total number of values, as they are usually counted."""
    return 2.5 * values * math.log2(length)


def judged(path: HotPath, limits: dict[str, dict[str, Any]], device: torch.device) -> dict[str, Any]:
    """A path with its floor and its measured time."""
    floors = {"bandwidth": path.bytes / limits["copy"]["value"]}
    if path.gathered:
        floors["table"] = path.gathered / max(limits["table"]["value"], limits["copy"]["value"])
    if path.flops:
        rates = ("fft", "long fft") if path.rate == "fft" else (path.rate,)
        floors[path.rate] = path.flops / max(limits[name]["value"] for name in rates)
    bound = max(floors, key=lambda name: floors[name])
    times = [1e3 * t for t in seconds_of(path.call, device, recorded=path.recorded)]
    return {
        "name": path.name,
        "bytes": path.bytes,
        "gathered": path.gathered,
        "flops": path.flops,
        "bound": {"product": "matrix product", "fft": "transform", "table": "gathering"}.get(bound, bound),
        "floor_ms": 1e3 * floors[bound],
        "ms": statistics.median(times),
        "times_ms": [round(t, 5) for t in times],
    }


# A training step


def step(device: torch.device, limits: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Measure a whole step and its parts."""
    data = make_multilabel(8 * BATCH, FEATURES, LABELS, seed=0, words_per_row=WORDS).train
    raw: Any = data.X
    X, Y = raw.multiply(1 / np.sqrt(raw.multiply(raw).sum(axis=1))).tocsr().astype(np.float32), data.Y
    network = Network(NetworkSettings(dim=DIM, hidden=(HIDDEN,)), FEATURES, LABELS, sparse=True).to(device)
    network.seed_noise(0)
    if network.codebook is not None:
        network.codebook.cache = device.type == "cuda"  # as training has it
    settings = TrainingSettings(batch_size=BATCH)
    optimizer = make_optimizer(network, settings, device)
    whole = whole_step(network, optimizer, Batches(X, Y, settings, 0), device)
    bags = sparse_layer(X, network, device)
    # On a GPU, predictions use the bags, and so do steps that can't be recorded.
    beside = bags if device.type == "cuda" else []
    parts = [
        *(dense_layer(X, Y, network, device) if beside else bags),
        *head(network, device),
        *loss_and_optimizer(network, optimizer, Y, device),
    ]
    paths = [judged(part, limits, device) for part in parts]
    return {
        "batch": BATCH,
        "features": FEATURES,
        "hidden": HIDDEN,
        "dim": DIM,
        "labels": LABELS,
        "floor_ms": sum(path["floor_ms"] for path in paths),
        "parts_ms": sum(path["ms"] for path in paths),
        "ms": 1e3 * statistics.median(whole),
        "times_ms": [round(1e3 * t, 5) for t in whole],
        "paths": paths,
        "beside": [judged(path, limits, device) for path in beside],
    }


def whole_step(network: Network, optimizer: Optimizer, batches: Batches, device: torch.device) -> list[float]:
    """Seconds of steps. On a CPU the batches are prepared, which in training a thread does in the meantime."""
    if device.type == "cpu":
        X, Y = batches.X[:BATCH], batches.Y[:BATCH]
        rows, labels = SparseRows.for_training(X), label_sets(Y)
        return seconds_of(lambda: learn(network, optimizer, rows, labels), device)
    steps = make_steps(network, optimizer, batches, device)
    assert isinstance(steps, RecordedSteps)
    for _ in steps.epoch(0, [2e-3] * batches.steps(0), 0):
        assert steps.graph is not None
    graph: Any = steps.graph

    def replay() -> None:
        steps.step.zero_()  # otherwise it would count beyond the rows
        graph.replay()

    return seconds_of(replay, device, recorded=False)


def sparse_layer(X: Any, network: Network, device: torch.device) -> list[HotPath]:
    """The first layer on sparse rows: two embedding bags."""
    batch = SparseRows.for_training(X[:BATCH]).to(device)
    entries_by_column = batch.by_columns
    assert entries_by_column is not None
    encoder: Any = network.encoder
    weight = encoder.hidden[0].weight.detach()
    gradient, entries = torch.randn(BATCH, HIDDEN, device=device), len(batch.values)
    bag = torch.nn.functional.embedding_bag
    moved = 4 * HIDDEN * (len(entries_by_column.touched) + BATCH) + 12 * entries

    def forward() -> Tensor:
        return bag(batch.columns, weight, batch.starts, mode="sum", per_sample_weights=batch.values)

    def backward() -> Tensor:
        rows, starts, values = entries_by_column.rows, entries_by_column.starts, entries_by_column.values
        return bag(rows, gradient, starts, mode="sum", per_sample_weights=values)

    flops, rows = 2.0 * entries * HIDDEN, 4.0 * entries * HIDDEN
    return [
        HotPath("first layer, embedding bag", forward, moved, flops, gathered=rows),
        # The gradients of a batch are a smaller table than the weights, so gathering gives no floor.
        HotPath("its gradient, embedding bag by columns", backward, moved, flops),
    ]


def dense_layer(X: Any, Y: Any, network: Network, device: torch.device) -> list[HotPath]:
    """The first layer on a GPU: dense rows, and matrix products in bfloat16."""
    data, rows = DeviceRows(X, Y, device), torch.arange(BATCH, device=device)
    batch = data.batch(rows)[0]
    encoder: Any = network.encoder
    weight = encoder.hidden[0].weight.detach()
    gradient = torch.randn(BATCH, HIDDEN, device=device).bfloat16()
    inputs, weights, outputs = 2 * BATCH * FEATURES, 4 * FEATURES * HIDDEN, 2 * BATCH * HIDDEN
    flops = 2.0 * BATCH * FEATURES * HIDDEN
    return [
        HotPath("rows and labels of a batch, written out", lambda: data.batch(rows), inputs + 12 * X[:BATCH].nnz),
        HotPath("first layer", lambda: batch @ weight.bfloat16(), inputs + weights + outputs, flops),
        HotPath(
            "its gradient",
            lambda: torch.mm(batch.mT, gradient).to(torch.float32),
            inputs + weights + outputs,
            flops,
        ),
    ]


def head(network: Network, device: torch.device) -> list[HotPath]:
    """The layer from hidden units to codes, with what is done to each hidden unit and each output."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    each = kind.itemsize
    encoder: Any = network.encoder
    weight = network.head.output.weight.detach()  # (2 dim, hidden)
    hidden = torch.randn(BATCH, HIDDEN, device=device).to(kind)
    gradient = torch.randn(BATCH, 2 * DIM, device=device).to(kind)
    units, outputs, weights = BATCH * HIDDEN, BATCH * 2 * DIM, 4 * weight.numel()
    flops = 2.0 * BATCH * HIDDEN * 2 * DIM
    moved = each * (units + outputs) + weights

    def activation() -> Any:
        return encoder.dropout(rectified(hidden, encoder.leak))

    return [
        HotPath("ReLU and dropout", activation, 2 * each * units, recorded=False),
        HotPath("head", lambda: hidden @ weight.to(kind).mT, moved, flops),
        HotPath("head, gradient of its input", lambda: gradient @ weight.to(kind), moved, flops),
        HotPath(
            "head, gradient of its weight", lambda: torch.mm(gradient.mT, hidden).to(torch.float32), moved, flops
        ),
    ]


def loss_and_optimizer(network: Network, optimizer: Optimizer, Y: Any, device: torch.device) -> list[HotPath]:
    """From the head's output to the loss and back, and the optimizer's pass over all weights."""
    book = network.codebook
    assert isinstance(book, SpectralCodebook)
    labels = label_sets(Y[:BATCH]).to(device)
    output = torch.randn(BATCH, 2 * DIM, device=device, requires_grad=True)
    weights = list(network.scorer.parameters())

    def loss() -> Any:
        return torch.autograd.grad(network.loss(output, labels), [output, *weights])

    # The transform writes scores, which are read for the loss and for its gradient; the gradient goes into the
    # transform back. Coefficients go into the one and come out of the other, as many numbers as scores.
    numbers = BATCH * book.length
    n_weights = sum(parameter.numel() for parameter in network.parameters())
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return [
        HotPath("loss and its gradient", loss, 28 * numbers, 2 * fft_flops(numbers, book.length), "fft"),
        # Reads the weight, the gradient and two moments; writes all except the gradient.
        HotPath("optimizer", optimizer.step, 28 * n_weights),
    ]


# Decoding


def real_series(spectrum: Tensor, length: int) -> Any:
    """Values of series, by SciPy on a CPU, as circlet computes them."""
    if spectrum.device.type != "cpu":
        return torch.fft.irfft(spectrum, n=length, norm="forward")
    return irfft(spectrum.numpy(), n=length, norm="forward", workers=torch.get_num_threads())


def paired_parts(series: PairedSeries, phasors: Tensor) -> list[HotPath]:
    """The parts of ranking on a GPU, whose two parts per complex transform surpass the ceiling of real ones."""
    from circlet.kernels.triton import best

    room, offsets = series.room(len(phasors)), series.offsets(None)
    scores, numbers = series(phasors, room), len(phasors) * series.length
    moved = 4 * numbers + offsets.nbytes + series.labels.nbytes
    rank = partial(best, scores, offsets, series.labels, K)
    return [
        HotPath("coefficients", lambda: series.coefficients(phasors, room), 4 * numbers, recorded=False),
        HotPath("transform", lambda: series.transform(room), 8 * numbers, 0.0, "fft", recorded=False),
        HotPath("bias of each label and ten best", rank, moved, recorded=False),
    ]


def plain_parts(series: Series, phasors: Tensor) -> list[HotPath]:
    """The parts of ranking on a CPU."""
    given, offsets, numbers = phasors.numpy(), series.offsets(None), len(phasors) * series.length
    coefficients = series.coefficients(given)
    scores, flops = series.values(coefficients), fft_flops(numbers, series.part)
    rank = partial(arrays.best_columns, scores, K, series.labels)
    return [
        HotPath("coefficients", lambda: series.coefficients(given), 4 * given.size, recorded=False),
        HotPath("transform", lambda: series.values(coefficients), 8 * numbers, flops, "fft", recorded=False),
        HotPath("bias of each label", lambda: np.add(scores, offsets), 8 * numbers, recorded=False),
        HotPath("ten best", rank, 4 * numbers, recorded=False),
    ]


def decoding(device: torch.device, limits: dict[str, dict[str, Any]], n_labels: int) -> dict[str, Any]:
    """Measure how long it takes to find the ten best of a million labels, and the parts of it."""
    rows = ROWS[device.type]
    book = SpectralCodebook(n_labels, DIM, seed=0)
    phasors = torch.nn.functional.normalize(torch.randn(rows, 2 * DIM, device=device), dim=1) * math.sqrt(DIM)
    book.top_k(phasors[:1], K)
    if run_on(device):
        paired = book.series_on(device)
        assert isinstance(paired, PairedSeries)
        part, parts = phasors, paired_parts(paired, phasors)
    else:
        part = phasors[:32].cpu()
        parts = plain_parts(book.series_on(None), part)
    paths = [judged(path, limits, device) for path in parts]
    whole = seconds_of(lambda: book.top_k(phasors, K), device, recorded=False)
    return {
        "labels": n_labels,
        "slots": book.length,
        "dim": DIM,
        "rows": rows,
        "rows_of_parts": len(part),
        "parts_of_series": book.series_on(device if run_on(device) else None).parts,
        "fft_floor_ms": 1e3 * 8 * rows * book.length / limits["copy"]["value"],
        "ms": 1e3 * statistics.median(whole),
        "times_ms": [round(1e3 * t, 5) for t in whole],
        "paths": paths,
    }


if __name__ == "__main__":
    main()
