"""What several processes gain, and what they exchange: training by one and by two processes on this machine.

Documents are synthetic, in two sizes: those of EURLex-4K, and with many more features, of which a batch touches
few. Every measurement is a run of its own, and they take turns. The bytes of larger models on more processes are
worked out by the formula that `docs/distributed.md` explains; what more GPUs gain, from these bytes and a step
measured by `limits.py` on one.

    python benchmarks/distributed.py [--out benchmarks/results]     two to three minutes on two cores
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from circlet import files
from circlet.features import Scaling
from circlet.network import Network, NetworkSettings
from circlet.provenance import provenance
from circlet.report import Table
from circlet.settings import TrainingSettings
from circlet.training import Reporter, train
from circlet.training.distributed import World, join_processes
from circlet_paper.synthetic import make_multilabel

#: The page whose tables are made from the result.
DOCS = Path(__file__).resolve().parents[1] / "docs/distributed.md"
REPETITIONS = 3
#: Documents per step, of all processes together.
BATCHES = (128, 1024)
#: Processes and the threads of each.
WAYS = {"1 process × 1 thread": (1, 1), "1 process × 2 threads": (1, 2), "2 processes × 1 thread": (2, 1)}


class Size(NamedTuple):
    """A dataset and a network."""

    documents: int
    features: int
    words: int
    labels: int
    hidden: int
    first_layer: str
    dim: int = 800

    @property
    def dense(self) -> int:
        """Numbers of all gradients but that of the weights that multiply features."""
        return self.hidden + (self.hidden + 1) * 2 * self.dim + self.labels + 1


#: What is measured here.
MEASURED = {
    "EURLex-4K's sizes": Size(4000, 5000, 200, 4000, 1024, "sgd"),
    "many features": Size(4000, 200_000, 50, 4000, 1024, "same"),
}
#: What is only worked out: EURLex-4K with the default hidden layer, and a million labels.
PLANNED = {
    "EURLex-4K": Size(15_449, 5000, 237, 3956, 2048, "sgd"),
    "a million labels": Size(10_000_000, 1_000_000, 100, 1_000_000, 1024, "same"),
}
#: Bytes per second of a link of 400 Gbit/s.
LINK = 50e9
#: Processes and documents of each in a step.
PLAN = ((2, 256), (8, 256), (64, 256))
#: The only step that was measured on a GPU: with the first of the sizes that are measured here.
ON_GPU, STEP = "EURLex-4K's sizes", DOCS.parents[1] / "benchmarks/results/limits-cuda.json"
#: How many GPUs take it together.
GPUS = (1, 2, 8, 64)


def touched(size: Size, documents: int) -> int:
    """How many features so many documents have, if the r-th of them occurs as often as Zipf's law says."""
    ranks = np.arange(1, size.features + 1)
    low, high = 0.0, float(size.features)
    for _ in range(60):  # of frequencies min(1, c / r), those that add up to the words of a document
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(1, c / ranks).sum() < size.words else (low, c)
    return round(float((1 - (1 - np.minimum(1, low / ranks)) ** documents).sum()))


def exchanged(size: Size, processes: int, documents: int) -> dict[str, float]:
    """Bytes that each process sends in a step, if each has so many documents, around a ring."""
    ring = 2 * (processes - 1) / processes  # an all-reduce; in an all-gather, each passes on all parts but one
    rows = touched(size, processes * documents)
    of_documents = (processes - 1) * documents * (4 * size.hidden + 12 * size.words)
    by_sum = processes * documents >= 2 * size.features  # as `circlet.training.steps.learn` decides
    return {
        "dense": ring * 4 * size.dense,
        "first layer": ring * 4 * size.features * size.hidden if by_sum else of_documents,
        "rows": rows,
        "as rows": ring * 4 * rows * size.hidden,
    }


