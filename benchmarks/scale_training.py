"""What a step costs as features grow, by rows and over the whole weight, and what training on raw titles costs.

    python benchmarks/scale_training.py [--titles FOLDER] --out benchmarks/results

Each side of a comparison has its own process, because both together would not fit in memory, and the sides take
turns. FOLDER is yso-finna-en, by name or path: its raw titles are written as JSONL, and the command line does the
rest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from circlet import files
from circlet.data import Dataset, load_dataset
from circlet.data.records import Record, write_records
from circlet.features.rows import Scaling
from circlet.network import Network, NetworkSettings
from circlet.network.encoders import SparseRows, label_sets
from circlet.provenance import provenance
from circlet.report import Table
from circlet.settings import TrainingSettings
from circlet.training.optimizers import make_optimizer
from circlet.training.steps import learn
from circlet_paper.synthetic import make_multilabel

SIZES = (10**4, 10**5, 10**6)
BATCH, STEPS, TURNS = 256, 6, 3
# By default glibc takes fresh pages for every large tensor and returns them after the step, and the system fills
# them with zeros each time. With these settings it keeps them.
KEEP_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(1 << 28), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--titles", help="yso-finna-en, by name or path")
    parser.add_argument(
        "--largest", type=int, default=SIZES[-1], help="largest number of features, a million by default"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--side", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(one_side(*options.side)))
        return
    files.prepare_folder(options.out)
    result: dict[str, Any] = {
        "benchmark": "scale_training",
        "provenance": {**provenance(), "seed": 0, "load": os.getloadavg()},
        "step_as_features_grow": {f"{size:,}": both(size) for size in SIZES if size <= options.largest},
    }
    if options.titles:
        result["titles"] = from_titles(load_dataset(options.titles))
    files.write_json(options.out / "scale_training.json", result)
    text = page(result)
    files.write_text(options.out / "scale_training.md", text)
    print(text)


def both(n_features: int) -> dict[str, dict[str, float]]:
    """Measure both sides in turns; the medians."""
    turns: dict[str, list[dict[str, float]]] = {"by rows": [], "whole weight": []}
    for _ in range(TURNS):
        for name, found in turns.items():
            command = [sys.executable, __file__, "--side", str(n_features), str(int(name == "by rows"))]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {
        name: {key: statistics.median(turn[key] for turn in found) for key in found[0]}
        for name, found in turns.items()
    }


def one_side(n_features: int, by_rows: int) -> dict[str, float]:
    """Milliseconds of a step with h = 1,024, and peak memory in megabytes."""
    data = make_multilabel(BATCH * STEPS, n_features, 3000, seed=0).train
    X = Scaling("sqrt").fit(data.X).transform(data.X)
    network = Network(NetworkSettings(loss="cosine"), n_features, 3000, sparse=True)
    network.train()
    network.seed_noise(0)
    optimizer = make_optimizer(network, TrainingSettings(), torch.device("cpu"))
    times, touched = [], []
    for rows in np.split(np.arange(BATCH * STEPS), STEPS):
        batch = SparseRows.for_training(X[rows], by_rows=bool(by_rows))
        labels = label_sets(data.Y[rows])
        start = time.perf_counter()
        learn(network, optimizer, batch, labels)
        times.append(time.perf_counter() - start)
        assert batch.by_columns is not None
        touched.append(len(batch.by_columns.touched))
    encoder: Any = network.encoder
    # The first step makes the optimizer's state.
    return {
        "step_ms": 1e3 * statistics.median(times[1:]),
        "peak_megabytes": peak_megabytes(),
        "weight_megabytes": 4e-6 * encoder.hidden[0].weight.numel(),
        "rows_touched": statistics.mean(touched),
    }


def peak_megabytes() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def from_titles(dataset: Dataset) -> dict[str, Any]:
    """Train and evaluate a model on the titles alone, with the command line."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, model = Path(scratch) / "titles", Path(scratch) / "model"
        folder.mkdir()
        names = np.array(dataset.label_names, dtype=object)
        for name, split in (("train", dataset.train), ("test", dataset.test)):
            assert split is not None
            assert split.texts is not None
            starts, ids = split.Y.indptr, split.Y.indices
            records = (
                Record(row, text, tuple(names[ids[starts[row] : starts[row + 1]]]))
                for row, text in enumerate(split.texts)
            )
            write_records(folder / f"{name}.jsonl", records, "jsonl")
        train = measured(["train", str(folder), "--model", str(model), "--json"])
        judged = measured(["evaluate", str(model), str(folder), "--json"])
    trained = train.pop("printed")
    judged["printed"].pop("model")  # a folder that no longer exists
    return {
        "train": {
            **train,
            "history": trained["history"],
            "n_features": trained["n_features"],
            "decided": trained["training"]["decided"],
        },
        "model_megabytes": trained["bytes"] / 1e6,
        "evaluate": judged,
    }


def measured(arguments: list[str]) -> dict[str, Any]:
    """Seconds, processor seconds and peak megabytes of a command, and the JSON that it prints."""
    load, start = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryFile("w+") as printed:
        command = [sys.executable, "-m", "circlet", *arguments]
        process = subprocess.Popen(command, stdout=printed, env={**os.environ, **KEEP_PAGES})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"circlet {arguments[0]} ended with exit status {process.returncode}")
        printed.seek(0)
        found = json.load(printed)
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_megabytes": round(usage.ru_maxrss / 1024),
        "load_before_and_after": [load, os.getloadavg()[0]],
        "printed": found,
    }


def page(result: dict[str, Any]) -> str:
    """The whole page."""
    return "\n".join(["# Training as features grow\n", *(table.markdown() for table in tables(result))])


def tables(result: dict[str, Any]) -> list[Table]:
    rows = []
    for size, sides in result["step_as_features_grow"].items():
        ours, whole = sides["by rows"], sides["whole weight"]
        rows.append(
            (
                size,
                f"{ours['rows_touched']:,.0f}",
                f"{whole['step_ms']:.0f}",
                f"{ours['step_ms']:.0f}",
                f"{whole['step_ms'] / ours['step_ms']:.1f}×",
                f"{whole['peak_megabytes']:,.0f}",
                f"{ours['peak_megabytes']:,.0f}",
            )
        )
    command = f"`{result['provenance']['command']}` on {result['provenance']['machine']['processor']}."
    head = ("features", "touched", "ms, whole", "ms, by rows", "ratio", "MB, whole", "MB, by rows")
    made = [Table(f"A step of {BATCH} documents, h = 1,024, as features grow", head, rows, command)]
    if "titles" in result:
        titles = result["titles"]
        made.append(
            Table(
                "From raw titles to a model",
                ("", "seconds", "processor seconds", "peak MB"),
                [
                    (
                        what,
                        titles[what]["seconds"],
                        titles[what]["processor_seconds"],
                        titles[what]["peak_megabytes"],
                    )
                    for what in ("train", "evaluate")
                ],
                f"{titles['evaluate']['printed']['documents']:,} test documents: P@1, P@3 and P@5 "
                + ", ".join(f"{100 * titles['evaluate']['printed'][f'P@{k}']:.1f}" for k in (1, 3, 5))
                + f"; {titles['train']['n_features']:,} features, a model of {titles['model_megabytes']:.0f} MB. "
                + "The defaults decided: "
                + ", ".join(f"{each['setting']} {each['value']}" for each in titles["train"]["decided"])
                + f"; the C library was set to keep freed memory ({', '.join(KEEP_PAGES)})"
                + ". The goal was 20 minutes and 3 GB on two cores.",
            )
        )
    return made


if __name__ == "__main__":
    main()
