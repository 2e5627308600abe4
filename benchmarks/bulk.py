"""Tagging with two workers against one process, and what that would make of clusters.

    python benchmarks/bulk.py [--out benchmarks/results] [--ray-python PYTHON]

All commands tag the same documents, the texts of `pydocs` several times over, take turns, and are checked to write
the same labels. Times are those of whole commands: starting processes or Ray, and loading the model, are part of
them. A Python that has the extra `ray` can be named; without one, Ray is left out.
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

from circlet import files
from circlet.data import load_dataset
from circlet.provenance import provenance
from circlet.report import Table

ROUNDS = 3
DOCUMENTS = 100_000
GOAL = 1.7
ONE, THREADS, PROCESSES, RAY = "one process, one thread", "one process, its default threads", "processes", "ray"
#: Cores of the clusters that the projection is for, and documents to tag.
CORES, TO_TAG = (16, 128, 1024), 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--ray-python", default=sys.executable, help="a Python with circlet[ray]")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    options = parser.parse_args()
    files.prepare_folder(options.out)
    versions = installed(options.ray_python)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_documents(folder / "docs.jsonl", options.documents)
        train = ["train", "pydocs", "--model", str(folder / "model"), "--preset", "fast", "--epochs", "1"]
        subprocess.run([sys.executable, "-m", "circlet", *train], check=True, stderr=subprocess.DEVNULL)
        seconds = measured(folder, options.ray_python, with_ray="ray" in versions)
    result: dict[str, Any] = {
        "benchmark": "bulk",
        "provenance": {**provenance(), "seed": 0},
        "ray_versions": versions,
        "documents": options.documents,
        "bytes": size,
        "seconds": seconds,
    }
    files.write_json(options.out / "bulk.json", result)
    page = page_of(result)
    files.write_text(options.out / "bulk.md", page)
    print(page)


def installed(python: str) -> dict[str, str]:
    """The versions of Ray and of what it runs on, if it is there."""
    code = "import platform, ray; print(ray.__version__, platform.python_version())"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return dict(zip(("ray", "python"), done.stdout.split(), strict=True)) if done.returncode == 0 else {}


def write_documents(path: Path, n: int) -> int:
    """Write the texts of pydocs again and again, with ids; gives the bytes."""
    texts = load_dataset("pydocs").train.texts
    assert texts is not None
    with path.open("w", encoding="utf-8") as stream:
        for row in range(n):
            stream.write(json.dumps({"id": row, "text": texts[row % len(texts)]}) + "\n")
    return path.stat().st_size


def measured(folder: Path, ray_python: str, *, with_ray: bool) -> dict[str, list[float]]:
    """Seconds of each way, round by round."""
    one = [sys.executable, "--output", str(folder / "alone.jsonl")]
    many = ["--output", str(folder / "out"), "--workers", "2", "--block-size", "2MB", "--engine"]
    ways = {
        ONE: [*one, "--threads", "1"],
        THREADS: one,
        PROCESSES: [sys.executable, *many, "processes"],
        **({RAY: [ray_python, *many, "ray"]} if with_ray else {}),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    wanted: set[str] = set()
    for _ in range(ROUNDS):
        for way, (python, *words) in ways.items():
            command = [
                python,
                "-m",
                "circlet",
                "predict",
                str(folder / "model"),
                str(folder / "docs.jsonl"),
                *words,
            ]
            began = time.perf_counter()
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env=environment)
            seconds[way].append(time.perf_counter() - began)
            wanted.add(written(folder))
            print(f"{way}: {seconds[way][-1]:.1f} s", flush=True)
    if len(wanted) != 1:
        raise SystemExit("found different labels; wanted the same from every way")
    return seconds


def written(folder: Path) -> str:
    """The digest of the labels, which are taken away."""
    parts = sorted(folder.glob("out/part-*")) or [folder / "alone.jsonl"]
    joined = folder / "joined"
    with joined.open("wb") as stream:
        for part in parts:
            stream.write(part.read_bytes())
            part.unlink()
    (folder / "out" / "_plan.json").unlink(missing_ok=True)
    return files.sha256(joined)


def page_of(result: dict[str, Any]) -> str:
    """What was measured, and what follows from it by arithmetic."""
    median = {way: statistics.median(each) for way, each in result["seconds"].items()}
    speed = {way: result["documents"] / each for way, each in median.items()}
    rows = []
    for way, each in speed.items():
        ratio = each / speed[ONE]
        goal = way in (PROCESSES, RAY)
        verdict = ("reached" if ratio >= GOAL else "missed") if goal else None
        name = f"`--engine {way}`, 2 workers" if goal else way
        rows.append((name, f"{each:,.0f}", f"{ratio:.2f}×", f"{GOAL}×" if goal else None, verdict))
    cores, length = result["provenance"]["machine"]["cores"], result["bytes"] / result["documents"]
    note = (
        f"Medians of {ROUNDS} rounds in which all took turns, on {cores} cores; {result['documents']:,} documents "
        f"of {length:.0f} bytes on average; whole commands, start included. All wrote the same labels."
    )
    if RAY not in speed:
        note += " Ray was not installed."
    columns = ("", "documents/s", "÷ one process", "goal", "verdict")
    measured_table = Table("Two workers against one process", columns, rows, note)
    core = speed[PROCESSES] / 2
    projected = [(f"{n:,}", f"{core * n:,.0f}", f"{TO_TAG / (core * n) / 3600:,.1f}") for n in CORES]
    projection = Table(
        "A projection for clusters",
        ("cores", "documents/s", f"hours for {TO_TAG:,} documents"),
        projected,
        f"Not measured: {core:,.0f} documents/s per core, half of what two processes did here, times the cores. "
        "It holds as long as disks and network keep up, since workers share nothing else.",
    )
    return f"# Bulk tagging\n\n{measured_table.markdown()}\n{projection.markdown()}"


if __name__ == "__main__":
    main()