def gained(step: dict[str, Any]) -> list[dict[str, float]]:
    """What so many GPUs do in a second at most, if each computes a measured step and then exchanges."""
    found, parts = [], {part["name"]: part["ms"] for part in step["paths"]}
    # Several processes cannot record their steps, and then the first layer multiplies sparse rows.
    sparse = sum(part["ms"] for part in step["beside"]) - parts["first layer"] - parts["its gradient"]
    for n in GPUS:
        compute = step["ms"] + (sparse if n > 1 else 0.0)
        sent = exchanged(MEASURED[ON_GPU], n, step["batch"])
        exchange = 1e3 * (sent["dense"] + sent["first layer"]) / LINK
        found.append(
            {
                "processes": n,
                "documents": step["batch"],
                "compute_ms": compute,
                "exchange_ms": exchange,
                "documents_per_second": 1e3 * n * step["batch"] / (compute + exchange),
                "gain": n * step["ms"] / (compute + exchange),
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--worker", choices=list(MEASURED), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(MEASURED[options.worker])
        return
    found: dict[str, dict[str, list[Any]]] = {name: {way: [] for way in WAYS} for name in MEASURED}
    for _ in range(REPETITIONS):
        for name, ways in found.items():
            for way, runs in ways.items():
                runs.append(measured(name, *WAYS[way]))
                speeds = ", ".join(f"{each['documents_per_second']:,}" for each in runs[-1].values())
                print(f"{name}, {way}: {speeds} documents/s", flush=True)
    result = {
        "benchmark": "distributed",
        "provenance": {**provenance(), "seed": 0},
        "sizes": {name: size._asdict() for name, size in {**MEASURED, **PLANNED}.items()},
        "measured": found,
        "planned": {
            name: [{"processes": n, "documents": each, **exchanged(size, n, each)} for n, each in PLAN]
            for name, size in PLANNED.items()
        },
        "gained": gained(json.loads(STEP.read_text(encoding="utf-8"))["step"]),
    }
    files.write_json(options.out / "distributed.json", result)
    files.write_text(options.out / "distributed.md", page_of(result))
    if options.out.resolve() == DOCS.parents[1] / "benchmarks/results":
        files.write_text(DOCS, filled(DOCS.read_text(encoding="utf-8"), result))
    print(page_of(result))


def measured(name: str, processes: int, threads: int) -> dict[str, dict[str, float]]:
    """What `work` prints, for each batch."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words = [*(launch if processes > 1 else []), __file__, "--worker", name]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


class Epochs(Reporter):
    """Keeps what the last epoch was, and what it exchanged."""

    def __init__(self, world: World) -> None:
        self.world, self.before = world, (0, 0.0)
        self.last: dict[str, float] = {}

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        self.before, self.steps = (self.world.sent, self.world.seconds), n_steps

    def record(self, record: dict[str, Any]) -> None:
        self.last = {
            "documents_per_second": record["documents_per_second"],
            "bytes_per_step": (self.world.sent - self.before[0]) / self.steps,
            "exchange_share": (self.world.seconds - self.before[1]) / record["seconds"],
        }


def work(size: Size) -> None:
    """Train on this machine, alone or as one of several processes; the first one prints what it measured."""
    split = make_multilabel(size.documents, size.features, size.labels, seed=0, words_per_row=size.words).train
    X, found = Scaling("sqrt").fit(split.X).transform(split.X), {}
    with join_processes("cpu") as (world, device):
        for batch in BATCHES:
            network = Network(
                NetworkSettings(hidden=(size.hidden,), dim=size.dim, dropout=0.5),
                size.features,
                size.labels,
                sparse=True,
            )
            settings = TrainingSettings(epochs=2, batch_size=batch, first_layer=size.first_layer, lr=1e-4)
            reporter = Epochs(world)
            train(network, X, split.Y, settings, device=device, reporter=reporter, world=world)
            found[str(batch)] = reporter.last
        if world.is_first:
            print(json.dumps(found))


def page_of(result: dict[str, Any]) -> str:
    """The page of a result."""
    made = result["provenance"]
    return (
        "# Training by several processes\n\n"
        f"{speeds_of(result).markdown()}\n"
        f"{plan_of(result)}\n"
        f"`{made['command']}`, on {made['machine']['processor']} with {made['machine']['cores']} cores; "
        f"torch {made['versions']['torch']}.\n"
    )


def filled(page: str, result: dict[str, Any]) -> str:
    """The text of `DOCS` with the tables of a result."""
    for name, tables in (("speeds", speeds_of(result).markdown()), ("plan", plan_of(result))):
        head, rest = page.split(f"<!-- {name} -->\n")
        page = f"{head}<!-- {name} -->\n{tables}<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


def speeds_of(result: dict[str, Any]) -> Table:
    """Documents per second, and what was exchanged."""

    def median(name: str, way: str, batch: int, what: str) -> float:
        return float(statistics.median(run[str(batch)][what] for run in result["measured"][name][way]))

    (alone, _, together), rows = WAYS, []
    for name in result["measured"]:
        for batch in BATCHES:
            speeds = {way: median(name, way, batch, "documents_per_second") for way in WAYS}
            gain = f"{speeds[together] / speeds[alone]:.2f}×"
            sent = f"{median(name, together, batch, 'bytes_per_step') / 1e6:.1f}"
            share = f"{median(name, together, batch, 'exchange_share'):.0%}"
            rows.append((name, batch, *(f"{each:,.0f}" for each in speeds.values()), gain, sent, share))
    note = (
        f"Documents per second in the second epoch, medians of {REPETITIONS} runs that took turns. The batch is "
        "that of all processes together. MB: what each of two processes has for the other in a step; share: of "
        "its time, that it spent on exchanges, waiting included."
    )
    columns = ("", "batch", *WAYS, "gain over 1 × 1", "MB per step", "share")
    return Table("Training by one and by two processes on one machine", columns, rows, note)


def plan_of(result: dict[str, Any]) -> str:
    """The tables of more processes than there are here."""
    return f"{bytes_of(result).markdown()}\n{gains_of(result).markdown()}"


def bytes_of(result: dict[str, Any]) -> Table:
    """Bytes per step."""
    rows = [
        (
            name,
            each["processes"],
            f"{each['processes'] * each['documents']:,}",
            *(f"{each[part] / 1e6:,.1f}" for part in ("dense", "first layer")),
            f"{1e3 * (each['dense'] + each['first layer']) / LINK:.2f}",
            f"{each['rows']:,}",
            f"{each['as rows'] / 1e6:,.1f}",
        )
        for name, plans in result["planned"].items()
        for each in plans
    ]
    columns = (
        *("", "processes", "documents per step", "MB dense", "MB first layer", f"ms at {LINK / 1e9:.0f} GB/s"),
        *("rows touched", "MB as rows"),
    )
    note = (
        "Worked out, not measured: MB that each process sends in a step, with 256 documents each, all hidden "
        "units kept, and words as frequent as Zipf's law says. As rows: if the gradient of the first layer itself "
        "were exchanged, in those rows that the batch has touched."
    )
    return Table("What a step exchanges", columns, rows, note)


def gains_of(result: dict[str, Any]) -> Table:
    """Documents per second of several GPUs."""
    rows = [
        (
            f"{each['processes']}",
            f"{each['processes'] * each['documents']:,}",
            f"{each['compute_ms']:.2f}",
            f"{each['exchange_ms']:.2f}",
            f"{each['documents_per_second'] / 1e6:.1f}",
            f"{each['gain']:.1f}×",
            f"{each['gain'] / each['processes']:.0%}",
        )
        for each in result["gained"]
    ]
    columns = (
        *("GPUs", "documents per step", "ms compute", f"ms exchange at {LINK / 1e9:.0f} GB/s"),
        *("million documents/s", "gain over one GPU", "of the ideal"),
    )
    size, (alone, several, *_) = Size(**result["sizes"][ON_GPU]), result["gained"]
    note = (
        f"Worked out, not measured. One NVIDIA H200 computes {alone['documents']:,} documents with "
        f"{size.features:,} features, a hidden layer of {size.hidden:,}, d = {size.dim} and {size.labels:,} "
        f"labels in {alone['compute_ms']:.2f} ms: that was measured. Steps of several processes are not "
        "recorded, so their first layer multiplies sparse rows; with its time, measured beside that step, it "
        f"takes {several['compute_ms']:.2f} ms. Computing and exchanging do not overlap. The gains are upper "
        "bounds: launching kernels is not counted, nor that each process sums the first layer's gradient of the "
        "whole batch. No step of the networks above was measured on a GPU, so there is no such table for them, "
        "nor for 256 documents: the optimizer, a fifth of the measured step, takes as long for them as for 1,024."
    )
    return Table("What more GPUs gain", columns, rows, note)


if __name__ == "__main__":
    main()
