"""Tagging with two workers against one process, and what that would make of clusters.

    python benchmarks/bulk.py [--out benchmarks/results]

All commands tag the same documents, the texts of `pydocs` several times over, take turns, and are checked to write
the same labels. Each tags a few documents and many: what the others add is documents per second, and the rest is
starting, which no longer matters where there are billions. Without the extra `ray`, Ray is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from circlet import files
from circlet.data import load_dataset
from circlet.provenance import provenance
from circlet.report import Table

CIRCLET = [sys.executable, "-m", "circlet"]
ROUNDS = 3
FEW, MANY = 5_000, 85_000
GOAL = 1.7
ONE, THREADS, PROCESSES, RAY = "one process, one thread", "one process, its default threads", "processes", "ray"
#: Cores of the clusters that the projection is for, and documents to tag.
CORES, TO_TAG = (16, 128, 1024), 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    files.prepare_folder(options.out)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = [write_documents(folder / f"{n}.jsonl", n) for n in (FEW, MANY)][-1]
        train = ["train", "pydocs", "--model", str(folder / "model"), "--preset", "fast", "--epochs", "1"]
        subprocess.run([*CIRCLET, *train], check=True, stderr=subprocess.DEVNULL)
        seconds, agreement = measured(folder)
    result: dict[str, Any] = {
        "benchmark": "bulk",
        "provenance": {**provenance(packages=("ray",)), "seed": 0},
        "documents": [FEW, MANY],
        "bytes": size,
        "seconds": seconds,
        "same_labels": agreement,
    }
    files.write_json(options.out / "bulk.json", result)
    page = page_of(result)
    files.write_text(options.out / "bulk.md", page)
    print(page)


def write_documents(path: Path, n: int) -> int:
    """Write the texts of pydocs again and again, with ids; gives the bytes."""
    texts = load_dataset("pydocs").train.texts
    assert texts is not None
    with path.open("w", encoding="utf-8") as stream:
        for row in range(n):
            stream.write(json.dumps({"id": row, "text": texts[row % len(texts)]}) + "\n")
    return path.stat().st_size


def measured(folder: Path) -> tuple[dict[str, dict[str, list[float]]], dict[str, float]]:
    """Seconds of each way by the number of documents, and the share of documents with the first way's labels."""
    one = ["--output", str(folder / "alone.jsonl")]
    many = ["--output", str(folder / "out"), "--workers", "2", "--block-size", "1MB", "--engine"]
    ways = {
        ONE: [*one, "--threads", "1"],
        THREADS: one,
        PROCESSES: [*many, "processes"],
        **({RAY: [*many, "ray"]} if find_spec("ray") else {}),
    }
    seconds: dict[str, dict[str, list[float]]] = {way: {str(FEW): [], str(MANY): []} for way in ways}
    agreement: dict[str, float] = {}
    first: dict[int, list[str]] = {}
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    for _ in range(ROUNDS):
        for way, words in ways.items():
            for n in (FEW, MANY):
                documents = str(folder / f"{n}.jsonl")
                command = [*CIRCLET, "predict", str(folder / "model"), documents, *words]
                began = time.perf_counter()
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env=environment)
                seconds[way][str(n)].append(time.perf_counter() - began)
                print(f"{way}, {n:,} documents: {seconds[way][str(n)][-1]:.1f} s", flush=True)
                found = taken(folder)
            first = first or found
            assert found.keys() == first.keys()
            agreement[way] = sum(found[each] == first[each] for each in first) / len(first)
    return seconds, agreement


def taken(folder: Path) -> dict[int, list[str]]:
    """The labels that were written, by document; their files are removed."""
    labels = {}
    for part in sorted(folder.glob("out/part-*")) or [folder / "alone.jsonl"]:
        for line in part.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            assert row["id"] not in labels
            labels[row["id"]] = row["labels"]
        part.unlink()
    (folder / "out" / "_plan.json").unlink(missing_ok=True)
    return labels


def page_of(result: dict[str, Any]) -> str:
    """What was measured, and what follows from it by arithmetic."""
    few, many = result["documents"]
    median = {
        way: {n: statistics.median(each) for n, each in found.items()} for way, found in result["seconds"].items()
    }
    speed = {way: (many - few) / (each[str(many)] - each[str(few)]) for way, each in median.items()}
    rows = []
    for way, each in speed.items():
        ratio, of_engine = each / speed[ONE], way in (PROCESSES, RAY)
        start = max(0.0, median[way][str(few)] - few / each)
        rows.append(
            (
                f"`--engine {way}`, 2 workers" if of_engine else way,
                f"{start:.1f}",
                f"{each:,.0f}",
                f"{ratio:.2f}×",
                f"{GOAL}×" if of_engine else None,
                ("reached" if ratio >= GOAL else "missed") if of_engine else None,
            )
        )
    machine, length = result["provenance"]["machine"], result["bytes"] / many
    share = math.floor(10_000 * min(result["same_labels"].values())) / 10_000
    note = (
        f"Medians of {ROUNDS} rounds in which all took turns, on {machine['cores']} cores. The model is that of "
        f"the preset `fast` for pydocs, and a document has {length:.0f} bytes on average. Documents/s is what "
        f"{many - few:,} more of them take; starting is the rest. At least {share:.2%} of the documents have "
        "the same labels as from one process."
    )
    if RAY not in speed:
        note += " Ray was not installed."
    columns = ("", "start, s", "documents/s", "÷ one process", "goal", "verdict")
    core = speed[PROCESSES] / 2
    projection = Table(
        "A projection for clusters",
        ("cores", "documents/s", f"minutes for {TO_TAG:,} documents"),
        [(f"{n:,}", f"{core * n:,.0f}", f"{TO_TAG / (core * n) / 60:,.1f}") for n in CORES],
        f"Not measured: {core:,.0f} documents/s per core, half of what two processes did here, times the cores. "
        "It holds as long as disks and network keep up, since workers share nothing else.",
    )
    found = Table("Two workers against one process", columns, rows, note)
    return f"# Bulk tagging\n\n{found.markdown()}\n{projection.markdown()}"


if __name__ == "__main__":
    main()
